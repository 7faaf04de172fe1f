/*
 * The life of a managed engine: preflight, spawn, load, ready, exit, pause, again. States are those
 * of worker.h; every way out of a state is in this table.
 *
 *   state    | event                        | next
 *   ---------+------------------------------+------------------------------------------------------
 *   starting | preflight failed             | failed (needs a person; tried again after a pause)
 *            | memory not back              | starting, looked at again; goes on after memory_wait_ms
 *            | spawned / cannot be spawned  | loading / backoff
 *   loading  | probe: ready                 | ready, or stopping → failed if it runs on the CPU
 *            | probe: loading, no answer    | loading
 *            | probe: a stranger's server   | stopping → failed
 *            | deadline                     | stopping → backoff, next deadline twice as long
 *            | exit                         | backoff, after failed_starts in a row: failed
 *   ready    | exit                         | backoff (restarts after memory is back: starting)
 *            | settled_ms over              | ready, pauses start from the first again
 *   stopping | exit                         | stopped, or backoff/failed when still wanted
 *   backoff, | pause over, by hand          | starting
 *   failed   |                              |
 *
 * A process that loads is given its deadline and is not judged by silence: while it reads
 * weights it may answer nothing at all.
 */
#include "base/units.h"
#include "worker/worker_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    SUPERVISE_PROBE_TIMEOUT_MS = 5000,
    SUPERVISE_LOAD_BASE_MS = 30000,
    SUPERVISE_PROGRAM_BASE_MS = 60000,       /* an interpreter and its libraries come first */
    SUPERVISE_LOAD_BYTES_PER_MS = 50 * 1000, /* 50 MB/s: a hard disk on a bad day */
    SUPERVISE_DEADLINE_FACTOR_MAX = 8,
};

static void schedule_restart(struct worker *w);
static void start_job(struct worker *w);

/* --- pauses --- */

static void on_pause_over(uv_timer_t *timer)
{
    supervise_start(timer->data);
}

static uint64_t restart_pause_ms(const struct worker *w)
{
    uint64_t pause = w->options->backoff_ms;

    for (uint32_t i = 1; i < w->failures && pause < w->options->backoff_max_ms; i++)
        pause *= 2;
    return pause < w->options->backoff_max_ms ? pause : w->options->backoff_max_ms;
}

static void pause_then_start(struct worker *w, enum worker_state state, uint64_t pause_ms)
{
    w->retry_at_ms = uv_now(w->loop) + pause_ms;
    uv_timer_start(&w->step_timer, on_pause_over, pause_ms, 0);
    worker_set_state(w, state);
}

/* There is no process, and one is wanted. The reason has been set. */
static void schedule_restart(struct worker *w)
{
    bool failed = w->fail_next;

    w->failures++;
    if (!w->was_ready)
        w->starts_not_ready++;
    if (w->starts_not_ready >= w->options->failed_starts)
        failed = true;
    w->fail_next = false;
    w->keep_reason = false;
    if (failed)
        pause_then_start(w, WORKER_STATE_FAILED, w->options->failed_pause_ms);
    else
        pause_then_start(w, WORKER_STATE_BACKOFF, restart_pause_ms(w));
}

void supervise_cancel_wait(struct worker *w)
{
    uv_timer_stop(&w->step_timer);
    uv_timer_stop(&w->deadline_timer);
    w->retry_at_ms = 0;
    w->memory_since_ms = 0;
}

/* --- loading --- */

/* Quick at first, as a small model is there in half a second; the engine's own line hurries it. */
static uint64_t probe_pause_ms(const struct worker *w)
{
    if (w->probes < 10)
        return 50;
    return w->probes < 40 ? 250 : 1000;
}

static void ask_health(struct worker *w);

static void on_probe_due(uv_timer_t *timer)
{
    ask_health(timer->data);
}

static const char *health_path(const struct worker *w)
{
    return w->options->health != NULL ? w->options->health : "/health";
}

