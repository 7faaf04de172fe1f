/*
 * The table of routes and the rules for paths. Pure; no state.
 *
 * The rule behind all of it: the gateway and the worker must never read one request line in two
 * ways. A known route is known by its exact bytes; what would become a known route, or another
 * path, by decoding or by removing segments is refused instead of guessed.
 */
#include "api/route.h"

#include <stddef.h>

struct route_row {
    const char *path;
    enum api_operation operation;
    enum api_dialect dialect;
    enum api_body_kind body;
    enum api_framing framing;
    bool stream_default;
};

#define OPENAI    API_DIALECT_OPENAI
#define ANTHROPIC API_DIALECT_ANTHROPIC
#define OLLAMA    API_DIALECT_OLLAMA
#define JSON      API_BODY_JSON
#define FORM      API_BODY_MULTIPART
#define NOBODY    API_BODY_NONE
#define SSE       API_FRAMING_SSE
#define NDJSON    API_FRAMING_NDJSON
#define WHOLE     API_FRAMING_NONE

/* clang-format off */
static const struct route_row rows[] = {
    {"/v1/chat/completions",      API_OPERATION_CHAT,              OPENAI,    JSON,   SSE,    false},
    {"/chat/completions",         API_OPERATION_CHAT,              OPENAI,    JSON,   SSE,    false},
    {"/v1/completions",           API_OPERATION_COMPLETIONS,       OPENAI,    JSON,   SSE,    false},
    {"/completion",               API_OPERATION_NATIVE_COMPLETION, OPENAI,    JSON,   SSE,    false},
    {"/completions",              API_OPERATION_NATIVE_COMPLETION, OPENAI,    JSON,   SSE,    false},
    {"/infill",                   API_OPERATION_INFILL,            OPENAI,    JSON,   SSE,    false},
    {"/v1/responses",             API_OPERATION_RESPONSES,         OPENAI,    JSON,   SSE,    false},
    {"/responses",                API_OPERATION_RESPONSES,         OPENAI,    JSON,   SSE,    false},
    {"/v1/embeddings",            API_OPERATION_EMBEDDINGS,        OPENAI,    JSON,   WHOLE,  false},
    {"/embedding",                API_OPERATION_NATIVE_EMBEDDING,  OPENAI,    JSON,   WHOLE,  false},
    {"/embeddings",               API_OPERATION_NATIVE_EMBEDDING,  OPENAI,    JSON,   WHOLE,  false},
    {"/v1/rerank",                API_OPERATION_RERANK,            OPENAI,    JSON,   WHOLE,  false},
    {"/v1/reranking",             API_OPERATION_RERANK,            OPENAI,    JSON,   WHOLE,  false},
    {"/rerank",                   API_OPERATION_RERANK,            OPENAI,    JSON,   WHOLE,  false},
    {"/reranking",                API_OPERATION_RERANK,            OPENAI,    JSON,   WHOLE,  false},
    {"/v1/audio/transcriptions",  API_OPERATION_TRANSCRIPTION,     OPENAI,    FORM,   SSE,    false},
    {"/audio/transcriptions",     API_OPERATION_TRANSCRIPTION,     OPENAI,    FORM,   SSE,    false},
    {"/v1/audio/translations",    API_OPERATION_TRANSLATION,       OPENAI,    FORM,   SSE,    false},
    {"/audio/translations",       API_OPERATION_TRANSLATION,       OPENAI,    FORM,   SSE,    false},
    {"/v1/audio/speech",          API_OPERATION_SPEECH,            OPENAI,    JSON,   SSE,    false},
    {"/v1/models",                API_OPERATION_MODELS,            OPENAI,    NOBODY, WHOLE,  false},
    {"/models",                   API_OPERATION_MODELS,            OPENAI,    NOBODY, WHOLE,  false},
    {"/v1/messages",              API_OPERATION_MESSAGES,          ANTHROPIC, JSON,   SSE,    false},
    {"/v1/messages/count_tokens", API_OPERATION_COUNT_TOKENS,      ANTHROPIC, JSON,   WHOLE,  false},
    {"/api/chat",                 API_OPERATION_OLLAMA_CHAT,       OLLAMA,    JSON,   NDJSON, true},
    {"/api/generate",             API_OPERATION_OLLAMA_GENERATE,   OLLAMA,    JSON,   NDJSON, true},
    {"/api/embed",                API_OPERATION_OLLAMA_EMBED,      OLLAMA,    JSON,   WHOLE,  false},
    {"/api/embeddings",           API_OPERATION_OLLAMA_EMBEDDINGS, OLLAMA,    JSON,   WHOLE,  false},
    {"/api/show",                 API_OPERATION_OLLAMA_SHOW,       OLLAMA,    JSON,   WHOLE,  false},
    {"/api/tags",                 API_OPERATION_OLLAMA_TAGS,       OLLAMA,    NOBODY, WHOLE,  false},
    {"/api/ps",                   API_OPERATION_OLLAMA_PS,         OLLAMA,    NOBODY, WHOLE,  false},
    {"/api/version",              API_OPERATION_OLLAMA_VERSION,    OLLAMA,    NOBODY, WHOLE,  false},
};
/* clang-format on */

