/*
 * An engine's argument vector and environment, from options. Whoever reads this file knows what the
 * process is started with, and why.
 */
#include "worker/command.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A vector of owned strings; after a failed push everything later is a no-op and rc says why. */
struct vector {
    char **items;
    size_t count, capacity;
    int rc;
};

static void vector_push_owned(struct vector *v, char *text)
{
    if (text == NULL)
        v->rc = -ENOMEM;
    if (v->rc == 0 && v->count + 1 >= v->capacity) {
        size_t capacity = v->capacity ? v->capacity * 2 : 64;
        char **items = realloc(v->items, capacity * sizeof(*items));

        if (items == NULL) {
            v->rc = -ENOMEM;
        } else {
            v->items = items;
            v->capacity = capacity;
        }
    }
    if (v->rc < 0) {
        free(text);
        return;
    }
    v->items[v->count++] = text;
    v->items[v->count] = NULL;
}

static void vector_push(struct vector *v, const char *text)
{
    vector_push_owned(v, strdup(text));
}

__attribute__((format(printf, 2, 3))) static void vector_printf(struct vector *v,
                                                                const char *format, ...)
{
    char *text = NULL;
    va_list args;

    va_start(args, format);
    if (vasprintf(&text, format, args) < 0)
        text = NULL;
    va_end(args);
    vector_push_owned(v, text);
}

static void vector_free(struct vector *v)
{
    for (size_t i = 0; i < v->count; i++)
        free(v->items[i]);
    free(v->items);
}

static void push_option(struct vector *v, const char *flag, const char *value)
{
    vector_push(v, flag);
    vector_push(v, value);
}

static void push_number(struct vector *v, const char *flag, uint64_t value)
{
    vector_push(v, flag);
    vector_printf(v, "%llu", (unsigned long long)value);
}

/* JSON names of the request fields of /v1/chat/completions and /completion, and the flags that set
 * the same default when a worker starts. */
static const struct {
    const char *json_name;
    const char *flag;
} sampling_flags[] = {
    {"temperature", "--temp"},
    {"top_k", "--top-k"},
    {"top_p", "--top-p"},
    {"min_p", "--min-p"},
    {"top_n_sigma", "--top-n-sigma"},
    {"typical_p", "--typical"},
    {"xtc_probability", "--xtc-probability"},
    {"xtc_threshold", "--xtc-threshold"},
    {"repeat_last_n", "--repeat-last-n"},
    {"repeat_penalty", "--repeat-penalty"},
    {"presence_penalty", "--presence-penalty"},
    {"frequency_penalty", "--frequency-penalty"},
    {"dry_multiplier", "--dry-multiplier"},
    {"dry_base", "--dry-base"},
    {"dry_allowed_length", "--dry-allowed-length"},
    {"dry_penalty_last_n", "--dry-penalty-last-n"},
    {"dynatemp_range", "--dynatemp-range"},
    {"dynatemp_exponent", "--dynatemp-exp"},
    {"mirostat", "--mirostat"},
    {"mirostat_eta", "--mirostat-lr"},
    {"mirostat_tau", "--mirostat-ent"},
    {"seed", "--seed"},
};

const char *command_sampling_flag(const char *json_name)
{
    for (size_t i = 0; i < sizeof(sampling_flags) / sizeof(sampling_flags[0]); i++) {
        if (strcmp(sampling_flags[i].json_name, json_name) == 0)
            return sampling_flags[i].flag;
    }
    return NULL;
}

static void push_placement(struct vector *v, const struct worker_options *o)
{
    if (o->device == WORKER_DEVICE_NONE) {
        push_option(v, "--device", "none");
        push_option(v, "-ngl", "0");
    } else if (o->gpu_layers < 0) {
        push_option(v, "-ngl", "999");
    } else {
        push_number(v, "-ngl", (uint64_t)o->gpu_layers);
    }
    /* Otherwise the engine changes the placement by what it finds free. */
    push_option(v, "-fit", "off");
}

