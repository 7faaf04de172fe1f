/*
 * The JSON scanner: verdicts, error positions, members, depth, and a comparison with yyjson on a
 * few hundred thousand texts made of JSON's own pieces.
 */
#include "tests/unit/unit.h"

#include "base/json_scan.h"

#include <errno.h>
#include <stdlib.h>
#include <yyjson.h>

/* Scans a copy of exactly the text's size, so that a sanitizer sees a read behind its end. */
static int scan_exact(struct span text, enum json_kind *ret_kind, struct json_scan_error *ret_error)
{
    char *copy = malloc(text.len ? text.len : 1);
    assert_non_null(copy);
    if (text.len)
        memcpy(copy, text.ptr, text.len);
    int r = json_scan((struct span){copy, text.len}, NULL, NULL, ret_kind, ret_error);
    free(copy);
    return r;
}

static void valid_texts(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        enum json_kind kind;
    } cases[] = {
        {"{}", JSON_KIND_OBJECT},
        {" \t\r\n{ \"a\" : 1 , \"b\" : [ ] } \n", JSON_KIND_OBJECT},
        {"[1,2.5,-0,-0.0e-0,1E+2,1e999,123456789012345678901234567890]", JSON_KIND_ARRAY},
        {"[[],[[]],{},[{}],{\"a\":{}}]", JSON_KIND_ARRAY},
        {"\"\"", JSON_KIND_STRING},
        {"\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u0000\\uFFFF\\ud83d\\uDE00\"", JSON_KIND_STRING},
        {"\"\x7f\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80\"", JSON_KIND_STRING},
        {"0", JSON_KIND_NUMBER},
        {"-1", JSON_KIND_NUMBER},
        {"true", JSON_KIND_TRUE},
        {"false", JSON_KIND_FALSE},
        {"null", JSON_KIND_NULL},
        {"{\"a\":1,\"a\":2}", JSON_KIND_OBJECT},
        {"{\"\":null}", JSON_KIND_OBJECT},
    };
    for (size_t i = 0; i < UNIT_COUNT(cases); i++) {
        enum json_kind kind = JSON_KIND_NONE;
        struct json_scan_error error = {0, "untouched"};
        int r = scan_exact(span_from_str(cases[i].text), &kind, &error);
        if (r != 0 || kind != cases[i].kind)
            fail_msg("%s: %d, kind %d, %s at %zu", cases[i].text, r, (int)kind, error.message,
                     error.offset);
        assert_string_equal(error.message, "untouched");
    }
}

