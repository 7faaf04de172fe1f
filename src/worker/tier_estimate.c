/*
 * What a worker of a tier takes before it runs. See tier_estimate.h.
 */
#include "worker/tier_estimate.h"

#include "base/units.h"
#include "worker/fingerprint.h"
#include "worker/options.h"
#include "worker/plan_settings.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* So much longer a context shows what a token costs; a multiple of every padding. */
enum { SLOPE_TOKENS = 4096 };

enum { MIB_SHIFT = 20 };

struct tier_model {
    const struct tier_source *source;
    struct gguf_file files[TIER_FILES];
    struct model_facts facts[TIER_FILES];
    bool have[TIER_FILES];
    uint64_t model_hash, engine_hash;
};

static int copy_text(const char *from, char **to)
{
    *to = from != NULL ? strdup(from) : NULL;
    return from != NULL && *to == NULL ? -ENOMEM : 0;
}

/* The last of the two arguments counts for the engine; see worker/command.c. */
static uint64_t cache_cap(const struct worker_options *o)
{
    uint64_t mib = o->embeddings ? 0 : o->cache_ram_mib;

    for (size_t i = 0; i + 1 < o->arg_count; i++) {
        uint64_t given;

        if ((strcmp(o->args[i], "--cache-ram") == 0 || strcmp(o->args[i], "-cram") == 0) &&
            units_parse_u64(o->args[i + 1], &given) == 0)
            mib = given;
    }
    return mib < UINT64_MAX >> MIB_SHIFT ? mib << MIB_SHIFT : UINT64_MAX;
}

static int read_cache_cap(const struct config *config, const struct config_service *service,
                          const struct config_tier *tier, uint64_t *ret)
{
    struct worker_options o;
    int r = worker_options_from_config(config, service, tier, &o);

    if (r < 0)
        return r;
    *ret = tier->command.count > 0 ? 0 : cache_cap(&o);
    worker_options_release(&o);
    return 0;
}

int tier_source_init(const struct config *config, const struct config_service *service,
                     const struct config_tier *tier, struct tier_source *ret)
{
    bool program = tier->command.count > 0;
    const char *paths[TIER_FILES] = {program ? NULL : tier->model_path};
    const char *unknown = NULL;
    struct tier_source s = {.declared = program};
    int r;

    if (!tier->managed || (!program && tier->model_path == NULL))
        return -ENOENT;
    plan_settings_from_tier(service, tier, &s.settings);
    if (program) {
        s.device_bytes = tier->memory_bytes;
        s.host_bytes = tier->host_memory_bytes;
    } else {
        (void)plan_settings_apply_args(&tier->args, &s.settings, &paths[1], &paths[2], &unknown);
    }
    snprintf(s.unknown, sizeof(s.unknown), "%s", unknown != NULL ? unknown : "");
    s.settings_hash = fingerprint_settings(&s.settings, tier);
    r = read_cache_cap(config, service, tier, &s.host_cache_bytes);
    if (r == 0)
        r = copy_text(program ? tier->command.items[0] : config->engine_path, &s.engine);
    for (unsigned i = 0; r == 0 && i < TIER_FILES; i++)
        r = copy_text(paths[i], &s.paths[i]);
    if (r < 0)
        tier_source_free(&s);
    else
        *ret = s;
    return r;
}

void tier_source_free(struct tier_source *s)
{
    for (unsigned i = 0; i < TIER_FILES; i++)
        free(s->paths[i]);
    free(s->engine);
    *s = (struct tier_source){0};
}

/* --- headers --- */

int tier_model_open(const struct tier_source *s, struct tier_model **ret, const char **ret_path)
{
    const struct gguf_file *files[TIER_FILES] = {NULL};
    struct tier_model *m = calloc(1, sizeof(*m));
    int r = m != NULL ? 0 : -ENOMEM;

    for (unsigned i = 0; r == 0 && i < TIER_FILES; i++) {
        if (s->paths[i] == NULL)
            continue;
        r = gguf_file_read(s->paths[i], &m->files[i]);
        if (r < 0) {
            *ret_path = s->paths[i];
            break;
        }
        m->have[i] = true;
        model_facts_read(&m->files[i], &m->facts[i]);
        files[i] = &m->files[i];
    }
    if (r < 0) {
        tier_model_free(m);
        return r;
    }
    m->source = s;
    if (s->unknown[0] != '\0' && m->have[0])
        model_facts_doubt(&m->facts[0], "what the argument `%.60s` does to memory is not counted",
                          s->unknown);
    m->model_hash = fingerprint_model(files, TIER_FILES);
    m->engine_hash = fingerprint_engine(s->engine);
    *ret = m;
    return 0;
}

