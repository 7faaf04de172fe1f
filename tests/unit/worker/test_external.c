/* External workers: what they are is found out in the background, by the shape of their answers. */
#include "worker_rig.h"

#include "tests/unit/unit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A server that answers GETs from a table, on the loop of the rig. */
struct page {
    const char *path;
    int status;
    const char *body;
};

struct visitor {
    uv_tcp_t tcp;
    char head[2048];
    size_t len;
    char reply[1024];
    uv_write_t write;
};

static struct {
    uv_tcp_t tcp;
    const struct page *pages; /* NULL path ends; a path "*" is any */
    unsigned requests;
    bool silent;
    bool open;
} server;

static struct rig rig;
static char url[64];

static void on_visitor_closed(uv_handle_t *handle)
{
    free(handle->data);
}

static void on_written(uv_write_t *write, int status)
{
    struct visitor *v = write->data;

    (void)status;
    if (!uv_is_closing((uv_handle_t *)&v->tcp))
        uv_close((uv_handle_t *)&v->tcp, on_visitor_closed);
}

static void answer(struct visitor *v)
{
    const struct page *page = server.pages;
    const char *body = "{\"error\":{\"message\":\"not found\"}}";
    int status = 404;
    uv_buf_t buf;

    server.requests++;
    for (; page->path != NULL; page++) {
        size_t len = strlen(page->path);

        if (strcmp(page->path, "*") == 0 ||
            (strncmp(v->head + 4, page->path, len) == 0 && v->head[4 + len] == ' ')) {
            status = page->status;
            body = page->body;
            break;
        }
    }
    if (server.silent)
        return;
    snprintf(v->reply, sizeof(v->reply),
             "HTTP/1.1 %d X\r\nContent-Length: %zu\r\nConnection: close\r\n\r\n%s", status,
             strlen(body), body);
    buf = uv_buf_init(v->reply, (unsigned)strlen(v->reply));
    v->write.data = v;
    uv_write(&v->write, (uv_stream_t *)&v->tcp, &buf, 1, on_written);
}

static void on_alloc(uv_handle_t *handle, size_t wanted, uv_buf_t *buf)
{
    struct visitor *v = handle->data;

    (void)wanted;
    *buf = uv_buf_init(v->head + v->len, (unsigned)(sizeof(v->head) - 1 - v->len));
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    struct visitor *v = stream->data;

    (void)buf;
    if (n < 0) {
        if (!uv_is_closing((uv_handle_t *)&v->tcp))
            uv_close((uv_handle_t *)&v->tcp, on_visitor_closed);
        return;
    }
    v->len += (size_t)n;
    v->head[v->len] = '\0';
    if (strstr(v->head, "\r\n\r\n") != NULL)
        answer(v);
}

static void on_connection(uv_stream_t *stream, int status)
{
    struct visitor *v = calloc(1, sizeof(*v));

    assert_int_equal(status, 0);
    assert_non_null(v);
    uv_tcp_init(&rig.loop, &v->tcp);
    v->tcp.data = v;
    assert_int_equal(uv_accept(stream, (uv_stream_t *)&v->tcp), 0);
    uv_read_start((uv_stream_t *)&v->tcp, on_alloc, on_read);
}

static int port; /* of the last server */

static void open_server(const struct page *pages, int at_port)
{
    struct sockaddr_in address;
    int len = sizeof(address);

    server.pages = pages;
    server.requests = 0;
    server.silent = false;
    uv_tcp_init(&rig.loop, &server.tcp);
    uv_ip4_addr("127.0.0.1", at_port, &address);
    assert_int_equal(uv_tcp_bind(&server.tcp, (struct sockaddr *)&address, 0), 0);
    assert_int_equal(uv_listen((uv_stream_t *)&server.tcp, 16, on_connection), 0);
    uv_tcp_getsockname(&server.tcp, (struct sockaddr *)&address, &len);
    port = ntohs(address.sin_port);
    snprintf(url, sizeof(url), "http://127.0.0.1:%d", port);
    server.open = true;
}

static void close_server(void)
{
    if (server.open)
        uv_close((uv_handle_t *)&server.tcp, NULL);
    server.open = false;
}

static int setup(void **state)
{
    (void)state;
    rig_init(&rig);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    close_server();
    rig_end(&rig);
    return 0;
}

static void start(enum worker_engine engine)
{
    rig.options.url = url;
    rig.options.engine = engine;
    rig_create(&rig);
    assert_int_equal(worker_get_state(rig.worker), WORKER_STATE_EXTERNAL);
    assert_true(worker_is_usable(rig.worker)); /* before anything is known */
    worker_start(rig.worker);
}

static bool engine_found(void *ctx)
{
    return ((struct rig *)ctx)->engines > 0;
}

static const struct page llama[] = {
    {"/props", 200, "{\"default_generation_settings\":{}}"},
    {"/v1/models", 200, "{\"object\":\"list\",\"data\":[]}"},
    {NULL, 0, NULL},
};
static const struct page llama_loading[] = {
    {"*", 503, "{\"error\":{\"message\":\"Loading model\",\"code\":503}}"},
    {NULL, 0, NULL},
};
static const struct page ollama[] = {
    {"/api/version", 200, "{\"version\":\"0.12.3\"}"},
    {"/v1/models", 200, "{\"object\":\"list\",\"data\":[]}"},
    {NULL, 0, NULL},
};
static const struct page openai[] = {
    {"/v1/models", 200, "{\"object\":\"list\",\"data\":[{\"id\":\"m\"}]}"},
    {NULL, 0, NULL},
};
static const struct page html[] = {
    {"*", 200, "<!doctype html><title>\"data\" \"version\"</title>"},
    {NULL, 0, NULL},
};

