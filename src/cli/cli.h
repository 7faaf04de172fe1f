/*
 * What the commands share: exit statuses, the table of commands, reading arguments, messages.
 *
 * Facts go to stdout (`--json` for machines), everything else to stderr.
 */
#ifndef FAILSOFT_CLI_CLI_H
#define FAILSOFT_CLI_CLI_H

#include "base/buf.h"

#include <stdbool.h>

enum cli_exit {
    CLI_EXIT_GOOD = 0,
    CLI_EXIT_FINDING = 1,     /* it works, and what it looked at is not good */
    CLI_EXIT_USAGE = 2,       /* the command line is wrong */
    CLI_EXIT_ENVIRONMENT = 3, /* something outside is missing: a file, a port, a gateway */
};

/* Each takes argv with argv[0] = its name and returns an exit status. */
int cli_serve_main(int argc, char **argv);
int cli_check_main(int argc, char **argv);
int cli_plan_main(int argc, char **argv);
int cli_status_main(int argc, char **argv);
int cli_sim_main(int argc, char **argv);
int cli_version_main(int argc, char **argv);
int cli_yield_main(int argc, char **argv);

enum cli_flag_kind {
    CLI_FLAG_SWITCH = 0, /* --name */
    CLI_FLAG_VALUE,      /* --name VALUE or --name=VALUE */
    CLI_FLAG_OPTIONAL,   /* --name or --name=VALUE */
};

struct cli_flag {
    const char *name; /* with the dashes */
    enum cli_flag_kind kind;
    bool *given;        /* set when present; may be NULL */
    const char **value; /* set for VALUE and OPTIONAL; points into argv */
};

struct cli_arguments {
    const char *command;          /* for messages */
    const char *help;             /* printed for --help */
    const struct cli_flag *flags; /* ends with a NULL name */
    const char **operand;         /* the one word without dashes; NULL: none is taken */
};

/*
 * Reads the arguments of a command. <0: done, exit with *ret_exit (help was printed, or a mistake
 * told with "did you mean"); 0: go on.
 */
int cli_read_arguments(const struct cli_arguments *a, int argc, char **argv, int *ret_exit);

/*
 * The configuration file: the one named, or the default one (config_find_default). 0; -ENOENT and
 * a message to stderr when none is named and none found; -ENAMETOOLONG.
 */
int cli_find_config(const char *named, char *out, size_t out_size);

/* Writes the buffer to stdout. 0 or -EIO (closed pipe, full disk). */
int cli_print(const struct buf *b);

struct config_report;

/* Every problem as `path:line:column: error: message` lines, for a terminal or a log. */
int cli_write_problems(const struct config_report *report, struct buf *out);

#endif