static void ask_health(struct worker *w)
{
    w->probes++;
    if (worker_ask(w, health_path(w), SUPERVISE_PROBE_TIMEOUT_MS) < 0 && w->ask == NULL)
        uv_timer_start(&w->step_timer, on_probe_due, probe_pause_ms(w), 0);
}

static void on_deadline(uv_timer_t *timer)
{
    struct worker *w = timer->data;
    const struct load_report *report = &w->output->report;
    const char *error = report->first_error[0] ? report->first_error : NULL;
    char last[WORKER_REASON_BYTES];
    char time[24];

    snprintf(last, sizeof(last), "%s", w->reason);
    units_format_duration_ms(uv_now(w->loop) - w->spawned_at_ms, time, sizeof(time));
    worker_set_reason(w, "not ready after %s%s%s", time, error ? ": " : (last[0] ? ": " : ""),
                      error ? error : last);
    if (w->deadline_factor < SUPERVISE_DEADLINE_FACTOR_MAX)
        w->deadline_factor *= 2;
    w->keep_reason = true;
    supervise_end(w, false);
}

static void on_settled(uv_timer_t *timer)
{
    struct worker *w = timer->data;

    w->failures = 0;
}

static uint64_t load_deadline_ms(const struct worker *w)
{
    const struct worker_options *o = w->options;
    uint64_t declared = o->device_bytes > o->host_bytes ? o->device_bytes : o->host_bytes;
    uint64_t ms = o->load_timeout_ms;

    if (ms == 0 && w->program)
        ms = SUPERVISE_PROGRAM_BASE_MS + declared / SUPERVISE_LOAD_BYTES_PER_MS;
    else if (ms == 0)
        ms = SUPERVISE_LOAD_BASE_MS + w->job_data.model_bytes / SUPERVISE_LOAD_BYTES_PER_MS;
    return ms * w->deadline_factor;
}

static void become_ready(struct worker *w)
{
    const struct worker_options *o = w->options;
    struct load_report *report = &w->output->report;
    char sentence[WORKER_REASON_BYTES / 2];

    /* The answer may have overtaken the lines that were written before it. */
    process_read_now(w->process);
    if (w->destroying || w->state != WORKER_STATE_LOADING)
        return;
    sentence[0] = '\0';
    if (!w->program &&
        !load_report_placement(report, o->gpu_layers, o->device_name, sentence, sizeof(sentence)) &&
        o->require_device) {
        worker_set_reason(w, "%s", sentence);
        w->fail_next = true;
        w->keep_reason = true;
        supervise_end(w, false);
        return;
    }
    snprintf(w->warning, sizeof(w->warning), "%s%s%s", sentence,
             sentence[0] && report->warning[0] ? "; " : "", report->warning);
    report->loaded = true;
    w->was_ready = true;
    w->starts_not_ready = 0;
    w->deadline_factor = 1;
    uv_timer_start(&w->deadline_timer, on_settled, o->settled_ms, 0);
    worker_set_reason(w, "%s", "");
    worker_set_state(w, WORKER_STATE_READY);
}

void supervise_answered(struct worker *w, const struct http_answer *answer)
{
    char why[256];

    if (w->state != WORKER_STATE_LOADING)
        return;
    if (answer->error == 0) {
        enum probe_health health =
            w->program
                ? probe_judge_path(health_path(w), answer->status, answer->body, why, sizeof(why))
                : probe_judge_health(answer->status, answer->body, why, sizeof(why));

        if (health == PROBE_HEALTH_READY) {
            become_ready(w);
            return;
        }
        worker_set_reason(w, "%s", why);
        if (health == PROBE_HEALTH_STRANGER) {
            w->fail_next = true;
            w->keep_reason = true;
            supervise_end(w, false);
            return;
        }
    } else if (answer->connected) {
        worker_set_reason(w, "accepts connections but does not answer %s", health_path(w));
    } else if (w->program) {
        worker_set_reason(w, "does not listen at %s yet", w->address);
    }
    uv_timer_start(&w->step_timer, on_probe_due, probe_pause_ms(w), 0);
}