static void kind_is_found_by_probing(void **state)
{
    static const struct {
        const struct page *pages;
        enum worker_engine engine;
    } cases[] = {
        {llama, WORKER_ENGINE_LLAMA_SERVER}, {llama_loading, WORKER_ENGINE_LLAMA_SERVER},
        {ollama, WORKER_ENGINE_OLLAMA},      {openai, WORKER_ENGINE_OPENAI},
        {html, WORKER_ENGINE_GENERIC},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (i > 0) {
            close_server();
            rig_end(&rig);
            rig_init(&rig);
        }
        open_server(cases[i].pages, 0);
        start(WORKER_ENGINE_UNKNOWN);
        rig_until(&rig, engine_found, &rig);
        assert_int_equal(worker_get_engine(rig.worker), cases[i].engine);
        assert_string_equal(worker_address(rig.worker), url);
        assert_int_equal(rig.trace_count, 0);
    }
}

static void known_kind_is_not_asked(void **state)
{
    (void)state;
    open_server(ollama, 0);
    start(WORKER_ENGINE_OPENAI);
    worker_suspect(rig.worker);
    rig_run_for(&rig, 100);
    assert_int_equal(server.requests, 0);
    assert_int_equal(worker_get_engine(rig.worker), WORKER_ENGINE_OPENAI);
}

static void server_that_comes_later_is_found(void **state)
{
    (void)state;
    open_server(ollama, 0);
    close_server();
    start(WORKER_ENGINE_UNKNOWN);
    rig_run_for(&rig, 100);
    assert_int_equal(worker_get_engine(rig.worker), WORKER_ENGINE_UNKNOWN);
    assert_true(worker_is_usable(rig.worker));
    open_server(ollama, port);
    rig_until(&rig, engine_found, &rig);
    assert_int_equal(worker_get_engine(rig.worker), WORKER_ENGINE_OLLAMA);
}

static void prefix_of_the_url_is_kept(void **state)
{
    static const struct page pages[] = {
        {"/openai/v1/models", 200, "{\"data\":[]}"},
        {NULL, 0, NULL},
    };

    (void)state;
    open_server(pages, 0);
    snprintf(url, sizeof(url), "http://127.0.0.1:%d/openai/v1", port);
    start(WORKER_ENGINE_UNKNOWN);
    rig_until(&rig, engine_found, &rig);
    assert_int_equal(worker_get_engine(rig.worker), WORKER_ENGINE_OPENAI);
}

static void silent_server_blocks_nothing(void **state)
{
    (void)state;
    open_server(html, 0);
    server.silent = true;
    start(WORKER_ENGINE_UNKNOWN);
    rig_run_for(&rig, 100);
    assert_true(worker_is_usable(rig.worker));
    assert_int_equal(server.requests, 1);
    /* destroyed with the question open */
}

static void stop_and_recycle_have_no_process_to_end(void **state)
{
    (void)state;
    open_server(llama, 0);
    start(WORKER_ENGINE_UNKNOWN);
    worker_recycle(rig.worker, "x", true);
    worker_kill_now(rig.worker);
    rig_stop(&rig);
    assert_int_equal(worker_get_state(rig.worker), WORKER_STATE_EXTERNAL);
    assert_int_equal(rig.engines, 0);
    worker_start(rig.worker);
    rig_until(&rig, engine_found, &rig);
}

static void bad_urls(void **state)
{
    static const struct worker_events none = {.on_state = NULL};
    struct worker *w = NULL;

    (void)state;
    rig.options.url = "https://example.org";
    assert_int_equal(worker_create(&rig.loop, &rig.options, &none, NULL, &w), -EPROTONOSUPPORT);
    rig.options.url = "nonsense";
    assert_int_equal(worker_create(&rig.loop, &rig.options, &none, NULL, &w), -EINVAL);
    rig.options.url = NULL;
    rig.options.model_path = NULL;
    assert_int_equal(worker_create(&rig.loop, &rig.options, &none, NULL, &w), -EINVAL);
    assert_null(w);
}

static void bad_run_dirs(void **state)
{
    static const struct worker_events none = {.on_state = NULL};
    char dir[256];
    struct worker *w = NULL;

    (void)state;
    memset(dir, 'x', sizeof(dir));
    dir[0] = '/';
    dir[120] = '\0';
    rig.options.run_dir = dir;
    assert_int_equal(worker_create(&rig.loop, &rig.options, &none, NULL, &w), -ENAMETOOLONG);
    dir[95] = '\0'; /* the folder fits, the socket does not */
    assert_int_equal(worker_create(&rig.loop, &rig.options, &none, NULL, &w), -ENAMETOOLONG);
    rig.options.run_dir = "/tmp"; /* open to others */
    assert_int_equal(worker_create(&rig.loop, &rig.options, &none, NULL, &w), -EACCES);
    rig.options.run_dir = rig.model;
    assert_int_equal(worker_create(&rig.loop, &rig.options, &none, NULL, &w), -ENOTDIR);
    assert_null(w);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(kind_is_found_by_probing),
        T(known_kind_is_not_asked),
        T(server_that_comes_later_is_found),
        T(prefix_of_the_url_is_kept),
        T(silent_server_blocks_nothing),
        T(stop_and_recycle_have_no_process_to_end),
        T(bad_urls),
        T(bad_run_dirs),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
