/*
 * The command line and environment that an engine is started with. Pure: takes options and figures,
 * makes two argument vectors.
 *
 * Facts about the flags: llama.cpp v0.4.0, common/arg.cpp and tools/server/README.md.
 */
#ifndef FAILSOFT_WORKER_COMMAND_H
#define FAILSOFT_WORKER_COMMAND_H

#include "worker/options.h"

#include <stddef.h>

struct command {
    char **argv; /* NULL at the end */
    char **envp;
    size_t argc;
    size_t envc;
};

/*
 * argv[0] is `program`; `threads` is what cpu_limit_threads() said; `environment` is the
 * gateway's own (environ). 0; -ENOMEM. *ret_command is freed with command_free().
 */
int command_build(const struct worker_options *o, const char *program, const char *socket_path,
                  unsigned threads, char *const *environment, struct command *ret_command);

/* NULL is fine. */
void command_free(struct command *c);

/* The flag for a sampling setting's JSON name ("top_k" → "--top-k"), NULL: there is none. */
const char *command_sampling_flag(const char *json_name);

#endif
