/* What the engine says of its memory: reading it, weighing it, and a program that misbehaves. */
#include "unit.h"

#include "worker/dry_run.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define MIB (UINT64_C(1) << 20)

/* --- reading --- */

static int parse(const char *text, struct dry_run_sizes *ret)
{
    return dry_run_parse(span_from_str(text), ret);
}

static void reads_what_the_program_prints(void **state)
{
    (void)state;
    struct dry_run_sizes s;
    assert_int_equal(parse("SIM0 92 90 97 \nHost 28 0 6 \n", &s), 0);
    assert_int_equal(s.device_weights_bytes, 92 * MIB);
    assert_int_equal(s.device_cache_bytes, 90 * MIB);
    assert_int_equal(s.device_compute_bytes, 97 * MIB);
    assert_int_equal(s.host_weights_bytes, 28 * MIB);
    assert_int_equal(s.host_cache_bytes, 0);
    assert_int_equal(s.host_compute_bytes, 6 * MIB);
    /* The device was not found. */
    assert_int_equal(parse("Host 92 90 98 \n", &s), 0);
    assert_int_equal(s.device_weights_bytes, 0);
    uint64_t figures[DRY_RUN_FIGURES];
    struct dry_run_sizes again;
    dry_run_to_figures(&s, figures);
    assert_int_equal(dry_run_from_figures(figures, DRY_RUN_FIGURES, &again), 0);
    assert_memory_equal(&s, &again, sizeof(s));
    assert_int_equal(dry_run_from_figures(figures, 5, &again), -EPROTO);
    figures[0] = UINT64_MAX;
    assert_int_equal(dry_run_from_figures(figures, DRY_RUN_FIGURES, &again), -ERANGE);
}

static void refuses_everything_else(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",
        "\n",
        "SIM0 92 90 97 \n", /* cut off: no host */
        "SIM0 92 90 97\nHost 28 0",
        "SIM0 92 90 97\nHost 28 0 6 7\n",
        "SIM0 92 90 -1\nHost 28 0 6\n",
        "SIM0 92 90 1.5\nHost 28 0 6\n",
        "SIM0 92  90 97\nHost 28 0 6\n",
        "SIM0 0x9 90 97\nHost 28 0 6\n",
        "SIM0 123456789 90 97\nHost 28 0 6\n",
        "CUDA0 1 1 1\nCUDA1 1 1 1\nHost 28 0 6\n", /* which of them is ours? */
        "Host 28 0 6\nHost 28 0 6\n",
        "-c 4096 -ngl 99\n",
        "Printing estimated memory in MiB\nSIM0 92 90 97\nHost 28 0 6\n",
    };
    for (size_t i = 0; i < UNIT_COUNT(bad); i++) {
        struct dry_run_sizes s = {.device_weights_bytes = 7};
        if (parse(bad[i], &s) != -EPROTO)
            fail_msg("taken: %s", bad[i]);
        assert_int_equal(s.device_weights_bytes, 7);
    }
    struct dry_run_sizes s;
    assert_int_equal(parse("SIM0 99999999 90 97\nHost 28 0 6\n", &s), -ERANGE);
}

/* --- weighing --- */

static void high_confidence_is_not_touched(void **state)
{
    (void)state;
    struct dry_run_sizes s = {.device_weights_bytes = 500 * MIB};
    struct estimate e = {.confidence = ESTIMATE_CONFIDENCE_HIGH};
    uint64_t bound = 100 * MIB, floor = 90 * MIB;
    dry_run_refine(&s, &e, &bound, &floor);
    assert_int_equal(bound, 100 * MIB);
    assert_int_equal(floor, 90 * MIB);
}

static void low_confidence_takes_the_engines_bound(void **state)
{
    (void)state;
    struct dry_run_sizes s = {.device_weights_bytes = 92 * MIB,
                              .device_cache_bytes = 90 * MIB,
                              .device_compute_bytes = 97 * MIB};
    struct estimate e = {.confidence = ESTIMATE_CONFIDENCE_LOW};
    e.device[ESTIMATE_RUNTIME].upper_bytes = 10 * MIB;
    e.device[ESTIMATE_PROJECTOR].upper_bytes = 5 * MIB;
    e.device[ESTIMATE_DRAFT].upper_bytes = 6 * MIB;
    e.device[ESTIMATE_WEIGHTS].upper_bytes = 1; /* in its figures: not counted twice */
    uint64_t bound = 200 * MIB, floor = 0;
    dry_run_refine(&s, &e, &bound, &floor); /* the formula was under */
    assert_int_equal(bound, (92 + 90 + 97 + 3 + 21) * MIB);
    assert_int_equal(floor, (92 + 90) * MIB);
    bound = 500 * MIB, floor = 400 * MIB;
    dry_run_refine(&s, &e, &bound, &floor); /* it was over */
    assert_int_equal(bound, (92 + 90 + 97 + 3 + 21) * MIB);
    /* Never below half of it: the figures may come from anywhere. */
    bound = 2000 * MIB;
    dry_run_refine(&s, &e, &bound, &floor);
    assert_int_equal(bound, 1000 * MIB);
    e.device[ESTIMATE_RUNTIME].upper_bytes = UINT64_MAX;
    dry_run_refine(&s, &e, &bound, &floor);
    assert_true(bound == UINT64_MAX);
}