static const char *flash_attention_word(int value)
{
    if (value == CONFIG_SWITCH_OFF)
        return "off";
    return value == CONFIG_SWITCH_AUTO ? "auto" : "on";
}

static void push_batches(struct vector *v, const struct worker_options *o)
{
    if (o->embeddings) {
        /* A text to embed must fit into one physical batch. */
        uint32_t tokens = o->context_tokens > 512 ? o->context_tokens : 512;

        if (o->context_tokens == 0)
            tokens = 2048;
        /* llama-server v0.4.0 spreads a batch evenly over its slots, and aborts where it cannot. */
        uint32_t slots = o->slots > 0 ? o->slots : 1;
        uint32_t over = tokens % slots;
        if (over > 0)
            tokens += slots - over;
        push_number(v, "-b", tokens);
        push_number(v, "-ub", tokens);
        return;
    }
    /* A client that leaves during the prompt is noticed between two batches only. */
    push_option(v, "-b", "256");
    push_option(v, "-ub", "64");
}

static void push_serving(struct vector *v)
{
    /* With an open stream, TERM takes as long as the ping interval. */
    push_option(v, "--sse-ping-interval", "1");
    vector_push(v, "--no-webui");
    vector_push(v, "--slots");
    vector_push(v, "--metrics");
    vector_push(v, "--offline");
    push_option(v, "--log-colors", "off");
    /* From level 4 on the loader says what went where; a request adds some fifteen lines. */
    push_option(v, "-lv", "4");
}

/* Answers name the model by its file, not by the file's path. */
static void push_alias(struct vector *v, const char *model_path)
{
    char name[256];
    const char *slash = strrchr(model_path, '/');

    snprintf(name, sizeof(name), "%s", slash ? slash + 1 : model_path);
    char *dot = strrchr(name, '.');

    if (dot != NULL && dot != name)
        *dot = '\0';
    push_option(v, "--alias", name);
}

static void build_argv(struct vector *v, const struct worker_options *o, const char *program,
                       const char *socket_path, unsigned threads)
{
    uint32_t slots = o->slots > 0 ? o->slots : 1;

    vector_push(v, program);
    push_option(v, "--host", socket_path);
    push_option(v, "-m", o->model_path);
    push_alias(v, o->model_path);
    push_number(v, "-c", (uint64_t)o->context_tokens * slots);
    push_number(v, "-np", slots);
    push_number(v, "-t", threads);
    push_placement(v, o);
    push_option(v, "-fa", flash_attention_word(o->flash_attention));
    push_option(v, "-ctk", o->cache_type_k ? o->cache_type_k : "f16");
    push_option(v, "-ctv", o->cache_type_v ? o->cache_type_v : "f16");
    push_batches(v, o);
    /* The default cap of 8 GiB a worker stands in nobody's memory account. */
    push_number(v, "--cache-ram", o->embeddings ? 0 : o->cache_ram_mib);
    vector_push(v, "--no-context-shift");
    if (o->embeddings)
        vector_push(v, "--embeddings");
    push_serving(v);
    for (size_t i = 0; i < o->sampling_count; i++) {
        const char *flag = command_sampling_flag(o->sampling[i].name);

        if (flag != NULL)
            push_option(v, flag, o->sampling[i].value);
    }
    for (size_t i = 0; i < o->arg_count; i++)
        vector_push(v, o->args[i]);
}

/* --- environment --- */

/* Names that this file decides. Prefixes end with '*'. */
static const char *const dropped[] = {
    "LLAMA_*", /* LLAMA_ARG_… are further flags, LLAMA_API_KEY would lock us out */
    "AIP_*",   /* another platform's port and routes, taken over by llama-server */
    "GGML_BACKEND_PATH",
    "GGML_VK_VISIBLE_DEVICES",
    "CUDA_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "GPU_DEVICE_ORDINAL",
    "ZE_AFFINITY_MASK",
    "FAILSOFT_SIM_CARD",
    "GGML_NO_BACKTRACE",
};

