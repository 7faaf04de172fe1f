/*
 * Events as the engines write them, through the real framer. Each row is a whole stream; its kinds
 * are written as letters, so that a stream and its reading stand side by side:
 *   e empty  r opening  p progress  o output  x other  f finish  D done  E error  B broken
 * with t for an output that is a piece of a tool call.
 */
#include "tests/unit/unit.h"

#include "api/event.h"

#include <stdlib.h>

static char letter(const struct api_event_facts *f)
{
    switch (f->kind) {
    case API_EVENT_EMPTY: return 'e';
    case API_EVENT_OPENING: return 'r';
    case API_EVENT_PROGRESS: return 'p';
    case API_EVENT_OUTPUT: return f->tool_call ? 't' : 'o';
    case API_EVENT_OTHER: return 'x';
    case API_EVENT_FINISH: return 'f';
    case API_EVENT_DONE: return 'D';
    case API_EVENT_ERROR: return 'E';
    case API_EVENT_BROKEN: return 'B';
    }
    return '?';
}

static struct api_event_facts last; /* of the last event that was not empty */

static void read_stream(enum api_operation operation, enum framer_kind kind, const char *bytes,
                        char *ret_letters, size_t size)
{
    struct framer f;
    struct framer_event ev;
    size_t n = 0;
    framer_init(&f, kind, 1024 * 1024);
    framer_feed(&f, span_from_str(bytes));
    for (;;) {
        int more = framer_next(&f, &ev);
        if (more == 0) {
            assert_int_equal(framer_save(&f), 0);
            if (framer_finish(&f, &ev) <= 0)
                break;
        }
        struct api_event_facts facts;
        api_event_inspect(operation, &ev, &facts);
        assert_true(n + 1 < size);
        ret_letters[n++] = letter(&facts);
        if (facts.kind != API_EVENT_EMPTY)
            last = facts;
        if (more == 0)
            break;
    }
    ret_letters[n] = '\0';
    framer_free(&f);
}

struct row {
    enum api_operation operation;
    const char *letters, *bytes;
};

static void check_rows(const struct row *rows, size_t count, enum framer_kind kind)
{
    for (size_t i = 0; i < count; i++) {
        char letters[64];
        read_stream(rows[i].operation, kind, rows[i].bytes, letters, sizeof(letters));
        if (strcmp(letters, rows[i].letters) != 0)
            fail_msg("row %zu: got %s, expected %s: %s", i, letters, rows[i].letters,
                     rows[i].bytes);
    }
}

#define CHAT        API_OPERATION_CHAT
#define COMPLETIONS API_OPERATION_COMPLETIONS
#define NATIVE      API_OPERATION_NATIVE_COMPLETION
#define RESPONSES   API_OPERATION_RESPONSES
#define MESSAGES    API_OPERATION_MESSAGES
#define DATA(json)  "data: " json "\n\n"
#define DONE        "data: [DONE]\n\n"
#define CHUNK(delta, finish)                                                                       \
    DATA("{\"choices\":[{\"finish_reason\":" finish ",\"index\":0,\"delta\":" delta                \
         "}],\"created\":1,\"id\":\"c\",\"model\":\"m\",\"object\":\"chat.completion.chunk\"}")

