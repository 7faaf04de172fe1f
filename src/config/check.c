/*
 * Do the parts fit together: names, devices, services and what they need. Tiers are in
 * check_tier.c. Reports every contradiction where the wrong word stands.
 */
#include "config/check.h"

#include "config/words.h"

#include <ctype.h>
#include <string.h>

static void check_listen(struct loader *l)
{
    const struct config *c = l->config;
    struct config_mark mark = load_mark(c->marks, OPTION_SCOPE_ROOT, "listen");

    if (!load_given(mark) || load_refused(mark))
        return;
    if (strncmp(c->host, "127.", 4) != 0 && strcmp(c->host, "::1") != 0)
        config_report_warning(l->report, mark,
                              "everyone who can reach `%s` can use the services: failsoft asks for "
                              "no password",
                              c->host);
}

static void check_limits(struct loader *l)
{
    const struct config *c = l->config;
    struct config_mark mark = load_mark(c->marks, OPTION_SCOPE_LIMITS, "body");

    if (load_given(mark) && !load_refused(mark) && c->limits.body_bytes < (32u << 20))
        config_report_warning(l->report, mark,
                              "a body limit under 32MiB refuses chats with a few pictures");
}

/* A name that goes into file names and environment variables. */
static bool is_short_name(const char *name)
{
    size_t len = strlen(name);

    if (len == 0 || len > 32 || name[0] == '.' || name[0] == '-')
        return false;
    for (const char *p = name; *p; p++) {
        if (!isalnum((unsigned char)*p) && *p != '.' && *p != '_' && *p != '-')
            return false;
    }
    return true;
}

static bool is_model_name(const char *name)
{
    size_t len = strlen(name);

    if (len == 0 || len > 128)
        return false;
    for (const char *p = name; *p; p++) {
        if (*p <= 0x20 || *p >= 0x7f || *p == '"' || *p == '\\')
            return false;
    }
    return true;
}

static void check_device_name(struct loader *l, const struct config_device *d)
{
    char quoted[WORDS_QUOTED_SIZE];

    if (!is_short_name(d->name))
        config_report_error(l->report, d->mark,
                            "%s is not a name for a device; allowed: 1 to 32 letters, digits, `.`, "
                            "`_` and `-`",
                            words_quote(d->name, strlen(d->name), quoted));
    if (d->card && d->card != d->name && !is_short_name(d->card))
        config_report_error(l->report, load_mark(d->marks, OPTION_SCOPE_DEVICE, "card"),
                            "%s is not a name for a card; allowed: 1 to 32 letters, digits, `.`, "
                            "`_` and `-`",
                            words_quote(d->card, strlen(d->card), quoted));
}

static bool is_used(const struct config *c, const struct config_device *d)
{
    for (size_t i = 0; i < c->service_count; i++) {
        for (size_t j = 0; j < c->services[i].tier_count; j++) {
            if (c->services[i].tiers[j].device == d)
                return true;
        }
    }
    return false;
}

static bool same_hardware(const struct config_device *a, const struct config_device *b)
{
    if (a->kind != b->kind)
        return false;
    if (a->kind == CONFIG_DEVICE_KIND_SIM)
        return a->card && b->card && strcmp(a->card, b->card) == 0;
    return a->index == b->index;
}

