/*
 * Verdicts on the first bytes of a file (field cases F128, F131).
 */
#include "unit.h"

#include "model/gguf_magic.h"

#include <errno.h>
#include <string.h>

struct magic_case {
    const char *bytes;
    size_t len;
    uint64_t file_bytes;
    enum gguf_magic_verdict verdict;
    const char *text;
};

#define HEAD(version, tensors, metadata)                                                           \
    "GGUF" version "\0\0\0" tensors "\0\0\0\0\0\0\0" metadata "\0\0\0\0\0\0\0"
#define CASE(s, file, v, t)                                                                        \
    {                                                                                              \
        (s), sizeof(s) - 1, (file), GGUF_MAGIC_##v, (t)                                            \
    }

static const struct magic_case cases[] = {
    CASE(HEAD("\3", "\1", "\1"), 1000, OK, "is a GGUF file"),
    CASE(HEAD("\2", "\1", "\1"), 1000, OK, "is a GGUF file"),
    CASE("", 0, EMPTY, "is empty"),
    CASE("<!DOCTYPE html>", 900, NOT_GGUF, "begins with `<!DO`; a web page"),
    CASE("<html>", 900, NOT_GGUF, "a web page"),
    CASE("version https://git-lfs.github.com/spec/v1", 130, NOT_GGUF, "a Git LFS pointer?"),
    CASE("\0\0\0\0\0\0\0\0", 900, NOT_GGUF, "begins with `\\x00\\x00\\x00\\x00`; an unfinished"),
    CASE("PK\3\4abcdefgh", 900, NOT_GGUF, "a zip or PyTorch file?"),
    CASE("\xd8\2\0\0\0\0\0\0{\"a\"", 900, NOT_GGUF, "a safetensors file?"),
    CASE("\x1b[2Jabcd", 900, NOT_GGUF, "begins with `\\x1b[2J`"),
    CASE("``\\\xff", 4, NOT_GGUF, "begins with `\\x60\\x60\\x5c\\xff`"),
    CASE("G", 1, TRUNCATED, "the header needs 24 bytes, the file has 1"),
    CASE("GGUF", 4, TRUNCATED, "the file has 4"),
    CASE("GGUF\3\0\0\0\1\0\0\0\0\0\0\0", 16, TRUNCATED, "the file has 16"),
    CASE("FUGG\0\0\0\3", 900, BIG_ENDIAN, "big-endian"),
    CASE("GGUF\0\0\0\3\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0\1", 900, BIG_ENDIAN, "big-endian"),
    CASE(HEAD("\1", "\1", "\1"), 900, BAD_VERSION, "has GGUF version 1; known are 2 to 3"),
    CASE(HEAD("\4", "\1", "\1"), 900, BAD_VERSION, "has GGUF version 4"),
    CASE(HEAD("\0", "\1", "\1"), 900, BAD_VERSION, "has GGUF version 0"),
    CASE(HEAD("\3", "\0", "\1"), 900, NO_TENSORS, "has no weights"),
    CASE(HEAD("\3", "\x7f", "\1"), 900, TRUNCATED, "announces 127 tensors and 1 metadata"),
    CASE("GGUF\3\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 900,
         TRUNCATED, "more than its 900 bytes can hold"),
    CASE("GGUF\3\0\0\0\1\0\0\0\0\0\0\0\xff\xff\xff\xff\xff\xff\xff\x7f", 32, TRUNCATED,
         "announces"),
};

static void test_judge(void **state)
{
    (void)state;
    for (size_t i = 0; i < UNIT_COUNT(cases); i++) {
        const struct magic_case *c = &cases[i];
        struct gguf_magic m;
        char text[256];

        gguf_magic_judge((const unsigned char *)c->bytes, c->len, c->file_bytes, &m);
        gguf_magic_describe(&m, text, sizeof(text));
        if (m.verdict != c->verdict || !strstr(text, c->text))
            fail_msg("case %zu: verdict %d, %s; expected %d, %s", i, (int)m.verdict, text,
                     (int)c->verdict, c->text);
    }
}

static void test_files(void **state)
{
    struct gguf_magic m;

    (void)state;
    assert_int_equal(gguf_magic_read_file("/nowhere", &m), -ENOENT);
    assert_int_equal(gguf_magic_read_file("/", &m), 0);
    assert_int_equal(m.verdict, GGUF_MAGIC_FOLDER);
    assert_int_equal(gguf_magic_read_file("/dev/zero", &m), 0);
    assert_int_equal(m.verdict, GGUF_MAGIC_NOT_A_FILE);
    assert_int_equal(gguf_magic_read_file("/bin/sh", &m), 0);
    assert_int_equal(m.verdict, GGUF_MAGIC_NOT_GGUF);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_judge), cmocka_unit_test(test_files)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
