/* Output to lines: every split, long lines, NUL bytes, and memory that does not grow (F57). */
#include "tests/unit/unit.h"

#include "worker/log_tail.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct seen {
    char text[4096];
    size_t len;
    unsigned count;
    size_t longest;
};

static void on_line(struct span line, void *ctx)
{
    struct seen *s = ctx;

    s->count++;
    if (line.len > s->longest)
        s->longest = line.len;
    if (s->len + line.len + 1 <= sizeof(s->text)) {
        memcpy(s->text + s->len, line.ptr, line.len);
        s->len += line.len;
        s->text[s->len++] = '|';
    }
}

static void lines_at_every_split(void **state)
{
    static const char input[] = "one\r\ntwo\n\n\nthr\0ee\n\r\nlast";
    static const char expected[] = "one|two|thr\0ee|last|";

    (void)state;
    for (size_t i = 0; i < sizeof(input); i++) {
        struct log_assembler a = {.len = 0};
        struct seen s = {.len = 0};

        log_assembler_feed(&a, (struct span){input, i}, on_line, &s);
        log_assembler_feed(&a, (struct span){input + i, sizeof(input) - 1 - i}, on_line, &s);
        log_assembler_finish(&a, on_line, &s);
        assert_int_equal(s.len, sizeof(expected) - 1);
        assert_memory_equal(s.text, expected, sizeof(expected) - 1);
    }
}

static void long_line_is_cut_and_the_next_is_whole(void **state)
{
    struct log_assembler a = {.len = 0};
    struct seen s = {.len = 0};
    char block[1000];

    (void)state;
    memset(block, 'x', sizeof(block));
    for (int i = 0; i < 300; i++)
        log_assembler_feed(&a, (struct span){block, sizeof(block)}, on_line, &s);
    assert_int_equal(s.count, 0);
    log_assembler_feed(&a, SPAN_LIT("\nnext\n"), on_line, &s);
    assert_int_equal(s.count, 2);
    assert_int_equal(s.longest, LOG_LINE_BYTES);
    assert_memory_equal(s.text + s.len - 5, "next|", 5);
}

/* What must be in the ring after any sequence of pushes: the last lines, in order, unharmed. */
static void ring_keeps_the_last_lines(void **state)
{
    static struct log_tail t;
    static struct span lines[LOG_TAIL_LINES];
    char line[LOG_LINE_BYTES];
    unsigned seed = 7;

    (void)state;
    for (unsigned n = 0; n < 20000; n++) {
        size_t len, count;

        seed = seed * 1103515245u + 12345u;
        len = (seed >> 16) % 64 == 0 ? LOG_LINE_BYTES : 12 + (seed >> 16) % 100;
        memset(line, 'a' + (int)(n % 26), sizeof(line));
        snprintf(line, sizeof(line), "%010u", n);
        log_tail_push(&t, (struct span){line, len});
        count = log_tail_get(&t, lines, LOG_TAIL_LINES);
        assert_true(count >= 1 && count <= LOG_TAIL_LINES);
        if (n > 1000)
            assert_true(count >= 20);
        for (size_t i = 0; i < count; i++) {
            char expected[16];
            unsigned which = n + 1 - (unsigned)count + (unsigned)i;

            snprintf(expected, sizeof(expected), "%010u", which);
            assert_memory_equal(lines[i].ptr, expected, 10);
            if (lines[i].len > 11)
                assert_int_equal(lines[i].ptr[lines[i].len - 1], 'a' + (int)(which % 26));
        }
    }
    assert_int_equal(log_tail_get(&t, lines, 3), 3);
    log_tail_clear(&t);
    assert_int_equal(log_tail_get(&t, lines, 3), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_at_every_split),
        cmocka_unit_test(long_line_is_cut_and_the_next_is_whole),
        cmocka_unit_test(ring_keeps_the_last_lines),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
