/*
 * A YAML text as a tree of nodes with marks, bounded in size, depth and expansion: what a
 * configuration may contain, before anything is known about its meaning. Built from libyaml's
 * events; nothing of libyaml shows here.
 */
#ifndef FAILSOFT_CONFIG_DOCUMENT_H
#define FAILSOFT_CONFIG_DOCUMENT_H

#include "config/arena.h"
#include "config/config.h"

#include <stdbool.h>
#include <stddef.h>

enum document_kind {
    DOCUMENT_KIND_SCALAR = 0,
    DOCUMENT_KIND_MAP,
    DOCUMENT_KIND_LIST,
};

enum {
    DOCUMENT_MAX_DEPTH = 32,
    /* Nodes, an alias counted with all that it stands for: the bound against alias bombs. */
    DOCUMENT_MAX_NODES = 10000,
    DOCUMENT_MAX_ANCHORS = 64,
};

struct document_node {
    enum document_kind kind;
    struct config_mark mark;
    const char *text; /* scalar: terminated, without embedded NUL (libyaml refuses them) */
    size_t len;
    bool quoted; /* scalar: written with quotes or as a block */
    /* map: keys[i] (scalars) and items[i]; list: items[i] */
    struct document_node **keys;
    struct document_node **items;
    size_t count;
    size_t weight; /* nodes, aliases expanded */
};

/*
 * Parses text into a tree in the arena. Problems go to the report; a syntax error ends the parsing,
 * because what follows would be guesses. *ret_root is NULL for an empty document.
 * 0 (also when keys are given twice: reported, the first one is kept); -EINVAL (reported); -ENOMEM.
 */
int document_parse(struct arena *a, const char *text, size_t len, struct config_report *report,
                   struct document_node **ret_root);

/* "a map", "a list", "a value". */
const char *document_kind_name(enum document_kind kind);

#endif
