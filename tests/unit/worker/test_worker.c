/*
 * The life of a managed worker, driven with a pretended engine on a real loop: every way into and
 * out of every state, and that nothing is left afterwards (rig_end checks that after each test).
 */
#include "worker_rig.h"

#include "tests/unit/unit.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#include <yyjson.h>

static struct rig rig;

static int setup(void **state)
{
    (void)state;
    rig_init(&rig);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    rig_end(&rig);
    return 0;
}

static void start(const char *orders)
{
    rig_orders(&rig, orders);
    rig_create(&rig);
    assert_int_equal(worker_get_state(rig.worker), WORKER_STATE_STOPPED);
    worker_start(rig.worker);
}

#define assert_trace(...)                                                                          \
    check_trace((const enum worker_state[]){__VA_ARGS__},                                          \
                sizeof((const enum worker_state[]){__VA_ARGS__}) / sizeof(enum worker_state))

static void check_trace(const enum worker_state *expected, size_t count)
{
    for (size_t i = 0; i < count && i < rig.trace_count; i++)
        assert_string_equal(worker_state_name(rig.trace[i]), worker_state_name(expected[i]));
    assert_int_equal(rig.trace_count, count);
}

#define assert_contains(text, part)                                                                \
    do {                                                                                           \
        if (strstr((text), (part)) == NULL)                                                        \
            fail_msg("\"%s\" lacks \"%s\"", (text), (part));                                       \
    } while (0)

/* --- the good day --- */

static void starts_gets_ready_and_stops(void **state)
{

    (void)state;
    start("{}");
    rig_until_state(&rig, WORKER_STATE_READY);
    assert_trace(WORKER_STATE_STARTING, WORKER_STATE_LOADING, WORKER_STATE_READY);
    assert_true(worker_is_usable(rig.worker));
    assert_string_equal(worker_reason(rig.worker), "");
    assert_true(rig_is_alive(worker_pid(rig.worker)));
    assert_int_equal(worker_restarts(rig.worker), 0);
    assert_contains(worker_address(rig.worker), "unix:");
    rig_stop(&rig);
    assert_int_equal(worker_get_state(rig.worker), WORKER_STATE_STOPPED);
    assert_int_equal(rig.trace[rig.trace_count - 2], WORKER_STATE_STOPPING);
}

