/*
 * Events to nodes with an explicit stack: no recursion on input.
 *
 *   frame:  map: key → value → key …      list: item → item …
 *
 * A container is put into its parent when it ends; an anchor is known from the end of its node on,
 * so an alias can never make a cycle, and its weight is known when it is used.
 */
#include "config/document.h"

#include "config/report.h"
#include "config/words.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

struct frame {
    struct document_node *node;
    struct document_node *key; /* map: the key whose value comes next */
    const char *anchor;
    size_t room;
};

struct anchor {
    const char *name;
    struct document_node *node;
};

struct builder {
    struct arena *arena;
    struct config_report *report;
    struct frame stack[DOCUMENT_MAX_DEPTH];
    size_t depth;
    struct anchor anchors[DOCUMENT_MAX_ANCHORS];
    size_t anchor_count;
    size_t nodes;
    struct document_node *root;
    bool has_root;
};

const char *document_kind_name(enum document_kind kind)
{
    switch (kind) {
    case DOCUMENT_KIND_MAP: return "a map";
    case DOCUMENT_KIND_LIST: return "a list";
    case DOCUMENT_KIND_SCALAR: break;
    }
    return "a value";
}

static struct config_mark mark_of(yaml_mark_t m)
{
    return (struct config_mark){(uint32_t)m.line + 1, (uint32_t)m.column + 1};
}

static int refuse(struct builder *b, struct config_mark mark, const char *message)
{
    config_report_error(b->report, mark, "%s", message);
    return -EINVAL;
}

static struct document_node *node_new(struct builder *b, enum document_kind kind, yaml_mark_t mark)
{
    struct document_node *n = arena_alloc(b->arena, 1, sizeof(*n));

    if (n) {
        n->kind = kind;
        n->mark = mark_of(mark);
        n->weight = 1;
    }
    return n;
}

/* Makes room for one more entry; the old arrays stay in the arena (doubling bounds the waste). */
static int frame_reserve(struct builder *b, struct frame *f)
{
    struct document_node **items;
    struct document_node **keys;
    size_t room;

    if (f->node->count < f->room)
        return 0;
    room = f->room ? f->room * 2 : 8;
    items = arena_alloc(b->arena, room, sizeof(struct document_node *));
    keys = arena_alloc(b->arena, room, sizeof(struct document_node *));
    if (!items || !keys)
        return -ENOMEM;
    if (f->node->count > 0) {
        memcpy(items, f->node->items, f->node->count * sizeof(struct document_node *));
        memcpy(keys, f->node->keys, f->node->count * sizeof(struct document_node *));
    }
    f->node->items = items;
    f->node->keys = keys;
    f->room = room;
    return 0;
}

static const struct document_node *find_key(const struct document_node *map, const char *text,
                                            size_t len)
{
    for (size_t i = 0; i < map->count; i++) {
        if (map->keys[i]->len == len && memcmp(map->keys[i]->text, text, len) == 0)
            return map->keys[i];
    }
    return NULL;
}

static int place_key(struct builder *b, struct frame *f, struct document_node *n)
{
    if (n->kind != DOCUMENT_KIND_SCALAR) {
        config_report_error(b->report, n->mark, "a key must be a plain word, not %s",
                            document_kind_name(n->kind));
        return -EINVAL;
    }
    f->key = n;
    return 0;
}

static int place_value(struct builder *b, struct frame *f, struct document_node *n)
{
    struct document_node *key = f->key;
    const struct document_node *first;
    char quoted[WORDS_QUOTED_SIZE];
    int r;

    f->key = NULL;
    if (key && (first = find_key(f->node, key->text, key->len)) != NULL) {
        config_report_error(b->report, key->mark, "%s is given twice; the first one is in line %u",
                            words_quote(key->text, key->len, quoted), first->mark.line);
        return 0;
    }
    r = frame_reserve(b, f);
    if (r < 0)
        return r;
    f->node->keys[f->node->count] = key;
    f->node->items[f->node->count++] = n;
    f->node->weight += n->weight + (key ? 1 : 0);
    return 0;
}