/* --- the program --- */

static char dir[64], engine[96], tool[96], model[96], record[96];

static void write_file(const char *path, const char *text, mode_t mode)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
    assert_int_equal(chmod(path, mode), 0);
}

static int setup(void **state)
{
    (void)state;
    snprintf(dir, sizeof(dir), "/tmp/failsoft-dry-XXXXXX");
    if (!mkdtemp(dir))
        return -1;
    snprintf(engine, sizeof(engine), "%s/llama-server", dir);
    snprintf(tool, sizeof(tool), "%s/llama-fit-params", dir);
    snprintf(model, sizeof(model), "%s/model.gguf", dir);
    snprintf(record, sizeof(record), "%s/record", dir);
    write_file(engine, "#!/bin/sh\nexit 1\n", 0700);
    write_file(model, "GGUF....", 0600);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    const char *const names[] = {engine, tool, model, record};
    for (size_t i = 0; i < UNIT_COUNT(names); i++)
        unlink(names[i]);
    return rmdir(dir);
}

struct answer {
    int pid, nice;
    unsigned times;
    int result;
    struct dry_run_sizes sizes;
    char why[160];
};

static void on_pid(int pid, void *ctx)
{
    struct answer *a = ctx;
    a->pid = pid;
    a->nice = getpriority(PRIO_PROCESS, (id_t)pid);
}

static void on_done(int result, const struct dry_run_sizes *sizes, const char *why, void *ctx)
{
    struct answer *a = ctx;
    a->times++;
    a->result = result;
    if (sizes)
        a->sizes = *sizes;
    snprintf(a->why, sizeof(a->why), "%s", why);
}

static const struct dry_run_events events = {.on_pid = on_pid, .on_done = on_done};

static struct worker_options options(void)
{
    struct worker_options o;
    worker_options_init(&o);
    o.service = "chat";
    o.tier = "gpu";
    o.engine_path = engine;
    o.model_path = model;
    o.device = WORKER_DEVICE_SIM;
    o.device_name = "gpu0";
    o.sim_card = "none";
    o.sim_plugin = model; /* readable: enough here */
    o.gpu_layers = -1;
    o.context_tokens = 1000;
    o.slots = 2;
    return o;
}

static struct answer ask_with(const struct worker_options *o, uint64_t deadline_ms)
{
    struct answer a = {.result = 1};
    struct dry_run *run = NULL;
    uv_loop_t loop;
    assert_int_equal(uv_loop_init(&loop), 0);
    assert_int_equal(dry_run_start(&loop, o, deadline_ms, &events, &a, &run), 0);
    assert_int_equal(a.times, 0);
    assert_int_equal(uv_run(&loop, UV_RUN_DEFAULT), 0);
    assert_int_equal(a.times, 1);
    assert_int_equal(uv_loop_close(&loop), 0);
    if (a.pid > 0) /* nobody is left */
        assert_true(kill(a.pid, 0) < 0 && errno == ESRCH);
    return a;
}

static struct answer ask(const char *script, uint64_t deadline_ms)
{
    struct worker_options o = options();
    char text[512];
    snprintf(text, sizeof(text), "#!/bin/sh\n%s\n", script);
    write_file(tool, text, 0700);
    return ask_with(&o, deadline_ms);
}

