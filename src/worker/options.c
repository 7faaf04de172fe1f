/*
 * Defaults, deep copies and comparison of worker options, and their making from a configuration.
 * Pure but for malloc; any thread.
 */
#include "worker/options.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* CPU workers are the first to go when the host runs out of memory, GPU workers next, the gateway
 * after both: it is small and holds the requests. */
enum { OOM_ABOVE_CPU = 500, OOM_ABOVE_GPU = 250 };

void worker_options_init(struct worker_options *o)
{
    *o = (struct worker_options){
        .connect_timeout_ms = 2000,
        .slots = 1,
        .gpu_layers = 0,
        .flash_attention = CONFIG_SWITCH_ON,
        .cache_ram_mib = 256,
        .device = WORKER_DEVICE_NONE,
        .oom_score_above = OOM_ABOVE_CPU,
        .stop_grace_ms = 5000,
        .backoff_ms = 500,
        .backoff_max_ms = 30000,
        .settled_ms = 60000,
        .failed_pause_ms = 60000,
        .failed_starts = 5,
        .memory_wait_ms = 15000,
        .memory_settle_ms = 5000,
        .memory_poll_ms = 250,
    };
}

bool worker_options_is_program(const struct worker_options *o)
{
    return o->url == NULL && o->command_count > 0;
}

bool worker_options_uses_socket(const struct worker_options *o)
{
    for (size_t i = 1; i < o->command_count; i++) {
        if (strstr(o->command[i], CONFIG_PLACE_SOCKET) != NULL)
            return true;
    }
    for (size_t i = 0; i < o->env_count; i++) {
        if (o->env[i].value != NULL && strstr(o->env[i].value, CONFIG_PLACE_SOCKET) != NULL)
            return true;
    }
    return false;
}

const char *worker_engine_name(enum worker_engine engine)
{
    switch (engine) {
    case WORKER_ENGINE_LLAMA_SERVER: return "llama-server";
    case WORKER_ENGINE_OLLAMA: return "ollama";
    case WORKER_ENGINE_OPENAI: return "openai";
    case WORKER_ENGINE_GENERIC: return "generic";
    case WORKER_ENGINE_UNKNOWN: break;
    }
    return "unknown";
}

static enum worker_engine engine_from_config(int engine)
{
    switch (engine) {
    case CONFIG_ENGINE_LLAMA_SERVER: return WORKER_ENGINE_LLAMA_SERVER;
    case CONFIG_ENGINE_OLLAMA: return WORKER_ENGINE_OLLAMA;
    case CONFIG_ENGINE_OPENAI: return WORKER_ENGINE_OPENAI;
    case CONFIG_ENGINE_GENERIC: return WORKER_ENGINE_GENERIC;
    default: return WORKER_ENGINE_UNKNOWN;
    }
}

static enum worker_device device_from_config(const struct config_device *device)
{
    if (device == NULL)
        return WORKER_DEVICE_NONE;
    switch (device->kind) {
    case CONFIG_DEVICE_KIND_NVIDIA: return WORKER_DEVICE_NVIDIA;
    case CONFIG_DEVICE_KIND_AMD: return WORKER_DEVICE_AMD;
    case CONFIG_DEVICE_KIND_INTEL: return WORKER_DEVICE_INTEL;
    case CONFIG_DEVICE_KIND_SIM: return WORKER_DEVICE_SIM;
    default: return WORKER_DEVICE_NONE;
    }
}

/* The same strings in an array of our own. */
static int strings_from_config(const struct config_strings *strings, const char *const **ret_items,
                               size_t *ret_count)
{
    const char **items = NULL;

    if (strings->count > 0) {
        items = calloc(strings->count, sizeof(*items));
        if (items == NULL)
            return -ENOMEM;
        for (size_t i = 0; i < strings->count; i++)
            items[i] = strings->items[i];
    }
    *ret_items = items;
    *ret_count = strings->count;
    return 0;
}

/* The two pair types have the same meaning; a copied array of pointers keeps them apart. */
static int pairs_from_config(const struct config_pairs *pairs, const struct worker_pair **ret_items,
                             size_t *ret_count)
{
    struct worker_pair *items = NULL;

    if (pairs->count > 0) {
        items = calloc(pairs->count, sizeof(*items));
        if (items == NULL)
            return -ENOMEM;
        for (size_t i = 0; i < pairs->count; i++)
            items[i] = (struct worker_pair){pairs->items[i].name, pairs->items[i].value};
    }
    *ret_items = items;
    *ret_count = pairs->count;
    return 0;
}

