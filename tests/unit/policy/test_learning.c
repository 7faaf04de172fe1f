/* What is learned from measured use, and its text. */
#include "tests/unit/policy/ledger_rig.h"
#include "tests/unit/policy/random.h"

#include "policy/learning.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ENTRIES = 4 };

static const struct learning_key load = {.model = 1, .settings = 2, .engine = 3, .device = 4};

struct table {
    struct learning l;
    struct learning_entry entries[ENTRIES];
};

static void start(struct table *t)
{
    learning_init(&t->l, t->entries, ENTRIES);
}

/* F24 ollama/ollama#10359: 59 GB estimated, three loads of 26.1 GiB. */
static void lowers_after_three_and_forgets_with_the_settings(void **state)
{
    (void)state;
    struct table t;
    start(&t);
    uint64_t predicted = UINT64_C(59000000000);
    uint64_t seen = 261 * GIB / 10;
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(learning_estimate(&t.l, &load, predicted, 20 * GIB), predicted);
        assert_int_equal(learning_note(&t.l, &load, seen), 0);
    }
    assert_int_equal(learning_estimate(&t.l, &load, predicted, 20 * GIB), seen * 115 / 100);
    /* Never below weights and KV. */
    assert_int_equal(learning_estimate(&t.l, &load, predicted, 40 * GIB), 40 * GIB);
    /* Another context: the formula. */
    struct learning_key other = load;
    other.settings = 7;
    assert_int_equal(learning_estimate(&t.l, &other, predicted, 0), predicted);
    assert_int_equal(learning_note(&t.l, &other, seen), 0);
    assert_int_equal(learning_drop_others(&t.l, &other), 1);
    uint32_t count = 9;
    assert_int_equal(learning_seen_bytes(&t.l, &load, &count), 0);
    assert_int_equal(count, 0);
    assert_int_equal(learning_seen_bytes(&t.l, &other, &count), seen);
    assert_int_equal(count, 1);
}

static void lowers_to_half_at_most(void **state)
{
    (void)state;
    struct table t;
    start(&t);
    for (unsigned i = 0; i < 5; i++)
        learning_note(&t.l, &load, GIB);
    assert_int_equal(learning_estimate(&t.l, &load, 10 * GIB, GIB), 5 * GIB);
}

static void a_small_difference_is_left_alone(void **state)
{
    (void)state;
    struct table t;
    start(&t);
    for (unsigned i = 0; i < 5; i++)
        learning_note(&t.l, &load, 10 * GIB);
    assert_int_equal(learning_estimate(&t.l, &load, 10 * GIB, 0), 10 * GIB);
    assert_int_equal(learning_estimate(&t.l, &load, 139 * GIB / 10, 0), 139 * GIB / 10);
    assert_int_equal(learning_estimate(&t.l, &load, 14 * GIB, 0), 115 * GIB / 10);
}

static void up_at_once_down_slowly(void **state)
{
    (void)state;
    struct table t;
    start(&t);
    for (unsigned i = 0; i < 10; i++)
        learning_note(&t.l, &load, 5 * GIB);
    assert_int_equal(learning_estimate(&t.l, &load, 10 * GIB, 0), 575 * GIB / 100);
    /* One load above the prediction counts at once, */
    learning_note(&t.l, &load, 12 * GIB);
    assert_true(learning_estimate(&t.l, &load, 10 * GIB, 0) >= 12 * GIB);
    /* and until twenty others have been seen. */
    for (unsigned i = 0; i < LEARNING_SAMPLES - 1; i++) {
        learning_note(&t.l, &load, 5 * GIB);
        assert_true(learning_estimate(&t.l, &load, 10 * GIB, 0) >= 12 * GIB);
    }
    learning_note(&t.l, &load, 5 * GIB);
    assert_int_equal(learning_estimate(&t.l, &load, 10 * GIB, 0), 575 * GIB / 100);
}

/* F04: images add more than text; each has its own figures. */
static void uses_are_kept_apart(void **state)
{
    (void)state;
    struct table t;
    start(&t);
    struct learning_key text = load;
    struct learning_key image = load;
    text.use = LEARNING_USE_TEXT;
    image.use = LEARNING_USE_IMAGE;
    learning_note(&t.l, &image, 900 * MIB);
    assert_int_equal(learning_estimate(&t.l, &text, 100 * MIB, 0), 100 * MIB);
    assert_int_equal(learning_estimate(&t.l, &image, 100 * MIB, 0), 1035 * MIB);
}

/* F13 ggml-org/llama.cpp#18160. */
static void remembers_what_never_fits(void **state)
{
    (void)state;
    struct table t;
    start(&t);
    learning_set_unfit(&t.l, &load, false);
    assert_false(learning_is_unfit(&t.l, &load));
    learning_set_unfit(&t.l, &load, true);
    assert_true(learning_is_unfit(&t.l, &load));
    struct learning_key other = load;
    other.settings++;
    assert_false(learning_is_unfit(&t.l, &other));
    learning_set_unfit(&t.l, &load, false);
    assert_false(learning_is_unfit(&t.l, &load));
}

