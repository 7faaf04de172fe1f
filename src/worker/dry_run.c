/*
 * Asking the engine for sizes. See dry_run.h.
 *
 *   preflight (pool) ─► spawn ─► read ─► exit ─► parse ─► on_done
 *                          └──────── deadline: KILL ─┘
 */
#include "worker/dry_run.h"

#include "worker/command.h"
#include "worker/preflight.h"
#include "worker/process.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { DRY_RUN_NICE = 10, DRY_RUN_WHY = 160, DRY_RUN_OOM_ABOVE = 1000 };

static const char program_name[] = "llama-fit-params";

struct dry_run {
    uv_loop_t *loop;
    struct worker_options *options;
    const struct dry_run_events *events; /* NULL: cancelled */
    void *ctx;
    uint64_t deadline_ms;
    struct preflight job_data;
    uv_work_t job;
    bool job_running;
    struct process *process;
    uv_timer_t timer;
    bool timed_out, too_long;
    char output[DRY_RUN_OUTPUT_BYTES];
    size_t output_len;
    char why[DRY_RUN_WHY]; /* the last line of stderr */
    size_t why_len;
    bool why_ended;
};

/* --- the end --- */

static void on_timer_closed(uv_handle_t *handle)
{
    struct dry_run *run = handle->data;
    worker_options_free(run->options);
    free(run);
}

static void finish(struct dry_run *run, int result, const struct dry_run_sizes *sizes)
{
    const struct dry_run_events *events = run->events;
    run->events = NULL;
    uv_timer_stop(&run->timer);
    if (events)
        events->on_done(result, sizes, run->why, run->ctx);
    uv_close((uv_handle_t *)&run->timer, on_timer_closed);
}

void dry_run_cancel(struct dry_run *run)
{
    if (!run)
        return;
    run->events = NULL;
    if (run->job_running)
        return; /* its end goes on from here */
    process_abandon(run->process);
    run->process = NULL;
    finish(run, -ECANCELED, NULL);
}

/* --- the process --- */

/* Keeps the last line that has something in it. */
static void read_words(struct dry_run *run, struct span bytes)
{
    for (size_t i = 0; i < bytes.len; i++) {
        unsigned char c = (unsigned char)bytes.ptr[i];
        if (c == '\n' || c == '\r') {
            run->why_ended = true;
            continue;
        }
        if (run->why_ended)
            run->why_len = 0;
        run->why_ended = false;
        if (run->why_len + 1 < sizeof(run->why))
            run->why[run->why_len++] = c >= ' ' && c < 0x7f ? (char)c : '?';
        run->why[run->why_len] = '\0';
    }
}

static void on_output(struct process *p, int stream, struct span bytes, void *ctx)
{
    (void)p;
    struct dry_run *run = ctx;
    if (stream != STDOUT_FILENO) {
        read_words(run, bytes);
        return;
    }
    size_t room = sizeof(run->output) - run->output_len;
    run->too_long |= bytes.len > room;
    size_t n = bytes.len < room ? bytes.len : room;
    memcpy(run->output + run->output_len, bytes.ptr, n);
    run->output_len += n;
}

static void on_exit_seen(struct process *p, const struct process_exit *exit, void *ctx)
{
    (void)p;
    struct dry_run *run = ctx;
    struct dry_run_sizes sizes;
    int r = 0;
    run->process = NULL;
    if (run->timed_out)
        r = -ETIMEDOUT;
    else if (exit->exec_error != 0)
        r = -exit->exec_error;
    else if (exit->signaled || exit->code != 0)
        r = -EIO;
    else if (run->too_long)
        r = -EPROTO;
    else
        r = dry_run_parse((struct span){run->output, run->output_len}, &sizes);
    finish(run, r, r == 0 ? &sizes : NULL);
}

static void on_deadline(uv_timer_t *timer)
{
    struct dry_run *run = timer->data;
    run->timed_out = true;
    process_kill(run->process);
}

static const struct process_events process_calls = {.on_output = on_output,
                                                    .on_exit = on_exit_seen};

/* Flags of a server's command line that this program knows, too; each has one value. */
static bool is_shared_flag(const char *flag)
{
    static const char *const flags[] = {"-m",  "-c",   "-np",  "-t", "--device", "-ngl",
                                        "-fa", "-ctk", "-ctv", "-b", "-ub"};
    for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++) {
        if (strcmp(flag, flags[i]) == 0)
            return true;
    }
    return false;
}

