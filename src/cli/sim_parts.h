/*
 * What the files of `failsoft sim` share. Private to cli/sim*.c.
 *
 *   sim.c        dispatch, and the commands that change a card
 *   sim_args.c   reading the command line: settings table, values, complaints
 *   sim_show.c   show (text and JSON), wait
 *   sim_hold.c   hog and hold: processes that hold memory of a card
 */
#ifndef FAILSOFT_CLI_SIM_PARTS_H
#define FAILSOFT_CLI_SIM_PARTS_H

#include <stdbool.h>
#include <stdint.h>

#include "sim/card.h"

#define SIM_EXIT_GOOD        0
#define SIM_EXIT_FINDING     1
#define SIM_EXIT_USAGE       2
#define SIM_EXIT_ENVIRONMENT 3

/*
 * One `--name [VALUE]` of a command. A row with takes_value false is a flag. `seen` and `value` are
 * filled by sim_args_read().
 */
struct sim_option {
    const char *name; /* with its dashes */
    bool takes_value;
    bool seen;
    const char *value;
};

/* "failsoft sim: ..." on stderr; returns the status given, so that `return sim_complain(...)` works. */
int sim_complain(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The same for a negative errno of the card's functions. */
int sim_complain_card(const char *name, int error);

/*
 * Reads `NAME` and options: argv[0] is the command. Everything in `options` (closed by a NULL
 * name) is taken; anything else is a usage error that says what is allowed. `--` stops; *ret_rest
 * (may be NULL: then `--` is an error) is the index after it, or argc. *ret_name is NULL without a
 * name. 0 or SIM_EXIT_USAGE, complained.
 */
int sim_args_read(int argc, char **argv, struct sim_option *options, const char **ret_name,
                  int *ret_rest);
struct sim_option *sim_option_find(struct sim_option *options, const char *name);

/* Values; `what` names the option in the complaint. 0 or SIM_EXIT_USAGE, complained. */
int sim_value_bytes(const char *what, const char *text, uint64_t *ret_bytes);
int sim_value_duration(const char *what, const char *text, uint64_t *ret_ms);
int sim_value_count(const char *what, const char *text, uint64_t *ret_count);

/*
 * Settings written as `key=value` or `--key value`, from argv[first] on. *ret_mask says which.
 * 0 or SIM_EXIT_USAGE, complained.
 */
int sim_settings_read(int argc, char **argv, int first, struct sim_settings *settings,
                      uint32_t *ret_mask);
/* A line per setting, for the help text. */
void sim_settings_help(void);

/* Opens the card or complains. 0 or an exit status. */
int sim_open(const char *name, enum sim_role role, struct sim_card **ret_card);

int sim_show(int argc, char **argv);
int sim_wait(int argc, char **argv);
int sim_hog(int argc, char **argv);
int sim_hold(int argc, char **argv);

#endif
