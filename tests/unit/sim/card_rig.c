/*
 * Card test rig: see card_rig.h.
 */
#include "card_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static char rig_dir[64];

int rig_setup(void **state)
{
    struct sim_settings settings;
    char why[SIM_WHY_MAX] = "";

    (void)state;
    snprintf(rig_dir, sizeof rig_dir, "/dev/shm/failsoft-test-XXXXXX");
    if (mkdtemp(rig_dir) == NULL || setenv(SIM_DIR_ENV, rig_dir, 1) != 0)
        return -1;
    sim_test_point = NULL;
    sim_test_now_ms = NULL;
    sim_settings_init(&settings, 64 * MIB);
    settings.release_delay_ms = 0;
    return sim_card_create("t", &settings, why, sizeof why);
}

int rig_teardown(void **state)
{
    char names[8][SIM_NAME_MAX];
    int count = sim_card_list(names, 8);

    (void)state;
    sim_test_point = NULL;
    sim_test_now_ms = NULL;
    for (int i = 0; i < count && i < 8; i++)
        sim_card_destroy(names[i], true, NULL, 0);
    return rmdir(rig_dir);
}

struct sim_card *rig_open(enum sim_role role)
{
    struct sim_card *card = NULL;
    char why[SIM_WHY_MAX] = "";
    int r = sim_card_open("t", role, &card, why, sizeof why);

    if (r < 0)
        fail_msg("open: %d %s", r, why);
    return card;
}

const struct sim_snapshot *rig_look(struct sim_card *card)
{
    static struct sim_snapshot snapshot;

    assert_int_equal(sim_card_snapshot(card, &snapshot), 0);
    return &snapshot;
}

void rig_check_table(const struct sim_card *card)
{
    const struct sim_shared *shared = card->shared;
    struct sim_usage usage;
    uint64_t total = 0;

    for (size_t i = 0; i < SIM_BLOCKS_MAX; i++) {
        const struct sim_block *a = &shared->blocks[i];

        if (a->state == SIM_SLOT_FREE)
            continue;
        assert_true(a->state <= SIM_SLOT_RELEASING);
        assert_true(a->size_bytes > 0);
        total += a->size_bytes;
        for (size_t j = i + 1; j < SIM_BLOCKS_MAX; j++) {
            const struct sim_block *b = &shared->blocks[j];

            if (b->state == SIM_SLOT_FREE)
                continue;
            assert_true(a->offset + a->size_bytes <= b->offset ||
                        b->offset + b->size_bytes <= a->offset);
            assert_true(a->id != b->id);
        }
    }
    sim_usage_derive(shared, &usage);
    assert_true(usage.used_bytes + usage.spilled_bytes == total);
    assert_true(usage.largest_free_bytes <= usage.free_bytes);
}

pid_t rig_fork(int (*body)(void *), void *argument)
{
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0)
        _exit(body(argument));
    return pid;
}

int rig_reap(pid_t pid)
{
    int status = 0;

    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

void rig_path(const char *name, char *out, size_t out_size)
{
    snprintf(out, out_size, "%s/failsoft-sim-%s-%u", rig_dir, name, (unsigned)geteuid());
}

uint32_t rig_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return (uint32_t)(*state >> 32);
}
