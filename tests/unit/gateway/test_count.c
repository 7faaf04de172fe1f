/*
 * Counting the tokens of one request, over real connections: the request comes in through the
 * HTTP server, the engine is a raw socket that this test answers by hand.
 */
#include "tests/unit/http/loop_rig.h"
#include "tests/unit/unit.h"

#include "gateway/internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct rig {
    uv_loop_t loop;
    struct gateway gateway;
    struct gateway_worker worker;
    struct config_tier tier_config;
    struct gateway_tier tier;
    struct gateway_service service;
    struct api_request api;
    struct gateway_request request;
    struct http_server *server;
    int client, listener, engine; /* sockets */
    struct buf asked;
    bool arrived, server_closed;
    /* What `done` was told. */
    bool ended, known;
    unsigned calls;
    uint64_t tokens;
};

static void on_head(struct http_exchange *x, void *ctx)
{
    (void)x;
    (void)ctx;
}

static void on_request(struct http_exchange *x, void *ctx)
{
    struct rig *rig = ctx;
    rig->request.exchange = x;
    rig->arrived = true;
}

static void on_gone(struct http_exchange *x, void *ctx)
{
    (void)x;
    struct rig *rig = ctx;
    count_cancel(&rig->request);
    rig->request.exchange = NULL;
}

static const struct http_server_handler server_handler = {
    .on_head = on_head, .on_request = on_request, .on_gone = on_gone};

static void done(struct gateway_request *r, bool known, uint64_t tokens)
{
    struct rig *rig = (struct rig *)((char *)r - offsetof(struct rig, request));
    assert_null(r->count);
    rig->ended = true;
    rig->calls++;
    rig->known = known;
    rig->tokens = tokens;
}

static void make_worker(struct rig *rig, enum worker_engine engine, const char *prefix)
{
    static const struct worker_events no_events = {0};
    struct worker_options options;
    uint16_t port;
    char url[64];

    rig->listener = rig_listen(&port);
    snprintf(url, sizeof(url), "http://127.0.0.1:%u%s", port, prefix);
    worker_options_init(&options);
    options.service = "chat";
    options.tier = "gpu";
    options.url = url;
    options.engine = engine;
    assert_int_equal(worker_create(&rig->loop, &options, &no_events, rig, &rig->worker.worker), 0);
    worker_start(rig->worker.worker);
}

/* The request arrives; nothing is asked yet. */
static void begin(struct rig *rig, const char *path, const char *body)
{
    struct http_server_limits limits;
    struct api_error error;
    char text[2048];

    http_server_limits_default(&limits);
    assert_int_equal(
        http_server_listen(&rig->loop, "127.0.0.1", 0, &limits, &server_handler, rig, &rig->server),
        0);
    rig->client = rig_connect(http_server_port(rig->server));
    snprintf(text, sizeof(text),
             "POST %s HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer key\r\nIdempotency-Key: k\r\n"
             "Content-Length: %zu\r\n\r\n%s",
             path, strlen(body), body);
    rig_send_text(&rig->loop, rig->client, text);
    assert_true(rig_run_until(&rig->loop, &rig->arrived));
    struct gateway_request *r = &rig->request;
    assert_true(api_route_find(http_exchange_method(r->exchange), http_exchange_target(r->exchange),
                               &r->route));
    assert_int_equal(api_request_parse(&r->route, SPAN_LIT("application/json"),
                                       http_exchange_body(r->exchange), &rig->api, &error),
                     0);
    r->api = &rig->api;
}

static struct rig *make(enum worker_engine engine, enum kv_report_engine reported,
                        const char *prefix)
{
    struct rig *rig = calloc(1, sizeof(*rig));

    uv_loop_init(&rig->loop);
    buf_init(&rig->asked, 1 << 20);
    rig->gateway.loop = &rig->loop;
    rig->worker.gateway = &rig->gateway;
    rig->worker.kv_report.engine = reported;
    rig->tier = (struct gateway_tier){.config = &rig->tier_config, .worker = &rig->worker};
    rig->service = (struct gateway_service){.tiers = &rig->tier, .tier_count = 1};
    rig->request.gateway = &rig->gateway;
    rig->request.service = &rig->service;
    snprintf(rig->request.id, sizeof(rig->request.id), "fs-test-1");
    rig->client = rig->engine = -1;
    make_worker(rig, engine, prefix);
    return rig;
}

