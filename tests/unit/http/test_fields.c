/* Header fields: order, building in parts, caps, hop-by-hop rules, failing allocations. */
#include "tests/unit/unit.h"

#include "http/fields.h"
#include "tests/unit/alloc_fail.h"

#include <errno.h>
#include <stdio.h>

static void fields_keep_order_and_bytes(void **state)
{
    (void)state;
    struct http_fields f;
    http_fields_init(&f, 1000);
    assert_null(f.text.data);
    assert_null(http_fields_get(&f, "Host").ptr);
    assert_int_equal(http_fields_add(&f, SPAN_LIT("Host"), SPAN_LIT("example")), 0);
    assert_int_equal(http_fields_add(&f, SPAN_LIT("X-Empty"), SPAN_LIT("")), 0);
    assert_int_equal(http_fields_add(&f, SPAN_LIT("ACCEPT"), SPAN_LIT("a")), 0);
    assert_int_equal(http_fields_add(&f, SPAN_LIT("accept"), SPAN_LIT("b")), 0);
    assert_int_equal(f.count, 4);
    assert_span_equal(http_fields_name(&f, 0), "Host");
    assert_span_equal(http_fields_value(&f, 0), "example");
    assert_span_equal(http_fields_name(&f, 1), "X-Empty");
    assert_span_equal(http_fields_value(&f, 1), "");
    assert_span_equal(http_fields_get(&f, "Accept"), "a");
    assert_span_equal(http_fields_get(&f, "x-empty"), ""); /* present and empty is not absent */
    assert_int_equal(http_fields_count(&f, "accept"), 2);
    assert_int_equal(http_fields_count(&f, "accep"), 0);
    http_fields_free(&f);
    http_fields_free(NULL);
    assert_int_equal(f.count, 0);
    assert_int_equal(http_fields_add(&f, SPAN_LIT("again"), SPAN_LIT("1")), 0);
    assert_span_equal(http_fields_get(&f, "again"), "1");
    http_fields_free(&f);
}

static void parts_join_to_fields(void **state)
{
    (void)state;
    struct http_fields f;
    http_fields_init(&f, 100000);
    /* More fields than the first array holds, so that it moves while a field is open. */
    for (unsigned i = 0; i < 40; i++) {
        char text[16];
        int n = snprintf(text, sizeof(text), "N%u", i);
        for (int at = 0; at < n; at++)
            assert_int_equal(http_fields_append_name(&f, (struct span){text + at, 1}), 0);
        if (i % 3 != 0) {
            assert_int_equal(http_fields_append_value(&f, SPAN_LIT("val")), 0);
            assert_int_equal(http_fields_append_value(&f, SPAN_NONE), 0);
            assert_int_equal(http_fields_append_value(&f, (struct span){text, (size_t)n}), 0);
        }
        assert_int_equal(f.count, i); /* not there before its end */
        assert_int_equal(http_fields_end(&f), 0);
    }
    assert_int_equal(f.count, 40);
    for (unsigned i = 0; i < 40; i++) {
        char name[16], value[32];
        snprintf(name, sizeof(name), "N%u", i);
        snprintf(value, sizeof(value), "val%s", name);
        assert_span_equal(http_fields_name(&f, i), name);
        assert_span_equal(http_fields_value(&f, i), i % 3 ? value : "");
    }
    http_fields_free(&f);
}

static void caps_refuse_and_keep(void **state)
{
    (void)state;
    struct http_fields f;
    http_fields_init(&f, 10);
    assert_int_equal(http_fields_add(&f, SPAN_LIT("abc"), SPAN_LIT("12")), 0);
    assert_int_equal(http_fields_add(&f, SPAN_LIT("def"), SPAN_LIT("345")), -EMSGSIZE);
    assert_int_equal(f.count, 1);
    /* Nothing of the refused field is left, the room is still there. */
    assert_int_equal(http_fields_add(&f, SPAN_LIT("gh"), SPAN_LIT("678")), 0);
    assert_span_equal(http_fields_get(&f, "gh"), "678");
    assert_span_equal(http_fields_get(&f, "abc"), "12");
    http_fields_free(&f);

    http_fields_init(&f, 100000);
    for (unsigned i = 0; i < HTTP_FIELDS_MAX_COUNT; i++)
        assert_int_equal(http_fields_add(&f, SPAN_LIT("n"), SPAN_LIT("v")), 0);
    assert_int_equal(http_fields_add(&f, SPAN_LIT("n"), SPAN_LIT("v")), -EMSGSIZE);
    assert_int_equal(http_fields_append_name(&f, SPAN_LIT("n")), -EMSGSIZE);
    assert_int_equal(f.count, HTTP_FIELDS_MAX_COUNT);
    http_fields_free(&f);
}

static void hop_by_hop_fields(void **state)
{
    (void)state;
    struct http_fields f;
    http_fields_init(&f, 1000);
    static const char *const always[] = {
        "Connection",       "Keep-Alive",         "TE", "Trailer", "Upgrade", "transfer-ENCODING",
        "Proxy-Connection", "proxy-authorization"};
    static const char *const never[] = {"Content-Type", "Proxy",  "Host",          "Te2",
                                        "X-Drop",       "X-Also", "Content-Length"};
    for (size_t i = 0; i < UNIT_COUNT(always); i++)
        assert_true(http_fields_is_hop_by_hop(&f, span_from_str(always[i])));
    for (size_t i = 0; i < UNIT_COUNT(never); i++)
        assert_false(http_fields_is_hop_by_hop(&f, span_from_str(never[i])));
    /* Named by the message itself, in any of several Connection fields. */
    assert_int_equal(http_fields_add(&f, SPAN_LIT("Connection"), SPAN_LIT("keep-alive, X-Drop")),
                     0);
    assert_int_equal(http_fields_add(&f, SPAN_LIT("connection"), SPAN_LIT(",x-also,")), 0);
    assert_true(http_fields_is_hop_by_hop(&f, SPAN_LIT("x-drop")));
    assert_true(http_fields_is_hop_by_hop(&f, SPAN_LIT("X-ALSO")));
    assert_false(http_fields_is_hop_by_hop(&f, SPAN_LIT("X-Drop2")));
    assert_false(http_fields_is_hop_by_hop(&f, SPAN_LIT("")));
    http_fields_free(&f);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    unsigned failed = 0;
    for (unsigned n = 1;; n++) {
        struct http_fields f;
        http_fields_init(&f, 100000);
        alloc_fail_arm(n);
        unsigned added = 0;
        int r = 0;
        for (; added < 60 && r == 0; added += r == 0)
            r = http_fields_add(&f, SPAN_LIT("some-name"), SPAN_LIT("some value of a field"));
        bool happened = alloc_fail_disarm();
        assert_int_equal(r, happened ? -ENOMEM : 0);
        assert_int_equal(f.count, added);
        assert_int_equal(http_fields_add(&f, SPAN_LIT("last"), SPAN_LIT("one")), 0);
        assert_span_equal(http_fields_name(&f, added), "last");
        assert_span_equal(http_fields_value(&f, added), "one");
        for (unsigned i = 0; i < added; i++)
            assert_span_equal(http_fields_value(&f, i), "some value of a field");
        http_fields_free(&f);
        if (!happened)
            break;
        failed++;
    }
    assert_true(failed >= 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fields_keep_order_and_bytes), cmocka_unit_test(parts_join_to_fields),
        cmocka_unit_test(caps_refuse_and_keep),        cmocka_unit_test(hop_by_hop_fields),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
