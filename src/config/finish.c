/*
 * Defaults that follow from other options: the tiers of a service that names none, devices by name,
 * who runs the engine, time-outs by kind of tier, model files. Runs on partly refused input, too,
 * so it concludes nothing from a field whose value was refused.
 */
#include "config/load_internal.h"

#include "config/words.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum {
    FAST_FIRST_EVENT_MS = 60 * 1000,
    SLOW_FIRST_EVENT_MS = 600 * 1000, /* a long prompt on a CPU */
    FAST_STALL_MS = 60 * 1000,
    SLOW_STALL_MS = 180 * 1000,
    CHAT_CONTEXT_TOKENS = 4096,
};

static bool has_engine_kind(const struct config_service *s)
{
    return s->kind == CONFIG_SERVICE_KIND_CHAT || s->kind == CONFIG_SERVICE_KIND_EMBEDDINGS;
}

/* No `tiers` at all: gpu on the first device when there is one, then cpu. */
static int make_tiers(struct loader *l, struct config_service *s)
{
    struct config *c = l->config;
    size_t n = 0;

    if (load_given(load_mark(s->marks, OPTION_SCOPE_SERVICE, "tiers")) || !s->model_path ||
        !has_engine_kind(s))
        return 0;
    s->tiers = arena_alloc(l->arena, 2, sizeof(*s->tiers));
    if (!s->tiers)
        return -ENOMEM;
    if (c->device_count > 0) {
        s->tiers[n].kind = CONFIG_TIER_KIND_GPU;
        s->tiers[n++].device_name = c->devices[0].name;
    }
    s->tiers[n++].kind = CONFIG_TIER_KIND_CPU;
    for (size_t i = 0; i < n; i++) {
        struct config_tier *t = &s->tiers[i];
        int kind = t->kind;
        struct config_mark *marks = load_marks_new(l);

        if (!marks || load_defaults(l, OPTION_SCOPE_TIER, t) < 0)
            return -ENOMEM;
        t->kind = kind;
        t->mark = s->mark;
        t->marks = marks;
        /* The name counts as given: this tier is complete. */
        marks[option_index(option_find(OPTION_SCOPE_TIER, "name"))] = s->mark;
    }
    s->tier_count = n;
    return 0;
}

static int finish_device(struct loader *l, struct config_device *d)
{
    (void)l;
    if (!d->card)
        d->card = d->name;
    return 0;
}

static const struct config_device *find_device(const struct config *c, const char *name)
{
    for (size_t i = 0; i < c->device_count; i++) {
        if (strcmp(c->devices[i].name, name) == 0)
            return &c->devices[i];
    }
    return NULL;
}

struct device_walk {
    const struct config *config;
    size_t next;
};

static const char *device_next(void *ctx)
{
    struct device_walk *walk = ctx;

    return walk->next < walk->config->device_count ? walk->config->devices[walk->next++].name
                                                   : NULL;
}

static void report_unknown_device(struct loader *l, const struct config_tier *t)
{
    struct config_mark mark = load_mark(t->marks, OPTION_SCOPE_TIER, "device");
    struct device_walk walk = {l->config, 0};
    const char *meant = words_suggest(t->device_name, device_next, &walk);
    char quoted[WORDS_QUOTED_SIZE];
    char known[256] = "none is defined";
    size_t used = 0;

    for (size_t i = 0; i < l->config->device_count && used < sizeof(known); i++)
        used += (size_t)snprintf(known + used, sizeof(known) - used, "%s%s",
                                 i ? ", " : "defined: ", l->config->devices[i].name);
    words_quote(t->device_name, strlen(t->device_name), quoted);
    config_report_error(l->report, mark, "device %s is not in `devices`; %s%s%s%s", quoted, known,
                        meant ? "; did you mean `" : "", meant ? meant : "", meant ? "`?" : "");
}

static void finish_tier_device(struct loader *l, struct config_tier *t)
{
    const struct config *c = l->config;
    bool wants = t->kind == CONFIG_TIER_KIND_GPU || t->kind == CONFIG_TIER_KIND_HYBRID;

    if (t->device_name) {
        t->device = find_device(c, t->device_name);
        if (!t->device)
            report_unknown_device(l, t);
    } else if (t->managed && wants && c->device_count == 1) {
        t->device = &c->devices[0];
        t->device_name = c->devices[0].name;
    }
}

/* Run by failsoft, and not llama-server. */
static bool is_program(const struct config_tier *t)
{
    return t->managed && load_given(load_mark(t->marks, OPTION_SCOPE_TIER, "command"));
}

