/*
 * Finding out what an external server is: /props, /api/version, /v1/models, first proof wins. In the
 * background: requests go to the worker all the while, and a server that is away is asked again later.
 */
#include "worker/worker_internal.h"

#include <string.h>

enum {
    EXTERNAL_TIMEOUT_MS = 3000,
    EXTERNAL_RETRY_MS = 1000,
    EXTERNAL_RETRY_MAX_MS = 30000,
    EXTERNAL_AGAIN_MS = 10000, /* a suspect worker is asked again this often at most */
};

static void external_ask(struct worker *w);

static void on_retry(uv_timer_t *timer)
{
    struct worker *w = timer->data;

    w->engine_step = 0;
    w->engine_answered = false;
    external_ask(w);
}

static void external_retry_later(struct worker *w)
{
    uint64_t pause = EXTERNAL_RETRY_MS;

    for (unsigned i = 0; i < w->engine_tries && pause < EXTERNAL_RETRY_MAX_MS; i++)
        pause *= 2;
    w->engine_tries++;
    uv_timer_start(&w->step_timer, on_retry,
                   pause < EXTERNAL_RETRY_MAX_MS ? pause : EXTERNAL_RETRY_MAX_MS, 0);
}

static void external_found(struct worker *w, enum worker_engine engine)
{
    bool changed = w->engine != engine;

    w->engine = engine;
    w->engine_tries = 0;
    if (changed && w->events->on_engine != NULL)
        w->events->on_engine(w, engine, w->ctx);
}

/* A base URL that ends with /v1 is the OpenAI API by its owner's word; its paths lack the /v1. */
static const char *external_path(const struct worker *w)
{
    const char *prefix = http_origin_prefix(w->origin);
    const char *path = probe_engine_path(w->engine_step);
    size_t len = strlen(prefix);

    if (path != NULL && len >= 3 && strcmp(prefix + len - 3, "/v1") == 0 &&
        strncmp(path, "/v1/", 4) == 0)
        return path + 3;
    return path;
}

static void external_ask(struct worker *w)
{
    const char *path = external_path(w);

    w->engine_asked_ms = uv_now(w->loop);
    if (path == NULL) {
        if (w->engine_answered)
            external_found(w, WORKER_ENGINE_GENERIC);
        else
            external_retry_later(w);
        return;
    }
    if (worker_ask(w, path, EXTERNAL_TIMEOUT_MS) < 0)
        external_retry_later(w);
}

void external_answered(struct worker *w, const struct http_answer *answer)
{
    enum worker_engine engine = WORKER_ENGINE_UNKNOWN;

    if (answer->error == 0) {
        w->engine_answered = true;
        engine = probe_judge_engine(w->engine_step, answer->status, answer->body);
    } else if (!answer->connected) {
        external_retry_later(w); /* nobody there: the other paths would tell no more */
        return;
    }
    if (engine != WORKER_ENGINE_UNKNOWN) {
        external_found(w, engine);
        return;
    }
    w->engine_step++;
    external_ask(w);
}

void external_find_engine(struct worker *w)
{
    uint64_t pause_ms;

    if (!w->wanted || w->options->engine != WORKER_ENGINE_UNKNOWN || w->ask != NULL)
        return;
    pause_ms = w->engine == WORKER_ENGINE_UNKNOWN ? EXTERNAL_RETRY_MS : EXTERNAL_AGAIN_MS;
    if (w->engine_asked_ms != 0 && uv_now(w->loop) - w->engine_asked_ms < pause_ms &&
        (w->engine != WORKER_ENGINE_UNKNOWN || uv_is_active((uv_handle_t *)&w->step_timer)))
        return;
    uv_timer_stop(&w->step_timer);
    w->engine_step = 0;
    w->engine_answered = false;
    external_ask(w);
}