static void errors_have_the_exact_place(void **state)
{
    (void)state;
    static const struct {
        struct span text;
        size_t offset;
        const char *message;
    } cases[] = {
        {SPAN_LIT(""), 0, "the text is empty; expected a value"},
        {SPAN_LIT(" \n "), 3, "the text is empty; expected a value"},
        {SPAN_LIT("\xEF\xBB\xBF{}"), 0, "a byte order mark is not allowed before a value"},
        {SPAN_LIT("{"), 1, "the text ends inside an object"},
        {SPAN_LIT("{\"a\""), 4, "the text ends inside an object"},
        {SPAN_LIT("{\"a\": "), 6, "the text ends inside an object"},
        {SPAN_LIT("{\"a\":1"), 6, "the text ends inside an object"},
        {SPAN_LIT("{\"a\":1,"), 7, "the text ends inside an object"},
        {SPAN_LIT("["), 1, "the text ends inside an array"},
        {SPAN_LIT("[1,"), 3, "the text ends inside an array"},
        {SPAN_LIT("{\"a\":[{}"), 8, "the text ends inside an array"},
        {SPAN_LIT("{a:1}"), 1, "expected a key in double quotes"},
        {SPAN_LIT("{'a':1}"), 1, "expected a key in double quotes"},
        {SPAN_LIT("{\"a\":1,}"), 7, "expected a key in double quotes"},
        {SPAN_LIT("{\"a\" 1}"), 5, "expected ':' after a key"},
        {SPAN_LIT("{\"a\"}"), 4, "expected ':' after a key"},
        {SPAN_LIT("{\"a\":}"), 5, "expected a value"},
        {SPAN_LIT("{\"a\":1 \"b\":2}"), 7, "expected ',' or '}' after a value"},
        {SPAN_LIT("{\"a\":1]"), 6, "expected ',' or '}' after a value"},
        {SPAN_LIT("[1 2]"), 3, "expected ',' or ']' after a value"},
        {SPAN_LIT("[1}"), 2, "expected ',' or ']' after a value"},
        {SPAN_LIT("[1,]"), 3, "expected a value"},
        {SPAN_LIT("[,1]"), 1, "expected a value"},
        {SPAN_LIT("// x\n1"), 0, "expected a value"},
        {SPAN_LIT("NaN"), 0, "expected a value"},
        {SPAN_LIT("Infinity"), 0, "expected a value"},
        {SPAN_LIT("+1"), 0, "expected a value"},
        {SPAN_LIT(".5"), 0, "expected a value"},
        {SPAN_LIT("{} {}"), 3, "unexpected text after the value"},
        {SPAN_LIT("1 x"), 2, "unexpected text after the value"},
        {SPAN_LIT("{}\0"), 2, "unexpected text after the value"},
        {SPAN_LIT("[1]]"), 3, "unexpected text after the value"},
        {SPAN_LIT("\"\\x\""), 2, "unknown escape after '\\' in a string"},
        {SPAN_LIT("\"\\u12G4\""), 5, "expected four hexadecimal digits after \\u"},
        {SPAN_LIT("\"\\u12"), 5, "the text ends inside a string"},
        {SPAN_LIT("\"\\u"), 3, "the text ends inside a string"},
        {SPAN_LIT("\"\\"), 2, "the text ends inside a string"},
        {SPAN_LIT("\"abc"), 4, "the text ends inside a string"},
        {SPAN_LIT("\"\\ud83d"), 7, "the text ends inside a string"},
        {SPAN_LIT("\"\\ud83d\\"), 8, "the text ends inside a string"},
        {SPAN_LIT("\"\\ud83d\\u"), 9, "the text ends inside a string"},
        {SPAN_LIT("\"\\ud83d\\uDE0x\""), 12, "expected four hexadecimal digits after \\u"},
        {SPAN_LIT("\"..\\ud83d\""), 3, "unpaired surrogate in a \\u escape"},
        {SPAN_LIT("\"..\\ud83dx\""), 3, "unpaired surrogate in a \\u escape"},
        {SPAN_LIT("\"..\\ud83d\\n\""), 3, "unpaired surrogate in a \\u escape"},
        {SPAN_LIT("\"..\\ud83d\\u0041\""), 3, "unpaired surrogate in a \\u escape"},
        {SPAN_LIT("\"..\\uDE00\""), 3, "unpaired surrogate in a \\u escape"},
        {SPAN_LIT("\"a\nb\""), 2, "control character in a string must be written as an escape"},
        {SPAN_LIT("\"12345678901234567\t\""), 18,
         "control character in a string must be written as an escape"},
        {SPAN_LIT("\"a\0b\""), 2, "control character in a string must be written as an escape"},
        {SPAN_LIT("\"a\xFF\""), 2, "invalid UTF-8 in a string"},
        {SPAN_LIT("\"\xC3\xA9\xED\xA0\x80\""), 3, "invalid UTF-8 in a string"},
        {SPAN_LIT("\"\xC0\x80\""), 1, "invalid UTF-8 in a string"},
        {SPAN_LIT("\"abc\xE2\x82"), 4, "invalid UTF-8 in a string"},
        {SPAN_LIT("\"abc\xE2\x82\""), 4, "invalid UTF-8 in a string"},
        {SPAN_LIT("-"), 1, "the text ends inside a number"},
        {SPAN_LIT("-x"), 1, "expected a digit after '-'"},
        {SPAN_LIT("01"), 1, "a number must not begin with a zero"},
        {SPAN_LIT("-01"), 2, "a number must not begin with a zero"},
        {SPAN_LIT("1."), 2, "the text ends inside a number"},
        {SPAN_LIT("[1.]"), 3, "expected a digit after '.'"},
        {SPAN_LIT("1e"), 2, "the text ends inside a number"},
        {SPAN_LIT("[1e+]"), 4, "expected a digit in the exponent"},
        {SPAN_LIT("tru"), 3, "the text ends inside true, false or null"},
        {SPAN_LIT("trux"), 3, "unknown word: only true, false and null are allowed"},
        {SPAN_LIT("nul]"), 3, "unknown word: only true, false and null are allowed"},
        {SPAN_LIT("fALSE"), 1, "unknown word: only true, false and null are allowed"},
        {SPAN_LIT("truex"), 4, "unexpected text after the value"},
    };
    for (size_t i = 0; i < UNIT_COUNT(cases); i++) {
        enum json_kind kind = (enum json_kind)99;
        struct json_scan_error error = {SIZE_MAX, ""};
        int r = scan_exact(cases[i].text, &kind, &error);
        if (r != -EBADMSG || error.offset != cases[i].offset ||
            strcmp(error.message, cases[i].message) != 0)
            fail_msg("%.*s: %d, \"%s\" at %zu, expected \"%s\" at %zu", SPAN_FMT(cases[i].text), r,
                     error.message, error.offset, cases[i].message, cases[i].offset);
        assert_int_equal(kind, 99);
    }
    assert_int_equal(json_scan(SPAN_LIT("["), NULL, NULL, &(enum json_kind){0}, NULL), -EBADMSG);
    assert_int_equal(json_scan(SPAN_NONE, NULL, NULL, &(enum json_kind){0}, NULL), -EBADMSG);
}

