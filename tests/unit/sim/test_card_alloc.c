/*
 * The allocator against a naive model that marks every page, and against other processes.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "card_rig.h"

#define MODEL_PAGES  512
#define MODEL_BLOCKS 256

/* Each page holds the number of its block, 0 when free. Pages beyond `limit` are not there. */
struct model {
    uint16_t page[MODEL_PAGES];
    size_t limit;
    uint64_t id[MODEL_BLOCKS + 1]; /* of the card's block; 0: no such block */
};

static size_t model_used(const struct model *model)
{
    size_t used = 0;

    for (size_t i = 0; i < MODEL_PAGES; i++)
        used += model->page[i] != 0;
    return used;
}

static size_t model_free(const struct model *model)
{
    size_t used = model_used(model);

    return model->limit > used ? model->limit - used : 0;
}

static size_t model_largest(const struct model *model)
{
    size_t largest = 0;
    size_t run = 0;

    for (size_t i = 0; i < model->limit; i++) {
        run = model->page[i] == 0 ? run + 1 : 0;
        if (run > largest)
            largest = run;
    }
    return largest < model_free(model) ? largest : model_free(model);
}

/* First page of the first hole of n, SIZE_MAX when there is none. */
static size_t model_fit(const struct model *model, size_t n)
{
    size_t run = 0;

    if (n > model_free(model))
        return SIZE_MAX;
    for (size_t i = 0; i < model->limit; i++) {
        run = model->page[i] == 0 ? run + 1 : 0;
        if (run == n)
            return i + 1 - n;
    }
    return SIZE_MAX;
}

static uint64_t card_offset(const struct sim_card *card, uint64_t id)
{
    for (size_t i = 0; i < SIM_BLOCKS_MAX; i++)
        if (card->shared->blocks[i].state == SIM_SLOT_HELD && card->shared->blocks[i].id == id)
            return card->shared->blocks[i].offset;
    return UINT64_MAX;
}

static void model_alloc(struct model *model, struct sim_card *card, size_t pages)
{
    size_t at = model_fit(model, pages);
    uint16_t slot = 1;
    uint64_t id = 0;
    int r;

    while (slot <= MODEL_BLOCKS && model->id[slot] != 0)
        slot++;
    if (slot > MODEL_BLOCKS)
        return;
    /* An odd number of bytes now and then: it is rounded up to pages. */
    r = sim_card_alloc(card, pages * SIM_PAGE_BYTES - (pages & 1), &id);
    assert_int_equal(r, at == SIZE_MAX ? -ENOMEM : 0);
    if (r < 0)
        return;
    assert_true(card_offset(card, id) == at * SIM_PAGE_BYTES);
    model->id[slot] = id;
    for (size_t i = at; i < at + pages; i++)
        model->page[i] = slot;
}

static void model_release(struct model *model, struct sim_card *card, uint16_t slot)
{
    if (model->id[slot] == 0)
        return;
    assert_int_equal(sim_card_free(card, model->id[slot]), 0);
    assert_int_equal(sim_card_free(card, model->id[slot]), -ENOENT);
    model->id[slot] = 0;
    for (size_t i = 0; i < MODEL_PAGES; i++)
        if (model->page[i] == slot)
            model->page[i] = 0;
}

static void model_resize(struct model *model, struct sim_card *card, size_t pages)
{
    struct sim_settings settings = {.capacity_bytes = (pages + 3) * SIM_PAGE_BYTES,
                                    .reserve_bytes = 3 * SIM_PAGE_BYTES};

    assert_int_equal(sim_card_set(card, &settings, SIM_SET_CAPACITY | SIM_SET_RESERVE), 0);
    model->limit = pages;
}

static void model_compare(const struct model *model, struct sim_card *card)
{
    const struct sim_snapshot *snapshot = rig_look(card);
    size_t used = model_used(model);

    assert_int_equal(snapshot->used_bytes, used * SIM_PAGE_BYTES);
    assert_int_equal(snapshot->free_bytes, model_free(model) * SIM_PAGE_BYTES);
    assert_int_equal(snapshot->largest_free_bytes, model_largest(model) * SIM_PAGE_BYTES);
    assert_int_equal(snapshot->overcommitted_bytes,
                     used > model->limit ? (used - model->limit) * SIM_PAGE_BYTES : 0);
}