static void test_chat(void **state)
{
    static const struct row rows[] = {
        {CHAT, "roofxD",
         CHUNK("{\"role\":\"assistant\",\"content\":null}",
               "null") CHUNK("{\"content\":\"Hi\"}", "null") CHUNK("{\"content\":\"!\"}", "null")
             CHUNK("{}", "\"stop\"") DATA("{\"choices\":[],\"usage\":{\"total_tokens\":3}}") DONE},
        {CHAT, "r",
         CHUNK("{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[],"
               "\"reasoning\":null}",
               "null")},
        {CHAT, "p",
         DATA("{\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":null},"
              "\"finish_reason\":null}],\"prompt_progress\":{\"total\":9,\"processed\":4}}")},
        {CHAT, "o", CHUNK("{\"reasoning_content\":\"hm\"}", "null")},
        {CHAT, "o", CHUNK("{\"refusal\":\"no\"}", "null")},
        {CHAT, "o", CHUNK("{\"audio\":{\"data\":\"AA\"}}", "null")},
        {CHAT, "o", CHUNK("{\"role\":\"assistant\",\"content\":\" \"}", "null")},
        {CHAT, "o", CHUNK("{\"content\":\"x\"}", "\"stop\"")},
        {CHAT, "o", CHUNK("{\"new_thing\":{\"a\":1}}", "null")},
        {CHAT, "t", CHUNK("{\"tool_calls\":[{\"index\":0,\"id\":\"a\"}]}", "null")},
        {CHAT, "t", CHUNK("{\"function_call\":{\"name\":\"f\"}}", "null")},
        {CHAT, "f", CHUNK("{}", "\"tool_calls\"")},
        {CHAT, "x", CHUNK("{}", "null")},
        {CHAT, "x", CHUNK("{\"content\":\"\"}", "null")},
        /* Output in another choice than the first. */
        {CHAT, "o",
         DATA("{\"choices\":[{\"index\":0,\"delta\":{}},{\"index\":1,\"delta\":"
              "{\"content\":\"x\"}}]}")},
        /* F87: choices empty, null, missing. */
        {CHAT, "x", DATA("{\"choices\":[],\"usage\":{\"prompt_tokens\":1}}")},
        {CHAT, "x", DATA("{\"choices\":null,\"usage\":{\"prompt_tokens\":1}}")},
        {CHAT, "x", DATA("{\"usage\":{\"prompt_tokens\":1}}")},
        {CHAT, "x", DATA("{\"choices\":[],\"prompt_filter_results\":[1]}")},
        {CHAT, "x", DATA("{\"choices\":null}")},
        {CHAT, "x", DATA("{}")},
        {CHAT, "x", DATA("{\"choices\":[null,7,\"x\",{}]}")},
        /* Unknown but valid: output, when in doubt. */
        {CHAT, "o", DATA("{\"something\":1}")},
        {CHAT, "o", DATA("[1,2]")},
        {CHAT, "o", DATA("\"text\"")},
        {CHAT, "o", DATA("{\"choices\":{\"delta\":1}}")},
        /* F85: nothing to say. */
        {CHAT, "eeeee", ":\n\n: OPENROUTER PROCESSING\n\nretry: 3000\n\nid: 7\n\ndata:\n\n"},
        {CHAT, "e", "data:  \n\n"},
        {CHAT, "e", "event: message\n\n"},
        {CHAT, "D", "data:[DONE]\n\n"},
        {CHAT, "B", DATA("{\"choices\":[{\"delta\"")},
        {CHAT, "B", DATA("not json")},
        {CHAT, "B", DATA("{\"choices\":[{\"delta\":{\"content\":\"\xff\"}}]}")},
        {CHAT, "B", "<html><body>Bad Gateway</body></html>\n\n"},
        {COMPLETIONS, "oofD",
         DATA("{\"choices\":[{\"text\":\"a\",\"index\":0,\"logprobs\":null,"
              "\"finish_reason\":null}]}")
             DATA("{\"choices\":[{\"text\":\"\",\"index\":0,\"logprobs\":"
                  "{\"content\":[{}]},\"finish_reason\":null}]}")
                 DATA("{\"choices\":[{\"text\":\"\",\"index\":0,\"logprobs\":null,"
                      "\"finish_reason\":\"length\"}],\"usage\":{\"x\":1}}") DONE},
        {COMPLETIONS, "p",
         DATA("{\"choices\":[{\"text\":\"\",\"index\":0,\"logprobs\":null,"
              "\"finish_reason\":null}],\"prompt_progress\":{\"total\":1}}")},
    };
    (void)state;
    check_rows(rows, UNIT_COUNT(rows), FRAMER_KIND_SSE);
}

