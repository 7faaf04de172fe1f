/*
 * `failsoft sim`: makes, shows and commands simulated cards (sim/card.h).
 *
 * Exit status: 0 done, 1 a finding (what was asked for does not fit, or did not happen in time),
 * 2 usage, 3 environment (no such card, no shared memory, ...).
 */
#ifndef FAILSOFT_CLI_SIM_H
#define FAILSOFT_CLI_SIM_H

/* argv[0] is "sim". Returns the exit status. */
int cli_sim_main(int argc, char **argv);

#endif