/* Every byte, at the start of a string and where eight and sixteen bytes are looked at together. */
static void every_byte_in_a_string(void **state)
{
    (void)state;
    for (unsigned c = 0; c < 256; c++) {
        for (size_t at = 1; at < 35; at++) {
            char text[40];
            memset(text, 'x', sizeof(text));
            text[0] = '"';
            text[at] = (char)c;
            text[39] = '"';
            enum json_kind kind;
            struct json_scan_error error;
            int r = scan_exact((struct span){text, sizeof(text)}, &kind, &error);
            bool good = c >= 0x20 && c < 0x80 && c != '"' && c != '\\';
            if ((r == 0) != good)
                fail_msg("byte %02x at %zu: %d", c, at, r);
            /* Behind a quote the text is over; behind a backslash the x is wrong. */
            if (!good && error.offset != at + (c == '"' || c == '\\'))
                fail_msg("byte %02x at %zu: error at %zu", c, at, error.offset);
        }
    }
}

/* Wherever a valid text is cut, the verdict is "ends early" with the offset of the cut. */
static void a_cut_text_ends_early(void **state)
{
    (void)state;
    static const char text[] = "{\"k\\u00e9y\":[1.5e+3,true,false,null,\"\\ud83d\\ude00\"],"
                               "\"o\":{\"x\":-0.1},\"s\":\"plain text of some length\"}";
    enum json_kind kind;
    struct json_scan_error error;
    assert_int_equal(scan_exact(span_from_str(text), &kind, &error), 0);
    for (size_t cut = 0; cut + 1 < sizeof(text); cut++) {
        assert_int_equal(scan_exact((struct span){text, cut}, &kind, &error), -EBADMSG);
        if (error.offset != cut)
            fail_msg("cut at %zu: \"%s\" at %zu", cut, error.message, error.offset);
    }
}

