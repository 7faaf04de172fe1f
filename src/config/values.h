/* One written value into one field, by its row of the option table. Private to config/. */
#ifndef FAILSOFT_CONFIG_VALUES_H
#define FAILSOFT_CONFIG_VALUES_H

#include "config/arena.h"
#include "config/options.h"

#include <stddef.h>

struct value_place {
    struct arena *arena;
    const char *base_dir; /* absolute folder for relative paths */
};

enum { VALUE_WHY_SIZE = 512 };

/*
 * Parses `text` into the option's field of `object`. Scalar types only (not lists, maps, blocks).
 * 0; -EINVAL with `why` (VALUE_WHY_SIZE bytes): what is wrong with the token and what is allowed,
 * as the second half of a sentence; -ENOMEM. The field is untouched on failure.
 */
int value_parse(const struct value_place *place, const struct config_option *o, const char *text,
                void *object, char *why);

/* What is allowed for an option, e.g. "100 ms to 1 h", "a whole number, 1 to 256, or `auto`". */
void value_describe(const struct config_option *o, char *out, size_t out_size);

/*
 * Expands `~/` and makes the path absolute. 0; -EINVAL with `why`; -ENOMEM.
 */
int value_expand_path(const struct value_place *place, const char *text, char **ret_path,
                      char *why);

/*
 * A JSON number for a sampler within the bounds of its row, canonical (`.5` is refused).
 * 0; -EINVAL with `why`.
 */
int value_check_sampling(const struct option_sampling *s, const char *text, char *why);

#endif