static const char models_prefix[] = "/v1/models/";

static const char *const operation_names[API_OPERATION_COUNT] = {
    [API_OPERATION_PASS] = "pass",
    [API_OPERATION_CHAT] = "chat",
    [API_OPERATION_COMPLETIONS] = "completions",
    [API_OPERATION_NATIVE_COMPLETION] = "native-completion",
    [API_OPERATION_INFILL] = "infill",
    [API_OPERATION_RESPONSES] = "responses",
    [API_OPERATION_EMBEDDINGS] = "embeddings",
    [API_OPERATION_NATIVE_EMBEDDING] = "native-embedding",
    [API_OPERATION_RERANK] = "rerank",
    [API_OPERATION_TRANSCRIPTION] = "transcription",
    [API_OPERATION_TRANSLATION] = "translation",
    [API_OPERATION_SPEECH] = "speech",
    [API_OPERATION_MODELS] = "models",
    [API_OPERATION_MODEL] = "model",
    [API_OPERATION_MESSAGES] = "messages",
    [API_OPERATION_COUNT_TOKENS] = "count-tokens",
    [API_OPERATION_OLLAMA_CHAT] = "ollama-chat",
    [API_OPERATION_OLLAMA_GENERATE] = "ollama-generate",
    [API_OPERATION_OLLAMA_EMBED] = "ollama-embed",
    [API_OPERATION_OLLAMA_EMBEDDINGS] = "ollama-embeddings",
    [API_OPERATION_OLLAMA_SHOW] = "ollama-show",
    [API_OPERATION_OLLAMA_TAGS] = "ollama-tags",
    [API_OPERATION_OLLAMA_PS] = "ollama-ps",
    [API_OPERATION_OLLAMA_VERSION] = "ollama-version",
};

const char *api_operation_name(enum api_operation operation)
{
    if (operation < 0 || operation >= API_OPERATION_COUNT)
        return "unknown";
    return operation_names[operation];
}

