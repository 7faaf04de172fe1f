/*
 * Do the options of a tier fit together, and the tiers of a service.
 */
#include "config/check.h"

#include "config/words.h"

#include <string.h>

/* The workers' command line is made by failsoft; a second value would contradict it. */
static const char *const reserved_args[][2] = {
    {"--host", "failsoft runs the engine on a socket of its own"},
    {"--port", "failsoft runs the engine on a socket of its own"},
    {"-m", "use `model`"},
    {"--model", "use `model`"},
    {"-c", "use `context`"},
    {"--ctx-size", "use `context`"},
    {"-np", "use `slots`"},
    {"--parallel", "use `slots`"},
    {"-t", "use `threads`"},
    {"--threads", "use `threads`"},
    {"-ngl", "use `gpu_layers`"},
    {"--gpu-layers", "use `gpu_layers`"},
    {"--n-gpu-layers", "use `gpu_layers`"},
    {"-fa", "use `flash_attention` of the service"},
    {"--flash-attn", "use `flash_attention` of the service"},
    {"-ctk", "use `cache_type_k` of the service"},
    {"--cache-type-k", "use `cache_type_k` of the service"},
    {"-ctv", "use `cache_type_v` of the service"},
    {"--cache-type-v", "use `cache_type_v` of the service"},
    {"--api-key", "workers are reached by failsoft only"},
    {"--api-prefix", "workers are reached by failsoft only"},
    {"--ssl-key-file", "workers are reached by failsoft only"},
    {"--ssl-cert-file", "workers are reached by failsoft only"},
};

static struct config_mark tier_mark(const struct config_tier *t, const char *key)
{
    return load_mark(t->marks, OPTION_SCOPE_TIER, key);
}

/* Options that only make sense where failsoft runs the engine, or only where it does not. */
static void check_side(struct loader *l, const struct config_tier *t)
{
    for (size_t i = 0; i < config_option_count; i++) {
        const struct config_option *o = &config_options[i];

        if (o->scope != OPTION_SCOPE_TIER || !load_given(t->marks[i]) || load_refused(t->marks[i]))
            continue;
        if ((o->flags & OPTION_MANAGED) && !t->managed)
            config_report_error(l->report, t->marks[i],
                                "`%s` is for engines that failsoft runs; this tier has a `url`, so "
                                "somebody else does",
                                o->key);
        if ((o->flags & OPTION_EXTERNAL) && t->managed && t->engine != CONFIG_ENGINE_LLAMA_SERVER)
            config_report_error(l->report, t->marks[i],
                                "`%s: %s` needs a `url`; the engine that failsoft runs is "
                                "llama-server",
                                o->key, option_engines[t->engine]);
    }
}

static void check_reserved_args(struct loader *l, const struct config_tier *t)
{
    char quoted[WORDS_QUOTED_SIZE];

    for (size_t i = 0; i < t->args.count; i++) {
        const char *arg = t->args.items[i];
        size_t name_len = strcspn(arg, "= ");

        for (size_t j = 0; j < sizeof(reserved_args) / sizeof(reserved_args[0]); j++) {
            if (strncmp(arg, reserved_args[j][0], name_len) == 0 &&
                reserved_args[j][0][name_len] == '\0')
                config_report_error(l->report, tier_mark(t, "args"),
                                    "`args`: %s is set by failsoft: %s",
                                    words_quote(arg, name_len, quoted), reserved_args[j][1]);
        }
        if (arg[0] == '-' && arg[name_len] == ' ')
            config_report_warning(l->report, tier_mark(t, "args"),
                                  "`args`: %s is one argument with a space in it; write the name "
                                  "and the value as two entries",
                                  words_quote(arg, strlen(arg), quoted));
    }
}

