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

/* Where a program that is not llama-server runs and listens. */
struct command_place {
    const char *program;
    const char *socket_path; /* NULL: a port */
    uint16_t port;
    unsigned threads;    /* as above */
    const char *wrapper; /* device sim: argv[0] of our own executable, which holds the memory */
};

/*
 * The same for a program; on a simulated card for the wrapper (`failsoft sim hold`), which runs it. In
 * arguments and in values of o->env, {port} and {socket} are replaced. 0; -ENOMEM.
 */
int command_build_program(const struct worker_options *o, const struct command_place *place,
                          char *const *environment, struct command *ret_command);

/* NULL is fine. */
void command_free(struct command *c);

/* The flag for a sampling setting's JSON name ("top_k" → "--top-k"), NULL: there is none. */
const char *command_sampling_flag(const char *json_name);

#endif
