/*
 * From a tier of the configuration to the settings of an estimate: the counterpart of
 * worker/command.c, which makes the command line from the same options.
 */
#include "worker/plan_settings.h"

#include "base/units.h"
#include "model/gguf_type.h"

#include <string.h>

enum {
    SIM_ALIGNMENT_BYTES = 64, /* of the simulated card's buffers */
    DEVICE_ALIGNMENT_BYTES = 128,
};

/* Measured: what a process takes on the host beside its model, its libraries included, and what it
 * keeps of each token of the vocabulary; see docs/modules/model.md. */
static const uint64_t host_process_bytes = 24u << 20;
static const uint32_t host_token_bytes = 160;
/* What a driver takes on the device for a process that uses it; to be replaced by what is seen. */
static const uint64_t device_context_bytes = 512u << 20;

void plan_settings_look_at_cpu(struct estimate_settings *s)
{
#if defined(__x86_64__)
    s->repack = __builtin_cpu_supports("avx2") != 0;
    s->avx512 = s->repack && __builtin_cpu_supports("avx512f") != 0;
#else
    s->repack = true;
#endif
}

static enum estimate_switch switch_of(int value)
{
    if (value == CONFIG_SWITCH_OFF)
        return ESTIMATE_SWITCH_OFF;
    return value == CONFIG_SWITCH_AUTO ? ESTIMATE_SWITCH_AUTO : ESTIMATE_SWITCH_ON;
}

static uint32_t cache_type(const char *name)
{
    const struct gguf_type *t = gguf_type_find_name(name != NULL ? name : "f16");

    return t != NULL ? t->id : (uint32_t)GGUF_TYPE_F32;
}

void plan_settings_from_tier(const struct config_service *service, const struct config_tier *tier,
                             struct estimate_settings *ret)
{
    struct estimate_settings s;
    bool sim = tier->device != NULL && tier->device->kind == CONFIG_DEVICE_KIND_SIM;

    estimate_settings_init(&s);
    plan_settings_look_at_cpu(&s);
    s.context_tokens = service->context_tokens;
    s.slots = tier->slots;
    s.device = tier->device != NULL && tier->kind != CONFIG_TIER_KIND_CPU;
    s.gpu_layers = s.device ? tier->gpu_layers : 0;
    s.flash_attention = switch_of(service->flash_attention);
    s.cache_type_k = cache_type(service->cache_type_k);
    s.cache_type_v = cache_type(service->cache_type_v);
    s.host_fixed_bytes = host_process_bytes;
    s.host_token_bytes = host_token_bytes;
    if (s.device) {
        s.device_alignment = sim ? SIM_ALIGNMENT_BYTES : DEVICE_ALIGNMENT_BYTES;
        s.device_fixed_bytes = sim ? 0 : device_context_bytes;
        /* A real device has host buffers of its own, which come before the CPU's reordered ones. */
        s.repack = s.repack && sim;
    }
    if (service->kind == CONFIG_SERVICE_KIND_EMBEDDINGS)
        estimate_settings_embeddings(&s);
    *ret = s;
}

enum effect {
    EFFECT_BATCH = 0,
    EFFECT_MICRO_BATCH,
    EFFECT_UNIFIED,
    EFFECT_DIVIDED,
    EFFECT_EXPERTS_ON_HOST,
    EFFECT_CACHE_ON_HOST,
    EFFECT_NO_MAPPING,
    EFFECT_NO_REPACK,
    EFFECT_NO_OFFLOAD,
    EFFECT_PROJECTOR,
    EFFECT_DRAFT,
    EFFECT_UNKNOWN, /* changes the memory, and how is not counted */
};

