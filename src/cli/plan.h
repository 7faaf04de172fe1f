/*
 * What the files of `failsoft plan` share. Private to cli/.
 */
#ifndef FAILSOFT_CLI_PLAN_H
#define FAILSOFT_CLI_PLAN_H

#include "base/buf.h"
#include "config/config.h"
#include "model/estimate.h"

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

/* What a worker of this tier is started with, and so takes. Projector and draft are left out. */
void plan_settings_from_tier(const struct config_service *service, const struct config_tier *tier,
                             struct estimate_settings *ret);

/*
 * What `args` of a tier change. *ret_projector and *ret_draft: the files they name, NULL: none.
 * False: an argument that changes the memory in a way that is not counted; *ret_unknown is it.
 */
bool plan_settings_apply_args(const struct config_strings *args, struct estimate_settings *s,
                              const char **ret_projector, const char **ret_draft,
                              const char **ret_unknown);

/* What this machine's CPU can do with matrices: see estimate_settings.repack. */
void plan_settings_look_at_cpu(struct estimate_settings *s);

int plan_write_text(struct buf *out, const struct plan_entry *entries, size_t count);
int plan_write_json(struct buf *out, const struct plan_entry *entries, size_t count);

#endif