static void asks_with_the_settings_of_the_worker(void **state)
{
    (void)state;
    const char *const args[] = {"--override-tensor", "x=CPU"};
    struct worker_options o = options();
    char script[512], line[1024] = "";
    o.args = args;
    o.arg_count = 2;
    snprintf(
        script, sizeof(script),
        "#!/bin/sh\necho \"$FAILSOFT_SIM_CARD $*\" > %s\necho 'SIM0 1 2 3'\necho 'Host 4 5 6'\n",
        record);
    write_file(tool, script, 0700);
    struct answer a = ask_with(&o, 10000);
    assert_int_equal(a.result, 0);
    assert_int_equal(a.sizes.device_cache_bytes, 2 * MIB);
    assert_true(a.nice > 0);
    FILE *file = fopen(record, "r");
    assert_non_null(file);
    assert_non_null(fgets(line, sizeof(line), file));
    fclose(file);
    char expected[512];
    snprintf(expected, sizeof(expected),
             "none -m %s -c 2000 -np 2 -t 1 -ngl 999 -fa on -ctk f16 -ctv f16 -b 256 -ub 64 "
             "--override-tensor x=CPU --fit-print on --offline\n",
             model);
    assert_string_equal(line, expected);
}

static void a_program_that_refuses_or_is_not_there(void **state)
{
    (void)state;
    struct worker_options o = options();
    assert_int_equal(ask_with(&o, 10000).result, -ENOENT);
    struct answer a =
        ask("echo first >&2; printf 'error: invalid argument: \\033--x\\n' >&2; exit 1", 10000);
    assert_int_equal(a.result, -EIO);
    assert_string_equal(a.why, "error: invalid argument: ?--x");
    assert_int_equal(ask("kill -SEGV $$", 10000).result, -EIO);
    assert_int_equal(ask("exit 0", 10000).result, -EPROTO);
    o.model_path = tool; /* no GGUF file */
    assert_int_equal(ask_with(&o, 10000).result, -EINVAL);
}

static void a_program_that_does_not_end(void **state)
{
    (void)state;
    assert_int_equal(ask("trap '' TERM; while :; do sleep 1; done", 100).result, -ETIMEDOUT);
}

static void a_program_that_talks_without_end(void **state)
{
    (void)state;
    assert_int_equal(ask("yes 'SIM0 1 2 3' | head -n 100000; echo 'Host 1 1 1'", 20000).result,
                     -EPROTO);
    /* What was kept of it would be an answer. */
    assert_int_equal(
        ask("echo 'Host 1 1 1'; yes '' | head -n 5000; echo 'Host 2 2 2'", 20000).result, -EPROTO);
}

static void cancelled_at_any_time(void **state)
{
    (void)state;
    for (unsigned turns = 0; turns < 4; turns++) {
        struct worker_options o = options();
        struct answer a = {0};
        struct dry_run *run = NULL;
        uv_loop_t loop;
        write_file(tool, "#!/bin/sh\nwhile :; do sleep 1; done\n", 0700);
        assert_int_equal(uv_loop_init(&loop), 0);
        assert_int_equal(dry_run_start(&loop, &o, 10000, &events, &a, &run), 0);
        for (unsigned i = 0; i < turns; i++)
            uv_run(&loop, UV_RUN_NOWAIT);
        while (turns == 3 && a.pid == 0) /* until it runs */
            uv_run(&loop, UV_RUN_ONCE);
        dry_run_cancel(run);
        assert_int_equal(uv_run(&loop, UV_RUN_DEFAULT), 0);
        assert_int_equal(a.times, 0);
        assert_int_equal(uv_loop_close(&loop), 0);
        if (a.pid > 0)
            assert_true(kill(a.pid, 0) < 0);
    }
    dry_run_cancel(NULL);
}

static void only_for_engines_of_ours_on_a_device(void **state)
{
    (void)state;
    struct dry_run *run = NULL;
    struct worker_options o = options();
    o.device = WORKER_DEVICE_NONE;
    assert_int_equal(dry_run_start(uv_default_loop(), &o, 1, &events, NULL, &run), -EINVAL);
    o = options();
    o.url = "http://127.0.0.1:1";
    assert_int_equal(dry_run_start(uv_default_loop(), &o, 1, &events, NULL, &run), -EINVAL);
    assert_null(run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_what_the_program_prints),
        cmocka_unit_test(refuses_everything_else),
        cmocka_unit_test(high_confidence_is_not_touched),
        cmocka_unit_test(low_confidence_takes_the_engines_bound),
        cmocka_unit_test_setup_teardown(asks_with_the_settings_of_the_worker, setup, teardown),
        cmocka_unit_test_setup_teardown(a_program_that_refuses_or_is_not_there, setup, teardown),
        cmocka_unit_test_setup_teardown(a_program_that_does_not_end, setup, teardown),
        cmocka_unit_test_setup_teardown(a_program_that_talks_without_end, setup, teardown),
        cmocka_unit_test_setup_teardown(cancelled_at_any_time, setup, teardown),
        cmocka_unit_test(only_for_engines_of_ours_on_a_device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
