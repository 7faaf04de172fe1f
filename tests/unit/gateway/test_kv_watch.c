/*
 * Watching the KV cache of one worker over real connections: what is asked, what is believed, and
 * what becomes of the claims in the table. The engine is a raw socket that this test answers by hand;
 * the clock of the loop is real, the time that ticks are told is not.
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
    int listener;
};

static struct rig *make(enum worker_engine engine)
{
    static const struct worker_events no_events = {0};
    static char no_name[] = "";
    struct rig *rig = calloc(1, sizeof(*rig));
    struct worker_options options;
    uint16_t port;
    char url[64];

    uv_loop_init(&rig->loop);
    rig->gateway.loop = &rig->loop;
    list_init(&rig->gateway.workers);
    rig->worker.gateway = &rig->gateway;
    rig->worker.service = rig->worker.tier = rig->worker.device = no_name;
    rig->worker.slots = 2;
    list_init(&rig->worker.waiting);
    list_push_back(&rig->gateway.workers, &rig->worker.node);
    rig->listener = rig_listen(&port);
    snprintf(url, sizeof(url), "http://127.0.0.1:%u", port);
    worker_options_init(&options);
    options.service = options.tier = "x";
    options.url = url;
    options.engine = engine;
    assert_int_equal(worker_create(&rig->loop, &options, &no_events, rig, &rig->worker.worker), 0);
    worker_start(rig->worker.worker);
    return rig;
}

static void destroy(struct rig *rig)
{
    kv_watch_worker_gone(&rig->worker);
    worker_destroy(rig->worker.worker);
    if (rig->listener >= 0)
        close(rig->listener);
    rig_finish(&rig->loop);
    free(rig);
}

static bool is_over(const struct rig *rig)
{
    return rig->worker.kv_ask == NULL;
}

/* Runs the loop until nothing is asked any more. */
static void settle(struct rig *rig)
{
    for (unsigned turns = 0; !is_over(rig) && turns < 100000; turns++)
        uv_run(&rig->loop, UV_RUN_ONCE);
    assert_true(is_over(rig));
}

/* Takes the next question, which must be for `path`, and answers it. */
static void serve(struct rig *rig, const char *path, const char *status, const char *body)
{
    struct buf asked;
    char text[1024];
    int fd = rig_accept(&rig->loop, rig->listener);

    buf_init(&asked, 4096);
    snprintf(text, sizeof(text), "GET %s HTTP/1.1\r\n", path);
    assert_true(rig_receive_until(&rig->loop, fd, &asked, "\r\n\r\n"));
    if (!span_starts_with(buf_span(&asked), span_from_str(text)))
        fail_msg("%.*s instead of %s", SPAN_FMT(buf_span(&asked)), path);
    snprintf(text, sizeof(text), "HTTP/1.1 %s\r\nContent-Length: %zu\r\n\r\n%s", status,
             strlen(body), body);
    rig_send_text(&rig->loop, fd, text);
    close(fd);
    buf_free(&asked);
}

#define PROPS(n) "{\"default_generation_settings\":{\"n_ctx\":" n "},\"total_slots\":4}"
#define VLLM(usage)                                                                                \
    "vllm:kv_cache_usage_perc " usage                                                              \
    "\nvllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"1000\"} 1\n"
#define MODELS "{\"data\":[{\"max_model_len\":8192}]}"

/* What a request holds is given back once, whatever the engine says in between. */
static void claims_outlive_what_is_known(void **state)
{
    struct rig *rig = make(WORKER_ENGINE_LLAMA_SERVER);
    struct gateway_worker *w = &rig->worker;
    uint64_t first, second, third;

    (void)state;
    kv_watch_worker_changed(w);
    assert_false(w->kv_known);
    serve(rig, "/props", "200 OK", PROPS("4096"));
    settle(rig);
    assert_true(w->kv_known);
    assert_int_equal(kv_take(&w->kv, 1000, &first), 0);
    assert_int_equal(kv_take(&w->kv, 2000, &second), 0);

    kv_watch_worker_changed(w);
    assert_false(w->kv_known);
    assert_int_equal(kv_give(&w->kv, first), 0);
    serve(rig, "/props", "200 OK", PROPS("8192"));
    settle(rig);
    assert_true(w->kv_known);
    assert_int_equal(w->kv.shape.tokens, 8192);
    assert_int_equal(w->kv.taken_tokens, 2000);
    assert_int_equal(kv_take(&w->kv, 3000, &third), 0);
    assert_int_equal(kv_give(&w->kv, first), -ENOENT);
    assert_int_equal(kv_give(&w->kv, second), 0);
    assert_int_equal(kv_give(&w->kv, third), 0);
    assert_int_equal(w->kv.taken_tokens, 0);
    destroy(rig);
}

/* A new process listens there, or nobody: what the last one said means nothing. */
static void nobody_listens(void **state)
{
    struct rig *rig = make(WORKER_ENGINE_OPENAI);
    struct gateway_worker *w = &rig->worker;

    (void)state;
    kv_watch_worker_changed(w);
    serve(rig, "/metrics", "200 OK", VLLM("0.5"));
    serve(rig, "/v1/models", "200 OK", MODELS);
    settle(rig);
    assert_true(w->kv_known);
    assert_int_equal(w->kv.others_tokens, 8000);
    close(rig->listener);
    rig->listener = -1;
    w->running = 1;
    kv_watch_tick(&rig->gateway, w->kv_next_ms);
    settle(rig);
    assert_false(w->kv_known);
    assert_int_equal(w->kv.others_tokens, 0);
    destroy(rig);
}

