/*
 * Fuzzes what is made of a request's body: parse, demand, edits. The first bytes choose the route and
 * the edits, the rest is the body. What an edited body must be: valid JSON, with what was asked for in
 * it, and every other member equal to before.
 */
#include "api/demand.h"
#include "api/edit.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <yyjson.h>

#undef NDEBUG
#include <assert.h>

enum { CHOICES = 4, CASES_OF_ROUTE = 8 };

static const struct api_route routes[CASES_OF_ROUTE] = {
    {.operation = API_OPERATION_CHAT, .dialect = API_DIALECT_OPENAI, .body = API_BODY_JSON},
    {.operation = API_OPERATION_RESPONSES, .dialect = API_DIALECT_OPENAI, .body = API_BODY_JSON},
    {.operation = API_OPERATION_MESSAGES, .dialect = API_DIALECT_ANTHROPIC, .body = API_BODY_JSON},
    {.operation = API_OPERATION_OLLAMA_CHAT, .dialect = API_DIALECT_OLLAMA, .body = API_BODY_JSON},
    {.operation = API_OPERATION_OLLAMA_GENERATE,
     .dialect = API_DIALECT_OLLAMA,
     .body = API_BODY_JSON},
    {.operation = API_OPERATION_NATIVE_COMPLETION, .body = API_BODY_JSON},
    {.operation = API_OPERATION_EMBEDDINGS, .dialect = API_DIALECT_OPENAI, .body = API_BODY_JSON},
    {.operation = API_OPERATION_RERANK, .body = API_BODY_JSON},
};

static const struct api_default defaults[] = {{"temperature", "0.8"}, {"seed", "[1,2]"}};

static struct api_edit_options options_of(const struct api_route *route, const uint8_t *choice)
{
    return (struct api_edit_options){
        .model = choice[1] & 1 ? "other \"model\"" : NULL,
        .stream = choice[1] >> 1 & 1,
        .return_progress = choice[1] >> 2 & 1,
        .include_usage = choice[1] >> 3 & 1,
        .set_output = choice[1] >> 4 & 1,
        .set_context = choice[1] >> 5 & 1,
        .set_keep_alive = choice[1] >> 6 & 1,
        .output_tokens = choice[2],
        .context_tokens = (uint64_t)choice[3] << 16,
        .keep_alive_s = choice[2] * 3600U,
        .dialect = route->dialect,
        .operation = route->operation,
        .defaults = defaults,
        .default_count = choice[1] >> 7,
    };
}

static yyjson_doc *read_json(const char *text, size_t len)
{
    return yyjson_read_opts((char *)(uintptr_t)text, len, YYJSON_READ_NUMBER_AS_RAW, NULL, NULL);
}

static bool raw_is(yyjson_val *v, uint64_t n)
{
    return yyjson_is_raw(v) && strtoull(yyjson_get_raw(v), NULL, 10) == n;
}

/* Members that an edit of these options may change or add. */
static bool may_change(const struct api_edit_options *o, yyjson_val *key)
{
    static const char *const output[] = {"max_tokens", "max_completion_tokens", "max_output_tokens",
                                         "n_predict"};
    bool ollama = o->dialect == API_DIALECT_OLLAMA;
    for (size_t i = 0; i < sizeof(output) / sizeof(output[0]); i++)
        if (o->set_output && !ollama && yyjson_equals_str(key, output[i]))
            return true;
    for (size_t i = 0; i < o->default_count; i++)
        if (yyjson_equals_str(key, defaults[i].name))
            return true;
    return (o->model &&
            (yyjson_equals_str(key, "model") || (ollama && yyjson_equals_str(key, "name")))) ||
           (o->stream && yyjson_equals_str(key, "stream")) ||
           (o->return_progress && yyjson_equals_str(key, "return_progress")) ||
           (o->include_usage && yyjson_equals_str(key, "stream_options")) ||
           (ollama && (o->set_output || o->set_context) && yyjson_equals_str(key, "options")) ||
           (ollama && o->set_keep_alive && yyjson_equals_str(key, "keep_alive"));
}