static int place(struct builder *b, struct document_node *n)
{
    struct frame *f;

    if (b->depth == 0) {
        b->root = n;
        b->has_root = true;
        return 0;
    }
    f = &b->stack[b->depth - 1];
    if (f->node->kind == DOCUMENT_KIND_MAP && !f->key)
        return place_key(b, f, n);
    return place_value(b, f, n);
}

static int count_nodes(struct builder *b, size_t weight, struct config_mark mark)
{
    b->nodes += weight;
    if (b->nodes > DOCUMENT_MAX_NODES) {
        config_report_error(b->report, mark, "more than %d values (aliases counted in full)",
                            DOCUMENT_MAX_NODES);
        return -E2BIG;
    }
    return 0;
}

static int remember_anchor(struct builder *b, const char *name, struct document_node *n)
{
    if (!name)
        return 0;
    if (b->anchor_count == DOCUMENT_MAX_ANCHORS)
        return refuse(b, n->mark, "more than 64 anchors");
    b->anchors[b->anchor_count++] = (struct anchor){name, n};
    return 0;
}

static int check_tag(struct builder *b, const yaml_char_t *tag, yaml_mark_t mark)
{
    char quoted[WORDS_QUOTED_SIZE];
    const char *text = (const char *)tag;

    if (!text || strncmp(text, "tag:yaml.org,2002:", 18) == 0)
        return 0;
    config_report_error(b->report, mark_of(mark), "the tag %s is not supported",
                        words_quote(text, strlen(text), quoted));
    return -EINVAL;
}

static int keep_anchor_name(struct builder *b, const yaml_char_t *anchor, const char **ret_name)
{
    char *copy;

    *ret_name = NULL;
    if (!anchor)
        return 0;
    copy = arena_copy(b->arena, (const char *)anchor, strlen((const char *)anchor));
    if (!copy)
        return -ENOMEM;
    *ret_name = copy;
    return 0;
}

static int on_scalar(struct builder *b, const yaml_event_t *e)
{
    struct document_node *n = node_new(b, DOCUMENT_KIND_SCALAR, e->start_mark);
    const char *anchor;
    int r;

    if (!n)
        return -ENOMEM;
    if ((r = check_tag(b, e->data.scalar.tag, e->start_mark)) < 0 ||
        (r = count_nodes(b, 1, n->mark)) < 0 ||
        (r = keep_anchor_name(b, e->data.scalar.anchor, &anchor)) < 0)
        return r;
    if (memchr(e->data.scalar.value, '\0', e->data.scalar.length))
        return refuse(b, n->mark, "a NUL character is not allowed");
    n->text = arena_copy(b->arena, (const char *)e->data.scalar.value, e->data.scalar.length);
    if (!n->text)
        return -ENOMEM;
    n->len = e->data.scalar.length;
    n->quoted = e->data.scalar.style != YAML_PLAIN_SCALAR_STYLE;
    if ((r = remember_anchor(b, anchor, n)) < 0)
        return r;
    return place(b, n);
}

static int on_start(struct builder *b, const yaml_event_t *e, enum document_kind kind,
                    const yaml_char_t *tag, const yaml_char_t *anchor)
{
    struct document_node *n = node_new(b, kind, e->start_mark);
    const char *name;
    int r;

    if (!n)
        return -ENOMEM;
    if ((r = check_tag(b, tag, e->start_mark)) < 0 || (r = count_nodes(b, 1, n->mark)) < 0 ||
        (r = keep_anchor_name(b, anchor, &name)) < 0)
        return r;
    if (b->depth == DOCUMENT_MAX_DEPTH) {
        config_report_error(b->report, n->mark, "nested deeper than %d levels", DOCUMENT_MAX_DEPTH);
        return -E2BIG;
    }
    b->stack[b->depth++] = (struct frame){.node = n, .anchor = name};
    return 0;
}