static void check_device_of(struct loader *l, const struct config_tier *t)
{
    bool wants = t->kind == CONFIG_TIER_KIND_GPU || t->kind == CONFIG_TIER_KIND_HYBRID;

    if (t->kind == CONFIG_TIER_KIND_CPU && t->device_name)
        config_report_error(l->report, tier_mark(t, "device"),
                            "a cpu tier has no device: it must work when the device does not");
    else if (t->kind == CONFIG_TIER_KIND_REMOTE && t->device_name)
        config_report_error(l->report, tier_mark(t, "device"),
                            "a remote tier uses no device of this machine");
    else if (t->managed && wants && !t->device_name && l->config->device_count == 0)
        config_report_error(l->report, t->mark,
                            "tier `%s` needs a device; define one, e.g. `devices: { gpu0: { kind: "
                            "nvidia } }`",
                            t->name);
    else if (t->managed && wants && !t->device_name)
        config_report_error(l->report, t->mark,
                            "tier `%s` needs `device`: there are %zu in `devices`", t->name,
                            l->config->device_count);
}

static void check_layers(struct loader *l, const struct config_tier *t)
{
    struct config_mark mark = tier_mark(t, "gpu_layers");

    if (load_refused(mark))
        return;
    if (t->kind == CONFIG_TIER_KIND_CPU && t->gpu_layers != 0)
        config_report_error(l->report, mark,
                            "a cpu tier has no layers on a device; leave "
                            "`gpu_layers` out");
    if (t->kind == CONFIG_TIER_KIND_HYBRID && !load_given(mark) && t->args.count == 0)
        config_report_error(l->report, t->mark,
                            "tier `hybrid` needs `gpu_layers`: how many layers go to the device "
                            "(or `args` that move a part elsewhere)");
}

static void check_managed(struct loader *l, const struct config_service *s,
                          const struct config_tier *t)
{
    if (t->kind == CONFIG_TIER_KIND_REMOTE) {
        config_report_error(l->report, t->mark,
                            "a remote tier needs a `url`, e.g. `url: \"http://gpu-box:8080\"`");
        return;
    }
    if (s->kind != CONFIG_SERVICE_KIND_CHAT && s->kind != CONFIG_SERVICE_KIND_EMBEDDINGS) {
        config_report_error(l->report, t->mark,
                            "tier `%s` needs a `url`: failsoft runs engines for chat and "
                            "embeddings, not for %s",
                            t->name, option_service_kinds[s->kind]);
        return;
    }
    if (t->kind == CONFIG_TIER_KIND_SUBSTITUTE && !load_given(tier_mark(t, "model")))
        config_report_error(l->report, t->mark,
                            "a substitute is another model: the tier needs `model`, the path of "
                            "its own GGUF file");
    else if (!t->model_path && !t->model && !load_refused(t->model_mark))
        config_report_error(l->report, t->mark,
                            "tier `%s` has no model: give service `%s` a `model`, or the tier a "
                            "`url`",
                            t->name, s->name);
    check_layers(l, t);
    check_reserved_args(l, t);
    /* The engine counts tokens of all slots in a signed 32-bit number. */
    if ((uint64_t)s->context_tokens * t->slots > INT32_MAX)
        config_report_error(l->report, tier_mark(t, "slots"),
                            "%u slots of %u tokens are more than an engine can count", t->slots,
                            s->context_tokens);
}

static bool points_here(const struct config *c, const struct config_tier *t)
{
    bool loopback = strcmp(t->url_host, "localhost") == 0 || strcmp(t->url_host, "::1") == 0 ||
                    strncmp(t->url_host, "127.", 4) == 0;

    if (t->url_port != c->port || c->port == 0)
        return false;
    return strcmp(t->url_host, c->host) == 0 || loopback;
}

