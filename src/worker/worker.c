/*
 * A worker's lifetime, commands and accessors; the managed engine's life is in supervise.c, the
 * finding out of an external one in external.c. States, ownership and thread: worker.h.
 */
#include "worker/worker_internal.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const state_names[WORKER_STATE_COUNT] = {
    [WORKER_STATE_STOPPED] = "stopped",   [WORKER_STATE_STARTING] = "starting",
    [WORKER_STATE_LOADING] = "loading",   [WORKER_STATE_READY] = "ready",
    [WORKER_STATE_STOPPING] = "stopping", [WORKER_STATE_BACKOFF] = "backoff",
    [WORKER_STATE_FAILED] = "failed",     [WORKER_STATE_EXTERNAL] = "external",
};

const char *worker_state_name(enum worker_state state)
{
    return state < WORKER_STATE_COUNT ? state_names[state] : "unknown";
}

/* --- shared with supervise.c and external.c --- */

void worker_set_reason(struct worker *w, const char *format, ...)
{
    char text[WORKER_REASON_BYTES];
    va_list args;

    /* By way of a copy: the old reason may be among the arguments. */
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    memcpy(w->reason, text, sizeof(text));
}

void worker_set_state(struct worker *w, enum worker_state state)
{
    enum worker_state from = w->state;

    if (from == state || w->destroying)
        return;
    w->state = state;
    w->state_since_ms = uv_now(w->loop);
    if (w->events->on_state != NULL)
        w->events->on_state(w, from, state, w->ctx);
}

void worker_notify_stopped(struct worker *w)
{
    struct worker_stop_waiter waiters[WORKER_STOP_WAITERS];
    unsigned count = w->waiter_count;

    memcpy(waiters, w->waiters, sizeof(waiters));
    w->waiter_count = 0;
    for (unsigned i = 0; i < count && !w->destroying; i++)
        waiters[i].on_stopped(w, waiters[i].ctx);
}

void worker_maybe_free(struct worker *w)
{
    if (!w->destroying || w->open_handles > 0 || w->job_running)
        return;
    free(w->output);
    free(w->address);
    worker_options_free(w->options);
    free(w);
}

static void on_answer(const struct http_answer *answer, void *ctx)
{
    struct worker *w = ctx;

    if (w->managed)
        supervise_answered(w, answer);
    else
        external_answered(w, answer);
}

int worker_ask(struct worker *w, const char *path, uint64_t timeout_ms)
{
    struct http_fields fields;
    struct http_call_request request = {
        .method = SPAN_LIT("GET"),
        .target = span_from_str(path),
        .fields = &fields,
        .fresh_connection = true,
    };
    int rc;

    http_fields_init(&fields, 64);
    rc = http_fields_add(&fields, SPAN_LIT("Accept"), SPAN_LIT("application/json"));
    if (rc == 0)
        rc = http_ask_start(w->origin, &request, PROBE_BODY_BYTES, timeout_ms, on_answer, w,
                            &w->ask);
    http_fields_free(&fields);
    return rc;
}

/* --- lifetime --- */

static int check_options(const struct worker_options *o)
{
    if (o->service == NULL || o->tier == NULL)
        return -EINVAL;
    if (o->url != NULL)
        return 0;
    if (o->command_count > 0) {
        bool held = o->device != WORKER_DEVICE_SIM || o->sim_card != NULL;

        return o->command[0][0] != '\0' && held ? 0 : -EINVAL;
    }
    if (o->engine_path == NULL || o->engine_path[0] == '\0' || o->model_path == NULL ||
        o->model_path[0] == '\0')
        return -EINVAL;
    return 0;
}

static int create_external(struct worker *w, struct http_origin_options *origin_options)
{
    w->state = WORKER_STATE_EXTERNAL;
    w->engine = w->options->engine;
    w->address = strdup(w->options->url);
    if (w->address == NULL)
        return -ENOMEM;
    return http_origin_create_url(w->loop, w->options->url, origin_options, &w->origin);
}

