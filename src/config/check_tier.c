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

/* Given, right or not. */
static bool has_command(const struct config_tier *t)
{
    return load_given(tier_mark(t, "command"));
}

/* Options that only make sense where failsoft runs the engine, or only where it does not. */
static void check_side(struct loader *l, const struct config_tier *t)
{
    for (size_t i = 0; i < config_option_count; i++) {
        const struct config_option *o = &config_options[i];
        struct config_mark mark = t->marks[i];

        if (o->scope != OPTION_SCOPE_TIER || !load_given(mark) || load_refused(mark))
            continue;
        if ((o->flags & OPTION_MANAGED) && !t->managed)
            config_report_error(l->report, mark,
                                "`%s` is for engines that failsoft runs; this tier has a `url`, so "
                                "somebody else does",
                                o->key);
        else if ((o->flags & OPTION_EXTERNAL) && t->managed)
            config_report_error(l->report, mark,
                                "`%s` needs a `url`: it is for servers that somebody else runs",
                                o->key);
        else if ((o->flags & OPTION_COMMAND) && !has_command(t))
            config_report_error(l->report, mark,
                                "`%s` needs a `command`: it says what a program that is not "
                                "llama-server does",
                                o->key);
        else if ((o->flags & OPTION_LLAMA) && has_command(t))
            config_report_error(l->report, mark,
                                "`%s` is for llama-server; this tier runs a `command`, which takes "
                                "its own arguments",
                                o->key);
    }
}

/* `engine` of a tier that failsoft runs. */
static void check_engine_of(struct loader *l, const struct config_tier *t)
{
    struct config_mark mark = tier_mark(t, "engine");

    if (!load_given(mark) || load_refused(mark))
        return;
    if (!has_command(t) && t->engine != CONFIG_ENGINE_LLAMA_SERVER)
        config_report_error(l->report, mark,
                            "`engine: %s` needs a `url` or a `command`; the engine that failsoft "
                            "runs is llama-server",
                            option_engines[t->engine]);
    else if (has_command(t) && t->engine != CONFIG_ENGINE_OPENAI &&
             t->engine != CONFIG_ENGINE_GENERIC)
        config_report_error(l->report, mark,
                            "`engine: %s` is not for a `command`; allowed: openai, generic",
                            option_engines[t->engine]);
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

static void check_sent_model(struct loader *l, const struct config_tier *t)
{
    if (t->model && (t->model[0] == '/' || t->model[0] == '~') && strstr(t->model, ".gguf"))
        config_report_warning(l->report, tier_mark(t, "model"),
                              "with a `%s`, `model` is the name that is sent, not a file",
                              t->managed ? "command" : "url");
}

static bool is_told(const struct config_tier *t, const char *place)
{
    for (size_t i = 1; i < t->command.count; i++) {
        if (strstr(t->command.items[i], place))
            return true;
    }
    for (size_t i = 0; i < t->env.count; i++) {
        if (strstr(t->env.items[i].value, place))
            return true;
    }
    return false;
}

static void check_command_line(struct loader *l, const struct config_tier *t)
{
    struct config_mark mark = tier_mark(t, "command");
    bool port = is_told(t, CONFIG_PLACE_PORT);
    bool socket = is_told(t, CONFIG_PLACE_SOCKET);
    char quoted[WORDS_QUOTED_SIZE];

    if (port && socket)
        config_report_error(l->report, mark,
                            "`command` has both `{port}` and `{socket}`; it listens at one place");
    else if (!port && !socket && t->command.count == 1 && strchr(t->command.items[0], ' '))
        config_report_error(l->report, mark,
                            "`command` is one entry with spaces in it; write the program and each "
                            "argument as entries of their own: no shell takes it apart");
    else if (!port && !socket)
        config_report_error(l->report, mark,
                            "`command` has no `{port}`: the program must be told where to listen, "
                            "e.g. `[PROGRAM, --port, \"{port}\"]`, or in `env`");
    for (size_t i = 1; i < t->command.count; i++) {
        const char *arg = t->command.items[i];

        if (strncmp(arg, "~/", 2) == 0)
            config_report_warning(l->report, mark,
                                  "`command`: %s is given to the program as it stands: no shell "
                                  "makes a folder of the ~",
                                  words_quote(arg, strlen(arg), quoted));
    }
}

/* Nobody can read off a program's file what it will take. */
static void check_command_memory(struct loader *l, const struct config_tier *t)
{
    struct config_mark memory = tier_mark(t, "memory");

    if (!t->device && !t->device_name && load_given(memory) && !load_refused(memory))
        config_report_error(l->report, memory,
                            "`memory` is of a device, and tier `%s` has none; of the machine it is "
                            "`host_memory`",
                            t->name);
    if (t->device && t->memory_bytes == 0 && !load_refused(memory))
        config_report_error(l->report, load_given(memory) ? memory : t->mark,
                            "tier `%s` needs `memory`: what its program takes of %s, at most, e.g. "
                            "`memory: 2GiB`; nothing is started without a figure to plan with",
                            t->name, t->device->name);
    if (t->host_memory_bytes == 0 && !load_given(tier_mark(t, "host_memory")))
        config_report_warning(l->report, t->mark,
                              "tier `%s` says no `host_memory`: what its program takes of this "
                              "machine is not planned with",
                              t->name);
}

static void check_command(struct loader *l, const struct config_tier *t)
{
    struct config_mark health = tier_mark(t, "health");
    char quoted[WORDS_QUOTED_SIZE];

    if (t->kind == CONFIG_TIER_KIND_SUBSTITUTE && !load_given(tier_mark(t, "model")))
        config_report_error(l->report, t->mark,
                            "a substitute is another model: the tier needs `model`, its name");
    if (t->health && t->health[0] != '/')
        config_report_error(l->report, health, "`health`: %s does not begin with /",
                            words_quote(t->health, strlen(t->health), quoted));
    check_sent_model(l, t);
    check_command_memory(l, t);
    if (!load_refused(tier_mark(t, "command")) && !load_refused(tier_mark(t, "env")))
        check_command_line(l, t);
}

static void check_managed(struct loader *l, const struct config_service *s,
                          const struct config_tier *t)
{
    if (t->kind == CONFIG_TIER_KIND_REMOTE) {
        config_report_error(l->report, t->mark,
                            "a remote tier needs a `url`, e.g. `url: \"http://gpu-box:8080\"`");
        return;
    }
    check_engine_of(l, t);
    if (has_command(t)) {
        check_command(l, t);
        return;
    }
    if (s->kind != CONFIG_SERVICE_KIND_CHAT && s->kind != CONFIG_SERVICE_KIND_EMBEDDINGS) {
        config_report_error(l->report, t->mark,
                            "tier `%s` needs a `url` or a `command`: llama-server is for chat and "
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
                            "`url` or a `command`",
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
    check_sent_model(l, t);
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
