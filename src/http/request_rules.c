/* The rules for request heads as one pure function. Any thread. */
#include "http/request_rules.h"

static struct http_request_verdict refuse(int status, const char *message)
{
    return (struct http_request_verdict){.status = status, .message = message};
}

static bool parse_length(struct span text, uint64_t *ret)
{
    /* 18 digits cannot overflow, and no body here is that long. */
    if (text.len == 0 || text.len > 18)
        return false;
    uint64_t value = 0;
    for (size_t i = 0; i < text.len; i++) {
        if (text.ptr[i] < '0' || text.ptr[i] > '9')
            return false;
        value = value * 10 + (uint64_t)(text.ptr[i] - '0');
    }
    *ret = value;
    return true;
}

static bool has_control_bytes(struct span s)
{
    for (size_t i = 0; i < s.len; i++) {
        unsigned char c = (unsigned char)s.ptr[i];
        if (c <= 0x20 || c >= 0x7f)
            return true;
    }
    return false;
}

/* Origin form, `*`, or absolute form cut to its origin form. */
static bool check_target(struct span target, struct span *ret)
{
    if (target.len == 0 || has_control_bytes(target) || memchr(target.ptr, '#', target.len))
        return false;
    if (target.ptr[0] == '/' || span_equals(target, SPAN_LIT("*"))) {
        *ret = target;
        return true;
    }
    ptrdiff_t scheme_end = span_find(target, SPAN_LIT("://"));
    if (scheme_end <= 0)
        return false;
    struct span scheme = {target.ptr, (size_t)scheme_end};
    if (!span_equals_nocase(scheme, SPAN_LIT("http")) &&
        !span_equals_nocase(scheme, SPAN_LIT("https")))
        return false;
    struct span rest = {target.ptr + scheme_end + 3, target.len - (size_t)scheme_end - 3};
    const char *slash = rest.len ? memchr(rest.ptr, '/', rest.len) : NULL;
    if (slash == rest.ptr)
        return false;
    *ret = slash ? (struct span){slash, rest.len - (size_t)(slash - rest.ptr)} : SPAN_LIT("/");
    return rest.len > 0;
}

static bool check_framing(const struct http_request_facts *facts, struct http_request_verdict *v)
{
    const struct http_fields *f = facts->fields;
    uint32_t lengths = http_fields_count(f, "content-length");
    uint32_t encodings = http_fields_count(f, "transfer-encoding");
    if (encodings > 0 && (lengths > 0 || facts->http_1_0)) {
        *v = refuse(400, "Transfer-Encoding beside Content-Length or in HTTP/1.0 is not accepted");
        return false;
    }
    if (lengths > 1) {
        *v = refuse(400, "more than one Content-Length");
        return false;
    }
    if (encodings > 0) {
        struct span value = span_trim(http_fields_get(f, "transfer-encoding"));
        if (encodings > 1 || !span_equals_nocase(value, SPAN_LIT("chunked"))) {
            *v = refuse(501, "the only Transfer-Encoding accepted is one `chunked`");
            return false;
        }
        v->chunked = true;
    }
    if (lengths == 1) {
        struct span value = span_trim(http_fields_get(f, "content-length"));
        if (!parse_length(value, &v->content_length)) {
            *v = refuse(400, "Content-Length is not a number");
            return false;
        }
        v->has_length = true;
    }
    return true;
}

struct http_request_verdict http_request_check(const struct http_request_facts *facts)
{
    struct http_request_verdict v = {0};
    if (facts->connect)
        return refuse(405, "CONNECT is not supported");
    if (!check_target(facts->target, &v.target))
        return refuse(400, "the request target must be a path or an http URL");
    uint32_t hosts = http_fields_count(facts->fields, "host");
    if (hosts > 1)
        return refuse(400, "more than one Host field");
    if (hosts == 0 && !facts->http_1_0)
        return refuse(400, "the Host field is missing");
    struct span host = http_fields_get(facts->fields, "host");
    if (hosts == 1 && has_control_bytes(host))
        return refuse(400, "the Host field is malformed");
    if (!check_framing(facts, &v))
        return v;
    uint32_t expects = http_fields_count(facts->fields, "expect");
    if (expects > 0) {
        struct span value = span_trim(http_fields_get(facts->fields, "expect"));
        if (expects > 1 || !span_equals_nocase(value, SPAN_LIT("100-continue")))
            return refuse(417, "the only Expect understood is 100-continue");
        /* RFC 9110 §10.1.1: no interim response for HTTP/1.0, none without a body. */
        v.expects_continue = !facts->http_1_0 && (v.chunked || v.content_length > 0);
    }
    return v;
}
