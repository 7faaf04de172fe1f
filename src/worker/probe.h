/*
 * Questions to an engine over HTTP: is it ready, and what is it. Answers are judged by the shape of
 * the body: a status of 200 alone proves nothing (a stranger's server answers 200 and HTML on every
 * path), and a list of models is no sign of readiness (mostlygeek/llama-swap#146).
 *
 * The judging is pure; a struct probe makes one call at a time on its loop.
 */
#ifndef FAILSOFT_WORKER_PROBE_H
#define FAILSOFT_WORKER_PROBE_H

#include "base/span.h"
#include "http/client.h"
#include "worker/options.h"

#include <stdbool.h>
#include <stddef.h>
#include <uv.h>

enum probe_health {
    PROBE_HEALTH_READY,   /* 200 {"status":"ok"} */
    PROBE_HEALTH_LOADING, /* says that it loads, in either form that llama-server has had */
    PROBE_HEALTH_NOT_YET, /* anything else that may pass */
    PROBE_HEALTH_STRANGER /* some other server: it will never be ready */
};

/* `why` gets a sentence for all but READY. */
enum probe_health probe_judge_health(int status, struct span body, char *why, size_t why_size);

/*
 * The same for a program of which only a path is known: 2xx is ready, whatever it says; nothing proves
 * a stranger.
 */
enum probe_health probe_judge_path(const char *path, int status, struct span body, char *why,
                                   size_t why_size);

enum { PROBE_ENGINE_STEPS = 3 };

/* The path asked in a step of finding out the engine, in this order; NULL after the last. */
const char *probe_engine_path(unsigned step);
/* What an answer to that step proves; UNKNOWN: nothing, go on. */
enum worker_engine probe_judge_engine(unsigned step, int status, struct span body);

enum { PROBE_BODY_BYTES = 64 * 1024 };

struct probe_answer {
    int error;        /* negative errno, or 0 */
    bool connected;   /* somebody accepted the connection */
    int status;       /* 0 with an error */
    struct span body; /* at most PROBE_BODY_BYTES, cut; valid during the call */
};

struct probe {
    struct http_origin *origin;
    struct http_call *call; /* NULL: idle */
    struct buf body;
    int status;
    bool has_head;
    uv_timer_t timer;
    void (*on_answer)(const struct probe_answer *answer, void *ctx);
    void *ctx;
};

/* `on_answer` comes once per probe_start() that succeeded and was not cancelled. */
void probe_init(struct probe *p, uv_loop_t *loop, struct http_origin *origin,
                void (*on_answer)(const struct probe_answer *answer, void *ctx), void *ctx);
bool probe_is_running(const struct probe *p);
/* GET path on a new connection. 0; -EALREADY; errors of http_call_start(). */
int probe_start(struct probe *p, const char *path, uint64_t timeout_ms);
void probe_cancel(struct probe *p);
/* Cancels and closes the timer; on_closed from the loop. */
void probe_close(struct probe *p, uv_close_cb on_closed, void *handle_data);

#endif