static void test_against_model(void **state)
{
    struct sim_card *card = rig_open(SIM_ROLE_ENGINE);
    struct model *model = calloc(1, sizeof *model);
    uint64_t seed = 0x9e3779b97f4a7c15ull;

    (void)state;
    assert_non_null(model);
    model_resize(model, card, MODEL_PAGES);
    for (int round = 0; round < 6000; round++) {
        uint32_t dice = rig_random(&seed) % 100;

        if (dice < 55)
            model_alloc(model, card, 1 + rig_random(&seed) % (dice < 45 ? 8 : 90));
        else if (dice < 97)
            model_release(model, card, (uint16_t)(1 + rig_random(&seed) % MODEL_BLOCKS));
        else
            model_resize(model, card, MODEL_PAGES / 4 + rig_random(&seed) % (MODEL_PAGES * 3 / 4));
        model_compare(model, card);
    }
    rig_check_table(card);
    free(model);
    sim_card_close(card);
}

static void test_fragmentation_and_merging(void **state)
{
    struct sim_card *card = rig_open(SIM_ROLE_ENGINE);
    uint64_t ids[8];
    uint64_t big = 0;

    (void)state;
    for (size_t i = 0; i < 8; i++)
        assert_int_equal(sim_card_alloc(card, 8 * MIB, &ids[i]), 0);
    for (size_t i = 0; i < 8; i += 2)
        assert_int_equal(sim_card_free(card, ids[i]), 0);
    /* Half is free, and yet nothing larger than one hole fits. */
    assert_int_equal(rig_look(card)->free_bytes, 32 * MIB);
    assert_int_equal(rig_look(card)->largest_free_bytes, 8 * MIB);
    assert_int_equal(sim_card_alloc(card, 8 * MIB + 1, &big), -ENOMEM);
    /* The block between two holes goes: three neighbours are one. */
    assert_int_equal(sim_card_free(card, ids[1]), 0);
    assert_int_equal(rig_look(card)->largest_free_bytes, 24 * MIB);
    assert_int_equal(sim_card_alloc(card, 24 * MIB, &big), 0);
    assert_int_equal(card_offset(card, big), 0);
    sim_card_close(card);
}

static void test_bounds(void **state)
{
    struct sim_card *card = rig_open(SIM_ROLE_ENGINE);
    struct sim_card *observer = rig_open(SIM_ROLE_OBSERVER);
    uint64_t id = 0;

    (void)state;
    assert_int_equal(sim_card_alloc(card, 0, &id), -EINVAL);
    assert_int_equal(sim_card_alloc(card, UINT64_MAX, &id), -ENOMEM);
    assert_int_equal(sim_card_alloc(card, UINT64_MAX - 4096, &id), -ENOMEM);
    assert_int_equal(sim_card_alloc(card, 64 * MIB + 1, &id), -ENOMEM);
    assert_int_equal(sim_card_alloc(observer, 1, &id), -EINVAL);
    assert_int_equal(id, 0);
    assert_int_equal(sim_card_alloc(card, 64 * MIB, &id), 0);
    assert_int_equal(sim_card_alloc(card, 1, &id), -ENOMEM);
    /* Only the holder frees. */
    assert_int_equal(sim_card_free(observer, id), -ENOENT);
    sim_card_close(observer);
    sim_card_close(card);
}

static void test_block_table_full(void **state)
{
    struct sim_card *card = rig_open(SIM_ROLE_ENGINE);
    uint64_t id = 0;

    (void)state;
    for (size_t i = 0; i < SIM_BLOCKS_MAX; i++)
        assert_int_equal(sim_card_alloc(card, 1, &id), 0);
    assert_int_equal(sim_card_alloc(card, 1, &id), -ENOSPC);
    assert_int_equal(sim_card_free(card, id), 0);
    assert_int_equal(sim_card_alloc(card, 1, &id), 0);
    sim_card_close(card);
}

#define RACE_ROUNDS 150

struct race {
    pthread_barrier_t barrier;
    int won[2][RACE_ROUNDS];
};