static void test_native(void **state)
{
    static const struct row rows[] = {
        {NATIVE, "poD",
         DATA("{\"index\":0,\"content\":\"\",\"tokens\":[0],\"stop\":false,"
              "\"prompt_progress\":{\"total\":2}}")
             DATA("{\"index\":0,\"content\":\"a\",\"tokens\":[1],\"stop\":false}")
                 DATA("{\"index\":0,\"content\":\"\",\"tokens\":[],\"stop\":true,"
                      "\"stop_type\":\"eos\"}")},
        {NATIVE, "x", DATA("{\"content\":\"\",\"stop\":false}")},
        {NATIVE, "o", DATA("{\"generation_settings\":{}}")},
        {API_OPERATION_EMBEDDINGS, "oE", DATA("{\"x\":1}") DATA("{\"error\":\"no\"}")},
    };
    (void)state;
    check_rows(rows, UNIT_COUNT(rows), FRAMER_KIND_SSE);
}

#define EV(name, json) "event: " name "\ndata: {\"type\":\"" name "\"" json "}\n\n"

static void test_responses(void **state)
{
    static const struct row rows[] = {
        {RESPONSES, "rprroooooD",
         EV("response.created", ",\"response\":{\"id\":\"r\",\"status\":\"in_progress\"}")
             EV("response.in_progress", ",\"response\":{},\"prompt_progress\":{\"total\":3}") EV(
                 "response.output_item.added", ",\"item\":{\"type\":\"message\",\"content\":[]}")
                 EV("response.content_part.added",
                    ",\"part\":{\"type\":\"output_text\",\"text\":\"\"}")
                     EV("response.output_text.delta",
                        ",\"delta\":\"a\"") EV("response.reasoning_text.delta", ",\"delta\":\"a\"")
                         EV("response.output_text.done", ",\"text\":\"a\"")
                             EV("response.content_part.done", ",\"part\":{}")
                                 EV("response.output_item.done", ",\"item\":{\"type\":\"message\"}")
                                     EV("response.completed",
                                        ",\"response\":{\"output\":[{\"type\":\"message\"}],"
                                        "\"usage\":{\"input_tokens\":1}}")},
        {RESPONSES, "r", EV("response.created", ",\"prompt_progress\":{\"total\":3}")},
        {RESPONSES, "ttt",
         EV("response.output_item.added", ",\"item\":{\"type\":\"function_call\","
                                          "\"name\":\"f\"}")
             EV("response.function_call_arguments.delta", ",\"delta\":\"{\"")
                 EV("response.output_item.done", ",\"item\":{\"type\":\"function_call\"}")},
        {RESPONSES, "o", EV("response.something.new", "")},
        {RESPONSES, "E",
         EV("response.failed", ",\"response\":{\"error\":{\"code\":"
                               "\"server_error\",\"message\":\"broke\"}}")},
        {RESPONSES, "E", EV("error", ",\"code\":\"x\",\"message\":\"broke\"")},
        {RESPONSES, "p", EV("keepalive", "")},
    };
    (void)state;
    check_rows(rows, UNIT_COUNT(rows), FRAMER_KIND_SSE);
    char letters[8];
    read_stream(RESPONSES, FRAMER_KIND_SSE,
                EV("response.completed", ",\"response\":{\"output\":[{\"type\":\"function_call\"}]"
                                         ",\"usage\":{\"a\":1}}"),
                letters, sizeof(letters));
    assert_true(last.ends_stream && last.output && last.tool_call && last.usage && last.finish);
}

static void test_anthropic(void **state)
{
    static const struct row rows[] = {
        {MESSAGES, "rprxoxfD",
         EV("message_start", ",\"message\":{\"id\":\"m\",\"content\":[],\"usage\":{}}")
             EV("ping", "") EV("content_block_start",
                               ",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}")
                 EV("content_block_delta", ",\"delta\":{\"type\":\"text_delta\",\"text\":\"\"}") EV(
                     "content_block_delta", ",\"delta\":{\"type\":\"text_delta\",\"text\":\"a\"}")
                     EV("content_block_stop", ",\"index\":0")
                         EV("message_delta",
                            ",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"a\":1}")
                             EV("message_stop", "")},
        {MESSAGES, "ttt",
         EV("content_block_start", ",\"content_block\":{\"type\":\"tool_use\",\"name\":\"f\"}")
             EV("content_block_delta",
                ",\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"\"}")
                 EV("content_block_start", ",\"content_block\":{\"type\":\"server_tool_use\"}")},
        {MESSAGES, "roo",
         EV("content_block_start", ",\"content_block\":{\"type\":\"thinking\",\"thinking\":\"\"}")
             EV("content_block_delta",
                ",\"delta\":{\"type\":\"thinking_delta\",\"thinking\":\"a\"}")
                 EV("content_block_delta",
                    ",\"delta\":{\"type\":\"signature_delta\",\"signature\":\"\"}")},
        {MESSAGES, "oo",
         EV("content_block_start", ",\"content_block\":{\"type\":\"new\"}")
             EV("something_new", "")},
        {MESSAGES, "E",
         EV("error", ",\"error\":{\"type\":\"overloaded_error\",\"message\":\"x\"}")},
        /* llama-server puts the error object bare under the name. */
        {MESSAGES, "E",
         "event: error\ndata: {\"code\":500,\"message\":\"Compute error.\","
         "\"type\":\"server_error\"}\n\n"},
    };
    (void)state;
    check_rows(rows, UNIT_COUNT(rows), FRAMER_KIND_SSE);
}

