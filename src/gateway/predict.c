/*
 * What a managed worker will take, before it is started: the model's header is read and the estimate
 * made on a thread of the pool, once per worker. Until the answer is there, the worker waits with
 * its start; a model that cannot be read predicts nothing, and the engine will say why.
 */
#include "gateway/internal.h"

#include "base/log.h"
#include "base/units.h"
#include "gateway/device_learn.h"
#include "worker/tier_estimate.h"

#include <stdlib.h>
#include <string.h>

struct predict_job {
    uv_work_t work;
    struct gateway_worker *worker; /* NULL: gone meanwhile */
    struct tier_source source;
    struct tier_estimate *estimate; /* becomes the worker's */
    int result;
};

/* Any thread. */
static void predict_work(uv_work_t *work)
{
    struct predict_job *job = work->data;
    job->result = tier_estimate_read(&job->source, job->estimate);
}

static void free_job(struct predict_job *job)
{
    tier_source_free(&job->source);
    free(job->estimate);
    free(job);
}

static void take(struct gateway_worker *w, struct predict_job *job)
{
    char device[24], host[24];
    w->estimate = job->estimate;
    job->estimate = NULL;
    w->predicted_bytes = w->estimate->estimate.device_total.upper_bytes;
    w->need_bytes = w->predicted_bytes;
    devices_host_predicted(w, w->estimate->estimate.host_total.upper_bytes,
                           w->estimate->estimate.host_total.bytes, job->source.host_cache_bytes);
    if (w->device[0])
        learn_prepare(w, w->estimate->model_hash, w->estimate->settings_hash,
                      w->estimate->engine_hash, w->predicted_bytes, w->estimate->floor_bytes);
    log_debug("device", "%s/%s: at most %s on %s, %s on the host", w->service, w->tier,
              units_format_bytes(w->predicted_bytes, device, sizeof(device)),
              w->device[0] ? w->device : "no device",
              units_format_bytes(w->estimate->estimate.host_total.upper_bytes, host, sizeof(host)));
}

static void predict_done(uv_work_t *work, int status)
{
    struct predict_job *job = work->data;
    struct gateway_worker *w = job->worker;
    if (w) {
        w->predict_job = NULL;
        if (status == 0 && job->result == 0)
            take(w, job);
        if (w->worker && !w->stopping)
            worker_look_again(w->worker);
    }
    free_job(job);
}

void predict_start(struct gateway_worker *w, const struct config *config,
                   const struct config_service *service, const struct config_tier *tier)
{
    struct predict_job *job = calloc(1, sizeof(*job));
    if (!job)
        return;
    job->estimate = calloc(1, sizeof(*job->estimate));
    if (!job->estimate || tier_source_init(config, service, tier, &job->source) < 0)
        goto fail;
    job->worker = w;
    job->work.data = job;
    if (uv_queue_work(w->gateway->loop, &job->work, predict_work, predict_done) < 0)
        goto fail;
    w->predict_job = job;
    return;
fail:
    free_job(job);
}

void predict_forget(struct gateway_worker *w)
{
    if (w->predict_job)
        w->predict_job->worker = NULL;
    w->predict_job = NULL;
    free(w->estimate);
    w->estimate = NULL;
}
