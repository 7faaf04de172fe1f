/*
 * The same life with the real llama-server, on the CPU and on the simulated accelerator. Skipped
 * where no engine is provisioned: FAILSOFT_ENGINE, FAILSOFT_CHAT_MODEL, FAILSOFT_EMBED_MODEL and
 * FAILSOFT_SIM_PLUGIN say where things are.
 */
#include "worker_rig.h"

#include "sim/card.h"
#include "tests/unit/unit.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct rig rig;
static char card[SIM_NAME_MAX];

static int setup(void **state)
{
    (void)state;
    rig_init(&rig);
    rig.options.env_count = 0;
    rig.options.engine_path = getenv("FAILSOFT_ENGINE");
    rig.options.model_path = getenv("FAILSOFT_CHAT_MODEL");
    rig.options.context_tokens = 512;
    rig.options.threads = 1;
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    rig_end(&rig);
    if (card[0] != '\0')
        sim_card_destroy(card, true, NULL, 0);
    card[0] = '\0';
    return 0;
}

/* Where everything is provided, nothing may be skipped. */
static void need(const void *thing, const char *name)
{
    if (thing != NULL)
        return;
    if (getenv("FAILSOFT_REQUIRE_ENGINE") != NULL)
        fail_msg("%s is not set", name);
    skip();
}

static void need_engine(void)
{
    need(rig.options.engine_path, "FAILSOFT_ENGINE");
    need(rig.options.model_path, "FAILSOFT_CHAT_MODEL");
}

static void need_card(uint64_t capacity_bytes, uint64_t release_delay_ms)
{
    struct sim_settings settings;
    char why[SIM_WHY_MAX];

    need_engine();
    rig.options.sim_plugin = getenv("FAILSOFT_SIM_PLUGIN");
    need(rig.options.sim_plugin, "FAILSOFT_SIM_PLUGIN");
    snprintf(card, sizeof(card), "unit-%ld", (long)getpid());
    sim_settings_init(&settings, capacity_bytes);
    settings.release_delay_ms = release_delay_ms;
    if (sim_card_create(card, &settings, why, sizeof(why)) < 0)
        fail_msg("%s", why);
    rig.options.tier = "gpu";
    rig.options.device = WORKER_DEVICE_SIM;
    rig.options.device_name = "gpu0";
    rig.options.sim_card = card;
    rig.options.gpu_layers = -1;
    rig.options.require_device = true;
}

static uint64_t used_bytes(void)
{
    struct sim_card *c = NULL;
    struct sim_snapshot *snapshot = malloc(sizeof(*snapshot));
    uint64_t used;

    assert_non_null(snapshot);
    assert_int_equal(sim_card_open(card, SIM_ROLE_OBSERVER, &c, NULL, 0), 0);
    assert_int_equal(sim_card_snapshot(c, snapshot), 0);
    used = snapshot->used_bytes;
    sim_card_close(c);
    free(snapshot);
    return used;
}

static void show_tail(void)
{
    struct span lines[8];
    size_t n = worker_log_tail(rig.worker, lines, 8);

    for (size_t i = 0; i < n; i++)
        print_message("  | %.*s\n", SPAN_FMT(lines[i]));
}

static void until_ready(void)
{
    rig_until_state(&rig, WORKER_STATE_READY);
    if (worker_warning(rig.worker)[0] != '\0')
        show_tail();
    assert_string_equal(worker_warning(rig.worker), "");
}

static void cpu_worker_lives(void **state)
{
    uint32_t offloaded = 1, layers = 0;
    int first;

    (void)state;
    need_engine();
    rig_create(&rig);
    worker_start(rig.worker);
    until_ready();
    assert_true(worker_offload(rig.worker, &offloaded, &layers));
    assert_int_equal(offloaded, 0);
    assert_true(layers > 0);
    first = worker_pid(rig.worker);
    kill(first, SIGKILL);
    rig_until_state(&rig, WORKER_STATE_BACKOFF);
    until_ready();
    assert_int_not_equal(worker_pid(rig.worker), first);
    rig_stop(&rig);
}

static void embeddings_worker_lives(void **state)
{
    (void)state;
    need_engine();
    rig.options.model_path = getenv("FAILSOFT_EMBED_MODEL");
    need(rig.options.model_path, "FAILSOFT_EMBED_MODEL");
    rig.options.embeddings = true;
    rig_create(&rig);
    worker_start(rig.worker);
    until_ready();
    rig_stop(&rig);
}

static void broken_model_is_one_sentence(void **state)
{
    (void)state;
    need_engine();
    rig.options.model_path = rig.model; /* starts like a GGUF file */
    rig.options.failed_starts = 2;
    rig_create(&rig);
    worker_start(rig.worker);
    rig_until_state(&rig, WORKER_STATE_FAILED);
    print_message("  reason: %s\n", worker_reason(rig.worker));
    assert_non_null(strstr(worker_reason(rig.worker), "exited with status 1 after"));
    assert_non_null(strstr(worker_reason(rig.worker), "gguf"));
}

static void sim_worker_uses_the_card_and_gives_it_back(void **state)
{
    uint64_t died_at;

    (void)state;
    need_card(1ull << 30, 800);
    rig_create(&rig);
    worker_start(rig.worker);
    until_ready();
    assert_true(used_bytes() > 64ull << 20);
    kill(worker_pid(rig.worker), SIGKILL);
    rig_until_state(&rig, WORKER_STATE_BACKOFF);
    died_at = worker_state_since_ms(rig.worker);
    rig_until_state(&rig, WORKER_STATE_LOADING);
    /* Not before the memory is back: the card keeps it for 800 ms. */
    assert_true(worker_state_since_ms(rig.worker) - died_at >= 800);
    assert_string_equal(worker_warning(rig.worker), "");
    until_ready();
    rig_stop(&rig);
}

static void card_that_is_too_small(void **state)
{
    (void)state;
    need_card(32ull << 20, 0);
    rig.options.failed_starts = 1;
    rig_create(&rig);
    worker_start(rig.worker);
    rig_until_state(&rig, WORKER_STATE_FAILED);
    print_message("  reason: %s\n", worker_reason(rig.worker));
    assert_non_null(strstr(worker_reason(rig.worker), "out of memory"));
}

static void hidden_card_is_not_taken_for_a_gpu(void **state)
{
    struct sim_card *c = NULL;
    struct sim_settings settings = {.hidden = true};

    (void)state;
    need_card(1ull << 30, 0);
    assert_int_equal(sim_card_open(card, SIM_ROLE_OBSERVER, &c, NULL, 0), 0);
    assert_int_equal(sim_card_set(c, &settings, SIM_SET_HIDDEN), 0);
    sim_card_close(c);
    rig_create(&rig);
    worker_start(rig.worker);
    rig_until_state(&rig, WORKER_STATE_FAILED);
    print_message("  reason: %s\n", worker_reason(rig.worker));
    assert_non_null(strstr(worker_reason(rig.worker), "runs on the CPU"));
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(cpu_worker_lives),
        T(embeddings_worker_lives),
        T(broken_model_is_one_sentence),
        T(sim_worker_uses_the_card_and_gives_it_back),
        T(card_that_is_too_small),
        T(hidden_card_is_not_taken_for_a_gpu),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