static const struct {
    const char *name;
    enum effect effect;
} known_args[] = {
    {"-b", EFFECT_BATCH},
    {"--batch-size", EFFECT_BATCH},
    {"-ub", EFFECT_MICRO_BATCH},
    {"--ubatch-size", EFFECT_MICRO_BATCH},
    {"-kvu", EFFECT_UNIFIED},
    {"--kv-unified", EFFECT_UNIFIED},
    {"-no-kvu", EFFECT_DIVIDED},
    {"--no-kv-unified", EFFECT_DIVIDED},
    {"-cmoe", EFFECT_EXPERTS_ON_HOST},
    {"--cpu-moe", EFFECT_EXPERTS_ON_HOST},
    {"-nkvo", EFFECT_CACHE_ON_HOST},
    {"--no-kv-offload", EFFECT_CACHE_ON_HOST},
    {"--no-mmap", EFFECT_NO_MAPPING},
    {"-nr", EFFECT_NO_REPACK},
    {"--no-repack", EFFECT_NO_REPACK},
    {"--no-op-offload", EFFECT_NO_OFFLOAD},
    {"-mm", EFFECT_PROJECTOR},
    {"--mmproj", EFFECT_PROJECTOR},
    {"-md", EFFECT_DRAFT},
    {"--model-draft", EFFECT_DRAFT},
    {"-ncmoe", EFFECT_UNKNOWN},
    {"--n-cpu-moe", EFFECT_UNKNOWN},
    {"-ot", EFFECT_UNKNOWN},
    {"--override-tensor", EFFECT_UNKNOWN},
    {"--lora", EFFECT_UNKNOWN},
    {"--lora-scaled", EFFECT_UNKNOWN},
    {"--control-vector", EFFECT_UNKNOWN},
    {"-ts", EFFECT_UNKNOWN},
    {"--tensor-split", EFFECT_UNKNOWN},
    {"-sm", EFFECT_UNKNOWN},
    {"--split-mode", EFFECT_UNKNOWN},
    {"--swa-full", EFFECT_UNKNOWN},
};

static uint32_t number_of(const char *text, uint32_t otherwise)
{
    uint64_t number;

    if (text == NULL || units_parse_u64(text, &number) < 0 || number == 0 || number > UINT32_MAX)
        return otherwise;
    return (uint32_t)number;
}

static void apply(enum effect effect, const char *value, struct estimate_settings *s,
                  const char **ret_projector, const char **ret_draft)
{
    switch (effect) {
    case EFFECT_BATCH: s->batch = number_of(value, s->batch); break;
    case EFFECT_MICRO_BATCH: s->micro_batch = number_of(value, s->micro_batch); break;
    case EFFECT_UNIFIED: s->unified = true; break;
    case EFFECT_DIVIDED: s->unified = false; break;
    case EFFECT_EXPERTS_ON_HOST: s->experts_on_host = true; break;
    case EFFECT_CACHE_ON_HOST: s->cache_on_host = true; break;
    case EFFECT_NO_MAPPING: s->mapped = false; break;
    case EFFECT_NO_REPACK: s->repack = false; break;
    case EFFECT_NO_OFFLOAD: s->offload_rows = 0; break;
    case EFFECT_PROJECTOR: *ret_projector = value; break;
    case EFFECT_DRAFT: *ret_draft = value; break;
    case EFFECT_UNKNOWN: break;
    }
}

bool plan_settings_apply_args(const struct config_strings *args, struct estimate_settings *s,
                              const char **ret_projector, const char **ret_draft,
                              const char **ret_unknown)
{
    bool good = true;

    for (size_t i = 0; i < args->count; i++) {
        const char *arg = args->items[i];
        size_t len = strcspn(arg, "=");
        const char *value = arg[len] == '='       ? arg + len + 1
                            : i + 1 < args->count ? args->items[i + 1]
                                                  : NULL;

        for (size_t j = 0; j < sizeof(known_args) / sizeof(known_args[0]); j++) {
            if (strlen(known_args[j].name) != len || strncmp(known_args[j].name, arg, len) != 0)
                continue;
            apply(known_args[j].effect, value, s, ret_projector, ret_draft);
            if (known_args[j].effect == EFFECT_UNKNOWN) {
                *ret_unknown = arg;
                good = false;
            }
        }
    }
    return good;
}