static void depth_is_bounded(void **state)
{
    (void)state;
    char text[4 * JSON_SCAN_MAX_DEPTH + 16];
    enum json_kind kind;
    struct json_scan_error error;
    /* Arrays, and objects in arrays so that the bits of neighbours differ. */
    for (unsigned variant = 0; variant < 2; variant++) {
        for (unsigned depth = JSON_SCAN_MAX_DEPTH - 1; depth <= JSON_SCAN_MAX_DEPTH + 1; depth++) {
            size_t n = 0;
            size_t last_open = 0;
            for (unsigned level = 0; level < depth; level++) {
                if (n > 0 && text[n - 1] == '{') {
                    memcpy(text + n, "\"\":", 3);
                    n += 3;
                }
                last_open = n;
                text[n++] = variant && level % 3 == 1 ? '{' : '[';
            }
            for (unsigned level = depth; level-- > 0;)
                text[n++] = variant && level % 3 == 1 ? '}' : ']';
            int r = scan_exact((struct span){text, n}, &kind, &error);
            if (depth <= JSON_SCAN_MAX_DEPTH) {
                if (r != 0)
                    fail_msg("%u levels: %s at %zu", depth, error.message, error.offset);
            } else {
                assert_int_equal(r, -EBADMSG);
                assert_string_equal(error.message, "too deep: more than 512 levels of nesting");
                assert_int_equal(error.offset, last_open);
            }
        }
    }
}

struct seen_members {
    struct json_member list[8];
    size_t count;
};

static void see_member(void *ctx, const struct json_member *m)
{
    struct seen_members *seen = ctx;
    assert_true(seen->count < UNIT_COUNT(seen->list));
    seen->list[seen->count++] = *m;
}

static void members_are_reported_in_place(void **state)
{
    (void)state;
    static const char text[] = " { \"model\" : \"a\\\"b\" ,\"messages\":[{\"role\":\"user\"},[]]\n,"
                               "\"str\\u0065am\":true , \"n\" : -1.5e2,\"x\":{\"model\":1},"
                               "\"model\":null}";
    static const struct {
        const char *key, *value;
        enum json_kind kind;
        bool escape;
    } expected[] = {
        {"model", "\"a\\\"b\"", JSON_KIND_STRING, false},
        {"messages", "[{\"role\":\"user\"},[]]", JSON_KIND_ARRAY, false},
        {"str\\u0065am", "true", JSON_KIND_TRUE, true},
        {"n", "-1.5e2", JSON_KIND_NUMBER, false},
        {"x", "{\"model\":1}", JSON_KIND_OBJECT, false},
        {"model", "null", JSON_KIND_NULL, false},
    };
    struct seen_members seen = {0};
    enum json_kind kind;
    struct json_scan_error error;
    assert_int_equal(json_scan(span_from_str(text), see_member, &seen, &kind, &error), 0);
    assert_int_equal(seen.count, UNIT_COUNT(expected));
    for (size_t i = 0; i < seen.count; i++) {
        assert_span_equal(seen.list[i].key, expected[i].key);
        assert_span_equal(seen.list[i].value, expected[i].value);
        assert_int_equal(seen.list[i].kind, expected[i].kind);
        assert_int_equal(seen.list[i].key_has_escape, expected[i].escape);
        assert_true(seen.list[i].key.ptr > text && seen.list[i].key.ptr < text + sizeof(text));
    }
}

static void only_top_level_objects_have_members(void **state)
{
    (void)state;
    struct seen_members seen = {0};
    enum json_kind kind;
    struct json_scan_error error;
    assert_int_equal(json_scan(SPAN_LIT("[{\"a\":1},{\"b\":2}]"), see_member, &seen, &kind, &error),
                     0);
    assert_int_equal(json_scan(SPAN_LIT("\"a\""), see_member, &seen, &kind, &error), 0);
    assert_int_equal(json_scan(SPAN_LIT("{}"), see_member, &seen, &kind, &error), 0);
    assert_int_equal(seen.count, 0);
    /* Members come before the text is known to be valid, and stop at the error. */
    assert_int_equal(json_scan(SPAN_LIT("{\"a\":1,\"b\":x}"), see_member, &seen, &kind, &error),
                     -EBADMSG);
    assert_int_equal(seen.count, 1);
}

