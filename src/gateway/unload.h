/*
 * Asking an external engine to give its model's memory back. What its engine is known to take, or the
 * path that the tier names:
 *
 *   `unload`              POST to it, with an empty JSON object
 *   Ollama                POST /api/generate {"model", "keep_alive": 0}, without a prompt: unloads and
 *                         loads nothing; the tier's model, or each one of GET /api/ps
 *                         (docs/api.md of Ollama, "Unload a model")
 *   llama-server, router  GET /models, where each model has a `status`; POST /models/unload {"model"}
 *                         for the tier's model, or each one that is loaded (tools/server/README.md
 *                         of llama.cpp, "Using multiple models"); one of a single model has no status
 *   others                nothing
 *
 * One call at a time for a worker, with a deadline, and never again by itself. Its answer says that the
 * engine has understood, not that memory is back: that is measured (device_external.c).
 *
 * It also ends batches (F50 stavsap/comfyui-ollama#85): clients send `keep_alive: 0` so that another
 * program finds room, and then every item of a list loads the model anew. Here such a request is sent
 * with a short time instead, and the model is unloaded once, when no other has come for a moment.
 *
 * Loop thread only. Names begin with unload_.
 */
#ifndef FAILSOFT_GATEWAY_UNLOAD_H
#define FAILSOFT_GATEWAY_UNLOAD_H

#include <stdbool.h>
#include <stdint.h>

struct api_edit_options;
struct config_tier;
struct gateway;
struct gateway_request;
struct gateway_worker;
struct unload_call;

enum unload_outcome {
    UNLOAD_NONE = 0,   /* not asked */
    UNLOAD_ASKED,      /* no answer yet */
    UNLOAD_DONE,       /* it says yes */
    UNLOAD_EMPTY,      /* it says that nothing is loaded */
    UNLOAD_IMPOSSIBLE, /* no way is known */
    UNLOAD_FAILED,     /* see why */
};

enum { UNLOAD_MODEL_BYTES = 256 };

/* Part of a struct gateway_worker. */
struct gateway_unload {
    struct unload_call *call; /* under way; NULL: none */
    enum unload_outcome outcome;
    char why[64];         /* failed: what was answered */
    bool single_model;    /* a llama-server that is no router: it has no way */
    uint64_t answered_ms; /* the outcome was known */
    /* The end of a batch. */
    uint64_t due_ms; /* 0: none */
    char model[UNLOAD_MODEL_BYTES];
    /* What giving back has brought, see device_external.c. */
    uint64_t came_bytes;    /* seen to come back since it was asked */
    bool seen;              /* … and no more comes */
    uint32_t why_length;    /* of the worker's yield_text: what stays in front */
    uint64_t calm_since_ms; /* yielded, and no pressure since; 0: not looked at yet */
};

void unload_init(struct gateway *g);

/* Some way is known, or it is not known yet that there is none. */
bool unload_is_known(const struct gateway_worker *w);

/* Asks; one that is under way is given up. The outcome is in w->unload, at once or later. */
void unload_start(struct gateway_worker *w);

/* Before its worker is stopped or freed. */
void unload_worker_gone(struct gateway_worker *w);

/* --- the end of a batch --- */

/*
 * An Ollama client wants the model gone after this request: it is sent so that the next one of a batch
 * finds the model there. True: unload_batch_ended() is to be called when the attempt has ended.
 */
bool unload_keeps_for_batch(const struct gateway_request *r, const struct config_tier *tier,
                            struct api_edit_options *options);
/* An attempt on it begins; one that was kept for the batch has ended. */
void unload_batch_goes_on(struct gateway_worker *w);
void unload_batch_ended(struct gateway_worker *w);

#endif