static void options_fill_device(struct worker_options *o, const struct config_tier *tier)
{
    o->device =
        tier->kind == CONFIG_TIER_KIND_CPU ? WORKER_DEVICE_NONE : device_from_config(tier->device);
    o->gpu_layers = o->device == WORKER_DEVICE_NONE ? 0 : tier->gpu_layers;
    if (o->device == WORKER_DEVICE_NONE)
        return;
    o->device_name = tier->device->name;
    o->device_index = tier->device->index;
    o->sim_card = tier->device->card;
    o->sim_plugin = tier->device->plugin;
    /* Where a program's weights went is not to be read off its output. */
    o->require_device = o->gpu_layers != 0 && tier->command.count == 0;
    o->oom_score_above = OOM_ABOVE_GPU;
}

int worker_options_from_config(const struct config *config, const struct config_service *service,
                               const struct config_tier *tier, struct worker_options *ret_options)
{
    struct worker_options o;
    int rc;

    worker_options_init(&o);
    o.service = service->name;
    o.tier = tier->name;
    o.url = tier->managed ? NULL : tier->url;
    o.engine = tier->managed && tier->command.count == 0 ? WORKER_ENGINE_LLAMA_SERVER
                                                         : engine_from_config(tier->engine);
    o.connect_timeout_ms = tier->connect_timeout_ms;
    o.engine_path = config->engine_path;
    o.model_path = tier->model_path;
    o.run_dir = config->runtime_dir;
    o.embeddings = service->kind == CONFIG_SERVICE_KIND_EMBEDDINGS;
    o.context_tokens = service->context_tokens;
    o.slots = tier->slots;
    o.threads = tier->threads;
    o.flash_attention = service->flash_attention;
    o.cache_type_k = service->cache_type_k;
    o.cache_type_v = service->cache_type_v;
    o.load_timeout_ms = tier->load_timeout_ms;
    o.stop_grace_ms = tier->stop_grace_ms;
    o.backoff_ms = tier->restart.backoff_ms;
    o.backoff_max_ms = tier->restart.backoff_max_ms;
    /* Longer than any back-off, and not out of proportion to what was asked for. */
    if (o.failed_pause_ms > 2 * o.backoff_max_ms)
        o.failed_pause_ms = 2 * o.backoff_max_ms;
    o.settled_ms = tier->restart.settled_ms;
    options_fill_device(&o, tier);
    if (tier->command.count > 0)
        o.cache_ram_mib = 0; /* llama-server's */
    o.health = tier->health;
    o.device_bytes = tier->memory_bytes;
    o.host_bytes = tier->host_memory_bytes;
    rc = strings_from_config(&tier->command, &o.command, &o.command_count);
    if (rc == 0)
        rc = strings_from_config(&tier->args, &o.args, &o.arg_count);
    if (rc == 0)
        rc = pairs_from_config(&service->sampling, &o.sampling, &o.sampling_count);
    if (rc == 0)
        rc = pairs_from_config(&tier->env, &o.env, &o.env_count);
    if (rc < 0) {
        worker_options_release(&o);
        return rc;
    }
    *ret_options = o;
    return 0;
}

void worker_options_release(struct worker_options *o)
{
    if (o == NULL)
        return;
    free((void *)o->command);
    free((void *)o->args);
    free((void *)o->sampling);
    free((void *)o->env);
    o->command = NULL;
    o->args = NULL;
    o->sampling = NULL;
    o->env = NULL;
    o->command_count = o->arg_count = o->sampling_count = o->env_count = 0;
}

/* --- copy: the same walk twice, first to count (base NULL), then to fill --- */

struct copier {
    char *base; /* NULL: counting */
    size_t used;
};

static void *copier_take(struct copier *c, const void *bytes, size_t n)
{
    void *to = NULL;

    c->used = (c->used + 7) & ~(size_t)7;
    if (c->base != NULL) {
        to = c->base + c->used;
        memcpy(to, bytes, n);
    }
    c->used += n;
    return to;
}

static const char *copier_string(struct copier *c, const char *s)
{
    return s ? copier_take(c, s, strlen(s) + 1) : NULL;
}

static const struct worker_pair *copier_pairs(struct copier *c, const struct worker_pair *pairs,
                                              size_t count)
{
    struct worker_pair *to;

    if (count == 0)
        return NULL;
    to = copier_take(c, pairs, count * sizeof(*pairs));
    for (size_t i = 0; i < count; i++) {
        const char *name = copier_string(c, pairs[i].name);
        const char *value = copier_string(c, pairs[i].value);

        if (to != NULL)
            to[i] = (struct worker_pair){name, value};
    }
    return to;
}

static const char *const *copier_strings(struct copier *c, const char *const *strings, size_t count)
{
    const char **to;

    if (count == 0)
        return NULL;
    to = copier_take(c, strings, count * sizeof(*strings));
    for (size_t i = 0; i < count; i++) {
        const char *text = copier_string(c, strings[i]);

        if (to != NULL)
            to[i] = text;
    }
    return to;
}

static struct worker_options *copier_walk(struct copier *c, const struct worker_options *o)
{
    struct worker_options *to = copier_take(c, o, sizeof(*o));
    struct worker_options copy = *o;