static void the_least_used_makes_room(void **state)
{
    (void)state;
    struct table t;
    start(&t);
    struct learning_key key = load;
    for (key.model = 0; key.model < ENTRIES; key.model++)
        learning_note(&t.l, &key, GIB);
    key.model = 0;
    learning_note(&t.l, &key, GIB);
    key.model = 77;
    learning_note(&t.l, &key, GIB);
    uint32_t count = 0;
    key.model = 0;
    learning_seen_bytes(&t.l, &key, &count);
    assert_int_equal(count, 2);
    key.model = 1;
    learning_seen_bytes(&t.l, &key, &count);
    assert_int_equal(count, 0);
    assert_int_equal(learning_note(&t.l, &key, UINT64_MAX), -ERANGE);
    key.use = LEARNING_USE_COUNT;
    assert_int_equal(learning_note(&t.l, &key, 1), -ERANGE);
}

/* Whatever was measured: never below the floor or half, never above the larger of both figures × 1.15. */
static void stays_in_its_bounds(void **state)
{
    (void)state;
    uint64_t seed = 3;
    for (unsigned walk = 0; walk < 2000; walk++) {
        struct table t;
        start(&t);
        uint64_t most = 0;
        for (uint64_t i = random_below(&seed, 30); i > 0; i--) {
            uint64_t bytes = random_below(&seed, 64 * GIB);
            learning_note(&t.l, &load, bytes);
            uint32_t count;
            most = learning_seen_bytes(&t.l, &load, &count);
        }
        uint64_t predicted = random_below(&seed, 64 * GIB);
        uint64_t floor_bytes = random_below(&seed, predicted + 1);
        uint64_t claim = learning_estimate(&t.l, &load, predicted, floor_bytes);
        assert_true(claim >= floor_bytes && claim >= predicted / 2 && claim >= most);
        assert_true(claim <= predicted || claim <= most * 115 / 100 + 1);
    }
}

static void survives_as_text(void **state)
{
    (void)state;
    struct table t;
    struct table again;
    char text[4096];
    char second[4096];
    size_t len = 0;
    size_t second_len = 0;
    uint32_t skipped = 9;
    start(&t);
    start(&again);
    for (unsigned i = 0; i < 25; i++)
        learning_note(&t.l, &load, 20 * GIB + i);
    struct learning_key other = {UINT64_MAX, 0, 12345, 0xabcdef, LEARNING_USE_IMAGE};
    learning_set_unfit(&t.l, &other, true);
    assert_int_equal(learning_to_text(&t.l, text, sizeof(text), &len), 0);
    assert_int_equal(len, strlen(text));
    assert_true(len <= learning_text_max(ENTRIES));
    assert_int_equal(learning_from_text(&again.l, (struct span){text, len}, &skipped), 0);
    assert_int_equal(skipped, 0);
    assert_true(learning_is_unfit(&again.l, &other));
    assert_int_equal(learning_to_text(&again.l, second, sizeof(second), &second_len), 0);
    assert_string_equal(text, second);
    for (size_t size = 0; size < len + 1; size++)
        assert_int_equal(learning_to_text(&t.l, second, size, &second_len), -ENOSPC);
    assert_int_equal(learning_to_text(&t.l, second, len + 1, &second_len), 0);
}

#define KEY_TEXT "0000000000000001 0000000000000002 0000000000000003 0000000000000004"

static void broken_lines_are_skipped(void **state)
{
    (void)state;
    static const char *const lines[] = {
        "load",
        "load " KEY_TEXT,
        "load " KEY_TEXT " maybe 1",
        "load " KEY_TEXT " fits -1",
        "load " KEY_TEXT " fits 99999999999999999999999",
        "load " KEY_TEXT " fits 18446744073709551615",
        "load " KEY_TEXT " fits 70368744177665",
        "load " KEY_TEXT " fits 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21",
        "load " KEY_TEXT " fits 1  2",
        "load " KEY_TEXT " fits 0x10",
        "loads " KEY_TEXT " fits 1",
        "load 1 2 3 4 fits 1",
        "load 000000000000000G 0000000000000002 0000000000000003 0000000000000004 fits 1",
        "\x01\x02\xff",
    };
    for (unsigned i = 0; i < UNIT_COUNT(lines); i++) {
        struct table t;
        char text[1024];
        uint32_t skipped = 0;
        uint32_t count = 0;
        start(&t);
        int n = snprintf(text, sizeof(text), "failsoft-learning 1\n%s\nload %s fits 7\n", lines[i],
                         KEY_TEXT);
        assert_int_equal(learning_from_text(&t.l, (struct span){text, (size_t)n}, &skipped), 0);
        if (skipped != 1)
            fail_msg("%s: skipped %u", lines[i], skipped);
        assert_int_equal(learning_seen_bytes(&t.l, &load, &count), 7);
        assert_int_equal(count, 1);
    }
}

