/*
 * What the steps of loading share. Private to config/.
 *
 *   text → document (tree) → tree.c + lists.c (structs, with marks) → finish.c (derived defaults)
 *        → check.c (do the parts fit together) → config
 *
 * Every step reports all it finds and goes on. Functions return 0 or -ENOMEM; problems of the file
 * are in the report only.
 */
#ifndef FAILSOFT_CONFIG_LOAD_INTERNAL_H
#define FAILSOFT_CONFIG_LOAD_INTERNAL_H

#include "config/config.h"
#include "config/document.h"
#include "config/options.h"
#include "config/report.h"
#include "config/values.h"

#include <stdbool.h>

struct loader {
    struct arena *arena;
    struct config *config;
    struct config_report *report;
    struct value_place place;
};

/* tree.c: the whole tree into l->config. */
int load_tree(struct loader *l, const struct document_node *root);

/* tree.c: an array of marks, one for each row of the table; NULL: no memory. */
struct config_mark *load_marks_new(struct loader *l);

/* tree.c: every default of a scope and of the blocks in it. */
int load_defaults(struct loader *l, enum option_scope scope, void *object);

/* lists.c: lists and maps of plain values; the node is of the right kind. */
int load_texts(struct loader *l, const struct config_option *o, const struct document_node *node,
               struct config_strings *ret);
int load_pairs(struct loader *l, const struct config_option *o, const struct document_node *node,
               struct config_pairs *ret);
int load_sampling(struct loader *l, const struct document_node *node, struct config_pairs *ret);
/* lists.c: the engine's own sampling values for every name that `pairs` lacks. */
int load_sampling_defaults(struct loader *l, struct config_pairs *pairs);

/* finish.c: what follows from other options. */
int load_finish(struct loader *l);

/* check.c: do the parts fit together. Only reports. */
void load_check(struct loader *l);

/*
 * Where an option of an object stands in the file. line 0: not there. column 0: there, but its value
 * was refused (reported), so that nothing may be concluded from the field.
 */
struct config_mark load_mark(const struct config_mark *marks, enum option_scope scope,
                             const char *key);

static inline bool load_given(struct config_mark mark)
{
    return mark.line > 0;
}

static inline bool load_refused(struct config_mark mark)
{
    return mark.line > 0 && mark.column == 0;
}

#endif