/* --- the process --- */

static void on_line(struct span line, void *ctx)
{
    struct worker *w = ctx;

    if (w->destroying)
        return;
    log_tail_push(&w->output->tail, line);
    if (load_report_line(&w->output->report, line) && w->state == WORKER_STATE_LOADING &&
        w->ask == NULL)
        uv_timer_start(&w->step_timer, on_probe_due, 0, 0);
    if (w->output->report.warning[0] != '\0' && w->warning[0] == '\0' &&
        w->state == WORKER_STATE_READY)
        snprintf(w->warning, sizeof(w->warning), "%s", w->output->report.warning);
    if (w->events->on_log_line != NULL)
        w->events->on_log_line(w, line, w->ctx);
}

static void on_output(struct process *p, int stream, struct span bytes, void *ctx)
{
    struct worker *w = ctx;

    (void)p;
    log_assembler_feed(&w->output->assembler[stream - 1], bytes, on_line, w);
}

/* What it said that explains its end, "" when nothing does. llama-server's first error is the cause, and
 * what follows its consequences; another program ends with its cause, as a trace does. */
static void describe_last_words(const struct worker *w, char *out, size_t out_size)
{
    const struct load_report *report = &w->output->report;
    const char *error =
        w->was_ready || w->program ? load_report_recent_error(report) : report->first_error;
    struct span last;

    snprintf(out, out_size, "%s", error);
    if (error[0] == '\0' && w->program && report->lines > 0 &&
        log_tail_get(&w->output->tail, &last, 1) == 1)
        snprintf(out, out_size, "it said: %.*s", SPAN_FMT(last));
}

static void describe_exit(struct worker *w, const struct process_exit *exit)
{
    const char *hint = process_exit_hint(exit);
    char error[LOAD_REPORT_TEXT];
    char text[192], time[24];

    process_exit_text(exit, text, sizeof(text));
    if (exit->exec_error != 0) {
        worker_set_reason(w, "%s %s %s", w->program ? "program" : "engine", w->job_data.program,
                          text);
        return;
    }
    describe_last_words(w, error, sizeof(error));
    units_format_duration_ms(uv_now(w->loop) - w->spawned_at_ms, time, sizeof(time));
    worker_set_reason(w, "%s after %s%s%s%s%s", text, time, hint[0] ? ", " : "", hint,
                      error[0] ? ": " : "", error);
}

static void on_exit_seen(struct process *p, const struct process_exit *exit, void *ctx)
{
    struct worker *w = ctx;
    bool was_stopping = w->state == WORKER_STATE_STOPPING;

    /* Everything below it is in place before anybody is told: callbacks see a worker without a
     * process. */
    for (int i = 0; i < 2; i++)
        log_assembler_finish(&w->output->assembler[i], on_line, w);
    if (w->destroying)
        return;
    w->last_pid = w->options->device != WORKER_DEVICE_NONE ? process_pid(p) : 0;
    w->process = NULL;
    w->exited_at_ms = uv_now(w->loop);
    http_ask_cancel(&w->ask);
    supervise_cancel_wait(w);
    http_origin_close_idle(w->origin);
    if (w->socket_path[0] != '\0')
        run_dir_unlink_socket(w->socket_path);
    if (exit->exec_error != 0)
        w->fail_next = true;
    if (!w->keep_reason)
        describe_exit(w, exit);
    if (w->wanted) {
        schedule_restart(w);
        return;
    }
    w->keep_reason = w->fail_next = false;
    if (was_stopping)
        worker_set_reason(w, "%s", "");
    worker_set_state(w, WORKER_STATE_STOPPED);
    worker_notify_stopped(w);
}

static void on_stuck(struct process *p, void *ctx)
{
    struct worker *w = ctx;

    worker_set_reason(w,
                      "process %d does not end after KILL: stuck in the kernel, most likely in the "
                      "GPU driver",
                      process_pid(p));
    w->keep_reason = true;
    if (!w->wanted)
        worker_notify_stopped(w); /* nobody can do more; a shutdown must not wait for it */
}

