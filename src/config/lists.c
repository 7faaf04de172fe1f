/*
 * Lists and maps of plain values: aliases, paths, arguments, environment, sampling numbers.
 */
#include "config/load_internal.h"

#include "config/words.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

static bool refuse_count(struct loader *l, const struct config_option *o,
                         const struct document_node *n)
{
    if (n->count >= o->min && n->count <= o->max)
        return false;
    if (n->count == 0)
        config_report_error(l->report, n->mark, "`%s` is empty", o->key);
    else
        config_report_error(l->report, n->mark, "`%s` has %zu entries; at most %zu are allowed",
                            o->key, n->count, (size_t)o->max);
    return true;
}

static bool refuse_item(struct loader *l, const struct config_option *o,
                        const struct document_node *n, bool may_be_empty)
{
    char quoted[WORDS_QUOTED_SIZE];

    if (n->kind != DOCUMENT_KIND_SCALAR) {
        /* To YAML, {port} is a map with one key. */
        config_report_error(l->report, n->mark, "`%s` has %s in it; only plain texts are allowed%s",
                            o->key, document_kind_name(n->kind),
                            n->kind == DOCUMENT_KIND_MAP ? "; braces need quotes, e.g. `\"{port}\"`"
                                                         : "");
        return true;
    }
    if (n->len == 0 && !may_be_empty) {
        config_report_error(l->report, n->mark, "`%s` has an empty entry", o->key);
        return true;
    }
    for (size_t i = 0; i < n->len; i++) {
        if ((unsigned char)n->text[i] < 0x20 && n->text[i] != '\n' && n->text[i] != '\t') {
            config_report_error(l->report, n->mark, "`%s`: %s has a control character", o->key,
                                words_quote(n->text, n->len, quoted));
            return true;
        }
    }
    return false;
}

int load_texts(struct loader *l, const struct config_option *o, const struct document_node *node,
               struct config_strings *ret)
{
    struct config_strings texts = {0};

    if (refuse_count(l, o, node))
        return 0;
    texts.items = arena_alloc(l->arena, node->count, sizeof(*texts.items));
    if (!texts.items)
        return -ENOMEM;
    for (size_t i = 0; i < node->count; i++) {
        const struct document_node *n = node->items[i];
        char *copy;

        if (refuse_item(l, o, n, false))
            continue;
        copy = arena_copy(l->arena, n->text, n->len);
        if (!copy)
            return -ENOMEM;
        texts.items[texts.count++] = copy;
    }
    *ret = texts;
    return 0;
}

static int add_pair(struct loader *l, struct config_pairs *pairs, const char *name,
                    const char *value)
{
    struct config_pair *p = &pairs->items[pairs->count];

    p->name = arena_copy(l->arena, name, strlen(name));
    p->value = arena_copy(l->arena, value, strlen(value));
    if (!p->name || !p->value)
        return -ENOMEM;
    pairs->count++;
    return 0;
}

static bool is_env_name(const char *name)
{
    if (!isalpha((unsigned char)*name) && *name != '_')
        return false;
    for (const char *p = name; *p; p++) {
        if (!isalnum((unsigned char)*p) && *p != '_')
            return false;
    }
    return true;
}

int load_pairs(struct loader *l, const struct config_option *o, const struct document_node *node,
               struct config_pairs *ret)
{
    char quoted[WORDS_QUOTED_SIZE];
    struct config_pairs pairs = {0};

    if (refuse_count(l, o, node))
        return 0;
    pairs.items = arena_alloc(l->arena, node->count, sizeof(*pairs.items));
    if (!pairs.items)
        return -ENOMEM;
    for (size_t i = 0; i < node->count; i++) {
        const struct document_node *key = node->keys[i];

        if (!is_env_name(key->text)) {
            config_report_error(l->report, key->mark,
                                "`%s`: %s is not a name of an environment variable; allowed: "
                                "letters, digits and _, not a digit first",
                                o->key, words_quote(key->text, key->len, quoted));
            continue;
        }
        if (refuse_item(l, o, node->items[i], true))
            continue;
        if (add_pair(l, &pairs, key->text, node->items[i]->text) < 0)
            return -ENOMEM;
    }
    *ret = pairs;
    return 0;
}

