/*
 * What a request body asks for: the few facts that decide where it goes and how its answer is
 * relayed, and where in the body they stand, so that it can be changed by splicing (api/edit.h).
 * JSON bodies are validated completely, because a worker answers broken JSON with 500 and a 5xx
 * would look like a fault of the worker. Nothing is copied but the model's name.
 *
 * Top-level members that failsoft acts on may occur once only, in whatever spelling ("mod\u0065l"
 * is "model"): two parsers could read a duplicate differently, and a request would be routed as one
 * thing and executed as another.
 */
#ifndef FAILSOFT_API_REQUEST_H
#define FAILSOFT_API_REQUEST_H

#include "api/error.h"
#include "api/route.h"
#include "base/json_scan.h"
#include "base/span.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    API_MODEL_NAME_MAX = 256,  /* with the terminator */
    API_REQUEST_KEYS_MAX = 64, /* positions kept; more members are fine, only slower to edit */
};

/* Top-level members of a JSON body that failsoft acts on. */
enum api_member {
    API_MEMBER_MODEL = 0,
    API_MEMBER_STREAM,
    API_MEMBER_STREAM_OPTIONS,
    API_MEMBER_RETURN_PROGRESS,
    API_MEMBER_N,
    API_MEMBER_TOOLS,
    API_MEMBER_LOGPROBS,
    API_MEMBER_TOP_LOGPROBS,
    API_MEMBER_N_PROBS,
    API_MEMBER_VERBOSE,
    API_MEMBER_N_INDENT,
    API_MEMBER_STOP,
    /* What api/demand.h counts. */
    API_MEMBER_MAX_TOKENS,
    API_MEMBER_MAX_COMPLETION_TOKENS,
    API_MEMBER_MAX_OUTPUT_TOKENS,
    API_MEMBER_N_PREDICT,
    API_MEMBER_OPTIONS,
    API_MEMBER_KEEP_ALIVE,
    API_MEMBER_MESSAGES,
    API_MEMBER_PROMPT,
    API_MEMBER_INPUT,
    API_MEMBER_CONTENT,
    API_MEMBER_SYSTEM,
    API_MEMBER_TEMPLATE,
    API_MEMBER_CONTEXT,
    API_MEMBER_IMAGES,
    API_MEMBER_SUFFIX,
    API_MEMBER_INSTRUCTIONS,
    API_MEMBER_FUNCTIONS,
    API_MEMBER_RESPONSE_FORMAT,
    API_MEMBER_FORMAT,
    API_MEMBER_JSON_SCHEMA,
    API_MEMBER_TEXT,
    API_MEMBER_CHAT_TEMPLATE,
    API_MEMBER_CHAT_TEMPLATE_KWARGS,
    API_MEMBER_INPUT_PREFIX,
    API_MEMBER_INPUT_SUFFIX,
    API_MEMBER_INPUT_EXTRA,
    API_MEMBER_QUERY,
    API_MEMBER_DOCUMENTS,
    API_MEMBER_NAME, /* Ollama's older word for model; looked at in that dialect only */
    API_MEMBER_COUNT,
};

struct api_request_member {
    struct span value;   /* raw, points into the body; .ptr NULL when absent */
    enum json_kind kind; /* JSON_KIND_NONE when absent */
};

struct api_request {
    struct span body;
    enum api_body_kind body_kind;
    bool has_model;
    char model[API_MODEL_NAME_MAX]; /* escapes resolved; "" when absent */
    bool stream;                    /* as asked, or the dialect's default */
    bool include_usage;             /* stream_options.include_usage is true */
    bool return_progress;           /* the client wants the progress reports itself */
    bool has_tools;                 /* a tools array with something in it */
    /*
     * A streamed answer of llama-server lacks things that the whole answer has (the log
     * probabilities of tokens that gave no text of their own, the __verbose block): fetch this
     * one as it is, api/assemble.h could not give the same.
     */
    bool whole_only;
    unsigned n; /* choices asked for, 1 when absent */

    /* For api/edit.h. */
    struct api_request_member members[API_MEMBER_COUNT];
    struct span multipart_model; /* multipart: the content of the form field `model` */
    struct span multipart_file;  /* multipart: the content of the part `file` */
    size_t member_count;         /* members of the object */
    size_t object_open;          /* offset just after '{' */
    uint32_t key_count;
    struct {
        uint32_t offset, len;
    } keys[API_REQUEST_KEYS_MAX]; /* raw keys, without quotes */
};

/*
 * Parses the body of a request of this route. `content_type` is the raw header value (may be
 * empty; needed for multipart only: a JSON route takes JSON whatever its label). The body must
 * outlive the result. 0; -EBADMSG with *ret_error filled (400, position in the message; 415 for a
 * multipart route without a multipart body).
 * A route with API_BODY_ANY or API_BODY_NONE gives the facts of an empty request.
 */
int api_request_parse(const struct api_route *route, struct span content_type, struct span body,
                      struct api_request *ret, struct api_error *ret_error);

#endif
