/*
 * What the card's tests share: a card of their own in a folder of their own, children that do one
 * thing to it, and checks that must hold whatever happened.
 */
#ifndef FAILSOFT_TESTS_SIM_CARD_RIG_H
#define FAILSOFT_TESTS_SIM_CARD_RIG_H

#include <sys/types.h>

#include "sim/card_shared.h"

#define MIB (1024ull * 1024ull)

/* cmocka set-up and tear-down of a test: a folder, and in it card "t" of 64 MiB, no delay. */
int rig_setup(void **state);
int rig_teardown(void **state);

/* Opens card "t" or fails the test. */
struct sim_card *rig_open(enum sim_role role);
/* One snapshot; the caller need not free it. */
const struct sim_snapshot *rig_look(struct sim_card *card);
/* No two blocks share a byte, sums agree with blocks, limits hold. Takes no lock. */
void rig_check_table(const struct sim_card *card);
/* Runs `body` in a child and returns its pid; the child exits with what body returns. */
pid_t rig_fork(int (*body)(void *), void *argument);
/* Waits for it; the raw status. */
int rig_reap(pid_t pid);
/* The path of card NAME's file. */
void rig_path(const char *name, char *out, size_t out_size);
/* A small repeatable random number generator (xorshift). */
uint32_t rig_random(uint64_t *state);

#endif
