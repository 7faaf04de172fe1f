/*
 * What a worker is sent instead of the client's body, as splices: the worker's name of the model, events
 * where an answer is put together here, sampling that every tier shares, and sizes that are bounded.
 *
 * Loop thread only.
 */
#include "gateway/internal.h"

enum { ATTEMPT_CONTEXT_MAX = 131072 }; /* tokens: no home device has room for more */

/* Operations whose llama-server bodies take progress reports and sampling members. */
static bool takes_sampling(enum api_operation operation)
{
    return operation == API_OPERATION_CHAT || operation == API_OPERATION_COMPLETIONS ||
           operation == API_OPERATION_NATIVE_COMPLETION;
}

/* What is sent instead of what the client asked for: a shorter answer, a bounded stay in memory. */
static void limit_sizes(struct gateway_request *r, const struct config_tier *tier,
                        struct api_edit_options *options)
{
    options->dialect = r->route.dialect;
    options->operation = r->route.operation;
    options->set_output = r->max_tokens > 0;
    options->output_tokens = r->max_tokens;
    bool longer = r->demand.keep_alive_given && (r->demand.keep_alive_forever ||
                                                 r->demand.keep_alive_ms > tier->keep_alive_max_ms);
    options->set_keep_alive = longer && r->route.dialect == API_DIALECT_OLLAMA;
    options->keep_alive_s = tier->keep_alive_max_ms / 1000;
    r->attempt.kept_for_batch = unload_keeps_for_batch(r, tier, options);
}

/*
 * Ollama reserves memory for the whole context that it is asked for (F33 ollama/ollama#8964). Bounded by
 * what the owner has said, else by what no home device has room for; and told, or a client would
 * take a cut prompt for a read one.
 */
static void limit_context(struct gateway_request *r, const struct config_tier *tier,
                          struct api_edit_options *options)
{
    const struct config_service *s = r->service->config;
    uint64_t most = ATTEMPT_CONTEXT_MAX;
    if (tier->request_tokens > 0)
        most = tier->request_tokens;
    else if (s->context_given && s->context_tokens > 0)
        most = s->context_tokens;
    options->context_tokens = most;
    options->set_context = r->route.dialect == API_DIALECT_OLLAMA && r->demand.context_given &&
                           r->demand.context_tokens > most;
    r->short_context = options->set_context ? most : 0;
}

int attempt_prepare_body(struct gateway_request *r, const struct config_tier *tier)
{
    struct attempt *a = &r->attempt;
    enum worker_engine engine = worker_get_engine(a->worker->worker);
    bool llama = engine == WORKER_ENGINE_LLAMA_SERVER;
    bool tuned = llama && takes_sampling(r->route.operation);
    a->want_assembly = llama && !r->api->stream && api_assembly_can(&r->route, r->api);
    struct api_edit_options options = {
        .model = tier->model,
        .stream = a->want_assembly,
        .return_progress = tuned && (a->want_assembly || r->streamed),
        .include_usage = a->want_assembly && takes_sampling(r->route.operation),
        .defaults = tuned ? r->service->sampling : NULL,
        .default_count = tuned ? r->service->sampling_count : 0,
    };
    limit_sizes(r, tier, &options);
    limit_context(r, tier, &options);
    int error = api_edit_prepare(r->api, &options, &a->edit);
    a->has_edit = error == 0;
    return error;
}