void supervise_end(struct worker *w, bool force)
{
    http_ask_cancel(&w->ask);
    uv_timer_stop(&w->step_timer);
    uv_timer_stop(&w->deadline_timer);
    if (force)
        process_kill(w->process);
    else
        process_stop(w->process, w->options->stop_grace_ms);
    worker_set_state(w, WORKER_STATE_STOPPING);
}

/* --- starting --- */

extern char **environ;

/* The folder may have been tidied away: by the last worker before us, or by a cleaner of /tmp. */
static int prepare_socket(struct worker *w)
{
    bool made = false;
    int rc = run_dir_prepare(w->run_dir, &made);

    if (rc == 0)
        rc = run_dir_unlink_socket(w->socket_path);
    if (rc == 0)
        w->run_dir_made = w->run_dir_made || made;
    return rc;
}

/* Another port at every start: the last one may be what it died of. */
static int prepare_port(struct worker *w)
{
    uint16_t port;
    char *address;
    int rc = port_take(&port);

    if (rc < 0)
        return rc;
    if (asprintf(&address, "http://127.0.0.1:%u", (unsigned)port) < 0)
        rc = -ENOMEM;
    else
        rc = http_origin_set_port(w->origin, port);
    if (rc < 0) {
        port_give_back(port);
        return rc;
    }
    port_give_back(w->port);
    w->port = port;
    free(w->address);
    w->address = address;
    return 0;
}

static int make_command(struct worker *w, struct command *ret_command)
{
    struct worker_options o = *w->options;

    if (w->program) {
        struct command_place place = {.program = w->job_data.program,
                                      .socket_path = w->socket_path[0] ? w->socket_path : NULL,
                                      .port = w->port,
                                      .threads = w->job_data.threads,
                                      .wrapper = "failsoft"};

        return command_build_program(&o, &place, environ, ret_command);
    }
    o.context_tokens = worker_context_tokens(w);
    if (o.device == WORKER_DEVICE_SIM)
        o.sim_plugin = w->job_data.plugin;
    return command_build(&o, w->job_data.program, w->socket_path, w->job_data.threads, environ,
                         ret_command);
}

static int spawn_engine(struct worker *w)
{
    static const struct process_events events = {on_output, on_exit_seen, on_stuck};
    /* On a simulated card our own executable holds the memory and starts the program. */
    bool wrapped = w->program && w->options->device == WORKER_DEVICE_SIM;
    struct command command;
    int rc = w->socket_path[0] != '\0' ? prepare_socket(w) : prepare_port(w);

    if (rc == 0)
        rc = make_command(w, &command);
    if (rc < 0)
        return rc;
    rc = process_spawn(
        w->loop,
        &(struct process_spec){.program = wrapped ? "/proc/self/exe" : w->job_data.program,
                               .argv = command.argv,
                               .envp = command.envp,
                               .guarded = w->program,
                               .oom_score_above = w->options->oom_score_above},
        &events, w, &w->process);
    command_free(&command);
    return rc;
}

static const char *loading_text(const struct worker *w)
{
    return w->program ? "starting the program" : "loading the model";
}

static void launch(struct worker *w)
{
    int rc;

    w->output->assembler[0] = w->output->assembler[1] = (struct log_assembler){.len = 0};
    load_report_reset(&w->output->report);
    w->memory_since_ms = 0;
    w->was_ready = false;
    w->probes = 0;
    rc = spawn_engine(w);
    if (rc < 0) {
        worker_set_reason(w, "the %s can not be started: %s", w->program ? "program" : "engine",
                          strerror(-rc));
        schedule_restart(w);
        return;
    }
    w->last_pid = 0;
    w->starts++;
    uv_update_time(w->loop);
    w->spawned_at_ms = uv_now(w->loop);
    uv_timer_start(&w->deadline_timer, on_deadline, load_deadline_ms(w), 0);
    uv_timer_start(&w->step_timer, on_probe_due, probe_pause_ms(w), 0);
    /* What went wrong last stays to be seen while it is tried again. */
    if (w->starts_not_ready > 0 && w->reason[0] != '\0')
        worker_set_reason(w, "%s again; before: %s", loading_text(w), w->reason);
    else
        worker_set_reason(w, "%s", loading_text(w));
    worker_set_state(w, WORKER_STATE_LOADING);
}