/* What a person set for the gateway stays valid for a real GPU unless we know better. */
static const char *const kept_for_real_gpu[] = {
    "GGML_BACKEND_PATH",   "GGML_VK_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES",    "GPU_DEVICE_ORDINAL",
    "ZE_AFFINITY_MASK",
};

static bool name_matches(const char *entry, size_t name_len, const char *pattern)
{
    size_t len = strlen(pattern);

    if (pattern[len - 1] == '*')
        return name_len >= len - 1 && strncmp(entry, pattern, len - 1) == 0;
    return name_len == len && strncmp(entry, pattern, len) == 0;
}

static bool is_set_by_options(const struct worker_options *o, const char *entry, size_t name_len)
{
    for (size_t i = 0; i < o->env_count; i++) {
        if (name_matches(entry, name_len, o->env[i].name))
            return true;
    }
    return false;
}

static bool is_dropped(const struct worker_options *o, const char *entry)
{
    const char *equals = strchr(entry, '=');
    size_t name_len = equals ? (size_t)(equals - entry) : strlen(entry);
    bool real_gpu = o->device != WORKER_DEVICE_NONE && o->device != WORKER_DEVICE_SIM;

    if (is_set_by_options(o, entry, name_len))
        return true;
    if (real_gpu) {
        for (size_t i = 0; i < sizeof(kept_for_real_gpu) / sizeof(kept_for_real_gpu[0]); i++) {
            if (name_matches(entry, name_len, kept_for_real_gpu[i]))
                return false;
        }
    }
    for (size_t i = 0; i < sizeof(dropped) / sizeof(dropped[0]); i++) {
        if (name_matches(entry, name_len, dropped[i]))
            return true;
    }
    return false;
}

static bool is_present(const struct vector *v, const char *name)
{
    size_t len = strlen(name);

    for (size_t i = 0; i < v->count; i++) {
        if (strncmp(v->items[i], name, len) == 0 && v->items[i][len] == '=')
            return true;
    }
    return false;
}

static void set_env(struct vector *v, const char *name, const char *value)
{
    if (!is_present(v, name))
        vector_printf(v, "%s=%s", name, value);
}

/* An empty list hides every device from CUDA, HIP, ROCr and ggml's Vulkan backend alike. */
static void hide_real_gpus(struct vector *v)
{
    set_env(v, "CUDA_VISIBLE_DEVICES", "");
    set_env(v, "HIP_VISIBLE_DEVICES", "");
    set_env(v, "ROCR_VISIBLE_DEVICES", "");
    set_env(v, "GGML_VK_VISIBLE_DEVICES", "");
}

static void show_device(struct vector *v, const struct worker_options *o)
{
    char index[16];

    snprintf(index, sizeof(index), "%u", (unsigned)o->device_index);
    switch (o->device) {
    case WORKER_DEVICE_NONE: hide_real_gpus(v); break;
    case WORKER_DEVICE_SIM:
        hide_real_gpus(v);
        if (o->sim_plugin != NULL)
            set_env(v, "GGML_BACKEND_PATH", o->sim_plugin);
        if (o->sim_card != NULL)
            set_env(v, "FAILSOFT_SIM_CARD", o->sim_card);
        break;
    case WORKER_DEVICE_NVIDIA:
        /* nvidia-smi counts in bus order; CUDA by speed unless told. */
        set_env(v, "CUDA_DEVICE_ORDER", "PCI_BUS_ID");
        set_env(v, "CUDA_VISIBLE_DEVICES", index);
        break;
    case WORKER_DEVICE_AMD: set_env(v, "HIP_VISIBLE_DEVICES", index); break;
    case WORKER_DEVICE_INTEL: break;
    }
}

