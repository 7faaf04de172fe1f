/*
 * Words for people who mistyped: how close two words are, which of a list is meant, and how a piece
 * of an unknown file is shown without harm to a terminal or a log. Pure.
 */
#ifndef FAILSOFT_CONFIG_WORDS_H
#define FAILSOFT_CONFIG_WORDS_H

#include <stdbool.h>
#include <stddef.h>

/* Longer words are never suggested for. */
enum { WORDS_MAX_LENGTH = 40 };
/* What words_quote and words_quote_path show, and the room they need: each byte escaped at worst. */
enum { WORDS_SHOWN_BYTES = 48, WORDS_PATH_SHOWN_BYTES = 512 };
enum {
    WORDS_QUOTED_SIZE = WORDS_SHOWN_BYTES * 4 + 8,
    WORDS_QUOTED_PATH_SIZE = WORDS_PATH_SHOWN_BYTES * 4 + 8,
};

/*
 * Insertions, deletions, substitutions and swaps of neighbours between two words, letters' case and
 * `-`/`_` ignored. Above WORDS_MAX_LENGTH: a large number.
 */
unsigned words_distance(const char *a, const char *b);

/*
 * The candidate that is meant by `word`, or NULL when none is close enough (one change in a short
 * word, at most a third of a longer one). next(ctx) gives the candidates, NULL at the end.
 */
const char *words_suggest(const char *word, const char *(*next)(void *ctx), void *ctx);

/* As words_suggest, from a NULL-terminated array. */
const char *words_suggest_from(const char *word, const char *const *candidates);

/*
 * `text` in backquotes, control characters and bytes above 0x7e that are not UTF-8 as \xNN, cut with
 * "…" after 48 bytes. out has WORDS_QUOTED_SIZE bytes; returns out.
 */
char *words_quote(const char *text, size_t len, char *out);

/* As words_quote, for a path: 512 bytes, because its end matters. out: WORDS_QUOTED_PATH_SIZE. */
char *words_quote_path(const char *path, char *out);

#endif
