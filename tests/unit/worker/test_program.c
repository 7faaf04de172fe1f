/*
 * The life of a worker that runs a program other than llama-server: a small HTTP server on a port or
 * a socket. What is the same as for llama-server is in test_worker.c.
 */
#include "worker_rig.h"

#include "http/client.h"
#include "tests/unit/unit.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct rig rig;
static const char *words[12];

static int setup(void **state)
{
    (void)state;
    rig_init(&rig);
    rig.options.engine = WORKER_ENGINE_GENERIC;
    rig.options.engine_path = rig.options.model_path = NULL;
    rig.options.env_count = 0;
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    rig_end(&rig);
    return 0;
}

/* The program with these arguments; up to NULL. */
static void start(const char *const *args)
{
    size_t n = 0;

    words[n++] = FAKE_PROGRAM_PATH;
    while (*args != NULL)
        words[n++] = *args++;
    rig.options.command = words;
    rig.options.command_count = n;
    rig_create(&rig);
    worker_start(rig.worker);
}

#define START(...) start((const char *const[]){__VA_ARGS__, NULL})

#define assert_contains(text, part)                                                                \
    do {                                                                                           \
        if (strstr((text), (part)) == NULL)                                                        \
            fail_msg("\"%s\" lacks \"%s\"", (text), (part));                                       \
    } while (0)

static const char *in_dir(const char *name)
{
    static char paths[4][128];
    static unsigned next;
    char *path = paths[next++ % 4];

    rig_path(&rig, name, path, sizeof(paths[0]));
    return path;
}

static void it_is_ready_where_it_was_told_to_listen(void **state)
{
    char host[64];

    (void)state;
    START("--port", "{port}");
    rig_until_state(&rig, WORKER_STATE_READY);
    assert_int_equal(strncmp(worker_address(rig.worker), "http://127.0.0.1:", 17), 0);
    snprintf(host, sizeof(host), "%s", worker_address(rig.worker) + strlen("http://"));
    assert_string_equal(http_origin_host(worker_origin(rig.worker)), host);
    assert_int_equal(worker_get_engine(rig.worker), WORKER_ENGINE_GENERIC);
    assert_string_equal(worker_warning(rig.worker), "");
    rig_stop(&rig);
}

static void another_start_listens_elsewhere_behind_the_same_origin(void **state)
{
    struct http_origin *origin;
    char before[64];
    int pid;

    (void)state;
    START("--port", "{port}");
    rig_until_state(&rig, WORKER_STATE_READY);
    origin = worker_origin(rig.worker);
    snprintf(before, sizeof(before), "%s", worker_address(rig.worker));
    pid = worker_pid(rig.worker);
    kill(pid, SIGKILL);
    rig_until_state(&rig, WORKER_STATE_BACKOFF);
    rig_until_state(&rig, WORKER_STATE_READY);
    assert_int_not_equal(worker_pid(rig.worker), pid);
    assert_string_not_equal(worker_address(rig.worker), before);
    assert_ptr_equal(worker_origin(rig.worker), origin);
    assert_string_equal(http_origin_host(origin), worker_address(rig.worker) + strlen("http://"));
}

static void at_a_socket(void **state)
{
    (void)state;
    START("--uds", "{socket}");
    rig_until_state(&rig, WORKER_STATE_READY);
    assert_contains(worker_address(rig.worker), "unix:/");
    kill(worker_pid(rig.worker), SIGKILL);
    rig_until_state(&rig, WORKER_STATE_BACKOFF);
    rig_until_state(&rig, WORKER_STATE_READY); /* its socket was in nobody's way */
}

static bool reason_has(void *ctx)
{
    return strstr(worker_reason(rig.worker), ctx) != NULL;
}

static void loading_is_told_until_the_health_path_says_200(void **state)
{
    (void)state;
    rig.options.health = "/up?deep=1";
    START("--port", "{port}", "--health", "/up?deep=1", "--late", in_dir("late"), "--load",
          in_dir("load"));
    rig_until(&rig, reason_has, "does not listen at http://127.0.0.1:");
    rig_touch(&rig, "late");
    rig_until(&rig, reason_has, "/up?deep=1 answered 503 still loading");
    assert_int_equal(worker_get_state(rig.worker), WORKER_STATE_LOADING);
    rig_touch(&rig, "load");
    rig_until_state(&rig, WORKER_STATE_READY);
    assert_int_equal(worker_restarts(rig.worker), 0);
}

static void a_path_that_is_not_there_fails_by_name(void **state)
{
    (void)state;
    rig.options.load_timeout_ms = 700;
    START("--port", "{port}", "--health", "/other");
    rig_until_state(&rig, WORKER_STATE_BACKOFF);
    assert_contains(worker_reason(rig.worker), "not ready after ");
    assert_contains(worker_reason(rig.worker), "/health answered 404: it has no such path");
}

static void last_words_explain_the_end(void **state)
{
    (void)state;
    START("--port", "{port}", "--crash", "no licence for this");
    rig_until_state(&rig, WORKER_STATE_BACKOFF);
    assert_contains(worker_reason(rig.worker), "exited with status 3");
    assert_contains(worker_reason(rig.worker), "it said: no licence for this");
}

static void a_program_that_is_not_there(void **state)
{
    (void)state;
    words[0] = "/no/such/program";
    rig.options.command = words;
    rig.options.command_count = 1;
    rig_create(&rig);
    worker_start(rig.worker);
    rig_until_state(&rig, WORKER_STATE_FAILED);
    assert_contains(worker_reason(rig.worker), "program /no/such/program can not be run");
    words[0] = "no-such-program";
    worker_destroy(rig.worker);
    rig_create(&rig);
    worker_start(rig.worker);
    rig_until_state(&rig, WORKER_STATE_FAILED);
    assert_contains(worker_reason(rig.worker), "program not found: there is no no-such-program");
}

static void one_that_takes_no_term_is_killed_with_its_children(void **state)
{
    pid_t child;

    (void)state;
    rig.options.stop_grace_ms = 100;
    START("--port", "{port}", "--ignore-term", "--child", in_dir("child"));
    rig_until_state(&rig, WORKER_STATE_READY);
    child = (pid_t)rig_read_pid(&rig, "child");
    assert_true(rig_is_alive(child));
    rig_stop(&rig);
    rig_until_gone(&rig, child);
}

static void options_of_a_program_are_checked(void **state)
{
    struct worker *w = NULL;

    (void)state;
    words[0] = "";
    rig.options.command = words;
    rig.options.command_count = 1;
    assert_int_equal(worker_create(&rig.loop, &rig.options, NULL, NULL, &w), -EINVAL);
    words[0] = "p";
    rig.options.device = WORKER_DEVICE_SIM; /* without a card there is nothing to hold */
    assert_int_equal(worker_create(&rig.loop, &rig.options, NULL, NULL, &w), -EINVAL);
    assert_null(w);
}

#define PROGRAM_TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        PROGRAM_TEST(it_is_ready_where_it_was_told_to_listen),
        PROGRAM_TEST(another_start_listens_elsewhere_behind_the_same_origin),
        PROGRAM_TEST(at_a_socket),
        PROGRAM_TEST(loading_is_told_until_the_health_path_says_200),
        PROGRAM_TEST(a_path_that_is_not_there_fails_by_name),
        PROGRAM_TEST(last_words_explain_the_end),
        PROGRAM_TEST(a_program_that_is_not_there),
        PROGRAM_TEST(one_that_takes_no_term_is_killed_with_its_children),
        PROGRAM_TEST(options_of_a_program_are_checked),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