static int create_socket(struct worker *w, const struct http_origin_options *origin_options)
{
    const char *configured = w->options->run_dir;
    int rc;

    if (configured == NULL)
        rc = run_dir_default(w->run_dir, sizeof(w->run_dir));
    else if (strlen(configured) >= sizeof(w->run_dir))
        rc = -ENAMETOOLONG;
    else
        rc = snprintf(w->run_dir, sizeof(w->run_dir), "%s", configured) < 0 ? -EINVAL : 0;
    if (rc == 0)
        rc = run_dir_socket_path(w->run_dir, w->options->service, w->options->tier, w->socket_path,
                                 sizeof(w->socket_path));
    if (rc == 0 && asprintf(&w->address, "unix:%s", w->socket_path) < 0) {
        w->address = NULL;
        rc = -ENOMEM;
    }
    if (rc == 0)
        rc = run_dir_prepare(w->run_dir, &w->run_dir_made);
    if (rc == 0)
        rc = http_origin_create_unix(w->loop, w->socket_path, origin_options, &w->origin);
    return rc;
}

/* The port is chosen at each start; nobody calls it before. */
static int create_port(struct worker *w, const struct http_origin_options *origin_options)
{
    w->address = strdup("http://127.0.0.1");
    if (w->address == NULL)
        return -ENOMEM;
    return http_origin_create_url(w->loop, w->address, origin_options, &w->origin);
}

static int create_managed(struct worker *w, struct http_origin_options *origin_options)
{
    w->managed = true;
    w->state = WORKER_STATE_STOPPED;
    w->program = worker_options_is_program(w->options);
    w->engine = w->program ? w->options->engine : WORKER_ENGINE_LLAMA_SERVER;
    w->output = calloc(1, sizeof(*w->output));
    if (w->output == NULL)
        return -ENOMEM;
    /* No pool: an idle connection holds one of the engine's few HTTP threads (the only one of a small
     * program), and a new one costs next to nothing on this machine. */
    origin_options->max_idle = 0;
    if (w->program && !worker_options_uses_socket(w->options))
        return create_port(w, origin_options);
    return create_socket(w, origin_options);
}

static void add_timer(struct worker *w, uv_timer_t *timer)
{
    uv_timer_init(w->loop, timer);
    timer->data = w;
    w->open_handles++;
}

int worker_create(uv_loop_t *loop, const struct worker_options *options,
                  const struct worker_events *events, void *ctx, struct worker **ret_worker)
{
    struct http_origin_options origin_options;
    struct worker *w;
    int rc = check_options(options);

    if (rc < 0)
        return rc;
    w = calloc(1, sizeof(*w));
    if (w == NULL)
        return -ENOMEM;
    w->loop = loop;
    w->events = events;
    w->ctx = ctx;
    w->deadline_factor = 1;
    w->state_since_ms = uv_now(loop);
    rc = worker_options_copy(options, &w->options);
    if (rc < 0)
        goto out;
    http_origin_options_default(&origin_options);
    origin_options.connect_timeout_ms = options->connect_timeout_ms;
    rc = options->url != NULL ? create_external(w, &origin_options)
                              : create_managed(w, &origin_options);
    if (rc < 0)
        goto out;
    add_timer(w, &w->step_timer);
    add_timer(w, &w->deadline_timer);
    add_timer(w, &w->notice_timer);
    *ret_worker = w;
    return 0;
out:
    if (w->run_dir_made)
        rmdir(w->run_dir);
    http_origin_destroy(w->origin);
    free(w->output);
    free(w->address);
    worker_options_free(w->options);
    free(w);
    return rc;
}

static void on_handle_closed(uv_handle_t *handle)
{
    struct worker *w = handle->data;

    w->open_handles--;
    worker_maybe_free(w);
}

void worker_destroy(struct worker *w)
{
    if (w == NULL || w->destroying)
        return;
    w->destroying = true;
    process_abandon(w->process);
    w->process = NULL;
    if (w->job_running)
        uv_cancel((uv_req_t *)&w->job);
    http_ask_cancel(&w->ask);
    uv_close((uv_handle_t *)&w->step_timer, on_handle_closed);
    uv_close((uv_handle_t *)&w->deadline_timer, on_handle_closed);
    uv_close((uv_handle_t *)&w->notice_timer, on_handle_closed);
    http_origin_destroy(w->origin);
    port_give_back(w->port);
    if (w->socket_path[0] != '\0') {
        run_dir_unlink_socket(w->socket_path);
        /* The last one out removes a folder that was not there before; others find it not empty
         * or still in use, and a configured folder that existed stays. */
        if (w->options->run_dir == NULL || w->run_dir_made)
            rmdir(w->run_dir);
    }
}

/* --- commands --- */

void worker_start(struct worker *w)
{
    if (w->wanted || w->destroying)
        return;
    w->wanted = true;
    if (!w->managed)
        external_find_engine(w);
    else if (w->process == NULL)
        supervise_start(w);
    /* else: stopping; started when the old process is gone */
}

