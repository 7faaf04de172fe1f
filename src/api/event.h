/*
 * What one event of a streamed answer is, in any dialect: does it carry output (then it is the
 * commit point), does it end the stream, is it an error in disguise. Runs for every event of every
 * stream: one JSON parse into a fixed buffer of the thread, no allocation for events of usual size.
 *
 * When in doubt an event counts as output, so that nothing is ever replayed after effect.
 *
 * Sources: OpenAI API reference (chat, completions, responses streaming), Anthropic "Streaming
 * messages", Ollama docs/api.md, llama-server tools/server/server-task.cpp. In-band errors: the
 * seven shapes of F89 (ggml-org/llama.cpp#14566, #16486, vllm-project/vllm#40986, …).
 */
#ifndef FAILSOFT_API_EVENT_H
#define FAILSOFT_API_EVENT_H

#include "api/route.h"
#include "base/span.h"
#include "http/framer.h"

#include <stdbool.h>

enum api_event_kind {
    API_EVENT_EMPTY = 0, /* comment, id or retry only, empty data: to be dropped */
    API_EVENT_OPENING,   /* role-only chunk, message_start, response.created: held back */
    API_EVENT_PROGRESS,  /* llama-server prompt_progress, pings: no sign of tokens */
    API_EVENT_OUTPUT,    /* text, reasoning, tool call, refusal, audio … or unknown */
    API_EVENT_OTHER,     /* usage and other closing notes: nothing that a client acts on */
    API_EVENT_FINISH,    /* carries a finish reason and no output */
    API_EVENT_DONE,      /* [DONE] or the dialect's last event */
    API_EVENT_ERROR,     /* `error` is filled */
    API_EVENT_BROKEN,    /* not JSON, not UTF-8, or not framed */
};

/*
 * What to do with each kind: EMPTY is dropped always; PROGRESS unless the client asked for it (pings
 * of the Anthropic dialect may be dropped, too); OPENING and OTHER wait for the first output and go
 * out with it; OUTPUT, FINISH and DONE are the commit point. ends_stream gives DONE even where the
 * event carries output as well (Ollama's last line, a transcript at once): look at `output`.
 */

/* What a worker said about a failure, in its own words. */
struct api_event_error {
    int status;        /* HTTP status if the text has one (100 to 599), else 0 */
    char type[64];     /* "" when absent */
    char code[64];     /* number or string, as text; "" when absent */
    char message[512]; /* cut at a UTF-8 boundary; "" when absent */
};

struct api_event_facts {
    enum api_event_kind kind;
    bool output;      /* carries output (kind is OUTPUT, or an event that also finishes) */
    bool tool_call;   /* carries a fragment of a tool call */
    bool finish;      /* carries a finish reason */
    bool ends_stream; /* the stream may properly end after this event */
    bool usage;       /* carries token counts */
    bool progress;    /* carries prompt_progress */
    struct api_event_error error; /* filled for API_EVENT_ERROR only, undefined otherwise */
};

/*
 * Inspects one event. FRAMER_EVENT_PIECE counts as output that nobody looked at; FRAMER_EVENT_TAIL
 * belongs to the event before and gives API_EVENT_OTHER.
 */
void api_event_inspect(enum api_operation operation, const struct framer_event *ev,
                       struct api_event_facts *ret);

/*
 * Reads an error out of a JSON text (body of a failed answer, or the data of an event): nested or
 * plain, code as number or string. False when the text is not an error object; *ret untouched.
 */
bool api_event_error_parse(struct span text, struct api_event_error *ret);

/*
 * The same for the body of an answer that should be JSON, in one reading: *ret_is_json says whether
 * it is JSON at all.
 */
bool api_event_error_in_answer(struct span text, bool *ret_is_json, struct api_event_error *ret);

#endif
