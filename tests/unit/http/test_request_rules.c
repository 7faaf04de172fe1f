/* Request heads that two implementations could read differently are refused: a table. */
#include "tests/unit/unit.h"

#include "http/request_rules.h"

#include <string.h>

struct row {
    int status;
    const char *target;
    const char *fields; /* lines `Name: value`, separated by LF */
    bool http_1_0;
    const char *path; /* expected, when fine */
};

static const struct row rows[] = {
    {0, "/a?b", "Host: x", false, "/a?b"},
    {0, "*", "Host: x", false, "*"},
    {0, "/a", "", true, "/a"},
    {0, "http://h/p?q", "Host: x", false, "/p?q"},
    {0, "HTTP://h", "Host: x", false, "/"},
    {0, "/a", "Host: x\nContent-Length: 12", false, "/a"},
    {0, "/a", "Host: x\nTransfer-Encoding:  Chunked ", false, "/a"},
    {400, "", "Host: x", false, NULL},
    {400, "a", "Host: x", false, NULL},
    {400, "/a#b", "Host: x", false, NULL},
    {400, "/a b", "Host: x", false, NULL},
    {400, "/a\x7f", "Host: x", false, NULL},
    {400, "ftp://h/p", "Host: x", false, NULL},
    {400, "http:///p", "Host: x", false, NULL},
    {400, "/a", "", false, NULL},
    {400, "/a", "Host: x\nHost: x", false, NULL},
    {400, "/a", "Host: x y", false, NULL},
    {400, "/a", "Host: x\nContent-Length: 1\nTransfer-Encoding: chunked", false, NULL},
    {400, "/a", "Host: x\nContent-Length: 1\nContent-Length: 1", false, NULL},
    {400, "/a", "Host: x\nContent-Length: 1\nContent-Length: 2", false, NULL},
    {400, "/a", "Host: x\nContent-Length: +1", false, NULL},
    {400, "/a", "Host: x\nContent-Length: 1, 1", false, NULL},
    {400, "/a", "Host: x\nContent-Length: ", false, NULL},
    {400, "/a", "Host: x\nContent-Length: 9999999999999999999", false, NULL},
    {400, "/a", "Transfer-Encoding: chunked", true, NULL},
    {501, "/a", "Host: x\nTransfer-Encoding: identity", false, NULL},
    {501, "/a", "Host: x\nTransfer-Encoding: xchunked", false, NULL},
    {501, "/a", "Host: x\nTransfer-Encoding: chunked, chunked", false, NULL},
    {501, "/a", "Host: x\nTransfer-Encoding: gzip, chunked", false, NULL},
    {501, "/a", "Host: x\nTransfer-Encoding: chunked\nTransfer-Encoding: chunked", false, NULL},
    {417, "/a", "Host: x\nExpect: 200-ok", false, NULL},
    {417, "/a", "Host: x\nExpect: 100-continue\nExpect: 100-continue", false, NULL},
};

static void add_lines(struct http_fields *f, const char *lines)
{
    struct span rest = span_from_str(lines), line;
    while (rest.len > 0 && span_split_next(&rest, '\n', &line)) {
        const char *colon = memchr(line.ptr, ':', line.len);
        assert_non_null(colon);
        size_t name = (size_t)(colon - line.ptr);
        struct span value = span_trim((struct span){colon + 1, line.len - name - 1});
        assert_int_equal(http_fields_add(f, (struct span){line.ptr, name}, value), 0);
    }
}

static void heads_are_judged_as_the_table_says(void **state)
{
    (void)state;
    for (size_t i = 0; i < UNIT_COUNT(rows); i++) {
        struct http_fields f;
        http_fields_init(&f, 4096);
        add_lines(&f, rows[i].fields);
        struct http_request_facts facts = {
            .http_1_0 = rows[i].http_1_0,
            .target = span_from_str(rows[i].target),
            .fields = &f,
        };
        struct http_request_verdict v = http_request_check(&facts);
        if (v.status != rows[i].status)
            fail_msg("row %zu (%s | %s): %d, not %d", i, rows[i].target, rows[i].fields, v.status,
                     rows[i].status);
        if (v.status == 0)
            assert_span_equal(v.target, rows[i].path);
        else
            assert_true(strlen(v.message) > 10);
        http_fields_free(&f);
    }
}

static void continue_is_for_bodies_of_new_clients(void **state)
{
    (void)state;
    static const struct {
        const char *fields;
        bool http_1_0, expected;
    } cases[] = {
        {"Host: x\nExpect: 100-continue\nContent-Length: 5", false, true},
        {"Host: x\nExpect: 100-CONTINUE\nTransfer-Encoding: chunked", false, true},
        {"Host: x\nExpect: 100-continue", false, false},
        {"Host: x\nExpect: 100-continue\nContent-Length: 0", false, false},
        {"Expect: 100-continue\nContent-Length: 5", true, false},
        {"Host: x\nContent-Length: 5", false, false},
    };
    for (size_t i = 0; i < UNIT_COUNT(cases); i++) {
        struct http_fields f;
        http_fields_init(&f, 4096);
        add_lines(&f, cases[i].fields);
        struct http_request_facts facts = {
            .http_1_0 = cases[i].http_1_0, .target = SPAN_LIT("/"), .fields = &f};
        struct http_request_verdict v = http_request_check(&facts);
        assert_int_equal(v.status, 0);
        assert_int_equal(v.expects_continue, cases[i].expected);
        http_fields_free(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(heads_are_judged_as_the_table_says),
        cmocka_unit_test(continue_is_for_bodies_of_new_clients),
    };
    return cmocka_run_group_tests_name("http/request_rules", tests, NULL, NULL);
}