bool api_operation_generates(enum api_operation operation)
{
    switch (operation) {
    case API_OPERATION_CHAT:
    case API_OPERATION_COMPLETIONS:
    case API_OPERATION_NATIVE_COMPLETION:
    case API_OPERATION_INFILL:
    case API_OPERATION_RESPONSES:
    case API_OPERATION_TRANSCRIPTION:
    case API_OPERATION_TRANSLATION:
    case API_OPERATION_SPEECH:
    case API_OPERATION_MESSAGES:
    case API_OPERATION_OLLAMA_CHAT:
    case API_OPERATION_OLLAMA_GENERATE: return true;
    default: return false;
    }
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

/* Unreserved characters of RFC 3986 §2.3: encoding them changes nothing, so nobody needs to. */
static bool is_unreserved(int c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '.' || c == '_' || c == '~';
}

/* Checks one byte or escape at *i and moves past it. NULL when it is fine, else why not. */
static const char *check_char(struct span path, size_t *i, bool slash_may_be_encoded)
{
    unsigned char c = (unsigned char)path.ptr[*i];
    if (c <= 0x20 || c == 0x7f)
        return "control character or space in the path";
    if (c == '\\')
        return "backslash in the path";
    if (c == '#')
        return "fragment in the request target";
    if (c != '%') {
        *i += 1;
        return NULL;
    }
    int high = *i + 1 < path.len ? hex_digit(path.ptr[*i + 1]) : -1;
    int low = *i + 2 < path.len ? hex_digit(path.ptr[*i + 2]) : -1;
    if (high < 0 || low < 0)
        return "broken percent-encoding in the path";
    int decoded = high * 16 + low;
    if (decoded < 0x20 || decoded == 0x7f || decoded == '\\')
        return "encoded control character or backslash in the path";
    if (decoded == '/' && !slash_may_be_encoded)
        return "encoded slash in the path";
    if (is_unreserved(decoded))
        return "percent-encoding of a plain character in the path";
    *i += 3;
    return NULL;
}

static bool is_dot_segment(struct span segment)
{
    return span_equals_str(segment, ".") || span_equals_str(segment, "..");
}

/* NULL when the path can be read in one way only. */
static const char *check_path(struct span path)
{
    if (path.len == 0 || path.ptr[0] != '/')
        return "the request target must be a path that begins with '/'";
    bool model = span_starts_with(path, span_from_str(models_prefix));
    size_t segment = 1;
    size_t i = 1;
    while (i <= path.len) {
        if (i == path.len || path.ptr[i] == '/') {
            struct span s = {path.ptr + segment, i - segment};
            if (s.len == 0 && i < path.len)
                return "empty segment ('//') in the path";
            if (is_dot_segment(s))
                return "'.' or '..' segment in the path";
            segment = ++i;
            continue;
        }
        const char *why = check_char(path, &i, model && i >= sizeof(models_prefix) - 1);
        if (why != NULL)
            return why;
    }
    return NULL;
}

static void set_method(struct span method, struct api_route *r)
{
    bool get = span_equals_str(method, "GET") || span_equals_str(method, "HEAD");
    if (r->body == API_BODY_NONE) {
        r->allow = "GET, HEAD";
        r->method_ok = get;
    } else {
        r->allow = "POST";
        r->method_ok = span_equals_str(method, "POST");
    }
}

static const struct route_row *find_row(struct span path)
{
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (span_equals_str(path, rows[i].path))
            return &rows[i];
    return NULL;
}

bool api_route_find(struct span method, struct span target, struct api_route *ret)
{
    struct api_route r = {.operation = API_OPERATION_PASS, .method_ok = true};
    ptrdiff_t question = span_find(target, SPAN_LIT("?"));
    r.path = target;
    if (question >= 0) {
        r.path.len = (size_t)question;
        r.query = (struct span){target.ptr + question + 1, target.len - (size_t)question - 1};
    }
    const char *why = check_path(r.path);
    if (why != NULL) {
        ret->reject = why;
        return false;
    }
    const struct route_row *row = find_row(r.path);
    struct span prefix = span_from_str(models_prefix);
    if (row != NULL) {
        r.operation = row->operation;
        r.dialect = row->dialect;
        r.body = row->body;
        r.framing = row->framing;
        r.stream_default = row->stream_default;
        set_method(method, &r);
    } else if (span_starts_with(r.path, prefix) && r.path.len > prefix.len) {
        r.operation = API_OPERATION_MODEL;
        r.dialect = API_DIALECT_OPENAI;
        r.body = API_BODY_NONE;
        r.model = (struct span){r.path.ptr + prefix.len, r.path.len - prefix.len};
        set_method(method, &r);
    }
    *ret = r;
    return true;
}