/* The program of a tier: a path is relative to the file, a bare name is for PATH. */
static int finish_tier_command(struct loader *l, const struct config_service *s,
                               struct config_tier *t)
{
    struct config_mark mark = load_mark(t->marks, OPTION_SCOPE_TIER, "command");
    const char *program = t->command.count > 0 ? t->command.items[0] : "";
    char quoted[WORDS_QUOTED_SIZE];
    char why[VALUE_WHY_SIZE];
    int r;

    if (t->engine == CONFIG_ENGINE_AUTO)
        t->engine =
            s->kind == CONFIG_SERVICE_KIND_GENERIC ? CONFIG_ENGINE_GENERIC : CONFIG_ENGINE_OPENAI;
    if (!strchr(program, '/') && program[0] != '~')
        return 0;
    r = value_expand_path(&l->place, program, &t->command.items[0], why);
    if (r == -EINVAL) {
        config_report_error(l->report, mark, "`command`: %s %s",
                            words_quote(program, strlen(program), quoted), why);
        return 0;
    }
    return r;
}

static int finish_tier_model(struct loader *l, const struct config_service *s,
                             struct config_tier *t)
{
    struct config_mark mark = load_mark(t->marks, OPTION_SCOPE_TIER, "model");
    char quoted[WORDS_QUOTED_SIZE];
    char why[VALUE_WHY_SIZE];
    int r;

    t->model_mark = mark;
    if (!t->managed || is_program(t))
        return 0;
    if (!t->model) {
        t->model_path = s->model_path;
        t->model_mark = s->model_mark;
        return 0;
    }
    r = value_expand_path(&l->place, t->model, &t->model_path, why);
    if (r == -EINVAL) {
        config_report_error(l->report, mark, "`model`: %s %s",
                            words_quote(t->model, strlen(t->model), quoted), why);
        return 0;
    }
    t->model = NULL;
    t->model_path_own = true;
    return r;
}

static int finish_tier(struct loader *l, const struct config_service *s, struct config_tier *t)
{
    bool slow = t->kind == CONFIG_TIER_KIND_CPU || t->kind == CONFIG_TIER_KIND_SUBSTITUTE;

    t->name = arena_copy(l->arena, option_tier_names[t->kind], strlen(option_tier_names[t->kind]));
    if (!t->name)
        return -ENOMEM;
    t->managed = !load_given(load_mark(t->marks, OPTION_SCOPE_TIER, "url"));
    finish_tier_device(l, t);
    if (is_program(t)) {
        int r = finish_tier_command(l, s, t);

        if (r < 0)
            return r;
    } else if (t->managed && t->engine == CONFIG_ENGINE_AUTO) {
        t->engine = CONFIG_ENGINE_LLAMA_SERVER;
    }
    if (!load_given(load_mark(t->marks, OPTION_SCOPE_TIER, "gpu_layers")))
        t->gpu_layers = t->device && t->kind != CONFIG_TIER_KIND_CPU ? -1 : 0;
    if (t->slots == 0 && t->managed)
        t->slots = 1;
    if (t->first_event_timeout_ms == 0)
        t->first_event_timeout_ms = slow ? SLOW_FIRST_EVENT_MS : FAST_FIRST_EVENT_MS;
    if (t->stall_timeout_ms == 0)
        t->stall_timeout_ms = slow ? SLOW_STALL_MS : FAST_STALL_MS;
    return finish_tier_model(l, s, t);
}

static int finish_service(struct loader *l, struct config_service *s)
{
    int r;

    s->model_mark = load_mark(s->marks, OPTION_SCOPE_SERVICE, "model");
    s->sampling_given = load_given(load_mark(s->marks, OPTION_SCOPE_SERVICE, "sampling"));
    s->context_given = load_given(load_mark(s->marks, OPTION_SCOPE_SERVICE, "context"));
    if (!s->context_given && s->kind == CONFIG_SERVICE_KIND_CHAT)
        s->context_tokens = CHAT_CONTEXT_TOKENS;
    if (s->kind == CONFIG_SERVICE_KIND_CHAT) {
        r = load_sampling_defaults(l, &s->sampling);
        if (r < 0)
            return r;
    }
    r = make_tiers(l, s);
    for (size_t i = 0; r == 0 && i < s->tier_count; i++)
        r = finish_tier(l, s, &s->tiers[i]);
    return r;
}

int load_finish(struct loader *l)
{
    struct config *c = l->config;
    int r = 0;

    for (size_t i = 0; r == 0 && i < c->device_count; i++)
        r = finish_device(l, &c->devices[i]);
    for (size_t i = 0; r == 0 && i < c->service_count; i++)
        r = finish_service(l, &c->services[i]);
    return r;
}
