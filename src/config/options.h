/*
 * The table of options: one row makes an option's parser, its bounds, its default, its help and its
 * line in the documentation. Private to config/, but for the two writers that the commands use.
 */
#ifndef FAILSOFT_CONFIG_OPTIONS_H
#define FAILSOFT_CONFIG_OPTIONS_H

#include "base/buf.h"

#include <stddef.h>
#include <stdint.h>

/* A place where keys may stand. Blocks (LOG to AVAILABILITY) are parts of the object around them. */
enum option_scope {
    OPTION_SCOPE_ROOT = 0,
    OPTION_SCOPE_LOG,
    OPTION_SCOPE_LIMITS,
    OPTION_SCOPE_HOST,
    OPTION_SCOPE_DEVICE,
    OPTION_SCOPE_SERVICE,
    OPTION_SCOPE_TIER,
    OPTION_SCOPE_QUEUE,
    OPTION_SCOPE_RESTART,
    OPTION_SCOPE_AVAILABILITY,
    OPTION_SCOPE_COUNT,
};

enum option_type {
    OPTION_TYPE_TEXT = 0,  /* char *; printable, not empty */
    OPTION_TYPE_PATH,      /* char *; ~ expanded, made absolute against the file's folder */
    OPTION_TYPE_COMMAND,   /* char *; a path when it has a slash, else a name on PATH */
    OPTION_TYPE_BYTES,     /* uint64_t */
    OPTION_TYPE_DURATION,  /* uint64_t, milliseconds */
    OPTION_TYPE_COUNT,     /* uint32_t */
    OPTION_TYPE_LAYERS,    /* int32_t; `all` is -1 */
    OPTION_TYPE_WORD,      /* int: the position in `words` */
    OPTION_TYPE_WORD_TEXT, /* char *: one of `words`, as text */
    OPTION_TYPE_LISTEN,    /* host and port of struct config */
    OPTION_TYPE_URL,       /* url, url_host, url_port, url_prefix of struct config_tier */
    OPTION_TYPE_TEXTS,     /* struct config_strings */
    OPTION_TYPE_PAIRS,     /* struct config_pairs: name → text */
    OPTION_TYPE_SAMPLING,  /* struct config_pairs: name → JSON number */
    OPTION_TYPE_BLOCK,     /* keys of the scope `inner`, in the same object */
    OPTION_TYPE_NAMED,     /* a map of names to objects of the scope `inner` */
    OPTION_TYPE_LIST,      /* a list of objects of the scope `inner` */
};

enum {
    OPTION_AUTO = 1,     /* `auto` is allowed and stored as 0 */
    OPTION_MANAGED = 2,  /* only where failsoft runs the engine */
    OPTION_EXTERNAL = 4, /* only with a url */
    OPTION_SIM = 8,      /* only on devices of kind sim */
    OPTION_REQUIRED = 16,
    OPTION_LLAMA = 32,   /* llama-server's own: not with a command */
    OPTION_COMMAND = 64, /* only with a command */
};

struct config_option {
    const char *key;
    const char *fallback; /* the default, written as in a file; NULL: none, or chosen later */
    const char *shown; /* what the documentation says as default when `fallback` does not say it */
    const char *help;
    const char *const *words; /* NULL-terminated */
    uint64_t min, max;        /* of the stored number */
    size_t offset;            /* in the object of the scope */
    enum option_scope scope;
    enum option_type type;
    enum option_scope inner;
    unsigned flags;
};

extern const struct config_option config_options[];
extern const size_t config_option_count;

/* The row of a key, NULL: unknown there. */
const struct config_option *option_find(enum option_scope scope, const char *key);

/* The key of a scope that is meant by a mistyped one, NULL: none is near. */
const char *option_suggest(enum option_scope scope, const char *key);

/* Some scope that has this key, for "belongs to"; OPTION_SCOPE_COUNT: none. */
enum option_scope option_find_scope(const char *key);

/* "a tier", "`limits`", … for messages. */
const char *option_scope_name(enum option_scope scope);

/* The position of a row in the table: the index into every `marks` array. */
size_t option_index(const struct config_option *o);

/* Words of the table. */
extern const char *const option_service_kinds[];
extern const char *const option_tier_names[];
extern const char *const option_engines[];
extern const char *const option_device_kinds[];
extern const char *const option_switches[];

/* A number that a worker's sampler takes: name, the engine's own default, bounds. */
struct option_sampling {
    const char *name;
    const char *fallback; /* JSON literal; NULL: not sent unless given */
    double min, max;
    int whole; /* an integer */
};

extern const struct option_sampling option_samplings[]; /* ends with a NULL name */

/* Every option as aligned text, for `failsoft check --help-options`. Errors as buf_append. */
int options_write_text(struct buf *out);

/* Every option as the table of docs/configuration.md. Errors as buf_append. */
int options_write_markdown(struct buf *out);

#endif
