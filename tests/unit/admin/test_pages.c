/*
 * The JSON pages, read back with a parser of somebody else, and the metrics page line by line.
 */
#include "unit.h"

#include "admin/pages.h"
#include "sample.h"

#include <errno.h>
#include <string.h>
#include <yyjson.h>

static yyjson_doc *read_back(const struct buf *b)
{
    yyjson_doc *doc = yyjson_read(b->data, b->len, 0);

    if (!doc)
        fail_msg("not JSON: %.*s", (int)b->len, b->data);
    return doc;
}

static void assert_text(yyjson_val *root, const char *pointer, const char *text)
{
    const char *got = yyjson_get_str(yyjson_ptr_get(root, pointer));

    if (!got || strcmp(got, text) != 0)
        fail_msg("%s is %s, expected %s", pointer, got ? got : "missing", text);
}

static void assert_number(yyjson_val *root, const char *pointer, uint64_t number)
{
    yyjson_val *v = yyjson_ptr_get(root, pointer);

    if (!yyjson_is_uint(v) || yyjson_get_uint(v) != number)
        fail_msg("%s is not %llu", pointer, (unsigned long long)number);
}

static void test_status(void **state)
{
    struct gateway_snapshot s = sample_snapshot();
    yyjson_doc *doc;
    yyjson_val *root;
    struct buf b;

    (void)state;
    buf_init(&b, 1 << 20);
    assert_int_equal(admin_write_status_json(&s, &b), 0);
    doc = read_back(&b);
    root = yyjson_doc_get_root(doc);
    assert_text(root, "/version", "1.2.3");
    assert_text(root, "/state", "degraded");
    assert_number(root, "/uptime_ms", 61500);
    assert_number(root, "/config/generation", 2);
    assert_text(root, "/config/error", "a.yaml:1:1: no");
    assert_number(root, "/services/0/failovers", 7);
    assert_text(root, "/services/0/state", "degraded");
    assert_int_equal(yyjson_arr_size(yyjson_ptr_get(root, "/services/0/tiers")), 2);
    assert_text(root, "/services/0/tiers/0/reason", "device lost: \"vk::DeviceLostError\"\n\\x");
    assert_text(root, "/services/0/tiers/0/worker/state", "backoff");
    assert_number(root, "/services/0/tiers/0/worker/pid", 4711);
    assert_false(yyjson_get_bool(yyjson_ptr_get(root, "/services/0/tiers/0/usable")));
    assert_true(yyjson_get_bool(yyjson_ptr_get(root, "/services/0/tiers/1/usable")));
    assert_number(root, "/services/0/tiers/1/attempts_total", UINT64_MAX);
    assert_true(yyjson_is_null(yyjson_ptr_get(root, "/services/0/tiers/0/kv")));
    assert_text(root, "/services/0/tiers/1/kv/kind", "paged");
    assert_number(root, "/services/0/tiers/1/kv/tokens", 81280);
    assert_number(root, "/services/0/tiers/1/kv/slots", 0);
    assert_number(root, "/services/0/tiers/1/kv/page_tokens", 16);
    assert_number(root, "/services/0/tiers/1/kv/used_tokens", 20320);
    assert_number(root, "/services/0/tiers/1/kv/free_tokens", 32768);
    assert_text(root, "/services/1/name", "we\"ird\\na\nme\xEF\xBF\xBD");
    assert_text(root, "/services/1/state", "ready");
    assert_text(root, "/requests/0/degraded", "tier gpu: device lost");
    yyjson_doc_free(doc);
    buf_free(&b);
}

static void test_empty(void **state)
{
    struct gateway_snapshot s = {.version = "1", .config_error = NULL, .ready = true};
    struct buf b;
    int status = 0;

    (void)state;
    buf_init(&b, 1 << 20);
    assert_int_equal(admin_write_status_json(&s, &b), 0);
    yyjson_doc_free(read_back(&b));
    buf_free(&b);
    assert_int_equal(admin_write_ready(&s, &b, &status), 0);
    assert_int_equal(status, 200);
    yyjson_doc_free(read_back(&b));
    buf_free(&b);
    assert_int_equal(admin_write_metrics(&s, &b), 0);
    buf_free(&b);
}

static void test_health(void **state)
{
    struct gateway_snapshot s = sample_snapshot();
    yyjson_doc *doc;
    struct buf b;

    (void)state;
    buf_init(&b, 1 << 20);
    assert_int_equal(admin_write_health(&s, &b), 0);
    doc = read_back(&b);
    assert_text(yyjson_doc_get_root(doc), "/status", "ok");
    yyjson_doc_free(doc);
    buf_free(&b);
}

