/*
 * What the files of `failsoft plan` share. Private to cli/.
 */
#ifndef FAILSOFT_CLI_PLAN_H
#define FAILSOFT_CLI_PLAN_H

#include "base/buf.h"
#include "config/config.h"
#include "model/estimate.h"
#include "worker/plan_settings.h"

#include <stdbool.h>

/* A model file that was looked at: the header and what it says. */
struct plan_model {
    struct gguf_file file;
    struct model_facts facts;
};

/* One estimate and what it is for. Strings are borrowed. */
struct plan_entry {
    const char *service; /* NULL: a model file named on the command line */
    const char *tier;
    const char *device; /* NULL: none */
    const char *path;
    const char *problem; /* why there is no estimate; NULL: there is one */
    struct estimate estimate;
    struct estimate_settings settings;
    const struct model_facts *facts;
};

int plan_write_text(struct buf *out, const struct plan_entry *entries, size_t count);
int plan_write_json(struct buf *out, const struct plan_entry *entries, size_t count);

#endif
