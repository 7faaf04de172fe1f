/*
 * What a managed worker will take of its device, before it is started: the model's header is read and
 * the estimate made on a thread of the pool, once per worker. Until the answer is there, the worker
 * waits with its start; a model that cannot be read predicts nothing, and the engine will say why.
 */
#include "gateway/internal.h"

#include "base/log.h"
#include "base/units.h"
#include "model/estimate.h"
#include "model/gguf_file.h"
#include "worker/plan_settings.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { PREDICT_FILES = 3 }; /* model, projector, draft */

struct predict_job {
    uv_work_t work;
    struct gateway_worker *worker; /* NULL: gone meanwhile */
    char *paths[PREDICT_FILES];
    struct estimate_settings settings;
    struct estimate estimate;
    bool known;
};

/* Any thread. */
static void predict_work(uv_work_t *work)
{
    struct predict_job *job = work->data;
    struct gguf_file files[PREDICT_FILES];
    struct model_facts *facts = calloc(PREDICT_FILES, sizeof(*facts));
    unsigned count = 0;
    bool good = facts != NULL;
    memset(files, 0, sizeof(files));
    for (; good && count < PREDICT_FILES; count++) {
        if (!job->paths[count])
            continue;
        good = gguf_file_read(job->paths[count], &files[count]) == 0 && files[count].usable;
        if (good)
            model_facts_read(&files[count], &facts[count]);
    }
    if (good) {
        job->settings.projector = job->paths[1] ? &facts[1] : NULL;
        job->settings.draft = job->paths[2] ? &facts[2] : NULL;
        estimate_make(&facts[0], &job->settings, &job->estimate);
        job->known = true;
    }
    for (unsigned i = 0; i < PREDICT_FILES; i++)
        gguf_file_free(&files[i]);
    free(facts);
}

static void free_job(struct predict_job *job)
{
    for (unsigned i = 0; i < PREDICT_FILES; i++)
        free(job->paths[i]);
    free(job);
}

static void predict_done(uv_work_t *work, int status)
{
    struct predict_job *job = work->data;
    struct gateway_worker *w = job->worker;
    if (w) {
        w->predict_job = NULL;
        if (status == 0 && job->known) {
            char size[24], host[24];
            w->predicted_bytes = job->estimate.device_total.upper_bytes;
            w->need_bytes = w->predicted_bytes;
            devices_host_predicted(w, job->estimate.host_total.upper_bytes,
                                   job->estimate.host_total.bytes);
            log_debug("device", "%s/%s: at most %s on its device and %s of the machine", w->service,
                      w->tier, units_format_bytes(w->predicted_bytes, size, sizeof(size)),
                      units_format_bytes(w->host_predicted_bytes, host, sizeof(host)));
        }
        if (w->worker && !w->stopping)
            worker_look_again(w->worker);
    }
    free_job(job);
}

void predict_start(struct gateway_worker *w, const struct config_service *service,
                   const struct config_tier *tier)
{
    if (!tier->managed)
        return;
    if (tier->command.count > 0)
        devices_host_predicted(w, tier->host_memory_bytes, tier->host_memory_bytes);
    if (tier->command.count > 0 || !tier->model_path)
        return;
    struct predict_job *job = calloc(1, sizeof(*job));
    if (!job)
        return;
    const char *projector = NULL, *draft = NULL, *unknown = NULL;
    plan_settings_from_tier(service, tier, &job->settings);
    (void)plan_settings_apply_args(&tier->args, &job->settings, &projector, &draft, &unknown);
    job->worker = w;
    job->work.data = job;
    job->paths[0] = strdup(tier->model_path);
    job->paths[1] = projector ? strdup(projector) : NULL;
    job->paths[2] = draft ? strdup(draft) : NULL;
    if (!job->paths[0] ||
        uv_queue_work(w->gateway->loop, &job->work, predict_work, predict_done) < 0) {
        free_job(job);
        return;
    }
    w->predict_job = job;
}

void predict_forget(struct gateway_worker *w)
{
    if (w->predict_job)
        w->predict_job->worker = NULL;
    w->predict_job = NULL;
}