static void on_look_again(uv_timer_t *timer)
{
    start_job(timer->data);
}

/* True when the start has to wait for the last process's memory: until it is seen to be back, or for
 * a bounded time after the exit where nobody can see it. */
static bool wait_for_memory(struct worker *w)
{
    const struct preflight *job = &w->job_data;
    const struct worker_options *o = w->options;
    const char *device = o->device_name ? o->device_name : "the GPU";
    uint64_t now_ms = uv_now(w->loop);
    char size[24];

    if (job->memory_known && job->held_bytes == 0)
        return false;
    if (w->memory_since_ms == 0)
        w->memory_since_ms = now_ms;
    if (!job->memory_known) {
        if (now_ms - w->exited_at_ms >= o->memory_settle_ms)
            return false;
        worker_set_reason(w, "gives the memory of process %d on %s time to come back", w->last_pid,
                          device);
    } else {
        units_format_bytes(job->held_bytes, size, sizeof(size));
        if (now_ms - w->memory_since_ms >= o->memory_wait_ms) {
            snprintf(w->warning, sizeof(w->warning),
                     "started although %s on %s of the last process were not back", size, device);
            return false;
        }
        worker_set_reason(w, "waits for %s on %s of process %d to be given back", size, device,
                          w->last_pid);
    }
    uv_timer_start(&w->step_timer, on_look_again, o->memory_poll_ms, 0);
    return true;
}

/* True when the owner says that it is not the time. */
static bool wait_for_owner(struct worker *w)
{
    char why[WORKER_REASON_BYTES];

    if (w->events->may_start == NULL || w->events->may_start(w, why, sizeof(why), w->ctx))
        return false;
    worker_set_reason(w, "%s", why);
    uv_timer_start(&w->step_timer, on_look_again, w->options->memory_poll_ms, 0);
    return true;
}

void supervise_look_again(struct worker *w)
{
    if (w->state == WORKER_STATE_STARTING && w->process == NULL && !w->job_running &&
        !w->destroying)
        start_job(w);
}

static void run_job(uv_work_t *job)
{
    struct worker *w = job->data;

    preflight_run(&w->job_data);
}

static void on_job_done(uv_work_t *job, int status)
{
    struct worker *w = job->data;

    w->job_running = false;
    if (w->destroying) {
        worker_maybe_free(w);
        return;
    }
    if (w->state != WORKER_STATE_STARTING || w->process != NULL)
        return;
    if (status < 0) {
        start_job(w); /* cancelled by a stop that was taken back since */
        return;
    }
    w->warning[0] = '\0';
    if (w->job_data.rc < 0) {
        worker_set_reason(w, "%s", w->job_data.why);
        w->fail_next = true;
        w->was_ready = false;
        schedule_restart(w);
        return;
    }
    if (!wait_for_memory(w) && !wait_for_owner(w))
        launch(w);
}

static void start_job(struct worker *w)
{
    if (w->job_running)
        return; /* its end goes on from here */
    w->job_data.options = w->options;
    w->job_data.last_pid = w->last_pid;
    w->job.data = w;
    if (uv_queue_work(w->loop, &w->job, run_job, on_job_done) == 0)
        w->job_running = true;
}

void supervise_start(struct worker *w)
{
    supervise_cancel_wait(w);
    w->deadline_factor = w->deadline_factor ? w->deadline_factor : 1;
    worker_set_state(w, WORKER_STATE_STARTING);
    if (!w->destroying && w->state == WORKER_STATE_STARTING)
        start_job(w);
}