static void on_notice(uv_timer_t *timer)
{
    worker_notify_stopped(timer->data);
}

static void add_waiter(struct worker *w, void (*on_stopped)(struct worker *w, void *ctx), void *ctx)
{
    if (on_stopped == NULL || w->waiter_count == WORKER_STOP_WAITERS)
        return;
    w->waiters[w->waiter_count++] = (struct worker_stop_waiter){on_stopped, ctx};
}

void worker_stop(struct worker *w, void (*on_stopped)(struct worker *w, void *ctx), void *ctx)
{
    w->wanted = false;
    add_waiter(w, on_stopped, ctx);
    if (w->process != NULL) {
        worker_set_reason(w, "asked to stop");
        w->keep_reason = w->fail_next = false;
        supervise_end(w, false);
        return;
    }
    supervise_cancel_wait(w);
    http_ask_cancel(&w->ask);
    uv_timer_start(&w->notice_timer, on_notice, 0, 0);
    if (w->managed) {
        worker_set_reason(w, "%s", "");
        worker_set_state(w, WORKER_STATE_STOPPED);
    }
}

void worker_kill_now(struct worker *w)
{
    if (w->process == NULL)
        return;
    if (w->state != WORKER_STATE_STOPPING) {
        worker_set_reason(w, "killed on request");
        w->keep_reason = true;
    }
    supervise_end(w, true);
}

void worker_recycle(struct worker *w, const char *reason, bool force)
{
    http_origin_close_idle(w->origin);
    if (w->process == NULL || !w->wanted)
        return;
    worker_set_reason(w, "%s", reason ? reason : "restarted on request");
    w->keep_reason = true;
    supervise_end(w, force);
}

void worker_retry_now(struct worker *w)
{
    if (w->state != WORKER_STATE_BACKOFF && w->state != WORKER_STATE_FAILED)
        return;
    w->failures = 0;
    w->starts_not_ready = 0;
    supervise_start(w);
}

void worker_suspect(struct worker *w)
{
    if (!w->managed)
        external_find_engine(w);
    else if (w->process != NULL)
        process_check(w->process);
}

/* --- accessors --- */

enum worker_state worker_get_state(const struct worker *w)
{
    return w->state;
}

bool worker_is_usable(const struct worker *w)
{
    return w->state == WORKER_STATE_READY || w->state == WORKER_STATE_EXTERNAL;
}

const char *worker_reason(const struct worker *w)
{
    return w->reason;
}

const char *worker_warning(const struct worker *w)
{
    return w->warning;
}

uint64_t worker_state_since_ms(const struct worker *w)
{
    return w->state_since_ms;
}

uint64_t worker_retry_at_ms(const struct worker *w)
{
    return w->retry_at_ms;
}

int worker_pid(const struct worker *w)
{
    return w->process != NULL ? process_pid(w->process) : 0;
}

uint32_t worker_restarts(const struct worker *w)
{
    return w->starts > 0 ? w->starts - 1 : 0;
}

bool worker_is_managed(const struct worker *w)
{
    return w->managed;
}

struct http_origin *worker_origin(const struct worker *w)
{
    return w->origin;
}

const char *worker_address(const struct worker *w)
{
    return w->address;
}

enum worker_engine worker_get_engine(const struct worker *w)
{
    return w->engine;
}

const struct worker_options *worker_get_options(const struct worker *w)
{
    return w->options;
}

bool worker_offload(const struct worker *w, uint32_t *ret_offloaded, uint32_t *ret_layers)
{
    if (w->output == NULL || !w->output->report.offload_known)
        return false;
    *ret_offloaded = w->output->report.offloaded;
    *ret_layers = w->output->report.layers;
    return true;
}

void worker_set_context_tokens(struct worker *w, uint32_t context_tokens)
{
    w->context_tokens = context_tokens;
}

uint32_t worker_context_tokens(const struct worker *w)
{
    return w->context_tokens > 0 ? w->context_tokens : w->options->context_tokens;
}

void worker_look_again(struct worker *w)
{
    if (w->managed)
        supervise_look_again(w);
}

void worker_read_log_now(struct worker *w)
{
    if (w->process != NULL)
        process_read_now(w->process);
}

size_t worker_log_tail(const struct worker *w, struct span *ret_lines, size_t max)
{
    return w->output == NULL ? 0 : log_tail_get(&w->output->tail, ret_lines, max);
}