struct racer {
    struct race *race;
    int who;
};

/* Both want what only one can have; who gets it keeps it until both have tried. */
static int race_body(void *argument)
{
    struct racer *racer = argument;
    struct race *race = racer->race;
    struct sim_card *card = rig_open(SIM_ROLE_ENGINE);
    int who = racer->who;

    for (int round = 0; round < RACE_ROUNDS; round++) {
        uint64_t id = 0;

        pthread_barrier_wait(&race->barrier);
        race->won[who][round] = sim_card_alloc(card, 40 * MIB, &id) == 0;
        pthread_barrier_wait(&race->barrier);
        if (race->won[who][round] && sim_card_free(card, id) != 0)
            return 1;
    }
    sim_card_close(card);
    return 0;
}

static void test_race_for_the_last_bytes(void **state)
{
    struct race *race =
        mmap(NULL, sizeof *race, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pthread_barrierattr_t attributes;
    pid_t pids[2];

    (void)state;
    assert_true(race != MAP_FAILED);
    pthread_barrierattr_init(&attributes);
    pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&race->barrier, &attributes, 2);
    for (int who = 0; who < 2; who++) {
        struct racer racer = {race, who};

        pids[who] = rig_fork(race_body, &racer);
    }
    for (int who = 0; who < 2; who++)
        assert_int_equal(rig_reap(pids[who]), 0);
    for (int round = 0; round < RACE_ROUNDS; round++)
        assert_int_equal(race->won[0][round] + race->won[1][round], 1);
    munmap(race, sizeof *race);
}

struct churn {
    uint64_t seed;
};

static int churn_body(void *argument)
{
    struct churn *churn = argument;
    struct sim_card *card = rig_open(SIM_ROLE_ENGINE);
    uint64_t ids[32] = {0};

    for (int i = 0; i < 1500; i++) {
        size_t slot = rig_random(&churn->seed) % 32;

        if (ids[slot] != 0) {
            if (sim_card_free(card, ids[slot]) != 0)
                return 1;
            ids[slot] = 0;
        } else if (sim_card_alloc(card, 1 + rig_random(&churn->seed) % (4 * MIB), &ids[slot]) < 0) {
            ids[slot] = 0;
        }
    }
    sim_card_close(card);
    return 0;
}

static void test_many_processes_churn(void **state)
{
    struct sim_card *card = rig_open(SIM_ROLE_OBSERVER);
    struct churn churn[4];
    pid_t pids[4];
    int left = 4;

    (void)state;
    for (size_t i = 0; i < 4; i++) {
        churn[i].seed = 77 + i;
        pids[i] = rig_fork(churn_body, &churn[i]);
    }
    for (size_t i = 0; left > 0; i = (i + 1) % 4) {
        const struct sim_snapshot *snapshot = rig_look(card);
        int status = 0;

        assert_true(snapshot->used_bytes <= 64 * MIB);
        assert_int_equal(snapshot->used_bytes + snapshot->free_bytes, 64 * MIB);
        if (pids[i] == 0 || waitpid(pids[i], &status, WNOHANG) != pids[i])
            continue;
        assert_int_equal(status, 0);
        pids[i] = 0;
        left--;
    }
    assert_int_equal(rig_look(card)->used_bytes, 0);
    assert_int_equal(rig_look(card)->counters.lock_recoveries, 0);
    assert_int_equal(rig_look(card)->counters.blocks_repaired, 0);
    sim_card_close(card);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_against_model, rig_setup, rig_teardown),
        cmocka_unit_test_setup_teardown(test_fragmentation_and_merging, rig_setup, rig_teardown),
        cmocka_unit_test_setup_teardown(test_bounds, rig_setup, rig_teardown),
        cmocka_unit_test_setup_teardown(test_block_table_full, rig_setup, rig_teardown),
        cmocka_unit_test_setup_teardown(test_race_for_the_last_bytes, rig_setup, rig_teardown),
        cmocka_unit_test_setup_teardown(test_many_processes_churn, rig_setup, rig_teardown),
    };

    return cmocka_run_group_tests_name("sim_card_alloc", tests, NULL, NULL);
}