static void strings_are_resolved(void **state)
{
    (void)state;
    static const struct {
        struct span raw;
        int result;
        const char *text;
    } cases[] = {
        {SPAN_LIT("\"\""), 0, ""},
        {SPAN_LIT("\"plain \xC3\xA9\""), 0, "plain \xC3\xA9"},
        {SPAN_LIT("\"\\\"\\\\\\/\\b\\f\\n\\r\\t\""), 0, "\"\\/\b\f\n\r\t"},
        {SPAN_LIT("\"\\u0041\\u00e9\\u20AC\\ud83d\\ude00\""), 0,
         "A\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80"},
        {SPAN_LIT("\"\\uFFFF\\uDBFF\\uDFFF\""), 0, "\xEF\xBF\xBF\xF4\x8F\xBF\xBF"},
        {SPAN_LIT("\"\\u0000\""), -EINVAL, NULL},
        {SPAN_LIT("\"\\ud83d\""), -EINVAL, NULL},
        {SPAN_LIT("\"\\ud83dabcdef\""), -EINVAL, NULL},
        {SPAN_LIT("\"\\ud83d\\u0041\""), -EINVAL, NULL},
        {SPAN_LIT("\"\\ude00\""), -EINVAL, NULL},
        {SPAN_LIT("\"a\0b\""), -EINVAL, NULL},
        {SPAN_LIT("\"\\u12\""), -EINVAL, NULL},
        {SPAN_LIT("\"\\q\""), -EINVAL, NULL},
        {SPAN_LIT("\"\\\""), -EINVAL, NULL},
        {SPAN_LIT("\""), -EINVAL, NULL},
        {SPAN_LIT("12"), -EINVAL, NULL},
        {SPAN_LIT(""), -EINVAL, NULL},
        {SPAN_NONE, -EINVAL, NULL},
    };
    for (size_t i = 0; i < UNIT_COUNT(cases); i++) {
        char out[64];
        assert_int_equal(json_scan_get_string(cases[i].raw, out, sizeof(out)), cases[i].result);
        if (cases[i].result != 0)
            continue;
        assert_string_equal(out, cases[i].text);
        /* The room that is just enough, and every smaller one. */
        size_t need = strlen(cases[i].text) + 1;
        for (size_t room = 0; room <= need; room++) {
            char *small = malloc(room ? room : 1);
            assert_non_null(small);
            assert_int_equal(json_scan_get_string(cases[i].raw, small, room),
                             room < need ? -EMSGSIZE : 0);
            free(small);
        }
    }
}

static void places_are_lines_and_columns(void **state)
{
    (void)state;
    static const struct span text = SPAN_LIT("ab\ncd\n\nx");
    static const struct {
        size_t offset, line, column;
    } cases[] = {{0, 1, 1}, {2, 1, 3}, {3, 2, 1}, {5, 2, 3},
                 {6, 3, 1}, {7, 4, 1}, {8, 4, 2}, {99, 4, 2}};
    size_t line, column;
    for (size_t i = 0; i < UNIT_COUNT(cases); i++) {
        json_scan_locate(text, cases[i].offset, &line, &column);
        assert_int_equal(line, cases[i].line);
        assert_int_equal(column, cases[i].column);
    }
    json_scan_locate(SPAN_NONE, 0, &line, &column);
    assert_int_equal(line, 1);
    assert_int_equal(column, 1);
}

/* A fixed sequence: the same texts on every machine. */
static uint32_t next_random(uint32_t *seed)
{
    *seed ^= *seed << 13;
    *seed ^= *seed >> 17;
    *seed ^= *seed << 5;
    return *seed;
}