static void test_ollama(void **state)
{
    static const struct row rows[] = {
        {API_OPERATION_OLLAMA_CHAT, "rooD",
         "{\"message\":{\"role\":\"assistant\",\"content\":\"\"},\"done\":false}\n"
         "{\"message\":{\"role\":\"assistant\",\"content\":\"Hello\"},\"done\":false}\n"
         "{\"message\":{\"role\":\"assistant\",\"content\":\"\",\"thinking\":\"h\"},\"done\":false}"
         "\n"
         "{\"message\":{\"role\":\"assistant\",\"content\":\"\"},\"done\":true,"
         "\"done_reason\":\"stop\",\"eval_count\":3}\n"},
        {API_OPERATION_OLLAMA_CHAT, "t",
         "{\"message\":{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"function\":{}}]}"
         ","
         "\"done\":false}\n"},
        {API_OPERATION_OLLAMA_GENERATE, "oD",
         "{\"response\":\"a\",\"done\":false}\n{\"response\":\"\",\"done\":true}"},
        {API_OPERATION_OLLAMA_GENERATE, "o", "{\"status\":\"pulling\"}\n"},
        /* F08 */
        {API_OPERATION_OLLAMA_CHAT, "oE",
         "{\"message\":{\"content\":\"Hello\"},\"done\":false}\n"
         "{\"error\":\"an error was encountered while running the model: unexpected EOF\"}\n"},
        {API_OPERATION_OLLAMA_CHAT, "B", "{\"message\":{\"content\":\"Hel\n"},
    };
    (void)state;
    check_rows(rows, UNIT_COUNT(rows), FRAMER_KIND_NDJSON);
    char letters[8];
    read_stream(API_OPERATION_OLLAMA_CHAT, FRAMER_KIND_NDJSON,
                "{\"message\":{\"content\":\"all\"},\"done\":true,\"eval_count\":1}\n", letters,
                sizeof(letters));
    assert_string_equal(letters, "D");
    assert_true(last.output && last.finish && last.ends_stream && last.usage);
}

static void test_audio(void **state)
{
    static const struct row rows[] = {
        {API_OPERATION_TRANSCRIPTION, "oxDD",
         DATA("{\"type\":\"transcript.text.delta\",\"delta\":\"a\"}")
             DATA("{\"type\":\"transcript.text.delta\",\"delta\":\"\"}")
                 DATA("{\"type\":\"transcript.text.done\",\"text\":\"a\"}") DONE},
        {API_OPERATION_SPEECH, "oD",
         DATA("{\"type\":\"speech.audio.delta\",\"audio\":\"AA\"}")
             DATA("{\"type\":\"speech.audio.done\"}")},
    };
    (void)state;
    check_rows(rows, UNIT_COUNT(rows), FRAMER_KIND_SSE);
}