static void check_device(struct loader *l, size_t position)
{
    const struct config *c = l->config;
    const struct config_device *d = &c->devices[position];
    struct config_mark kind = load_mark(d->marks, OPTION_SCOPE_DEVICE, "kind");

    check_device_name(l, d);
    if (!load_given(kind) || load_refused(kind))
        return;
    for (size_t i = 0; i < config_option_count; i++) {
        const struct config_option *o = &config_options[i];

        if (o->scope == OPTION_SCOPE_DEVICE && (o->flags & OPTION_SIM) && load_given(d->marks[i]) &&
            !load_refused(d->marks[i]) && d->kind != CONFIG_DEVICE_KIND_SIM)
            config_report_error(l->report, d->marks[i],
                                "`%s` belongs to a device of kind sim; this one is %s", o->key,
                                option_device_kinds[d->kind]);
    }
    if (d->exclusive == CONFIG_SWITCH_ON && d->memory_bytes == 0)
        config_report_error(l->report, load_mark(d->marks, OPTION_SCOPE_DEVICE, "exclusive"),
                            "`exclusive: on` needs `memory`: where the driver tells nothing, it is "
                            "what our own use is counted against");
    for (size_t i = 0; i < position; i++) {
        struct config_mark other = load_mark(c->devices[i].marks, OPTION_SCOPE_DEVICE, "kind");

        if (load_given(other) && !load_refused(other) && same_hardware(d, &c->devices[i]))
            config_report_error(l->report, d->mark,
                                "`%s` and `%s` are the same hardware: memory would be counted "
                                "twice; give them different `index` or `card`",
                                d->name, c->devices[i].name);
    }
    if (!is_used(c, d))
        config_report_warning(l->report, d->mark, "device `%s` is used by no tier", d->name);
}

/* The service before `position`, or itself before alias number `alias`, that has this name. */
static const struct config_service *find_earlier(const struct config *c, const char *name,
                                                 size_t position, size_t alias)
{
    for (size_t i = 0; i <= position; i++) {
        const struct config_service *s = &c->services[i];
        size_t aliases = i < position ? s->aliases.count : alias;

        if ((i < position || alias != SIZE_MAX) && strcmp(s->name, name) == 0)
            return s;
        for (size_t j = 0; aliases != SIZE_MAX && j < aliases; j++) {
            if (strcmp(s->aliases.items[j], name) == 0)
                return s;
        }
    }
    return NULL;
}

static void check_names(struct loader *l, size_t position)
{
    const struct config *c = l->config;
    const struct config_service *s = &c->services[position];
    struct config_mark mark = load_mark(s->marks, OPTION_SCOPE_SERVICE, "aliases");
    const struct config_service *other = find_earlier(c, s->name, position, SIZE_MAX);
    char quoted[WORDS_QUOTED_SIZE];

    if (!is_model_name(s->name))
        config_report_error(l->report, s->mark,
                            "%s is not a name for a service; allowed: 1 to 128 printable "
                            "characters without spaces, quotes and backslashes",
                            words_quote(s->name, strlen(s->name), quoted));
    if (other)
        config_report_error(l->report, s->mark, "%s is already an alias of service `%s`",
                            words_quote(s->name, strlen(s->name), quoted), other->name);
    for (size_t i = 0; i < s->aliases.count; i++) {
        const char *alias = s->aliases.items[i];

        words_quote(alias, strlen(alias), quoted);
        other = find_earlier(c, alias, position, i);
        if (!is_model_name(alias))
            config_report_error(l->report, mark, "alias %s is not a model name", quoted);
        else if (other == s)
            config_report_error(l->report, mark, "alias %s is already a name of this service",
                                quoted);
        else if (other)
            config_report_error(l->report, mark, "alias %s is already a name of service `%s`",
                                quoted, other->name);
    }
}

static bool under(const char *path, const char *prefix)
{
    size_t n = strlen(prefix);

    return strncmp(path, prefix, n) == 0 && (path[n] == '\0' || path[n] == '/');
}

static const char *path_problem(const char *path)
{
    static const char *const ours[] = {"/failsoft", "/healthz", "/readyz", "/metrics", NULL};

    if (path[0] != '/')
        return "does not begin with /";
    if (path[1] == '\0')
        return "is the whole server; write a prefix, e.g. `/predict`";
    for (const char *p = path; *p; p++) {
        if (*p <= 0x20 || *p >= 0x7f || strchr("?#\"<>\\", *p))
            return "has a character that a path may not have";
    }
    if (strstr(path, "/../") || strstr(path, "//") || path[strlen(path) - 1] == '/' ||
        (strlen(path) >= 3 && strcmp(path + strlen(path) - 3, "/..") == 0))
        return "has an empty or upward step; write it without `//`, `..` and a slash at the end";
    for (size_t i = 0; ours[i]; i++) {
        if (under(path, ours[i]))
            return "belongs to failsoft itself";
    }
    return NULL;
}