/* All members that may not change, in order, in both. */
static void check_rest(yyjson_val *before, yyjson_val *after, const struct api_edit_options *o)
{
    yyjson_obj_iter a, b;
    yyjson_val *x, *y;
    assert(yyjson_obj_iter_init(before, &a) && yyjson_obj_iter_init(after, &b));
    for (;;) {
        while ((x = yyjson_obj_iter_next(&a)) != NULL && may_change(o, x))
            ;
        while ((y = yyjson_obj_iter_next(&b)) != NULL && may_change(o, y))
            ;
        if (x == NULL || y == NULL)
            break;
        assert(yyjson_equals(x, y));
        assert(yyjson_equals(yyjson_obj_iter_get_val(x), yyjson_obj_iter_get_val(y)));
    }
    assert(x == NULL && y == NULL);
}

static bool is_size(yyjson_val *object, const char *name, uint64_t n)
{
    return raw_is(yyjson_obj_get(object, name), n);
}

/* What was asked for is there. */
static void check_asked(yyjson_val *after, const struct api_edit_options *o)
{
    yyjson_val *options = yyjson_obj_get(after, "options");
    if (o->stream)
        assert(yyjson_is_true(yyjson_obj_get(after, "stream")));
    if (o->return_progress)
        assert(yyjson_is_true(yyjson_obj_get(after, "return_progress")));
    if (o->dialect != API_DIALECT_OLLAMA) {
        if (o->set_output)
            assert(is_size(after, "max_tokens", o->output_tokens) ||
                   is_size(after, "max_completion_tokens", o->output_tokens) ||
                   is_size(after, "max_output_tokens", o->output_tokens) ||
                   is_size(after, "n_predict", o->output_tokens));
        return;
    }
    if (o->set_output)
        assert(is_size(options, "num_predict", o->output_tokens));
    if (o->set_context)
        assert(is_size(options, "num_ctx", o->context_tokens));
    if (o->set_keep_alive)
        assert(is_size(after, "keep_alive", o->keep_alive_s));
}

static char *join(const struct api_edit *edit, size_t *ret_len)
{
    struct span parts[API_EDIT_PARTS_MAX];
    unsigned count = api_edit_parts(edit, parts);
    size_t len = 0;
    char *text = malloc(api_edit_length(edit) + 1);
    assert(text && count <= API_EDIT_PARTS_MAX);
    for (unsigned i = 0; i < count; i++) {
        assert(parts[i].len > 0 && len + parts[i].len <= api_edit_length(edit));
        memcpy(text + len, parts[i].ptr, parts[i].len);
        len += parts[i].len;
    }
    assert(len == api_edit_length(edit));
    *ret_len = len;
    return text;
}

static void check_edit(const struct api_route *route, const struct api_request *request,
                       const struct api_edit_options *options)
{
    struct api_edit edit;
    int r = api_edit_prepare(request, options, &edit);
    assert(r == 0 || r == -EMSGSIZE);
    if (r < 0)
        return;
    size_t len;
    char *text = join(&edit, &len);
    yyjson_doc *before = read_json(request->body.ptr, request->body.len);
    yyjson_doc *after = read_json(text, len);
    assert(before && after);
    check_rest(yyjson_doc_get_root(before), yyjson_doc_get_root(after), options);
    check_asked(yyjson_doc_get_root(after), options);

    /* It reads as a request again, for the model and with the sizes that were set. */
    struct api_request again;
    struct api_demand demand;
    struct api_error error;
    assert(api_request_parse(route, SPAN_NONE, (struct span){text, len}, &again, &error) == 0);
    if (options->model)
        assert(strcmp(again.model, options->model) == 0);
    assert(api_demand_read(route, &again, &demand, &error) == 0);
    yyjson_doc_free(before);
    yyjson_doc_free(after);
    free(text);
    api_edit_free(&edit);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < CHOICES)
        return 0;
    const struct api_route *route = &routes[data[0] % CASES_OF_ROUTE];
    struct api_edit_options options = options_of(route, data);
    /* A copy of just that length, so that a byte read behind it is seen. */
    size_t len = size - CHOICES;
    char *body = malloc(len + (len == 0));
    assert(body);
    memcpy(body, data + CHOICES, len);
    struct api_request request;
    struct api_demand demand;
    struct api_error error;
    if (api_request_parse(route, SPAN_NONE, (struct span){body, len}, &request, &error) == 0) {
        int r = api_demand_read(route, &request, &demand, &error);
        assert(r == 0 || (r == -EBADMSG && error.status == 400));
        if (r == 0) {
            /* Never more than the longest that each byte may become, for each message at most. */
            assert(demand.messages <= len && demand.images <= len && demand.inputs <= len);
            (void)api_demand_prompt_tokens_upper(&demand, 512);
            check_edit(route, &request, &options);
        }
    }
    free(body);
    return 0;
}
