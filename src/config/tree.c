/*
 * From the tree of a document to the structs of a configuration, by the option table: which keys
 * may stand where, and one value into one field.
 */
#include "config/load_internal.h"

#include "config/words.h"

#include <errno.h>
#include <string.h>

static int load_keys(struct loader *l, const struct document_node *map, enum option_scope scope,
                     void *object, struct config_mark *marks);

struct config_mark load_mark(const struct config_mark *marks, enum option_scope scope,
                             const char *key)
{
    return marks[option_index(option_find(scope, key))];
}

struct config_mark *load_marks_new(struct loader *l)
{
    return arena_alloc(l->arena, config_option_count, sizeof(struct config_mark));
}

int load_defaults(struct loader *l, enum option_scope scope, void *object)
{
    for (size_t i = 0; i < config_option_count; i++) {
        const struct config_option *o = &config_options[i];
        char why[VALUE_WHY_SIZE];
        int r = 0;

        if (o->scope != scope)
            continue;
        if (o->type == OPTION_TYPE_BLOCK)
            r = load_defaults(l, o->inner, object);
        else if (o->fallback)
            r = value_parse(&l->place, o, o->fallback, object, why);
        if (r < 0)
            return r;
    }
    return 0;
}

static bool is_nothing(const struct document_node *n)
{
    return n->kind == DOCUMENT_KIND_SCALAR && !n->quoted &&
           (n->len == 0 || strcmp(n->text, "~") == 0 || strcmp(n->text, "null") == 0);
}

static void report_unknown_key(struct loader *l, const struct document_node *key,
                               enum option_scope scope)
{
    char quoted[WORDS_QUOTED_SIZE];
    const char *meant = option_suggest(scope, key->text);
    enum option_scope home = option_find_scope(key->text);

    words_quote(key->text, key->len, quoted);
    if (strcmp(key->text, "<<") == 0)
        config_report_error(l->report, key->mark, "merge keys (%s) are not supported", quoted);
    else if (home != OPTION_SCOPE_COUNT)
        config_report_error(l->report, key->mark, "%s is not an option of %s; it belongs to %s",
                            quoted, option_scope_name(scope), option_scope_name(home));
    else if (meant)
        config_report_error(l->report, key->mark, "%s is not an option of %s; did you mean `%s`?",
                            quoted, option_scope_name(scope), meant);
    else
        config_report_error(l->report, key->mark,
                            "%s is not an option of %s; `failsoft check --help-options` lists them",
                            quoted, option_scope_name(scope));
}

static void report_kind(struct loader *l, const struct config_option *o,
                        const struct document_node *n)
{
    char allowed[192];

    value_describe(o, allowed, sizeof(allowed));
    if (is_nothing(n))
        config_report_error(l->report, n->mark, "`%s` has no value; allowed: %s", o->key, allowed);
    else
        config_report_error(l->report, n->mark, "`%s` is %s; allowed: %s", o->key,
                            document_kind_name(n->kind), allowed);
}

static int load_scalar(struct loader *l, const struct config_option *o,
                       const struct document_node *n, void *object, struct config_mark *mark)
{
    char quoted[WORDS_QUOTED_SIZE];
    char why[VALUE_WHY_SIZE];
    int r;

    r = value_parse(&l->place, o, n->text, object, why);
    if (r == -EINVAL) {
        config_report_error(l->report, n->mark, "`%s`: %s %s", o->key,
                            words_quote(n->text, n->len, quoted), why);
        mark->column = 0;
        return 0;
    }
    return r;
}

static void report_not_object(struct loader *l, const struct document_node *key,
                              const struct document_node *n, enum option_scope scope)
{
    char quoted[WORDS_QUOTED_SIZE];

    words_quote(key->text, key->len, quoted);
    config_report_error(l->report, n->mark,
                        "%s must be a map of the options of %s, e.g. `{ %s }`, not %s", quoted,
                        option_scope_name(scope),
                        scope == OPTION_SCOPE_DEVICE ? "kind: nvidia" : "model: ~/model.gguf",
                        is_nothing(n) ? "nothing" : document_kind_name(n->kind));
}

static int load_device(struct loader *l, const struct document_node *key,
                       const struct document_node *n, struct config_device *d)
{
    struct config_mark *marks = load_marks_new(l);
    int r;

    d->name = arena_copy(l->arena, key->text, key->len);
    d->mark = key->mark;
    d->marks = marks;
    if (!d->name || !marks)
        return -ENOMEM;
    r = load_defaults(l, OPTION_SCOPE_DEVICE, d);
    return r < 0 ? r : load_keys(l, n, OPTION_SCOPE_DEVICE, d, marks);
}

static int load_service(struct loader *l, const struct document_node *key,
                        const struct document_node *n, struct config_service *s)
{
    struct config_mark *marks = load_marks_new(l);
    int r;

    s->name = arena_copy(l->arena, key->text, key->len);
    s->mark = key->mark;
    s->marks = marks;
    if (!s->name || !marks)
        return -ENOMEM;
    r = load_defaults(l, OPTION_SCOPE_SERVICE, s);
    return r < 0 ? r : load_keys(l, n, OPTION_SCOPE_SERVICE, s, marks);
}

