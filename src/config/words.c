/*
 * Optimal string alignment distance on two rows and the one before, all on the stack: words are
 * bounded.
 */
#include "config/words.h"

#include "base/utf8.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static char fold(char c)
{
    if (c >= 'A' && c <= 'Z')
        return (char)(c - 'A' + 'a');
    return c == '-' ? '_' : c;
}

static unsigned min3(unsigned a, unsigned b, unsigned c)
{
    unsigned m = a < b ? a : b;

    return m < c ? m : c;
}

unsigned words_distance(const char *a, const char *b)
{
    unsigned rows[3][WORDS_MAX_LENGTH + 1];
    size_t a_len = strlen(a);
    size_t b_len = strlen(b);

    if (a_len > WORDS_MAX_LENGTH || b_len > WORDS_MAX_LENGTH)
        return UINT_MAX;
    for (size_t j = 0; j <= b_len; j++)
        rows[0][j] = (unsigned)j;
    for (size_t i = 1; i <= a_len; i++) {
        unsigned *row = rows[i % 3];
        const unsigned *above = rows[(i + 2) % 3];
        const unsigned *above2 = rows[(i + 1) % 3];

        row[0] = (unsigned)i;
        for (size_t j = 1; j <= b_len; j++) {
            unsigned cost = fold(a[i - 1]) != fold(b[j - 1]);

            row[j] = min3(above[j] + 1, row[j - 1] + 1, above[j - 1] + cost);
            if (i > 1 && j > 1 && fold(a[i - 1]) == fold(b[j - 2]) &&
                fold(a[i - 2]) == fold(b[j - 1]) && above2[j - 2] + 1 < row[j])
                row[j] = above2[j - 2] + 1;
        }
    }
    return rows[a_len % 3][b_len];
}

const char *words_suggest(const char *word, const char *(*next)(void *ctx), void *ctx)
{
    size_t len = strlen(word);
    unsigned allowed = len < 6 ? 1 : (unsigned)(len / 3);
    unsigned best_distance = UINT_MAX;
    const char *best = NULL;
    const char *candidate;

    if (len == 0)
        return NULL;
    while ((candidate = next(ctx)) != NULL) {
        unsigned distance = words_distance(word, candidate);

        /* A change of every letter is no likeness. */
        if (distance <= allowed && distance < len && distance < best_distance) {
            best_distance = distance;
            best = candidate;
        }
    }
    return best;
}

static const char *array_next(void *ctx)
{
    const char *const **pos = ctx;

    return **pos ? *(*pos)++ : NULL;
}

const char *words_suggest_from(const char *word, const char *const *candidates)
{
    const char *const *pos = candidates;

    return words_suggest(word, array_next, (void *)&pos);
}

static char *quote(const char *text, size_t len, size_t shown, char *out)
{
    size_t used = 0;
    size_t i = 0;

    out[used++] = '`';
    while (i < len) {
        unsigned char c = (unsigned char)text[i];
        size_t n = utf8_sequence_length(text + i, len - i);
        /* U+0080 to U+009F are control characters too, and some terminals obey them. */
        bool control = c < 0x20 || c == 0x7f || (n == 2 && c == 0xC2 && (text[i + 1] & 0x20) == 0);

        if (i + (n ? n : 1) > shown) {
            memcpy(out + used, "…", strlen("…"));
            used += strlen("…");
            break;
        }
        if (n == 0 || control) {
            used += (size_t)snprintf(out + used, sizeof("\\x00"), "\\x%02x", c);
            i++;
        } else {
            memcpy(out + used, text + i, n);
            used += n;
            i += n;
        }
    }
    out[used++] = '`';
    out[used] = '\0';
    return out;
}

char *words_quote(const char *text, size_t len, char *out)
{
    return quote(text, len, WORDS_SHOWN_BYTES, out);
}

char *words_quote_path(const char *path, char *out)
{
    return quote(path, strlen(path), WORDS_PATH_SHOWN_BYTES, out);
}