    copy.service = copier_string(c, o->service);
    copy.tier = copier_string(c, o->tier);
    copy.url = copier_string(c, o->url);
    copy.engine_path = copier_string(c, o->engine_path);
    copy.model_path = copier_string(c, o->model_path);
    copy.run_dir = copier_string(c, o->run_dir);
    copy.cache_type_k = copier_string(c, o->cache_type_k);
    copy.cache_type_v = copier_string(c, o->cache_type_v);
    copy.device_name = copier_string(c, o->device_name);
    copy.sim_card = copier_string(c, o->sim_card);
    copy.sim_plugin = copier_string(c, o->sim_plugin);
    copy.sampling = copier_pairs(c, o->sampling, o->sampling_count);
    copy.env = copier_pairs(c, o->env, o->env_count);
    copy.command = copier_strings(c, o->command, o->command_count);
    copy.args = copier_strings(c, o->args, o->arg_count);
    copy.health = copier_string(c, o->health);
    if (to != NULL)
        *to = copy;
    return to;
}

int worker_options_copy(const struct worker_options *o, struct worker_options **ret_copy)
{
    struct copier c = {NULL, 0};

    copier_walk(&c, o);
    c.base = malloc(c.used);
    if (c.base == NULL)
        return -ENOMEM;
    c.used = 0;
    *ret_copy = copier_walk(&c, o);
    return 0;
}

void worker_options_free(struct worker_options *copy)
{
    free(copy);
}

/* --- comparison --- */

static bool same_string(const char *a, const char *b)
{
    return a == b || (a != NULL && b != NULL && strcmp(a, b) == 0);
}

static bool same_pairs(const struct worker_pair *a, size_t a_count, const struct worker_pair *b,
                       size_t b_count)
{
    if (a_count != b_count)
        return false;
    for (size_t i = 0; i < a_count; i++) {
        if (!same_string(a[i].name, b[i].name) || !same_string(a[i].value, b[i].value))
            return false;
    }
    return true;
}

static bool same_strings(const char *const *a, size_t a_count, const char *const *b, size_t b_count)
{
    if (a_count != b_count)
        return false;
    for (size_t i = 0; i < a_count; i++) {
        if (!same_string(a[i], b[i]))
            return false;
    }
    return true;
}

static bool same_program(const struct worker_options *a, const struct worker_options *b)
{
    return same_strings(a->command, a->command_count, b->command, b->command_count) &&
           same_string(a->health, b->health) && a->device_bytes == b->device_bytes &&
           a->host_bytes == b->host_bytes;
}

static bool same_engine_settings(const struct worker_options *a, const struct worker_options *b)
{
    return a->embeddings == b->embeddings && a->context_tokens == b->context_tokens &&
           a->slots == b->slots && a->threads == b->threads && a->gpu_layers == b->gpu_layers &&
           a->flash_attention == b->flash_attention &&
           same_string(a->cache_type_k, b->cache_type_k) &&
           same_string(a->cache_type_v, b->cache_type_v) && a->cache_ram_mib == b->cache_ram_mib &&
           a->device == b->device && a->device_index == b->device_index &&
           same_string(a->device_name, b->device_name) && same_string(a->sim_card, b->sim_card) &&
           same_string(a->sim_plugin, b->sim_plugin) && a->require_device == b->require_device &&
           same_pairs(a->sampling, a->sampling_count, b->sampling, b->sampling_count) &&
           same_strings(a->args, a->arg_count, b->args, b->arg_count) && same_program(a, b) &&
           same_pairs(a->env, a->env_count, b->env, b->env_count);
}

static bool same_supervision(const struct worker_options *a, const struct worker_options *b)
{
    return a->oom_score_above == b->oom_score_above && a->load_timeout_ms == b->load_timeout_ms &&
           a->stop_grace_ms == b->stop_grace_ms && a->backoff_ms == b->backoff_ms &&
           a->backoff_max_ms == b->backoff_max_ms && a->settled_ms == b->settled_ms &&
           a->failed_pause_ms == b->failed_pause_ms && a->failed_starts == b->failed_starts &&
           a->memory_wait_ms == b->memory_wait_ms && a->memory_settle_ms == b->memory_settle_ms &&
           a->memory_poll_ms == b->memory_poll_ms;
}

bool worker_options_equal(const struct worker_options *a, const struct worker_options *b)
{
    if (!same_string(a->service, b->service) || !same_string(a->tier, b->tier) ||
        !same_string(a->url, b->url) || a->connect_timeout_ms != b->connect_timeout_ms ||
        a->engine != b->engine)
        return false;
    if (a->url != NULL)
        return true; /* nothing else matters to an external worker */
    return same_string(a->engine_path, b->engine_path) &&
           same_string(a->model_path, b->model_path) && same_string(a->run_dir, b->run_dir) &&
           same_engine_settings(a, b) && same_supervision(a, b);
}