static void another_version_is_not_read(void **state)
{
    (void)state;
    static const char *const texts[] = {"", "failsoft-learning 2\n", "failsoft-learning 10\n", "{}",
                                        "\nfailsoft-learning 1\n"};
    for (unsigned i = 0; i < UNIT_COUNT(texts); i++) {
        struct table t;
        uint32_t skipped = 3;
        start(&t);
        assert_int_equal(learning_from_text(&t.l, span_from_str(texts[i]), &skipped), -EPROTO);
        assert_int_equal(skipped, 3);
    }
    struct table t;
    uint32_t skipped = 0;
    start(&t);
    assert_int_equal(learning_from_text(&t.l, SPAN_NONE, &skipped), -EPROTO);
}

/* A good text with bytes changed, in memory of exactly its size: no read beyond, bounds kept. */
static void hostile_text_does_no_harm(void **state)
{
    (void)state;
    struct table t;
    char good[2048];
    size_t len = 0;
    start(&t);
    for (uint64_t i = 0; i < 3; i++) {
        struct learning_key key = {i, i, i, i, (enum learning_use)i};
        for (unsigned k = 0; k < 10; k++)
            learning_note(&t.l, &key, GIB * k);
    }
    assert_int_equal(learning_to_text(&t.l, good, sizeof(good), &len), 0);
    uint64_t seed = 11;
    for (unsigned walk = 0; walk < 20000; walk++) {
        size_t size = random_below(&seed, 4) ? len : (size_t)random_below(&seed, len + 1);
        char *text = malloc(size > 0 ? size : 1);
        assert_non_null(text);
        memcpy(text, good, size);
        for (uint64_t n = random_below(&seed, 6); n > 0 && size > 0; n--)
            text[random_below(&seed, size)] = (char)random_next(&seed);
        uint32_t skipped = 0;
        start(&t);
        int rc = learning_from_text(&t.l, (struct span){text, size}, &skipped);
        assert_true(rc == 0 || rc == -EPROTO);
        for (unsigned i = 0; i < ENTRIES; i++) {
            assert_true(t.entries[i].count <= LEARNING_SAMPLES);
            for (unsigned k = 0; k < t.entries[i].count; k++)
                assert_true(t.entries[i].samples[k] <= LEDGER_BYTES_MAX);
        }
        free(text);
    }
}

static void figures_are_kept_as_they_are(void **state)
{
    (void)state;
    static const uint64_t six[] = {92, 90, 97, 28, 0, 6}, two[] = {1, 2};
    struct table t, back;
    uint64_t out[LEARNING_SAMPLES] = {0};
    struct learning_key key = load;
    key.use = LEARNING_USE_SIZES;
    start(&t);
    start(&back);
    assert_int_equal(learning_kept(&t.l, &key, out), 0);
    assert_int_equal(learning_keep(&t.l, &key, six, 6), 0);
    assert_int_equal(learning_keep(&t.l, &key, six, LEARNING_SAMPLES + 1), -ERANGE);
    char text[4096];
    size_t len = 0;
    uint32_t skipped = 9;
    assert_int_equal(learning_to_text(&t.l, text, sizeof(text), &len), 0);
    assert_int_equal(learning_from_text(&back.l, (struct span){text, len}, &skipped), 0);
    assert_int_equal(skipped, 0);
    assert_int_equal(learning_kept(&back.l, &key, out), 6);
    assert_memory_equal(out, six, sizeof(six));
    assert_int_equal(learning_keep(&back.l, &key, two, 2), 0);
    assert_int_equal(learning_kept(&back.l, &key, out), 2);
    /* A load that is learned is another matter. */
    assert_int_equal(learning_kept(&back.l, &load, out), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lowers_after_three_and_forgets_with_the_settings),
        cmocka_unit_test(figures_are_kept_as_they_are),
        cmocka_unit_test(lowers_to_half_at_most),
        cmocka_unit_test(a_small_difference_is_left_alone),
        cmocka_unit_test(up_at_once_down_slowly),
        cmocka_unit_test(uses_are_kept_apart),
        cmocka_unit_test(remembers_what_never_fits),
        cmocka_unit_test(the_least_used_makes_room),
        cmocka_unit_test(stays_in_its_bounds),
        cmocka_unit_test(survives_as_text),
        cmocka_unit_test(broken_lines_are_skipped),
        cmocka_unit_test(another_version_is_not_read),
        cmocka_unit_test(hostile_text_does_no_harm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
