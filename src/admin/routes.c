/* From path to page. Loop thread only; every page comes from a snapshot, so it answers at once. */
#include "admin/routes.h"

#include "admin/pages.h"
#include "api/error.h"
#include "base/units.h"

#include <string.h>

enum { ADMIN_PAGE_MAX_BYTES = 16 * 1024 * 1024 };

/* A month: longer is a device to be taken out of the configuration. */
#define ADMIN_YIELD_MAX_MS (UINT64_C(31) * 24 * 3600 * 1000)

static const char requests_prefix[] = "/failsoft/v1/requests/";

static void reply(struct http_exchange *x, int status, const char *type, const struct buf *body,
                  const char *allow)
{
    struct http_fields fields;
    http_fields_init(&fields, 512);
    (void)http_fields_add(&fields, SPAN_LIT("Content-Type"), span_from_str(type));
    (void)http_fields_add(&fields, SPAN_LIT("Cache-Control"), SPAN_LIT("no-store"));
    if (allow)
        (void)http_fields_add(&fields, SPAN_LIT("Allow"), span_from_str(allow));
    http_exchange_reply(x, status, &fields, buf_span(body));
    http_fields_free(&fields);
}

static void reply_error(struct http_exchange *x, const struct api_error *e, const char *allow)
{
    struct buf body;
    buf_init(&body, 65536);
    (void)api_error_write_body(e, API_DIALECT_PLAIN, &body);
    reply(x, e->status, ADMIN_TYPE_JSON, &body, allow);
    buf_free(&body);
}

static void reply_page(struct gateway *g, struct http_exchange *x, struct span path)
{
    struct gateway_snapshot s;
    struct buf body;
    int status = 200;
    const char *type = ADMIN_TYPE_JSON;
    buf_init(&body, ADMIN_PAGE_MAX_BYTES);
    int r = gateway_snapshot_take(g, &s);
    if (r == 0) {
        if (span_equals_str(path, "/metrics")) {
            type = ADMIN_TYPE_METRICS;
            r = admin_write_metrics(&s, &body);
        } else if (span_equals_str(path, "/healthz")) {
            r = admin_write_health(&s, &body);
        } else if (span_equals_str(path, "/readyz")) {
            r = admin_write_ready(&s, &body, &status);
        } else {
            r = admin_write_status_json(&s, &body);
        }
        gateway_snapshot_release(&s);
    }
    if (r == 0) {
        reply(x, status, type, &body, NULL);
    } else {
        struct api_error e;
        api_error_set(&e, 503, "overloaded_error", "no_snapshot", "the state could not be read: %s",
                      strerror(-r));
        reply_error(x, &e, NULL);
    }
    buf_free(&body);
}

/* One running request: shown, or cancelled. */
static void reply_request(struct gateway *g, struct http_exchange *x, struct span method,
                          struct span id)
{
    struct api_error e;
    bool cancel = span_equals_str(method, "DELETE");
    if (!cancel && !span_equals_str(method, "GET")) {
        api_error_bad_method(&e, method, "GET, DELETE");
        reply_error(x, &e, "GET, DELETE");
        return;
    }
    struct buf body;
    buf_init(&body, 65536);
    bool found = cancel && gateway_cancel_request(g, id);
    struct gateway_snapshot s;
    if (found)
        (void)buf_printf(&body, "{\"id\":\"%.*s\",\"state\":\"cancelled\"}", SPAN_FMT(id));
    else if (!cancel && gateway_snapshot_take(g, &s) == 0) {
        for (size_t i = 0; i < s.request_count && !found; i++) {
            found = span_equals_str(id, s.requests[i].id);
            if (found)
                (void)admin_write_request_json(&s.requests[i], &body);
        }
        gateway_snapshot_release(&s);
    }
    if (found) {
        reply(x, 200, ADMIN_TYPE_JSON, &body, NULL);
    } else {
        api_error_set(&e, 404, "not_found_error", "no_such_request",
                      "no running request has this id; ended ones are not kept");
        reply_error(x, &e, NULL);
    }
    buf_free(&body);
}

/* /failsoft/v1/devices/NAME/yield?for_ms=N */
static void reply_yield(struct gateway *g, struct http_exchange *x, struct span method,
                        struct span name, struct span query)
{
    struct api_error e;
    if (!span_equals_str(method, "POST")) {
        api_error_bad_method(&e, method, "POST");
        reply_error(x, &e, "POST");
        return;
    }
    static const char key[] = "for_ms=";
    char number[24] = "";
    uint64_t for_ms;
    if (span_starts_with(query, SPAN_LIT(key)) && query.len - (sizeof(key) - 1) < sizeof(number))
        memcpy(number, query.ptr + sizeof(key) - 1, query.len - (sizeof(key) - 1));
    if (units_parse_u64(number, &for_ms) < 0 || for_ms > ADMIN_YIELD_MAX_MS) {
        api_error_set(&e, 400, "invalid_request_error", "bad_time",
                      "for_ms is a number of milliseconds, at most %llu; 0 ends it",
                      (unsigned long long)ADMIN_YIELD_MAX_MS);
        reply_error(x, &e, NULL);
        return;
    }
    if (gateway_device_yield(g, name, for_ms) < 0) {
        api_error_set(&e, 404, "not_found_error", "no_such_device",
                      "no device is called %.*s in the configuration", SPAN_FMT(name));
        reply_error(x, &e, NULL);
        return;
    }
    struct buf body;
    buf_init(&body, 256);
    (void)buf_printf(&body, "{\"device\":\"%.*s\",\"for_ms\":%llu}", SPAN_FMT(name),
                     (unsigned long long)for_ms);
    reply(x, 200, ADMIN_TYPE_JSON, &body, NULL);
    buf_free(&body);
}

/* True for the path of a yield; the device's name is between its ends. */
static bool is_yield_path(struct span path, struct span *ret_name)
{
    struct span before = SPAN_LIT("/failsoft/v1/devices/");
    struct span after = SPAN_LIT("/yield");
    if (path.len <= before.len + after.len || !span_starts_with(path, before))
        return false;
    struct span rest = {path.ptr + before.len, path.len - before.len - after.len};
    *ret_name = rest;
    return span_equals((struct span){rest.ptr + rest.len, after.len}, after);
}

bool admin_answer(struct gateway *g, struct http_exchange *x, struct span method, struct span path,
                  struct span query, void *ctx)
{
    (void)ctx;
    struct span device;
    if (is_yield_path(path, &device)) {
        reply_yield(g, x, method, device, query);
        return true;
    }
    struct span prefix = SPAN_LIT(requests_prefix);
    if (span_starts_with(path, prefix)) {
        reply_request(g, x, method, (struct span){path.ptr + prefix.len, path.len - prefix.len});
        return true;
    }
    static const char *const pages[] = {"/healthz", "/readyz", "/metrics", "/failsoft/v1/status"};
    bool page = false;
    for (size_t i = 0; i < sizeof(pages) / sizeof(pages[0]); i++)
        page |= span_equals_str(path, pages[i]);
    struct api_error e;
    if (page && (span_equals_str(method, "GET") || span_equals_str(method, "HEAD"))) {
        reply_page(g, x, path);
    } else if (page) {
        api_error_bad_method(&e, method, "GET, HEAD");
        reply_error(x, &e, "GET, HEAD");
    } else if (span_starts_with(path, SPAN_LIT("/failsoft/"))) {
        api_error_set(&e, 404, "not_found_error", "unknown_path",
                      "there is /failsoft/v1/status and /failsoft/v1/requests/{id}");
        reply_error(x, &e, NULL);
    } else {
        return false;
    }
    return true;
}