static int load_named(struct loader *l, const struct config_option *o,
                      const struct document_node *n, struct config *c)
{
    bool devices = o->inner == OPTION_SCOPE_DEVICE;

    if (devices)
        c->devices = arena_alloc(l->arena, n->count, sizeof(*c->devices));
    else
        c->services = arena_alloc(l->arena, n->count, sizeof(*c->services));
    if (devices ? !c->devices : !c->services)
        return -ENOMEM;
    for (size_t i = 0; i < n->count; i++) {
        int r;

        if (n->items[i]->kind != DOCUMENT_KIND_MAP) {
            report_not_object(l, n->keys[i], n->items[i], o->inner);
            continue;
        }
        r = devices ? load_device(l, n->keys[i], n->items[i], &c->devices[c->device_count++])
                    : load_service(l, n->keys[i], n->items[i], &c->services[c->service_count++]);
        if (r < 0)
            return r;
    }
    return 0;
}

/* One that must have entries is whole or refused: half a command is none. */
static int load_list(struct loader *l, const struct config_option *o, const struct document_node *n,
                     void *field, struct config_mark *mark)
{
    size_t before = l->report->errors;
    int r = load_texts(l, o, n, field);

    if (o->min > 0 && l->report->errors > before)
        mark->column = 0;
    return r;
}

static int load_tiers(struct loader *l, const struct document_node *n, struct config_service *s)
{
    s->tiers = arena_alloc(l->arena, n->count, sizeof(*s->tiers));
    if (!s->tiers)
        return -ENOMEM;
    for (size_t i = 0; i < n->count; i++) {
        struct config_tier *t = &s->tiers[s->tier_count];
        struct config_mark *marks;
        int r;

        if (n->items[i]->kind != DOCUMENT_KIND_MAP) {
            config_report_error(l->report, n->items[i]->mark,
                                "a tier must be a map of options, e.g. `{ name: cpu }`, not %s",
                                document_kind_name(n->items[i]->kind));
            continue;
        }
        marks = load_marks_new(l);
        if (!marks)
            return -ENOMEM;
        t->marks = marks;
        t->mark = n->items[i]->mark;
        s->tier_count++;
        if ((r = load_defaults(l, OPTION_SCOPE_TIER, t)) < 0 ||
            (r = load_keys(l, n->items[i], OPTION_SCOPE_TIER, t, marks)) < 0)
            return r;
    }
    return 0;
}

/* The kind of node that an option is written as. */
static enum document_kind wanted_kind(const struct config_option *o)
{
    switch (o->type) {
    case OPTION_TYPE_BLOCK:
    case OPTION_TYPE_NAMED:
    case OPTION_TYPE_PAIRS:
    case OPTION_TYPE_SAMPLING: return DOCUMENT_KIND_MAP;
    case OPTION_TYPE_LIST:
    case OPTION_TYPE_TEXTS: return DOCUMENT_KIND_LIST;
    default: return DOCUMENT_KIND_SCALAR;
    }
}

static int load_value(struct loader *l, const struct config_option *o,
                      const struct document_node *n, void *object, struct config_mark *marks)
{
    void *field = (char *)object + o->offset;

    marks[option_index(o)] = n->mark;
    if (n->kind != wanted_kind(o) || is_nothing(n)) {
        report_kind(l, o, n);
        marks[option_index(o)].column = 0;
        return 0;
    }
    switch (o->type) {
    case OPTION_TYPE_BLOCK: return load_keys(l, n, o->inner, object, marks);
    case OPTION_TYPE_NAMED: return load_named(l, o, n, object);
    case OPTION_TYPE_LIST: return load_tiers(l, n, object);
    case OPTION_TYPE_TEXTS: return load_list(l, o, n, field, &marks[option_index(o)]);
    case OPTION_TYPE_PAIRS: return load_pairs(l, o, n, field);
    case OPTION_TYPE_SAMPLING: return load_sampling(l, n, field);
    default: return load_scalar(l, o, n, object, &marks[option_index(o)]);
    }
}

static void report_missing(struct loader *l, const struct document_node *map,
                           enum option_scope scope, const struct config_mark *marks)
{
    char allowed[192];

    for (size_t i = 0; i < config_option_count; i++) {
        const struct config_option *o = &config_options[i];

        if (o->scope != scope || !(o->flags & OPTION_REQUIRED) || load_given(marks[i]))
            continue;
        value_describe(o, allowed, sizeof(allowed));
        config_report_error(l->report, map->mark, "`%s` is missing: %s needs it; allowed: %s",
                            o->key, option_scope_name(scope), allowed);
    }
}

static int load_keys(struct loader *l, const struct document_node *map, enum option_scope scope,
                     void *object, struct config_mark *marks)
{
    for (size_t i = 0; i < map->count; i++) {
        const struct config_option *o = option_find(scope, map->keys[i]->text);
        int r;

        if (!o) {
            report_unknown_key(l, map->keys[i], scope);
            continue;
        }
        r = load_value(l, o, map->items[i], object, marks);
        if (r < 0)
            return r;
    }
    report_missing(l, map, scope, marks);
    return 0;
}

int load_tree(struct loader *l, const struct document_node *root)
{
    struct config_mark *marks = load_marks_new(l);
    int r;

    if (!marks)
        return -ENOMEM;
    l->config->marks = marks;
    r = load_defaults(l, OPTION_SCOPE_ROOT, l->config);
    if (r < 0)
        return r;
    if (!root || is_nothing(root)) {
        config_report_error(l->report, ((struct config_mark){1, 1}),
                            "the file is empty; the smallest useful one is `services: { chat: { "
                            "model: ~/model.gguf } }`");
        return 0;
    }
    if (root->kind != DOCUMENT_KIND_MAP) {
        config_report_error(l->report, root->mark,
                            "the file must be a map of options (`services:` …), not %s",
                            document_kind_name(root->kind));
        return 0;
    }
    return load_keys(l, root, OPTION_SCOPE_ROOT, l->config, marks);
}