static bool yyjson_accepts(const char *text, size_t n)
{
    char *copy = malloc(n + 1);
    assert_non_null(copy);
    memcpy(copy, text, n);
    /* Numbers raw: yyjson refuses those too large for a double, which is no rule of the grammar. */
    yyjson_doc *doc = yyjson_read_opts(copy, n, YYJSON_READ_NUMBER_AS_RAW, NULL, NULL);
    bool accepted = doc != NULL;
    yyjson_doc_free(doc);
    free(copy);
    return accepted;
}

static void same_verdict_as_yyjson(void **state)
{
    (void)state;
    static const struct span pieces[] = {
        SPAN_LIT("{"),
        SPAN_LIT("}"),
        SPAN_LIT("["),
        SPAN_LIT("]"),
        SPAN_LIT(":"),
        SPAN_LIT(","),
        SPAN_LIT("\""),
        SPAN_LIT("\"a\""),
        SPAN_LIT("\"k\":"),
        SPAN_LIT("1"),
        SPAN_LIT("-"),
        SPAN_LIT("0"),
        SPAN_LIT("."),
        SPAN_LIT("e"),
        SPAN_LIT("+"),
        SPAN_LIT("true"),
        SPAN_LIT("false"),
        SPAN_LIT("null"),
        SPAN_LIT(" "),
        SPAN_LIT("\n"),
        SPAN_LIT("\\"),
        SPAN_LIT("\\u0041"),
        SPAN_LIT("\\ud83d"),
        SPAN_LIT("\\ude00"),
        SPAN_LIT("\\n"),
        SPAN_LIT("\xC3\xA9"),
        SPAN_LIT("\xC3"),
        SPAN_LIT("\xF0\x9F\x98\x80"),
        SPAN_LIT("\x80"),
        SPAN_LIT("abcdefghijklmnopqrstuvwxyz"),
        SPAN_LIT("\x01"),
        SPAN_LIT("{\"a\":1}"),
        SPAN_LIT("[1,2]"),
        SPAN_LIT("\0"),
        SPAN_LIT("/"),
        SPAN_LIT("\xED\xA0\x80"),
        SPAN_LIT("\xEF\xBB\xBF"),
    };
    uint32_t seed = 20240607;
    unsigned accepted = 0;
    for (unsigned round = 0; round < 300000; round++) {
        char text[512];
        size_t n = 0;
        unsigned parts = 1 + next_random(&seed) % 12;
        bool in_string = next_random(&seed) % 4 == 0;
        if (in_string)
            text[n++] = '"';
        for (unsigned i = 0; i < parts; i++) {
            struct span piece = pieces[next_random(&seed) % UNIT_COUNT(pieces)];
            memcpy(text + n, piece.ptr, piece.len);
            n += piece.len;
        }
        if (in_string)
            text[n++] = '"';
        enum json_kind kind;
        struct json_scan_error error = {0, "accepted"};
        bool ours = scan_exact((struct span){text, n}, &kind, &error) == 0;
        if (ours != yyjson_accepts(text, n))
            fail_msg("round %u: we say %s for: %.*s", round, error.message, (int)n, text);
        if (!ours && error.offset > n)
            fail_msg("round %u: error behind the end", round);
        accepted += ours;
    }
    /* The comparison means something only if both verdicts occur. */
    assert_in_range(accepted, 3000, 297000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(valid_texts),
        cmocka_unit_test(errors_have_the_exact_place),
        cmocka_unit_test(every_byte_in_a_string),
        cmocka_unit_test(a_cut_text_ends_early),
        cmocka_unit_test(depth_is_bounded),
        cmocka_unit_test(members_are_reported_in_place),
        cmocka_unit_test(only_top_level_objects_have_members),
        cmocka_unit_test(strings_are_resolved),
        cmocka_unit_test(places_are_lines_and_columns),
        cmocka_unit_test(same_verdict_as_yyjson),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