/* F89 ggml-org/llama.cpp#14566, #16486, vllm-project/vllm#40986, … */
static void test_errors_in_band(void **state)
{
    static const struct {
        const char *letters, *bytes;
        int status;
        const char *type, *code, *message;
    } rows[] = {
        {"E",
         DATA("{\"error\":{\"message\":\"TimeoutError\",\"type\":\"GatewayTimeout\","
              "\"code\":504}}"),
         504, "GatewayTimeout", "504", "TimeoutError"},
        {"E", "error: {\"code\":500,\"message\":\"Compute error.\",\"type\":\"server_error\"}\n\n",
         500, "server_error", "500", "Compute error."},
        {"E", "error: {\"error\":{\"code\":\"503\",\"message\":\"busy\"}}\ndata: [DONE]\n\n", 503,
         "", "503", "busy"},
        {"E", "error: out of memory\n\n", 0, "", "", "out of memory"},
        {"E", "{\"error\":{\"message\":\"raw\",\"type\":\"t\",\"code\":\"some_code\"}}", 0, "t",
         "some_code", "raw"},
        {"E", "{\n  \"error\": {\n    \"message\": \"pretty\",\n    \"code\": 500\n  }\n}\n", 500,
         "", "500", "pretty"},
        {"oE", CHUNK("{\"content\":\"a\"}", "null") "{\"error\":{\"message\":\"bare\"}}\n\n", 0, "",
         "", "bare"},
        {"E", "data: {\"choices\":[]}\n{\"error\":\"within a block\"}\n\n", 0, "", "",
         "within a block"},
        {"E", DATA("{\"error\":\"plain text\",\"code\":503}"), 503, "", "503", "plain text"},
        {"E",
         DATA("{\"object\":\"error\",\"message\":\"vllm\",\"type\":\"BadRequestError\","
              "\"param\":null,\"code\":400}"),
         400, "BadRequestError", "400", "vllm"},
        {"E",
         DATA("{\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":"
              "\"over\"}}"),
         0, "overloaded_error", "", "over"},
        {"E", DATA("{\"type\":\"error\",\"code\":\"server_error\",\"message\":\"unnamed\"}"), 0,
         "error", "server_error", "unnamed"},
        {"E", "event: error\ndata: {\"detail\":\"fast api\"}\n\n", 0, "", "", "fast api"},
        {"o", DATA("{\"detail\":\"an answer of a service that nobody here knows\"}"), 0, "", "",
         ""},
        {"E", DATA("{\"error\":{\"code\":18446744073709551615,\"message\":\"big\"}}"), 0, "",
         "9223372036854775807", "big"},
        {"E", "event: error\ndata: plain words\n\n", 0, "", "", "plain words"},
        {"E", "event: error\n\n", 0, "", "", "the worker sent an error event without a text"},
        {"E", DATA("{\"error\":{\"message\":\"a\\nb\\u0000c\",\"status\":429}}"), 429, "", "",
         "a b c"},
        /* No errors. */
        {"o", DATA("{\"error\":null,\"choices\":[{\"delta\":{\"content\":\"a\"}}]}"), 0, "", "",
         ""},
        {"o", DATA("{\"error\":{},\"choices\":[{\"delta\":{\"content\":\"a\"}}]}"), 0, "", "", ""},
        {"o", DATA("{\"choices\":[{\"delta\":{\"content\":\"{\\\"error\\\":1}\"}}]}"), 0, "", "",
         ""},
    };
    (void)state;
    for (size_t i = 0; i < UNIT_COUNT(rows); i++) {
        char letters[8];
        read_stream(CHAT, FRAMER_KIND_SSE, rows[i].bytes, letters, sizeof(letters));
        if (strcmp(letters, rows[i].letters) != 0)
            fail_msg("row %zu: got %s, expected %s", i, letters, rows[i].letters);
        if (last.kind != API_EVENT_ERROR)
            continue;
        assert_int_equal(last.error.status, rows[i].status);
        assert_string_equal(last.error.type, rows[i].type);
        assert_string_equal(last.error.code, rows[i].code);
        assert_string_equal(last.error.message, rows[i].message);
    }
}