/* The server's own line, less what only a server has: what the owner wrote himself stays, and is
 * refused by the program where it does not know it. NULL: no memory. Strings are the command's. */
static char **make_argv(const struct command *server, size_t own_args, char *program)
{
    static char print[] = "--fit-print", on[] = "on", offline[] = "--offline";
    char **argv = calloc(server->argc + 5, sizeof(*argv));
    size_t own_from = server->argc - own_args;
    size_t n = 0;
    if (!argv)
        return NULL;
    argv[n++] = program;
    for (size_t i = 1; i < server->argc; i++) {
        if (i >= own_from) {
            argv[n++] = server->argv[i];
        } else if (is_shared_flag(server->argv[i]) && i + 1 < own_from) {
            argv[n++] = server->argv[i];
            argv[n++] = server->argv[++i];
        }
    }
    argv[n++] = print;
    argv[n++] = on;
    argv[n++] = offline;
    return argv;
}

/* The program beside the server's: what preflight found, with another name. */
static int find_program(const char *server, char *out, size_t size)
{
    const char *slash = strrchr(server, '/');
    if (!slash)
        return -ENOENT;
    int n = snprintf(out, size, "%.*s/%s", (int)(slash - server), server, program_name);
    if (n < 0 || (size_t)n >= size)
        return -ENAMETOOLONG;
    return access(out, X_OK) < 0 ? -ENOENT : 0;
}

extern char **environ;

static int spawn(struct dry_run *run)
{
    struct worker_options o = *run->options;
    struct command server = {0};
    char program[PREFLIGHT_PATH + sizeof(program_name)];
    char **argv = NULL;
    int r = find_program(run->job_data.program, program, sizeof(program));
    if (r < 0)
        return r;
    if (o.device == WORKER_DEVICE_SIM)
        o.sim_plugin = run->job_data.plugin;
    r = command_build(&o, run->job_data.program, "", 1, environ, &server);
    if (r < 0)
        return r;
    argv = make_argv(&server, o.arg_count, program);
    struct process_spec spec = {.program = program,
                                .argv = argv,
                                .envp = server.envp,
                                .oom_score_above = DRY_RUN_OOM_ABOVE};
    r = argv ? process_spawn(run->loop, &spec, &process_calls, run, &run->process) : -ENOMEM;
    free(argv);
    command_free(&server);
    if (r < 0)
        return r;
    int pid = process_pid(run->process);
    (void)setpriority(PRIO_PROCESS, (id_t)pid, DRY_RUN_NICE);
    uv_timer_start(&run->timer, on_deadline, run->deadline_ms, 0);
    if (run->events->on_pid)
        run->events->on_pid(pid, run->ctx);
    return 0;
}

/* --- the start --- */

/* Any thread. */
static void run_job(uv_work_t *job)
{
    struct dry_run *run = job->data;
    preflight_run(&run->job_data);
}

static void on_job_done(uv_work_t *job, int status)
{
    struct dry_run *run = job->data;
    run->job_running = false;
    int r = status < 0 ? status : run->job_data.rc;
    if (r == 0 && run->events)
        r = spawn(run);
    if (r < 0 || !run->events)
        finish(run, r, NULL);
}

int dry_run_start(uv_loop_t *loop, const struct worker_options *options, uint64_t deadline_ms,
                  const struct dry_run_events *events, void *ctx, struct dry_run **ret_run)
{
    if (options->url || options->device == WORKER_DEVICE_NONE || !options->model_path)
        return -EINVAL;
    struct dry_run *run = calloc(1, sizeof(*run));
    if (!run)
        return -ENOMEM;
    int r = worker_options_copy(options, &run->options);
    if (r == 0)
        r = uv_timer_init(loop, &run->timer);
    if (r < 0) {
        worker_options_free(run->options);
        free(run);
        return r;
    }
    run->loop = loop;
    run->events = events;
    run->ctx = ctx;
    run->deadline_ms = deadline_ms;
    run->timer.data = run->job.data = run;
    run->job_data.options = run->options;
    r = uv_queue_work(loop, &run->job, run_job, on_job_done);
    if (r < 0) {
        uv_close((uv_handle_t *)&run->timer, on_timer_closed);
        return r;
    }
    run->job_running = true;
    *ret_run = run;
    return 0;
}