static void process_is_given_what_it_needs_and_no_more(void **state)
{
    yyjson_doc *doc;
    yyjson_val *root, *env, *argv, *fds;
    struct stat st;
    char *text;
    bool has_device_none = false;

    (void)state;
    setenv("GGML_BACKEND_PATH", "/evil.so", 1);
    setenv("LLAMA_API_KEY", "x", 1);
    start("{\"record\":\"%D/record\"}");
    rig_until_state(&rig, WORKER_STATE_READY);
    unsetenv("GGML_BACKEND_PATH");
    unsetenv("LLAMA_API_KEY");
    assert_int_equal(stat(rig.run_dir, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
    text = rig_read(&rig, "record");
    doc = yyjson_read(text, strlen(text), 0);
    free(text);
    root = yyjson_doc_get_root(doc);
    env = yyjson_obj_get(root, "env");
    argv = yyjson_obj_get(root, "argv");
    fds = yyjson_obj_get(root, "descriptors");
    assert_int_equal(yyjson_get_int(yyjson_obj_get(root, "pid")), worker_pid(rig.worker));
    assert_int_equal(yyjson_get_int(yyjson_obj_get(root, "pgid")), worker_pid(rig.worker));
    assert_string_equal(yyjson_get_str(yyjson_obj_get(root, "stdin")), "/dev/null");
    assert_int_equal(yyjson_arr_size(fds), 3);
    assert_string_equal(yyjson_get_str(yyjson_obj_get(env, "CUDA_VISIBLE_DEVICES")), "");
    assert_null(yyjson_obj_get(env, "GGML_BACKEND_PATH"));
    assert_null(yyjson_obj_get(env, "LLAMA_API_KEY"));
    assert_true(yyjson_get_int(yyjson_obj_get(root, "oom_score_adj")) >= 500);
    for (size_t i = 1; i < yyjson_arr_size(argv); i++) {
        if (strcmp(yyjson_get_str(yyjson_arr_get(argv, i - 1)), "--device") == 0)
            has_device_none = strcmp(yyjson_get_str(yyjson_arr_get(argv, i)), "none") == 0;
    }
    assert_true(has_device_none);
    yyjson_doc_free(doc);
}

/* --- readiness (F61, F73) --- */

static void loading_is_not_a_failure(void **state)
{
    static const char *const orders[] = {
        "{\"ready_after\":0.6,\"form\":\"error\"}",
        "{\"ready_after\":0.6,\"form\":\"status\"}",
        "{\"ready_after\":0.6,\"form\":\"refuse\"}",
    };

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        if (i > 0) {
            rig_end(&rig);
            rig_init(&rig);
        }
        start(orders[i]);
        rig_until_state(&rig, WORKER_STATE_READY);
        assert_trace(WORKER_STATE_STARTING, WORKER_STATE_LOADING, WORKER_STATE_READY);
    }
}

static void silent_while_loading_is_waited_for(void **state)
{
    (void)state;
    rig.options.load_timeout_ms = 300;
    start("{\"ready_after\":\"never\",\"form\":\"silent\"}");
    rig_until_state(&rig, WORKER_STATE_BACKOFF);
    assert_contains(worker_reason(rig.worker), "not ready after");
    assert_true(worker_retry_at_ms(rig.worker) > 0);
}

static void deadline_grows_until_the_load_fits(void **state)
{
    (void)state;
    /* Needs 0.5 s each time; 0.15 s are given first, then 0.3, then 0.6. */
    rig.options.load_timeout_ms = 150;
    rig.options.failed_starts = 10;
    start("{\"ready_after\":0.5}");
    rig_until_state(&rig, WORKER_STATE_READY);
    assert_true(rig_count_state(&rig, WORKER_STATE_BACKOFF) >= 1);
    assert_int_equal(rig_count_state(&rig, WORKER_STATE_FAILED), 0);
    assert_contains(rig_reason_of(&rig, WORKER_STATE_BACKOFF), "loading the model");
}

static void stranger_on_health_is_named(void **state)
{
    (void)state;
    start("{\"html\":true}");
    rig_until_state(&rig, WORKER_STATE_FAILED);
    assert_contains(worker_reason(rig.worker), "unknown server type");
    assert_contains(worker_reason(rig.worker), "HTML");
    assert_int_equal(worker_pid(rig.worker), 0);
    assert_false(worker_is_usable(rig.worker));
}

static void odd_health_answers_are_waited_out(void **state)
{
    (void)state;
    rig.options.load_timeout_ms = 3000;
    start("{\"health\":[500,\"{}\"]}");
    rig_until_state(&rig, WORKER_STATE_BACKOFF);
    assert_contains(worker_reason(rig.worker), "/health answered 500");
}

/* --- engines that do not start --- */

static void exits_at_once_without_a_restart_storm(void **state)
{
    uint64_t now;

    (void)state;
    start("{\"exit\":3,\"lines\":[\"0.00.019 I all fine\","
          "\"0.00.020 E gguf_init: failed to open GGUF file 'x'\","
          "\"0.00.021 E srv exiting due to model loading error\"]}");
    rig_until_state(&rig, WORKER_STATE_FAILED);
    assert_contains(worker_reason(rig.worker), "exited with status 3 after");
    assert_contains(worker_reason(rig.worker), "gguf_init: failed to open GGUF file");
    assert_int_equal(rig_count_state(&rig, WORKER_STATE_LOADING), rig.options.failed_starts);
    assert_int_equal(rig_count_state(&rig, WORKER_STATE_BACKOFF), rig.options.failed_starts - 1);
    now = uv_now(&rig.loop);
    assert_true(worker_retry_at_ms(rig.worker) >= now + rig.options.failed_pause_ms - 1000);
}

static void pauses_double_up_to_the_maximum(void **state)
{
    static const uint64_t expected[] = {20, 40, 80, 80};
    size_t seen = 0;

    (void)state;
    start("{\"exit\":1}");
    for (size_t i = 0; seen < 4; i++) {
        rig_until_trace(&rig, i + 1);
        if (rig.trace[i] != WORKER_STATE_BACKOFF || rig.trace_count != i + 1)
            continue;
        assert_int_equal(worker_retry_at_ms(rig.worker) - worker_state_since_ms(rig.worker),
                         expected[seen]);
        seen++;
    }
}

static void failed_ends_by_itself_and_by_hand(void **state)
{
    (void)state;
    rig.options.failed_starts = 1;
    rig.options.failed_pause_ms = 100;
    start("{\"exit\":1,\"flag\":\"%D/flag\"}");
    rig_until_state(&rig, WORKER_STATE_FAILED);
    rig_touch(&rig, "flag");
    rig_until_state(&rig, WORKER_STATE_READY); /* after the pause */

    rig_end(&rig);
    rig_init(&rig);
    rig.options.failed_starts = 1;
    start("{\"exit\":1,\"flag\":\"%D/flag\"}");
    rig_until_state(&rig, WORKER_STATE_FAILED);
    rig_touch(&rig, "flag");
    worker_retry_now(rig.worker); /* the pause of a minute ends now */
    rig_until_state(&rig, WORKER_STATE_READY);
}

static void missing_parts_are_one_clear_sentence(void **state)
{
    static const struct {
        const char *engine, *model;
        const char *why;
    } cases[] = {
        {"/nonexistent/llama-server", NULL, "engine /nonexistent/llama-server can not be run: No"},
        {"no-such-engine-on-path", NULL, "no no-such-engine-on-path on PATH"},
        {"/etc/passwd", NULL, "engine /etc/passwd can not be run: Permission denied"},
        {"/tmp", NULL, "Is a directory"},
        {NULL, "/nonexistent/m.gguf", "model file /nonexistent/m.gguf can not be read: No such"},
        {NULL, "/etc/passwd", "/etc/passwd is not a GGUF file"},
        {NULL, "/tmp", "is not a regular file"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (i > 0) {
            rig_end(&rig);
            rig_init(&rig);
        }
        if (cases[i].engine != NULL)
            rig.options.engine_path = cases[i].engine;
        if (cases[i].model != NULL)
            rig.options.model_path = cases[i].model;
        start("{}");
        rig_until_state(&rig, WORKER_STATE_FAILED);
        assert_contains(worker_reason(rig.worker), cases[i].why);
        assert_trace(WORKER_STATE_STARTING, WORKER_STATE_FAILED);
    }
}

static void interpreter_that_is_missing(void **state)
{
    char script[128];
    FILE *f;

    (void)state;
    rig_path(&rig, "engine", script, sizeof(script));
    f = fopen(script, "w");
    assert_non_null(f);
    fputs("#!/nonexistent/interpreter\n", f);
    fclose(f);
    chmod(script, 0700);
    rig.options.engine_path = script;
    start("{}");
    rig_until_state(&rig, WORKER_STATE_FAILED);
    assert_contains(worker_reason(rig.worker), "could not be run (exec): No such file");
}

/* --- placement (F16) --- */

static void gpu_tier_on_the_cpu_has_failed(void **state)
{
    (void)state;
    rig.options.device = WORKER_DEVICE_NVIDIA;
    rig.options.device_name = "gpu0";
    rig.options.gpu_layers = -1;
    rig.options.require_device = true;
    start("{\"lines\":[\"0.1 I load_tensors: offloaded 31/31 layers to GPU\","
          "\"0.1 I load_tensors:   CPU_Mapped model buffer size =    92.10 MiB\"]}");
    rig_until_state(&rig, WORKER_STATE_FAILED);
    assert_contains(worker_reason(rig.worker), "runs on the CPU");
    assert_int_equal(rig_count_state(&rig, WORKER_STATE_READY), 0);
}

static void partial_offload_is_shown(void **state)
{
    uint32_t offloaded = 0, layers = 0;

    (void)state;
    rig.options.device = WORKER_DEVICE_NVIDIA;
    rig.options.device_name = "gpu0";
    rig.options.gpu_layers = -1;
    rig.options.require_device = true;
    start("{\"lines\":[\"0.1 I load_tensors: offloaded 20/31 layers to GPU\","
          "\"0.1 I load_tensors:   CUDA0 model buffer size =    92.10 MiB\"]}");
    rig_until_state(&rig, WORKER_STATE_READY);
    assert_contains(worker_warning(rig.worker), "20 of 31");
    assert_true(worker_offload(rig.worker, &offloaded, &layers));
    assert_int_equal(offloaded, 20);
    assert_int_equal(layers, 31);
}

static void mlock_failure_is_a_warning(void **state)
{
    (void)state;
    start("{\"lines\":[\"warning: failed to mlock 4096-byte buffer (after previously locking 0 "
          "bytes): Cannot allocate memory\"]}");
    rig_until_state(&rig, WORKER_STATE_READY);
    assert_contains(worker_warning(rig.worker), "mlock");
}

/* --- output (F57) --- */

static void junk_output_neither_blocks_nor_grows(void **state)
{
    struct span lines[400];
    size_t n;

    (void)state;
    start("{\"junk\":true}");
    rig_until_state(&rig, WORKER_STATE_READY);
    assert_true(rig.lines > 1024 * 1024 / 100 + 26000);
    assert_true(rig.longest_line <= WORKER_LOG_LINE_BYTES);
    n = worker_log_tail(rig.worker, lines, 400);
    assert_true(n > 10 && n <= 256);
    assert_true(span_find(lines[n - 1], SPAN_LIT("listening on")) >= 0);
}

static void chatter_does_not_starve_the_loop(void **state)
{
    (void)state;
    start("{\"chatter\":true}");
    rig_until_state(&rig, WORKER_STATE_READY);
    rig_stop(&rig);
}

static void closed_output_is_no_exit(void **state)
{
    (void)state;
    start("{\"close_output\":true}");
    rig_until_state(&rig, WORKER_STATE_READY);
    rig_run_for(&rig, 50);
    assert_int_equal(worker_get_state(rig.worker), WORKER_STATE_READY);
}

/* --- ends --- */

static void crash_is_seen_and_restarted(void **state)
{
    int first;

    (void)state;
    start("{}");
    rig_until_state(&rig, WORKER_STATE_READY);
    first = worker_pid(rig.worker);
    kill(first, SIGABRT);
    rig_until_state(&rig, WORKER_STATE_BACKOFF);
    assert_contains(worker_reason(rig.worker), "SIGABRT");
    assert_int_equal(worker_pid(rig.worker), 0);
    rig_until_state(&rig, WORKER_STATE_READY);
    assert_int_not_equal(worker_pid(rig.worker), first);
    assert_int_equal(worker_restarts(rig.worker), 1);
}

static void suspect_sees_the_exit_at_once(void **state)
{
    siginfo_t info;
    pid_t pid;

    (void)state;
    start("{}");
    rig_until_state(&rig, WORKER_STATE_READY);
    pid = worker_pid(rig.worker);
    kill(pid, SIGKILL);
    assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
    assert_int_equal(worker_get_state(rig.worker), WORKER_STATE_READY);
    worker_suspect(rig.worker);
    assert_int_equal(worker_get_state(rig.worker), WORKER_STATE_BACKOFF);
}

static void pause_is_short_again_after_a_settled_time(void **state)
{
    (void)state;
    rig.options.settled_ms = 100;
    start("{}");
    for (int i = 0; i < 2; i++) {
        rig_until_state(&rig, WORKER_STATE_READY);
        rig_run_for(&rig, 200);
        kill(worker_pid(rig.worker), SIGKILL);
        rig_until_state(&rig, WORKER_STATE_BACKOFF);
        assert_int_equal(worker_retry_at_ms(rig.worker) - worker_state_since_ms(rig.worker), 20);
    }
}

static void crashes_without_a_settled_time_pause_longer(void **state)
{
    (void)state;
    start("{}");
    for (uint64_t expected = 20; expected <= 80; expected *= 2) {
        rig_until_state(&rig, WORKER_STATE_READY);
        kill(worker_pid(rig.worker), SIGKILL);
        rig_until_state(&rig, WORKER_STATE_BACKOFF);
        assert_int_equal(worker_retry_at_ms(rig.worker) - worker_state_since_ms(rig.worker),
                         expected);
    }
}

static void ignores_term_and_is_killed(void **state)
{
    (void)state;
    rig.options.stop_grace_ms = 100;
    start("{\"ignore_term\":true}");
    rig_until_state(&rig, WORKER_STATE_READY);
    rig_stop(&rig);
}

static void stopped_process_can_be_stopped(void **state)
{
    (void)state;
    start("{}");
    rig_until_state(&rig, WORKER_STATE_READY);
    kill(worker_pid(rig.worker), SIGSTOP);
    rig_stop(&rig);
}

static void recycle_kills_a_stalled_worker_and_starts_another(void **state)
{
    int first;

    (void)state;
    rig.options.stop_grace_ms = 60000;
    start("{\"ignore_term\":true}");
    rig_until_state(&rig, WORKER_STATE_READY);
    first = worker_pid(rig.worker);
    kill(first, SIGSTOP);
    worker_recycle(rig.worker, "no token for 30 s", true);
    assert_int_equal(worker_get_state(rig.worker), WORKER_STATE_STOPPING);
    assert_false(worker_is_usable(rig.worker));
    rig_until_state(&rig, WORKER_STATE_BACKOFF);
    assert_string_equal(worker_reason(rig.worker), "no token for 30 s");
    rig_until_state(&rig, WORKER_STATE_READY);
    assert_int_not_equal(worker_pid(rig.worker), first);
}

static void recycle_does_not_cut_a_pause_short(void **state)
{
    uint64_t retry_at;

    (void)state;
    rig.options.backoff_ms = rig.options.backoff_max_ms = 60000;
    start("{}");
    rig_until_state(&rig, WORKER_STATE_READY);
    worker_retry_now(rig.worker); /* nothing to do for it */
    assert_int_equal(worker_get_state(rig.worker), WORKER_STATE_READY);
    kill(worker_pid(rig.worker), SIGKILL);
    rig_until_state(&rig, WORKER_STATE_BACKOFF);
    retry_at = worker_retry_at_ms(rig.worker);
    /* The requests that died with it report the same fault, one after the other. */
    for (int i = 0; i < 4; i++)
        worker_recycle(rig.worker, "device lost", true);
    assert_int_equal(worker_get_state(rig.worker), WORKER_STATE_BACKOFF);
    assert_int_equal(worker_retry_at_ms(rig.worker), retry_at);
    assert_non_null(strstr(worker_reason(rig.worker), "SIGKILL"));
    worker_retry_now(rig.worker);
    rig_until_state(&rig, WORKER_STATE_READY);
}

static void grandchildren_go_as_well(void **state)
{
    pid_t grandchild;

    (void)state;
    start("{\"grandchild\":\"%D/grandchild\"}");
    rig_until_file(&rig, "grandchild");
    rig_until_state(&rig, WORKER_STATE_READY);
    grandchild = (pid_t)rig_read_pid(&rig, "grandchild");
    assert_true(rig_is_alive(grandchild));
    rig_stop(&rig);
    rig_until_gone(&rig, grandchild);
}

static void destroy_kills_what_runs(void **state)
{
    pid_t pid;

    (void)state;
    start("{\"ignore_term\":true}");
    rig_until_state(&rig, WORKER_STATE_READY);
    pid = worker_pid(rig.worker);
    worker_destroy(rig.worker);
    rig.worker = NULL;
    rig_until_gone(&rig, pid);
}

/* --- orders at odd times --- */

static void stop_in_every_state(void **state)
{
    static const enum worker_state states[] = {WORKER_STATE_STARTING, WORKER_STATE_LOADING,
                                               WORKER_STATE_BACKOFF, WORKER_STATE_FAILED};
    static const char *const orders[] = {"{}", "{\"ready_after\":\"never\"}", "{\"exit\":1}",
                                         "{\"exit\":1}"};

    (void)state;
    for (size_t i = 0; i < 4; i++) {
        if (i > 0) {
            rig_end(&rig);
            rig_init(&rig);
        }
        rig.options.failed_starts = states[i] == WORKER_STATE_FAILED ? 1 : 5;
        start(orders[i]);
        rig_until_state(&rig, states[i]);
        rig_stop(&rig);
        assert_int_equal(worker_get_state(rig.worker), WORKER_STATE_STOPPED);
        rig_run_for(&rig, 150); /* nothing starts again */
        assert_int_equal(worker_get_state(rig.worker), WORKER_STATE_STOPPED);
        rig_stop(&rig); /* stopping a stopped one answers, too */
    }
}

static void stop_and_start_again_at_once(void **state)
{
    (void)state;
    start("{}");
    worker_stop(rig.worker, NULL, NULL); /* the preflight runs */
    worker_start(rig.worker);
    rig_until_state(&rig, WORKER_STATE_READY);
    worker_stop(rig.worker, NULL, NULL); /* the process runs */
    worker_start(rig.worker);
    assert_int_equal(worker_get_state(rig.worker), WORKER_STATE_STOPPING);
    rig_until_state(&rig, WORKER_STATE_READY);
    assert_int_equal(worker_restarts(rig.worker), 1);
}

static void destroy_from_a_callback(struct rig *r, enum worker_state to)
{
    if (to != r->trace[0])
        return;
    worker_destroy(r->worker);
}

static void destroyed_inside_any_state_callback(void **state)
{
    static const enum worker_state states[] = {WORKER_STATE_STARTING, WORKER_STATE_LOADING,
                                               WORKER_STATE_READY, WORKER_STATE_BACKOFF};

    (void)state;
    for (size_t i = 0; i < 4; i++) {
        if (i > 0) {
            rig_end(&rig);
            rig_init(&rig);
        }
        rig_orders(&rig, states[i] == WORKER_STATE_BACKOFF ? "{\"exit\":1}" : "{}");
        rig_create(&rig);
        rig.trace[0] = states[i];
        rig.trace_count = 1;
        rig.on_state = destroy_from_a_callback;
        worker_start(rig.worker);
        while (uv_loop_alive(&rig.loop))
            uv_run(&rig.loop, UV_RUN_ONCE);
        assert_int_equal(rig.trace[rig.trace_count - 1], states[i]);
        rig.worker = NULL;
    }
}

static void stale_socket_is_in_nobodys_way(void **state)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd;

    (void)state;
    rig_create(&rig);
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    snprintf(address.sun_path, sizeof(address.sun_path), "%s", worker_address(rig.worker) + 5);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    close(fd);
    worker_start(rig.worker);
    rig_until_state(&rig, WORKER_STATE_READY);
    assert_int_equal(worker_restarts(rig.worker), 0);
}

static void memory_of_unknown_devices_is_given_time(void **state)
{
    uint64_t died_at;

    (void)state;
    rig.options.device = WORKER_DEVICE_NVIDIA;
    rig.options.device_name = "gpu0";
    rig.options.gpu_layers = -1;
    rig.options.memory_settle_ms = 400;
    start("{}");
    rig_until_state(&rig, WORKER_STATE_READY);
    kill(worker_pid(rig.worker), SIGKILL);
    rig_until_state(&rig, WORKER_STATE_BACKOFF);
    died_at = worker_state_since_ms(rig.worker);
    rig_until_state(&rig, WORKER_STATE_STARTING);
    rig_until_state(&rig, WORKER_STATE_LOADING);
    assert_true(worker_state_since_ms(rig.worker) - died_at >= 400);
    rig_until_state(&rig, WORKER_STATE_READY);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(starts_gets_ready_and_stops),
        T(process_is_given_what_it_needs_and_no_more),
        T(loading_is_not_a_failure),
        T(silent_while_loading_is_waited_for),
        T(deadline_grows_until_the_load_fits),
        T(stranger_on_health_is_named),
        T(odd_health_answers_are_waited_out),
        T(exits_at_once_without_a_restart_storm),
        T(pauses_double_up_to_the_maximum),
        T(failed_ends_by_itself_and_by_hand),
        T(missing_parts_are_one_clear_sentence),
        T(interpreter_that_is_missing),
        T(gpu_tier_on_the_cpu_has_failed),
        T(partial_offload_is_shown),
        T(mlock_failure_is_a_warning),
        T(junk_output_neither_blocks_nor_grows),
        T(chatter_does_not_starve_the_loop),
        T(closed_output_is_no_exit),
        T(crash_is_seen_and_restarted),
        T(suspect_sees_the_exit_at_once),
        T(pause_is_short_again_after_a_settled_time),
        T(crashes_without_a_settled_time_pause_longer),
        T(ignores_term_and_is_killed),
        T(stopped_process_can_be_stopped),
        T(recycle_kills_a_stalled_worker_and_starts_another),
        T(recycle_does_not_cut_a_pause_short),
        T(grandchildren_go_as_well),
        T(destroy_kills_what_runs),
        T(stop_in_every_state),
        T(stop_and_start_again_at_once),
        T(destroyed_inside_any_state_callback),
        T(stale_socket_is_in_nobodys_way),
        T(memory_of_unknown_devices_is_given_time),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
