/* UTF-8: every code point encodes and is accepted; everything else is not. */
#include "tests/unit/unit.h"

#include "base/utf8.h"

static size_t encode(uint32_t c, char out[4])
{
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    size_t n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = n - 1; i > 0; i--, c >>= 6)
        out[i] = (char)(0x80 | (c & 0x3F));
    static const unsigned char marks[] = {0, 0, 0xC0, 0xE0, 0xF0};
    out[0] = (char)(marks[n] | c);
    return n;
}

static void every_code_point(void **state)
{
    (void)state;
    for (uint32_t c = 0; c < 0x140000; c++) {
        char bytes[4];
        size_t n = encode(c, bytes);
        bool good = c <= 0x10FFFF && !(c >= 0xD800 && c <= 0xDFFF);
        if (utf8_sequence_length(bytes, n) != (good ? n : 0))
            fail_msg("U+%04X", (unsigned)c);
        for (size_t cut = 0; cut < n; cut++)
            if (utf8_sequence_length(bytes, cut) != 0)
                fail_msg("U+%04X cut after %zu bytes", (unsigned)c, cut);
    }
}

static void overlong_and_stray_bytes(void **state)
{
    (void)state;
    static const struct span bad[] = {
        SPAN_LIT("\x80"),
        SPAN_LIT("\xBF"),
        SPAN_LIT("\xC0\x80"),
        SPAN_LIT("\xC1\xBF"),
        SPAN_LIT("\xE0\x9F\xBF"),
        SPAN_LIT("\xF0\x8F\xBF\xBF"),
        SPAN_LIT("\xC3\x28"),
        SPAN_LIT("\xE2\x28\xA1"),
        SPAN_LIT("\xE2\x82\x28"),
        SPAN_LIT("\xF0\x9F\x98("),
        SPAN_LIT("\xF8\x88\x80\x80\x80"),
        SPAN_LIT("\xFF"),
        SPAN_LIT("\xFE"),
        SPAN_LIT("\xED\xA0\x80"),
        SPAN_LIT("\xF4\x90\x80\x80"),
        SPAN_LIT("\xC3\xC3"),
        SPAN_LIT("\xF0\x9F\xC0\x80"),
    };
    for (size_t i = 0; i < UNIT_COUNT(bad); i++)
        if (utf8_sequence_length(bad[i].ptr, bad[i].len) != 0)
            fail_msg("case %zu", i);
}

/* Every sequence of two bytes, and of three with a lead byte: as a decoder of its own says. */
static void every_short_sequence(void **state)
{
    (void)state;
    for (unsigned a = 0; a < 256; a++)
        for (unsigned b = 0; b < 256; b++) {
            char two[2] = {(char)a, (char)b};
            size_t expected = a < 0x80 ? 1 : 0;
            if ((a & 0xE0) == 0xC0 && (b & 0xC0) == 0x80 && ((a & 0x1F) << 6 | (b & 0x3F)) >= 0x80)
                expected = 2;
            if (utf8_sequence_length(two, 2) != expected)
                fail_msg("%02x %02x", a, b);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_code_point),
        cmocka_unit_test(overlong_and_stray_bytes),
        cmocka_unit_test(every_short_sequence),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