/* `name=text` (name NULL: only the text) with the places filled in. */
static void push_filled(struct vector *v, const char *name, const char *text,
                        const struct command_place *place)
{
    const size_t port_len = strlen(CONFIG_PLACE_PORT), socket_len = strlen(CONFIG_PLACE_SOCKET);
    size_t longest = (place->socket_path ? strlen(place->socket_path) : 0) + sizeof("65535");
    size_t size =
        (name ? strlen(name) + 1 : 0) + strlen(text) + (strlen(text) / port_len + 1) * longest + 1;
    char *out = calloc(1, size);
    size_t n = 0;

    if (out != NULL && name != NULL)
        n = (size_t)snprintf(out, size, "%s=", name);
    while (out != NULL && *text != '\0') {
        if (place->port != 0 && strncmp(text, CONFIG_PLACE_PORT, port_len) == 0) {
            n += (size_t)snprintf(out + n, size - n, "%u", (unsigned)place->port);
            text += port_len;
        } else if (place->socket_path != NULL &&
                   strncmp(text, CONFIG_PLACE_SOCKET, socket_len) == 0) {
            n += (size_t)snprintf(out + n, size - n, "%s", place->socket_path);
            text += socket_len;
        } else {
            out[n++] = *text++;
        }
    }
    if (out != NULL)
        out[n] = '\0';
    vector_push_owned(v, out);
}

static void build_env(struct vector *v, const struct worker_options *o,
                      const struct command_place *place, char *const *environment)
{
    /* The owner's own settings first: what is present is not set again. */
    for (size_t i = 0; i < o->env_count; i++)
        push_filled(v, o->env[i].name, o->env[i].value ? o->env[i].value : "", place);
    for (char *const *entry = environment; entry != NULL && *entry != NULL; entry++) {
        if (!is_dropped(o, *entry))
            vector_push(v, *entry);
    }
    show_device(v, o);
    /* An abort would start gdb on the dying engine and keep its memory for seconds. */
    set_env(v, "GGML_NO_BACKTRACE", "1");
}

static int finish(struct vector *argv, struct vector *env, struct command *ret_command)
{
    if (argv->rc < 0 || env->rc < 0) {
        vector_free(argv);
        vector_free(env);
        return -ENOMEM;
    }
    *ret_command = (struct command){argv->items, env->items, argv->count, env->count};
    return 0;
}

int command_build(const struct worker_options *o, const char *program, const char *socket_path,
                  unsigned threads, char *const *environment, struct command *ret_command)
{
    static const struct command_place nowhere = {.program = NULL};
    struct vector argv = {0}, env = {0};

    build_argv(&argv, o, program, socket_path, threads);
    build_env(&env, o, &nowhere, environment);
    return finish(&argv, &env, ret_command);
}

static void build_program_argv(struct vector *v, const struct worker_options *o,
                               const struct command_place *place)
{
    if (o->device == WORKER_DEVICE_SIM) {
        /* It can hold nothing of a card that is not there: a process of ours does it in its stead. */
        vector_push(v, place->wrapper);
        vector_push(v, "sim");
        vector_push(v, "hold");
        vector_push(v, o->sim_card);
        vector_push(v, "--bytes");
        vector_printf(v, "%lluB", (unsigned long long)o->device_bytes);
        vector_push(v, "--");
    }
    vector_push(v, place->program);
    for (size_t i = 1; i < o->command_count; i++)
        push_filled(v, NULL, o->command[i], place);
}

int command_build_program(const struct worker_options *o, const struct command_place *place,
                          char *const *environment, struct command *ret_command)
{
    struct vector argv = {0}, env = {0};
    struct worker_options own = *o;
    char threads[16];

    /* On a simulated card its memory is held for it, not by it. */
    own.sim_plugin = NULL;
    build_program_argv(&argv, o, place);
    build_env(&env, &own, place, environment);
    /* Counted by OpenMP, and so by most of what computes: all cores of the machine otherwise,
     * whatever the quota is (F60). */
    snprintf(threads, sizeof(threads), "%u", place->threads);
    set_env(&env, "OMP_NUM_THREADS", threads);
    return finish(&argv, &env, ret_command);
}

void command_free(struct command *c)
{
    if (c == NULL)
        return;
    for (size_t i = 0; i < c->argc; i++)
        free(c->argv[i]);
    for (size_t i = 0; i < c->envc; i++)
        free(c->envp[i]);
    free(c->argv);
    free(c->envp);
    *c = (struct command){0};
}