void tier_model_free(struct tier_model *m)
{
    if (m == NULL)
        return;
    for (unsigned i = 0; i < TIER_FILES; i++)
        gguf_file_free(&m->files[i]);
    free(m);
}

const struct model_facts *tier_model_facts(const struct tier_model *m)
{
    return m->have[0] ? &m->facts[0] : NULL;
}

/* --- estimates --- */

static uint64_t per_token(uint64_t bytes, uint64_t more_bytes, uint64_t tokens)
{
    return tokens > 0 && more_bytes > bytes ? (more_bytes - bytes - 1) / tokens + 1 : 0;
}

/* What a token costs is the difference between two estimates: padding and windows are in it. */
static void measure_slope(const struct model_facts *facts, const struct estimate_settings *settings,
                          struct tier_estimate *ret)
{
    struct estimate *longer = malloc(sizeof(*longer));
    struct estimate_settings s = *settings;
    const struct estimate *e = &ret->estimate;
    uint64_t tokens;

    if (longer == NULL)
        return;
    s.context_means = ESTIMATE_CONTEXT_PER_SLOT;
    s.context_tokens =
        e->slot_tokens <= UINT64_MAX - SLOPE_TOKENS ? e->slot_tokens + SLOPE_TOKENS : UINT64_MAX;
    estimate_make(facts, &s, longer);
    tokens = longer->kv_tokens > e->kv_tokens ? longer->kv_tokens - e->kv_tokens : 0;
    ret->device_bytes_per_token =
        per_token(e->device_total.upper_bytes, longer->device_total.upper_bytes, tokens);
    ret->host_bytes_per_token =
        per_token(e->host_total.upper_bytes, longer->host_total.upper_bytes, tokens);
    free(longer);
}

/* Engines allocate each part in one buffer, or in several where the device wants them smaller. */
static uint64_t largest_part(const struct estimate *e)
{
    uint64_t largest = 0;

    for (int i = 0; i < ESTIMATE_PART_COUNT; i++) {
        if (i != ESTIMATE_RUNTIME && e->device[i].upper_bytes > largest)
            largest = e->device[i].upper_bytes;
    }
    return largest;
}

static void declared_estimate(const struct tier_source *s, struct tier_estimate *ret)
{
    struct estimate *e = &ret->estimate;

    e->device_total = (struct estimate_bytes){s->device_bytes, s->device_bytes};
    e->host_total = (struct estimate_bytes){s->host_bytes, s->host_bytes};
    e->confidence = ESTIMATE_CONFIDENCE_MEDIUM;
    snprintf(e->reasons[0], sizeof(e->reasons[0]), "as the configuration declares it");
    e->reason_count = 1;
}

void tier_model_estimate(const struct tier_model *m, const struct estimate_settings *settings,
                         struct tier_estimate *ret)
{
    const struct tier_source *source = m->source;
    struct estimate_settings s = settings != NULL ? *settings : source->settings;
    struct estimate *e = &ret->estimate;

    memset(ret, 0, sizeof(*ret));
    ret->declared = source->declared;
    ret->model_hash = m->model_hash;
    ret->settings_hash = source->settings_hash;
    ret->engine_hash = m->engine_hash;
    ret->settings = s;
    ret->settings.projector = ret->settings.draft = NULL;
    if (!m->have[0]) {
        declared_estimate(source, ret);
        return;
    }
    s.projector = m->have[1] ? &m->facts[1] : NULL;
    s.draft = m->have[2] ? &m->facts[2] : NULL;
    estimate_make(&m->facts[0], &s, e);
    measure_slope(&m->facts[0], &s, ret);
    ret->floor_bytes = e->device[ESTIMATE_WEIGHTS].bytes + e->device[ESTIMATE_CACHE].bytes +
                       e->device[ESTIMATE_STATE].bytes;
    if (ret->floor_bytes < e->device[ESTIMATE_WEIGHTS].bytes ||
        ret->floor_bytes > e->device_total.upper_bytes)
        ret->floor_bytes = e->device_total.upper_bytes;
    ret->largest_bytes = largest_part(e);
}

int tier_estimate_read(const struct tier_source *s, struct tier_estimate *ret)
{
    const char *path;
    struct tier_model *m;
    int r = tier_model_open(s, &m, &path);

    if (r < 0)
        return r;
    for (unsigned i = 0; i < TIER_FILES; i++) {
        if (m->have[i] && !m->files[i].usable)
            r = -EBADMSG;
    }
    if (r == 0)
        tier_model_estimate(m, NULL, ret);
    tier_model_free(m);
    return r;
}