static const struct config_service *find_path(const struct config *c, const char *path,
                                              size_t position)
{
    for (size_t i = 0; i < position; i++) {
        for (size_t j = 0; j < c->services[i].paths.count; j++) {
            if (strcmp(c->services[i].paths.items[j], path) == 0)
                return &c->services[i];
        }
    }
    return NULL;
}

static void check_paths(struct loader *l, size_t position)
{
    const struct config_service *s = &l->config->services[position];
    struct config_mark mark = load_mark(s->marks, OPTION_SCOPE_SERVICE, "paths");
    char quoted[WORDS_QUOTED_SIZE];

    for (size_t i = 0; i < s->paths.count; i++) {
        const char *path = s->paths.items[i];
        const char *problem = path_problem(path);
        const struct config_service *other = find_path(l->config, path, position);

        words_quote(path, strlen(path), quoted);
        if (problem)
            config_report_error(l->report, mark, "path %s %s", quoted, problem);
        else if (other)
            config_report_error(l->report, mark, "path %s already belongs to service `%s`", quoted,
                                other->name);
    }
    if (s->kind == CONFIG_SERVICE_KIND_GENERIC && !load_given(mark))
        config_report_error(l->report, s->mark,
                            "service `%s` is generic and needs `paths`: the URL paths that belong "
                            "to it, e.g. `paths: [/predict]`",
                            s->name);
}

static void check_chat_options(struct loader *l, const struct config_service *s)
{
    struct config_mark v = load_mark(s->marks, OPTION_SCOPE_SERVICE, "cache_type_v");
    struct config_mark sampling = load_mark(s->marks, OPTION_SCOPE_SERVICE, "sampling");

    if (s->sampling_given && s->kind != CONFIG_SERVICE_KIND_CHAT)
        config_report_error(l->report, sampling, "`sampling` belongs to a service of kind chat");
    /* llama.cpp refuses it while loading ("quantized V cache requires flash_attn"). */
    if (s->flash_attention == CONFIG_SWITCH_OFF && s->cache_type_v[0] != 'f' &&
        s->cache_type_v[0] != 'b')
        config_report_error(l->report, v,
                            "`cache_type_v: %s` needs flash attention, which is off here",
                            s->cache_type_v);
}

static void check_service(struct loader *l, size_t position)
{
    struct config_service *s = &l->config->services[position];
    struct config_mark kind = load_mark(s->marks, OPTION_SCOPE_SERVICE, "kind");
    struct config_mark tiers = load_mark(s->marks, OPTION_SCOPE_SERVICE, "tiers");

    check_names(l, position);
    check_paths(l, position);
    if (load_refused(kind))
        return;
    check_chat_options(l, s);
    if (load_refused(tiers) || (!load_given(tiers) && load_refused(s->model_mark)))
        return;
    if (s->tier_count == 0 && load_given(tiers))
        config_report_error(l->report, tiers, "service `%s` has no tier: nothing can serve it",
                            s->name);
    else if (s->tier_count == 0)
        config_report_error(l->report, s->mark, "service `%s` has no `tiers`%s", s->name,
                            s->kind == CONFIG_SERVICE_KIND_CHAT ||
                                    s->kind == CONFIG_SERVICE_KIND_EMBEDDINGS
                                ? " and no `model`; one of them is needed"
                                : "; write where it runs, e.g. `tiers: [{ name: cpu, url: "
                                  "\"http://127.0.0.1:9000\" }]`");
    check_tiers(l, s);
}

void load_check(struct loader *l)
{
    const struct config *c = l->config;
    struct config_mark services = load_mark(c->marks, OPTION_SCOPE_ROOT, "services");

    check_listen(l);
    check_limits(l);
    for (size_t i = 0; i < c->device_count; i++)
        check_device(l, i);
    for (size_t i = 0; i < c->service_count; i++)
        check_service(l, i);
    if (c->service_count == 0 && load_given(services) && !load_refused(services) &&
        l->report->errors == 0)
        config_report_error(l->report, services, "`services` is empty: nothing to serve");
}