static void check_ready(struct gateway_snapshot *s, const char *word, int expected)
{
    yyjson_doc *doc;
    struct buf b;
    int status = 0;

    buf_init(&b, 1 << 20);
    assert_int_equal(admin_write_ready(s, &b, &status), 0);
    assert_int_equal(status, expected);
    doc = read_back(&b);
    assert_text(yyjson_doc_get_root(doc), "/status", word);
    assert_text(yyjson_doc_get_root(doc), "/reasons/0/tier", "gpu");
    assert_text(yyjson_doc_get_root(doc), "/reasons/0/reason",
                "suspended: device lost: \"vk::DeviceLostError\"\n\\x (next try in 4 s)");
    assert_int_equal(yyjson_arr_size(yyjson_ptr_get(yyjson_doc_get_root(doc), "/reasons")), 1);
    assert_text(yyjson_doc_get_root(doc), "/services/chat", "degraded");
    yyjson_doc_free(doc);
    buf_free(&b);
}

static void test_ready(void **state)
{
    struct gateway_snapshot s = sample_snapshot();

    (void)state;
    check_ready(&s, "degraded", 200);
    s.degraded = false;
    check_ready(&s, "ready", 200);
    s.ready = false;
    check_ready(&s, "unavailable", 503);
}

static void assert_line(const struct buf *b, const char *line)
{
    if (span_find(buf_span(b), span_from_str(line)) < 0)
        fail_msg("no line %s in\n%.*s", line, (int)b->len, b->data);
}

static void test_metrics(void **state)
{
    struct gateway_snapshot s = sample_snapshot();
    struct buf b;

    (void)state;
    buf_init(&b, 1 << 20);
    assert_int_equal(admin_write_metrics(&s, &b), 0);
    assert_line(&b, "\nfailsoft_uptime_seconds 61.500\n");
    assert_line(&b, "\nfailsoft_requests_total{service=\"chat\"} 90\n");
    assert_line(&b, "\nfailsoft_requests_total{service=\"we\\\"ird\\\\na\\nme\xEF\xBF\xBD\"} 0\n");
    assert_line(&b, "\nfailsoft_requests_ended_total{service=\"chat\",outcome=\"cancelled\"} 5\n");
    assert_line(&b, "\nfailsoft_tier_usable{service=\"chat\",tier=\"gpu\"} 0\n");
    assert_line(&b,
                "\nfailsoft_first_event_seconds_bucket{service=\"chat\",tier=\"gpu\",le=\"2.5\"} "
                "5\n");
    assert_line(&b, "\nfailsoft_first_event_seconds_bucket{service=\"chat\",tier=\"gpu\",le="
                    "\"+Inf\"} 7\n");
    assert_line(&b, "\nfailsoft_first_event_seconds_sum{service=\"chat\",tier=\"gpu\"} 12.25\n");
    assert_line(&b, "\nfailsoft_worker_kv_tokens{service=\"chat\",tier=\"cpu\"} 81280\n");
    assert_line(&b, "\nfailsoft_worker_kv_taken_tokens{service=\"chat\",tier=\"cpu\"} 4096\n");
    /* Not known is no sample. */
    assert_int_equal(span_find(buf_span(&b), SPAN_LIT("kv_tokens{service=\"chat\",tier=\"gpu\"")),
                     -1);
    assert_int_equal(b.data[b.len - 1], '\n');
    buf_free(&b);
}

/* A page that does not fit is an error, never a cut page passed on as whole. */
static void test_full(void **state)
{
    struct gateway_snapshot s = sample_snapshot();
    int (*const pages[])(const struct gateway_snapshot *, struct buf *) = {
        admin_write_status_json, admin_write_metrics, admin_write_health};

    (void)state;
    for (size_t i = 0; i < UNIT_COUNT(pages); i++) {
        struct buf whole;

        buf_init(&whole, 1 << 20);
        assert_int_equal(pages[i](&s, &whole), 0);
        for (size_t cap = 0; cap < whole.len; cap++) {
            struct buf b;

            buf_init(&b, cap);
            assert_int_equal(pages[i](&s, &b), -EMSGSIZE);
            buf_free(&b);
        }
        buf_free(&whole);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_status),  cmocka_unit_test(test_empty),
        cmocka_unit_test(test_health),  cmocka_unit_test(test_ready),
        cmocka_unit_test(test_metrics), cmocka_unit_test(test_full),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