static int on_end(struct builder *b)
{
    struct frame *f;
    int r;

    if (b->depth == 0)
        return -EINVAL; /* libyaml lets no end come without its start; the stack relies on it */
    f = &b->stack[--b->depth];
    r = remember_anchor(b, f->anchor, f->node);
    return r < 0 ? r : place(b, f->node);
}

static int on_alias(struct builder *b, const yaml_event_t *e)
{
    const char *name = (const char *)e->data.alias.anchor;
    struct config_mark mark = mark_of(e->start_mark);
    char quoted[WORDS_QUOTED_SIZE];

    /* The latest one of a name counts. */
    for (size_t i = b->anchor_count; i-- > 0;) {
        int r;

        if (strcmp(b->anchors[i].name, name) != 0)
            continue;
        r = count_nodes(b, b->anchors[i].node->weight, mark);
        return r < 0 ? r : place(b, b->anchors[i].node);
    }
    config_report_error(b->report, mark, "no anchor %s is defined before this alias",
                        words_quote(name, strlen(name), quoted));
    return -EINVAL;
}

static int on_event(struct builder *b, const yaml_event_t *e)
{
    switch (e->type) {
    case YAML_DOCUMENT_START_EVENT:
        if (b->has_root)
            return refuse(b, mark_of(e->start_mark),
                          "only one YAML document is allowed in the file");
        return 0;
    case YAML_SCALAR_EVENT: return on_scalar(b, e);
    case YAML_ALIAS_EVENT: return on_alias(b, e);
    case YAML_MAPPING_START_EVENT:
        return on_start(b, e, DOCUMENT_KIND_MAP, e->data.mapping_start.tag,
                        e->data.mapping_start.anchor);
    case YAML_SEQUENCE_START_EVENT:
        return on_start(b, e, DOCUMENT_KIND_LIST, e->data.sequence_start.tag,
                        e->data.sequence_start.anchor);
    case YAML_MAPPING_END_EVENT:
    case YAML_SEQUENCE_END_EVENT: return on_end(b);
    default: return 0;
    }
}

static void report_syntax(struct builder *b, const yaml_parser_t *p)
{
    const char *problem = p->problem ? p->problem : "can not be read as YAML";
    struct config_mark mark = mark_of(p->problem_mark);

    if (p->error == YAML_READER_ERROR) {
        config_report_error(b->report, mark_of(p->mark), "not readable text at byte %zu: %s",
                            p->problem_offset, problem);
    } else if (strstr(problem, "cannot start any token")) {
        config_report_error(b->report, mark,
                            "YAML does not allow this character here (a tab for indentation? use "
                            "spaces; `@`, `%%` and backquotes need quotes)");
    } else if (p->context && p->context_mark.line != p->problem_mark.line) {
        config_report_error(b->report, mark, "YAML: %s (%s that began in line %zu)", problem,
                            p->context, p->context_mark.line + 1);
    } else {
        config_report_error(b->report, mark, "YAML: %s%s%s", problem, p->context ? " " : "",
                            p->context ? p->context : "");
    }
}

int document_parse(struct arena *a, const char *text, size_t len, struct config_report *report,
                   struct document_node **ret_root)
{
    struct builder *b = calloc(1, sizeof(*b));
    yaml_parser_t parser;
    bool ended = false;
    int r = 0;

    if (!b || !yaml_parser_initialize(&parser)) {
        free(b);
        return -ENOMEM;
    }
    b->arena = a;
    b->report = report;
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, len);
    while (!ended && r >= 0) {
        yaml_event_t event;

        if (!yaml_parser_parse(&parser, &event)) {
            r = parser.error == YAML_MEMORY_ERROR ? -ENOMEM : -EINVAL;
            if (r == -EINVAL)
                report_syntax(b, &parser);
            break;
        }
        r = on_event(b, &event);
        ended = event.type == YAML_STREAM_END_EVENT;
        yaml_event_delete(&event);
    }
    yaml_parser_delete(&parser);
    if (r == -E2BIG)
        r = -EINVAL;
    /* Duplicate keys are reported; the rest is still worth checking. */
    if (r >= 0)
        *ret_root = b->root;
    free(b);
    return r;
}