static void on_server_closed(void *ctx)
{
    ((struct rig *)ctx)->server_closed = true;
}

static void destroy(struct rig *rig)
{
    count_cancel(&rig->request);
    http_server_close(rig->server, on_server_closed, rig);
    assert_true(rig_run_until(&rig->loop, &rig->server_closed));
    worker_destroy(rig->worker.worker);
    http_fields_free(&rig->gateway.scratch);
    buf_free(&rig->asked);
    close(rig->client);
    close(rig->listener);
    if (rig->engine >= 0)
        close(rig->engine);
    rig_finish(&rig->loop);
    free(rig);
}

/* The engine has received the whole question, which ends with `last`. */
static void receive(struct rig *rig, const char *last)
{
    rig->engine = rig_accept(&rig->loop, rig->listener);
    assert_true(rig_receive_until(&rig->loop, rig->engine, &rig->asked, last));
}

static bool asked(const struct rig *rig, const char *text)
{
    return span_find(buf_span(&rig->asked), span_from_str(text)) >= 0;
}

static void answer(struct rig *rig, const char *status, const char *body)
{
    char text[1024];

    snprintf(text, sizeof(text), "HTTP/1.1 %s\r\nContent-Length: %zu\r\n\r\n%s", status,
             strlen(body), body);
    rig_send_text(&rig->loop, rig->engine, text);
    assert_true(rig_run_until(&rig->loop, &rig->ended));
    assert_int_equal(rig->calls, 1);
}

#define CHAT "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"Hello\"}]}"

static void the_body_of_a_chat(void **state)
{
    struct rig *rig = make(WORKER_ENGINE_LLAMA_SERVER, KV_REPORT_LLAMA_SERVER, "");

    (void)state;
    begin(rig, "/v1/chat/completions", CHAT);
    assert_true(count_can(&rig->request, &rig->worker));
    assert_int_equal(count_start(&rig->request, &rig->worker, done), 0);
    assert_non_null(rig->request.count);
    assert_false(rig->ended);
    assert_int_equal(count_start(&rig->request, &rig->worker, done), -EALREADY);
    receive(rig, CHAT);
    assert_true(asked(rig, "POST /v1/chat/completions/input_tokens HTTP/1.1\r\n"));
    assert_true(asked(rig, "Authorization: Bearer key\r\n"));
    assert_true(asked(rig, "Content-Type: application/json\r\n"));
    assert_false(asked(rig, "Idempotency-Key"));
    answer(rig, "200 OK", "{\"input_tokens\":31,\"object\":\"response.input_tokens\"}");
    assert_true(rig->known);
    assert_int_equal(rig->tokens, 31);
    destroy(rig);
}

/* By the worker's own name of the model, and beside the API that the base URL ends with. */
static void a_text_for_vllm(void **state)
{
    static char model[] = "org/model";
    struct rig *rig = make(WORKER_ENGINE_OPENAI, KV_REPORT_VLLM, "/v1");

    (void)state;
    rig->tier_config.model = model;
    begin(rig, "/v1/completions", "{\"model\":\"m\",\"prompt\":\"Hello\",\"max_tokens\":5}");
    assert_int_equal(count_start(&rig->request, &rig->worker, done), 0);
    receive(rig, "{\"prompt\":\"Hello\",\"model\":\"org/model\"}");
    assert_true(asked(rig, "POST /tokenize HTTP/1.1\r\n"));
    answer(rig, "200 OK", "{\"count\":2,\"max_model_len\":4096,\"tokens\":[9707,1879]}");
    assert_true(rig->known);
    assert_int_equal(rig->tokens, 2);
    destroy(rig);
}

static void a_chat_for_vllm(void **state)
{
    static char model[] = "org/model";
    struct rig *rig = make(WORKER_ENGINE_OPENAI, KV_REPORT_VLLM, "");

    (void)state;
    rig->tier_config.model = model;
    begin(rig, "/v1/chat/completions", CHAT);
    assert_int_equal(count_start(&rig->request, &rig->worker, done), 0);
    receive(rig, "\"Hello\"}]}");
    assert_true(asked(rig, "{\"model\":\"org/model\",\"messages\""));
    answer(rig, "200 OK", "{\"count\":9}");
    assert_int_equal(rig->tokens, 9);
    destroy(rig);
}

