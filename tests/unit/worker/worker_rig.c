/* The rig; see worker_rig.h. */
#include "worker_rig.h"

#include "tests/unit/unit.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static int count_descriptors(void)
{
    DIR *dir = opendir("/proc/self/fd");
    int n = 0;

    assert_non_null(dir);
    while (readdir(dir) != NULL)
        n++;
    closedir(dir);
    return n;
}

static void on_deadline(uv_timer_t *timer)
{
    struct rig *r = timer->data;

    r->late = uv_now(&r->loop) >= r->late_at_ms;
}

/* A tick, because one turn of the loop runs timers first and may then sleep until the next event. */
static void start_deadline(struct rig *r, uint64_t ms)
{
    r->late = false;
    uv_update_time(&r->loop);
    r->late_at_ms = uv_now(&r->loop) + ms;
    uv_timer_start(&r->deadline, on_deadline, ms < RIG_TICK_MS ? ms : RIG_TICK_MS, RIG_TICK_MS);
}

void rig_init(struct rig *r)
{
    FILE *f;

    *r = (struct rig){.late = false};
    /* What libuv keeps for the life of the process is opened by the first loop. */
    uv_loop_init(&r->loop);
    uv_loop_close(&r->loop);
    r->descriptors = count_descriptors();
    uv_loop_init(&r->loop);
    uv_timer_init(&r->loop, &r->deadline);
    r->deadline.data = r;
    snprintf(r->dir, sizeof(r->dir), "/tmp/failsoft-test-XXXXXX");
    assert_non_null(mkdtemp(r->dir));
    snprintf(r->run_dir, sizeof(r->run_dir), "%s/run", r->dir);
    snprintf(r->model, sizeof(r->model), "%s/model.gguf", r->dir);
    f = fopen(r->model, "w");
    assert_non_null(f);
    fputs("GGUF\x03", f);
    fclose(f);

    worker_options_init(&r->options);
    r->options.service = "chat";
    r->options.tier = "cpu";
    r->options.engine_path = FAKE_ENGINE_PATH;
    r->options.model_path = r->model;
    r->options.run_dir = r->run_dir;
    r->options.stop_grace_ms = 5000;
    r->options.backoff_ms = 20;
    r->options.backoff_max_ms = 80;
    r->options.failed_pause_ms = 60000;
    r->options.memory_poll_ms = 10;
    r->options.memory_settle_ms = 50;
    rig_orders(r, "{}");
}

void rig_orders(struct rig *r, const char *json)
{
    size_t n = 0;

    for (; *json != '\0'; json++) {
        if (json[0] == '%' && json[1] == 'D') {
            n += (size_t)snprintf(r->orders + n, sizeof(r->orders) - n, "%s", r->dir);
            json++;
        } else {
            assert_true(n + 1 < sizeof(r->orders));
            r->orders[n++] = *json;
        }
    }
    r->orders[n] = '\0';
    r->env[0] = (struct worker_pair){"FAKE_ENGINE", r->orders};
    r->options.env = r->env;
    r->options.env_count = 1;
}

static void on_state(struct worker *w, enum worker_state from, enum worker_state to, void *ctx)
{
    struct rig *r = ctx;

    assert_int_not_equal(from, to);
    if (r->trace_count < RIG_TRACE) {
        r->trace[r->trace_count] = to;
        snprintf(r->reasons[r->trace_count], sizeof(r->reasons[0]), "%s", worker_reason(w));
        r->trace_count++;
    }
    if (r->on_state != NULL)
        r->on_state(r, to);
}

static void on_log_line(struct worker *w, struct span line, void *ctx)
{
    struct rig *r = ctx;

    (void)w;
    r->lines++;
    if (line.len > r->longest_line)
        r->longest_line = line.len;
    snprintf(r->last_line, sizeof(r->last_line), "%.*s", SPAN_FMT(line));
}

static void on_engine(struct worker *w, enum worker_engine engine, void *ctx)
{
    struct rig *r = ctx;

    assert_int_equal(worker_get_engine(w), engine);
    r->engines++;
}

static const struct worker_events events = {
    .on_state = on_state, .on_log_line = on_log_line, .on_engine = on_engine};

void rig_create(struct rig *r)
{
    assert_int_equal(worker_create(&r->loop, &r->options, &events, r, &r->worker), 0);
}

void rig_until(struct rig *r, bool (*condition)(void *ctx), void *ctx)
{
    start_deadline(r, RIG_DEADLINE_MS);
    while (!condition(ctx) && !r->late)
        uv_run(&r->loop, UV_RUN_ONCE);
    uv_timer_stop(&r->deadline);
    if (!r->late || condition(ctx))
        return;
    for (size_t i = 0; i < r->trace_count; i++)
        print_error("  %s: %s\n", worker_state_name(r->trace[i]), r->reasons[i]);
    fail_msg("not within %d ms", RIG_DEADLINE_MS);
}

struct state_wanted {
    struct rig *r;
    enum worker_state state;
    size_t count;
};

static bool is_in_state(void *ctx)
{
    struct state_wanted *s = ctx;

    return worker_get_state(s->r->worker) == s->state;
}

void rig_until_state(struct rig *r, enum worker_state state)
{
    rig_until(r, is_in_state, &(struct state_wanted){r, state, 0});
}

