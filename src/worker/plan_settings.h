/*
 * From a tier of the configuration to the settings of a memory estimate: the counterpart of
 * worker/command.h, which makes the command line from the same options. Pure.
 */
#ifndef FAILSOFT_WORKER_PLAN_SETTINGS_H
#define FAILSOFT_WORKER_PLAN_SETTINGS_H

#include "config/config.h"
#include "model/estimate.h"

#include <stdbool.h>

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

#endif