static const struct option_sampling *sampling_find(const char *name)
{
    for (const struct option_sampling *s = option_samplings; s->name; s++) {
        if (strcmp(s->name, name) == 0)
            return s;
    }
    return NULL;
}

static const char *sampling_next(void *ctx)
{
    const struct option_sampling **pos = ctx;

    return (*pos)->name ? (*pos)++->name : NULL;
}

/* Names that other programs use for the same thing. */
static const char *sampling_synonym(const char *name)
{
    static const char *const synonyms[][2] = {
        {"temp", "temperature"},
        {"typ_p", "typical_p"},
        {"repetition_penalty", "repeat_penalty"},
        {"penalty_repeat", "repeat_penalty"},
        {"penalty_last_n", "repeat_last_n"},
        {"freq_penalty", "frequency_penalty"},
    };

    for (size_t i = 0; i < sizeof(synonyms) / sizeof(synonyms[0]); i++) {
        if (strcmp(synonyms[i][0], name) == 0)
            return synonyms[i][1];
    }
    return NULL;
}

static void report_unknown_sampling(struct loader *l, const struct document_node *key)
{
    char quoted[WORDS_QUOTED_SIZE];
    const struct option_sampling *walk = option_samplings;
    const char *meant = sampling_synonym(key->text);

    if (!meant)
        meant = words_suggest(key->text, sampling_next, (void *)&walk);
    words_quote(key->text, key->len, quoted);
    if (meant)
        config_report_error(l->report, key->mark, "`sampling`: %s is not known; did you mean `%s`?",
                            quoted, meant);
    else
        config_report_error(l->report, key->mark,
                            "`sampling`: %s is not known; allowed are the sampling numbers of "
                            "llama-server: temperature, top_k, top_p, min_p, repeat_penalty, …",
                            quoted);
}

static int load_sampling_one(struct loader *l, const struct document_node *key,
                             const struct document_node *n, struct config_pairs *pairs)
{
    const struct option_sampling *s = sampling_find(key->text);
    char quoted[WORDS_QUOTED_SIZE];
    char why[VALUE_WHY_SIZE];

    if (!s) {
        report_unknown_sampling(l, key);
        return 0;
    }
    if (n->kind != DOCUMENT_KIND_SCALAR) {
        config_report_error(l->report, n->mark, "`%s` is %s; allowed: a number", s->name,
                            document_kind_name(n->kind));
        return 0;
    }
    if (value_check_sampling(s, n->text, why) < 0) {
        config_report_error(l->report, n->mark, "`%s`: %s %s", s->name,
                            words_quote(n->text, n->len, quoted), why);
        return 0;
    }
    return add_pair(l, pairs, s->name, n->text);
}

int load_sampling(struct loader *l, const struct document_node *node, struct config_pairs *ret)
{
    struct config_pairs pairs = {0};

    pairs.items = arena_alloc(l->arena, node->count, sizeof(*pairs.items));
    if (!pairs.items)
        return -ENOMEM;
    for (size_t i = 0; i < node->count; i++) {
        if (load_sampling_one(l, node->keys[i], node->items[i], &pairs) < 0)
            return -ENOMEM;
    }
    *ret = pairs;
    return 0;
}

static bool has_pair(const struct config_pairs *pairs, const char *name)
{
    for (size_t i = 0; i < pairs->count; i++) {
        if (strcmp(pairs->items[i].name, name) == 0)
            return true;
    }
    return false;
}

int load_sampling_defaults(struct loader *l, struct config_pairs *pairs)
{
    struct config_pairs all = {0};
    size_t room = pairs->count;

    for (const struct option_sampling *s = option_samplings; s->name; s++)
        room++;
    all.items = arena_alloc(l->arena, room, sizeof(*all.items));
    if (!all.items)
        return -ENOMEM;
    for (size_t i = 0; i < pairs->count; i++)
        all.items[all.count++] = pairs->items[i];
    for (const struct option_sampling *s = option_samplings; s->name; s++) {
        if (!s->fallback || has_pair(pairs, s->name))
            continue;
        if (add_pair(l, &all, s->name, s->fallback) < 0)
            return -ENOMEM;
    }
    *pairs = all;
    return 0;
}