static bool has_trace(void *ctx)
{
    struct state_wanted *s = ctx;

    return s->r->trace_count >= s->count;
}

void rig_until_trace(struct rig *r, size_t count)
{
    rig_until(r, has_trace, &(struct state_wanted){r, WORKER_STATE_STOPPED, count});
}

static bool file_exists(void *ctx)
{
    return access(ctx, F_OK) == 0;
}

void rig_until_file(struct rig *r, const char *name)
{
    char path[256];

    rig_path(r, name, path, sizeof(path));
    rig_until(r, file_exists, path);
}

bool rig_is_alive(pid_t pid)
{
    char path[64], text[512];
    const char *end;
    FILE *f;
    size_t n;

    snprintf(path, sizeof(path), "/proc/%ld/stat", (long)pid);
    f = fopen(path, "r");
    if (f == NULL)
        return false;
    n = fread(text, 1, sizeof(text) - 1, f);
    fclose(f);
    text[n] = '\0';
    end = strrchr(text, ')');
    return end != NULL && end[1] == ' ' && end[2] != 'Z' && end[2] != 'X';
}

static bool is_gone(void *ctx)
{
    return !rig_is_alive(*(pid_t *)ctx);
}

void rig_until_gone(struct rig *r, pid_t pid)
{
    rig_until(r, is_gone, &pid);
}

void rig_run_for(struct rig *r, uint64_t ms)
{
    start_deadline(r, ms);
    while (!r->late)
        uv_run(&r->loop, UV_RUN_ONCE);
    uv_timer_stop(&r->deadline);
}

static void on_stopped(struct worker *w, void *ctx)
{
    struct rig *r = ctx;

    assert_ptr_equal(w, r->worker);
    r->stopped++;
}

static bool is_stopped(void *ctx)
{
    struct rig *r = ctx;

    return r->stopped > 0;
}

void rig_stop(struct rig *r)
{
    r->stopped = 0;
    worker_stop(r->worker, on_stopped, r);
    assert_int_equal(r->stopped, 0); /* never from inside */
    rig_until(r, is_stopped, r);
    assert_int_equal(r->stopped, 1);
    assert_int_equal(worker_pid(r->worker), 0);
}

void rig_path(const struct rig *r, const char *name, char *out, size_t out_size)
{
    snprintf(out, out_size, "%s/%s", r->dir, name);
}

char *rig_read(const struct rig *r, const char *name)
{
    char path[256];
    char *text = calloc(1, 65536);
    FILE *f;

    assert_non_null(text);
    rig_path(r, name, path, sizeof(path));
    f = fopen(path, "r");
    assert_non_null(f);
    assert_true(fread(text, 1, 65535, f) < 65535);
    fclose(f);
    return text;
}

long rig_read_pid(const struct rig *r, const char *name)
{
    char *text = rig_read(r, name);
    long pid = strtol(text, NULL, 10);

    free(text);
    assert_true(pid > 1);
    return pid;
}

void rig_touch(const struct rig *r, const char *name)
{
    char path[256];
    FILE *f;

    rig_path(r, name, path, sizeof(path));
    f = fopen(path, "w");
    assert_non_null(f);
    fclose(f);
}

unsigned rig_count_state(const struct rig *r, enum worker_state state)
{
    unsigned n = 0;

    for (size_t i = 0; i < r->trace_count; i++)
        n += r->trace[i] == state;
    return n;
}

const char *rig_reason_of(const struct rig *r, enum worker_state state)
{
    for (size_t i = r->trace_count; i > 0; i--) {
        if (r->trace[i - 1] == state)
            return r->reasons[i - 1];
    }
    return "";
}

/* The worker must have removed its socket and folder; the test's own files are known by name. */
static void check_folder(struct rig *r)
{
    DIR *dir;
    struct dirent *entry;

    assert_int_not_equal(access(r->run_dir, F_OK), 0);
    dir = opendir(r->dir);
    assert_non_null(dir);
    while ((entry = readdir(dir)) != NULL) {
        if (entry->d_name[0] != '.')
            unlinkat(dirfd(dir), entry->d_name, 0);
    }
    closedir(dir);
    assert_int_equal(rmdir(r->dir), 0);
}

static void check_descriptors(const struct rig *r)
{
    char path[64], target[256];

    if (count_descriptors() == r->descriptors)
        return;
    for (int fd = 0; fd < 64; fd++) {
        ssize_t n;

        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        n = readlink(path, target, sizeof(target));
        if (n > 0)
            print_error("  %d: %.*s\n", fd, (int)n, target);
    }
    fail_msg("%d descriptors, %d before", count_descriptors(), r->descriptors);
}

static bool loop_is_empty(void *ctx)
{
    struct rig *r = ctx;

    return !uv_loop_alive(&r->loop);
}

void rig_end(struct rig *r)
{
    worker_destroy(r->worker);
    r->worker = NULL;
    /* The deadline keeps the loop alive: only unreferenced it may watch over its end. */
    uv_unref((uv_handle_t *)&r->deadline);
    rig_until(r, loop_is_empty, r);
    uv_close((uv_handle_t *)&r->deadline, NULL);
    uv_run(&r->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&r->loop), 0);
    check_descriptors(r);
    errno = 0;
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    assert_int_equal(errno, ECHILD);
    check_folder(r);
}