static void test_error_bodies(void **state)
{
    struct api_event_error e;
    (void)state;
    assert_true(api_event_error_parse(
        SPAN_LIT(" {\"error\":{\"message\":\"Loading model\",\"type\":\"unavailable_error\","
                 "\"code\":503}}\n"),
        &e));
    assert_int_equal(e.status, 503);
    assert_string_equal(e.message, "Loading model");
    assert_false(api_event_error_parse(SPAN_LIT("<html>"), &e));
    assert_false(api_event_error_parse(SPAN_LIT("{\"choices\":[]}"), &e));
    assert_false(api_event_error_parse(SPAN_NONE, &e));
    assert_string_equal(e.message, "Loading model"); /* untouched */

    bool is_json = false;
    assert_false(api_event_error_in_answer(SPAN_LIT("{\"choices\":[]}\n"), &is_json, &e));
    assert_true(is_json);
    assert_true(api_event_error_in_answer(SPAN_LIT("{\"error\":\"no\"}"), &is_json, &e));
    assert_true(is_json);
    assert_string_equal(e.message, "no");
    assert_false(api_event_error_in_answer(SPAN_LIT("{\"error\":\"no\"} x"), &is_json, &e));
    assert_false(is_json);
    assert_false(api_event_error_in_answer(SPAN_NONE, &is_json, &e));
    assert_false(is_json);

    /* A long message is cut between characters. */
    char body[4096] = "{\"error\":\"";
    for (int i = 0; i < 600; i++)
        memcpy(body + 10 + 2 * i, "\xc3\xa9", 2);
    memcpy(body + 10 + 1200, "\"}", 3);
    assert_true(api_event_error_parse(span_from_str(body), &e));
    assert_int_equal(strlen(e.message) % 2, 0);
    assert_true(strlen(e.message) > 500);
}

/* What the framer could not hold counts as output that nobody looked at. */
static void test_pieces(void **state)
{
    struct api_event_facts facts;
    struct framer_event ev = {.kind = FRAMER_EVENT_PIECE, .bytes = SPAN_LIT("data: xxx")};
    (void)state;
    api_event_inspect(CHAT, &ev, &facts);
    assert_int_equal(facts.kind, API_EVENT_OUTPUT);
    assert_true(facts.output);
    ev = (struct framer_event){.kind = FRAMER_EVENT_TAIL, .bytes = SPAN_LIT("\n")};
    api_event_inspect(CHAT, &ev, &facts);
    assert_int_equal(facts.kind, API_EVENT_OTHER);
}

/* Larger than the thread's buffer: the same reading. */
static void test_large_event(void **state)
{
    enum { SIZE = 300 * 1024 };
    char *json = malloc(SIZE);
    static const char head[] = "{\"choices\":[{\"delta\":{\"content\":\"";
    static const char tail[] = "\"}}]}";
    struct api_event_facts facts;
    (void)state;
    memset(json, 'x', SIZE);
    memcpy(json, head, sizeof(head) - 1);
    memcpy(json + SIZE - (sizeof(tail) - 1), tail, sizeof(tail) - 1);
    struct framer_event ev = {.kind = FRAMER_EVENT_WHOLE, .data = {json, SIZE}};
    api_event_inspect(CHAT, &ev, &facts);
    assert_int_equal(facts.kind, API_EVENT_OUTPUT);
    free(json);
}

/* Every cut of an event is broken or empty, never output, and never read past its end. */
static void test_every_cut(void **state)
{
    static const char json[] = "{\"choices\":[{\"delta\":{\"content\":\"\\u00e9\"}}]}";
    (void)state;
    for (size_t n = 0; n < sizeof(json) - 1; n++) {
        char *copy = malloc(n + 1);
        struct api_event_facts facts;
        memcpy(copy, json, n);
        struct framer_event ev = {.kind = FRAMER_EVENT_WHOLE, .data = {copy, n}};
        api_event_inspect(CHAT, &ev, &facts);
        assert_true(facts.kind == API_EVENT_BROKEN || (n == 0 && facts.kind == API_EVENT_EMPTY));
        free(copy);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chat),           cmocka_unit_test(test_native),
        cmocka_unit_test(test_responses),      cmocka_unit_test(test_anthropic),
        cmocka_unit_test(test_ollama),         cmocka_unit_test(test_audio),
        cmocka_unit_test(test_errors_in_band), cmocka_unit_test(test_error_bodies),
        cmocka_unit_test(test_pieces),         cmocka_unit_test(test_large_event),
        cmocka_unit_test(test_every_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