static void check_external(struct loader *l, const struct config_tier *t)
{
    struct config_mark mark = tier_mark(t, "url");
    size_t n = strlen(t->url_prefix);

    if (points_here(l->config, t))
        config_report_error(l->report, mark, "the url points back at failsoft itself (`listen`)");
    if (n >= 3 && strcmp(t->url_prefix + n - 3, "/v1") == 0)
        config_report_warning(
            l->report, mark,
            "the url ends in /v1, which the paths of clients begin with; leave it "
            "out, or requests go to /v1/v1/…");
    if (t->kind == CONFIG_TIER_KIND_SUBSTITUTE && !load_given(tier_mark(t, "model")))
        config_report_error(l->report, t->mark,
                            "a substitute is another model: the tier needs `model`, the name that "
                            "is sent to `%s`",
                            t->url);
    if (t->model && (t->model[0] == '/' || t->model[0] == '~') && strstr(t->model, ".gguf"))
        config_report_warning(l->report, tier_mark(t, "model"),
                              "with a `url`, `model` is the name that is sent, not a file");
}

static void check_times(struct loader *l, const struct config_tier *t)
{
    struct config_mark backoff = load_mark(t->marks, OPTION_SCOPE_RESTART, "backoff");
    struct config_mark backoff_max = load_mark(t->marks, OPTION_SCOPE_RESTART, "backoff_max");
    struct config_mark hold = load_mark(t->marks, OPTION_SCOPE_AVAILABILITY, "hold");
    struct config_mark hold_max = load_mark(t->marks, OPTION_SCOPE_AVAILABILITY, "hold_max");

    if (!load_refused(backoff) && !load_refused(backoff_max) &&
        t->restart.backoff_ms > t->restart.backoff_max_ms)
        config_report_error(l->report, load_given(backoff_max) ? backoff_max : backoff,
                            "`backoff_max` is shorter than `backoff`");
    if (!load_refused(hold) && !load_refused(hold_max) &&
        t->availability.hold_ms > t->availability.hold_max_ms)
        config_report_error(l->report, load_given(hold_max) ? hold_max : hold,
                            "`hold_max` is shorter than `hold`");
}

static void check_tier(struct loader *l, const struct config_service *s,
                       const struct config_tier *t)
{
    struct config_mark name = tier_mark(t, "name");

    check_times(l, t);
    check_side(l, t);
    /* What it is, or who runs it, is not known: everything below would be a guess. */
    if (!load_given(name) || load_refused(name) || load_refused(tier_mark(t, "url")))
        return;
    check_device_of(l, t);
    if (t->managed)
        check_managed(l, s, t);
    else
        check_external(l, t);
}

static void check_pair(struct loader *l, const struct config_tier *earlier,
                       const struct config_tier *t)
{
    if (t->kind == earlier->kind)
        config_report_error(l->report, tier_mark(t, "name"),
                            "tier `%s` is given twice; a service has each tier once", t->name);
    else if (t->url && earlier->url && t->url_port == earlier->url_port &&
             strcmp(t->url_host, earlier->url_host) == 0 &&
             strcmp(t->url_prefix, earlier->url_prefix) == 0)
        config_report_warning(l->report, tier_mark(t, "url"),
                              "tiers `%s` and `%s` are the same server: when it fails, both fail",
                              earlier->name, t->name);
    else if (t->kind == CONFIG_TIER_KIND_GPU && earlier->kind == CONFIG_TIER_KIND_CPU)
        config_report_warning(
            l->report, tier_mark(t, "name"),
            "`gpu` stands after `cpu`: tiers are in order of preference, so it is "
            "used only when the CPU cannot answer");
}

void check_tiers(struct loader *l, const struct config_service *s)
{
    for (size_t i = 0; i < s->tier_count; i++) {
        const struct config_tier *t = &s->tiers[i];
        struct config_mark name = tier_mark(t, "name");

        check_tier(l, s, t);
        if (!load_given(name) || load_refused(name))
            continue;
        for (size_t j = 0; j < i; j++) {
            struct config_mark other = tier_mark(&s->tiers[j], "name");

            if (load_given(other) && !load_refused(other))
                check_pair(l, &s->tiers[j], t);
        }
    }
}