/* Of a request that waits, too; and not of one that is somewhere else. */
static void asked_while_it_is_used(void **state)
{
    struct rig *rig = make(WORKER_ENGINE_OPENAI);
    struct gateway_worker *w = &rig->worker;

    (void)state;
    kv_watch_worker_changed(w);
    serve(rig, "/metrics", "200 OK", VLLM("0.5"));
    serve(rig, "/v1/models", "200 OK", MODELS);
    settle(rig);
    uint64_t next_ms = w->kv_next_ms;
    kv_watch_tick(&rig->gateway, next_ms);
    assert_true(is_over(rig));
    w->waiting_count = 1;
    kv_watch_tick(&rig->gateway, next_ms - 1);
    assert_true(is_over(rig));
    kv_watch_tick(&rig->gateway, next_ms);
    assert_false(is_over(rig));
    struct kv_ask *ask = w->kv_ask;
    kv_watch_tick(&rig->gateway, next_ms + 1000);
    assert_ptr_equal(w->kv_ask, ask); /* one question at a time */
    w->waiting_count = 0;
    serve(rig, "/metrics", "200 OK", VLLM("0.25"));
    settle(rig);
    assert_int_equal(w->kv.others_tokens, 4000);
    assert_int_equal(w->kv.shape.request_tokens, 8192);
    destroy(rig);
}

static void a_passing_trouble(void **state)
{
    struct rig *rig = make(WORKER_ENGINE_OPENAI);
    struct gateway_worker *w = &rig->worker;

    (void)state;
    kv_watch_worker_changed(w);
    serve(rig, "/metrics", "200 OK", VLLM("0.5"));
    serve(rig, "/v1/models", "200 OK", MODELS);
    settle(rig);
    w->running = 1;
    kv_watch_tick(&rig->gateway, w->kv_next_ms);
    uint64_t since_ms = w->kv_silent_since_ms;
    serve(rig, "/metrics", "503 Loading", "loading");
    settle(rig);
    assert_true(w->kv_known);
    assert_int_equal(w->kv.others_tokens, 8000);
    /* It goes on: what is not ours is somebody's. */
    uint64_t taken;
    assert_int_equal(kv_take(&w->kv, 1600, &taken), 0);
    kv_watch_tick(&rig->gateway, since_ms + 9999);
    assert_int_equal(w->kv.others_tokens, 8000);
    kv_watch_tick(&rig->gateway, since_ms + 10000);
    assert_int_equal(w->kv.others_tokens, 16000 - 1600);
    assert_int_equal(kv_free_tokens(&w->kv), 0);
    /* As long as one of ours ends, another may begin. */
    assert_int_equal(kv_give(&w->kv, taken), 0);
    assert_int_equal(kv_free_tokens(&w->kv), 1600);
    serve(rig, "/metrics", "200 OK", VLLM("0.0"));
    settle(rig);
    assert_int_equal(w->kv.others_tokens, 0);
    assert_int_equal(w->kv_silent_since_ms, 0);
    /* A page that is gone is another matter. */
    kv_watch_tick(&rig->gateway, w->kv_next_ms);
    serve(rig, "/metrics", "404 Not Found", "");
    serve(rig, "/get_server_info", "404 Not Found", "");
    serve(rig, "/info", "404 Not Found", "");
    settle(rig);
    assert_false(w->kv_known);
    destroy(rig);
}

static void an_engine_without_pages(void **state)
{
    struct rig *rig = make(WORKER_ENGINE_GENERIC);

    (void)state;
    kv_watch_worker_changed(&rig->worker);
    assert_true(is_over(rig));
    assert_false(rig->worker.kv_known);
    destroy(rig);
}

/* Another state, and a stop, in the middle of a question. */
static void gone_meanwhile(void **state)
{
    struct rig *rig = make(WORKER_ENGINE_LLAMA_SERVER);
    struct buf rest;

    (void)state;
    buf_init(&rest, 4096);
    kv_watch_worker_changed(&rig->worker);
    int first = rig_accept(&rig->loop, rig->listener);
    kv_watch_worker_changed(&rig->worker); /* that question is dropped, and asked anew */
    assert_true(rig_receive_to_end(&rig->loop, first, &rest));
    serve(rig, "/props", "200 OK", PROPS("4096"));
    settle(rig);
    assert_true(rig->worker.kv_known);
    kv_watch_worker_changed(&rig->worker);
    assert_false(is_over(rig));
    kv_watch_worker_gone(&rig->worker);
    assert_true(is_over(rig));
    assert_false(rig->worker.kv_known);
    buf_free(&rest);
    close(first);
    destroy(rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(claims_outlive_what_is_known), cmocka_unit_test(nobody_listens),
        cmocka_unit_test(asked_while_it_is_used),       cmocka_unit_test(a_passing_trouble),
        cmocka_unit_test(an_engine_without_pages),      cmocka_unit_test(gone_meanwhile),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
