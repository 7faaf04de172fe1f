/*
 * Which operation of which dialect a request line asks for. A table of exact paths: the raw bytes
 * of the path must be those of the table. A path that only *means* a known one (dot segments,
 * doubled slashes, percent-encoded letters) is refused, because the worker behind might read it
 * another way than the gateway does. Everything else is passed through as it is.
 *
 * Sources: OpenAI API reference, Ollama docs/api.md, Anthropic Messages API, and the route list of
 * llama-server (tools/server/server.cpp).
 */
#ifndef FAILSOFT_API_ROUTE_H
#define FAILSOFT_API_ROUTE_H

#include "base/span.h"

#include <stdbool.h>

enum api_operation {
    API_OPERATION_PASS = 0,          /* not known: forwarded as it is */
    API_OPERATION_CHAT,              /* /v1/chat/completions */
    API_OPERATION_COMPLETIONS,       /* /v1/completions */
    API_OPERATION_NATIVE_COMPLETION, /* llama-server's /completion and /completions */
    API_OPERATION_INFILL,            /* llama-server's /infill */
    API_OPERATION_RESPONSES,         /* /v1/responses */
    API_OPERATION_EMBEDDINGS,        /* /v1/embeddings */
    API_OPERATION_NATIVE_EMBEDDING,  /* llama-server's /embedding and /embeddings */
    API_OPERATION_RERANK,            /* /v1/rerank and its other names */
    API_OPERATION_TRANSCRIPTION,     /* /v1/audio/transcriptions */
    API_OPERATION_TRANSLATION,       /* /v1/audio/translations */
    API_OPERATION_SPEECH,            /* /v1/audio/speech */
    API_OPERATION_MODELS,            /* the list: /v1/models */
    API_OPERATION_MODEL,             /* one: /v1/models/{id} */
    API_OPERATION_MESSAGES,          /* Anthropic /v1/messages */
    API_OPERATION_COUNT_TOKENS,      /* Anthropic /v1/messages/count_tokens */
    API_OPERATION_OLLAMA_CHAT,       /* /api/chat */
    API_OPERATION_OLLAMA_GENERATE,   /* /api/generate */
    API_OPERATION_OLLAMA_EMBED,      /* /api/embed */
    API_OPERATION_OLLAMA_EMBEDDINGS, /* /api/embeddings (older) */
    API_OPERATION_OLLAMA_SHOW,       /* /api/show */
    API_OPERATION_OLLAMA_TAGS,       /* /api/tags */
    API_OPERATION_OLLAMA_PS,         /* /api/ps */
    API_OPERATION_OLLAMA_VERSION,    /* /api/version */
    API_OPERATION_COUNT,
};

enum api_dialect {
    API_DIALECT_PLAIN = 0, /* no dialect of its own: errors are said as OpenAI says them */
    API_DIALECT_OPENAI,
    API_DIALECT_ANTHROPIC,
    API_DIALECT_OLLAMA,
};

enum api_body_kind {
    API_BODY_ANY = 0, /* not looked at */
    API_BODY_NONE,    /* GET */
    API_BODY_JSON,
    API_BODY_MULTIPART,
};

/* How a streamed answer of the operation is cut into events. */
enum api_framing {
    API_FRAMING_NONE = 0, /* never streamed as events */
    API_FRAMING_SSE,
    API_FRAMING_NDJSON,
};

struct api_route {
    enum api_operation operation;
    enum api_dialect dialect;
    enum api_body_kind body;
    enum api_framing framing;
    bool stream_default; /* value of `stream` when the body has none (Ollama: true) */
    bool method_ok;      /* false: answer 405 with `Allow: allow` */
    const char *allow;   /* static; NULL for API_OPERATION_PASS */
    const char *reject;  /* static; why the path is refused, when api_route_find returned false */
    struct span path;    /* raw, without the query */
    struct span query;   /* without '?'; .ptr NULL when there is none */
    struct span model;   /* API_OPERATION_MODEL: the id, raw (may be percent-encoded) */
};

/*
 * Finds the route of a request line. `target` is the raw request target in origin form; spans of
 * the result point into it. True: *ret filled (API_OPERATION_PASS for what is not known). False:
 * the path is ambiguous or not in origin form; answer 400 with ret->reject (only that is filled).
 */
bool api_route_find(struct span method, struct span target, struct api_route *ret);

/* The operation in a word, for logs, metrics and the status page: "chat", "ollama-chat", "pass"… */
const char *api_operation_name(enum api_operation operation);

/*
 * True for operations that generate: they stream, have a commit point and cost a slot for long. The
 * others answer once (embeddings, rerank, …) and may be repeated until a byte went to the client.
 */
bool api_operation_generates(enum api_operation operation);

#endif