static void answers_that_say_nothing(void **state)
{
    static const struct {
        const char *status, *body;
    } cases[] = {
        {"404 Not Found", "{\"input_tokens\":31}"},
        {"500 Error", "{\"input_tokens\":31}"},
        {"200 OK", "{\"input_tokens\":0}"},
        {"200 OK", "<html>"},
        {"200 OK", ""},
    };

    (void)state;
    for (size_t i = 0; i < UNIT_COUNT(cases); i++) {
        struct rig *rig = make(WORKER_ENGINE_LLAMA_SERVER, KV_REPORT_LLAMA_SERVER, "");

        begin(rig, "/v1/chat/completions", CHAT);
        assert_int_equal(count_start(&rig->request, &rig->worker, done), 0);
        receive(rig, CHAT);
        answer(rig, cases[i].status, cases[i].body);
        assert_false(rig->known);
        destroy(rig);
    }
}

static void an_engine_that_is_silent(void **state)
{
    struct rig *rig = make(WORKER_ENGINE_LLAMA_SERVER, KV_REPORT_LLAMA_SERVER, "");
    struct buf rest;

    (void)state;
    buf_init(&rest, 1024);
    begin(rig, "/v1/chat/completions", CHAT);
    assert_int_equal(count_start(&rig->request, &rig->worker, done), 0);
    receive(rig, CHAT);
    assert_true(rig_run_until(&rig->loop, &rig->ended));
    assert_false(rig->known);
    /* The call does not live on. */
    assert_true(rig_receive_to_end(&rig->loop, rig->engine, &rest));
    buf_free(&rest);
    destroy(rig);
}

static void an_engine_that_cuts(void **state)
{
    struct rig *rig = make(WORKER_ENGINE_LLAMA_SERVER, KV_REPORT_LLAMA_SERVER, "");

    (void)state;
    begin(rig, "/v1/chat/completions", CHAT);
    assert_int_equal(count_start(&rig->request, &rig->worker, done), 0);
    receive(rig, CHAT);
    close(rig->engine);
    rig->engine = -1;
    assert_true(rig_run_until(&rig->loop, &rig->ended));
    assert_false(rig->known);
    assert_int_equal(rig->calls, 1);
    destroy(rig);
}

static void a_client_that_leaves(void **state)
{
    struct rig *rig = make(WORKER_ENGINE_LLAMA_SERVER, KV_REPORT_LLAMA_SERVER, "");
    struct buf rest;

    (void)state;
    buf_init(&rest, 1024);
    begin(rig, "/v1/chat/completions", CHAT);
    assert_int_equal(count_start(&rig->request, &rig->worker, done), 0);
    receive(rig, CHAT);
    shutdown(rig->client, SHUT_RDWR);
    assert_true(rig_receive_to_end(&rig->loop, rig->engine, &rest));
    assert_null(rig->request.count);
    assert_int_equal(rig->calls, 0);
    assert_false(count_can(&rig->request, &rig->worker));
    buf_free(&rest);
    destroy(rig);
}

static void nothing_to_ask(void **state)
{
    struct rig *rig = make(WORKER_ENGINE_OPENAI, KV_REPORT_NONE, "");

    (void)state;
    begin(rig, "/v1/chat/completions", CHAT);
    assert_false(count_can(&rig->request, &rig->worker));
    assert_int_equal(count_start(&rig->request, &rig->worker, done), -ENOTSUP);
    assert_null(rig->request.count);
    count_cancel(&rig->request);
    assert_int_equal(rig->calls, 0);
    destroy(rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_body_of_a_chat),       cmocka_unit_test(a_text_for_vllm),
        cmocka_unit_test(a_chat_for_vllm),          cmocka_unit_test(answers_that_say_nothing),
        cmocka_unit_test(an_engine_that_is_silent), cmocka_unit_test(an_engine_that_cuts),
        cmocka_unit_test(a_client_that_leaves),     cmocka_unit_test(nothing_to_ask),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
