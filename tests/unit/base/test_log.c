/*
 * The log, read through a socket that keeps the bounds of writes: one message is one write(2).
 */
#include "tests/unit/unit.h"

#include "base/log.h"

#include <errno.h>
#include <regex.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static int log_reader = -1;
static int saved_stderr = -1;
static char line[8192];

static int catch_stderr(void **state)
{
    (void)state;
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, pair), 0);
    saved_stderr = dup(STDERR_FILENO);
    assert_int_equal(dup2(pair[1], STDERR_FILENO), STDERR_FILENO);
    close(pair[1]);
    log_reader = pair[0];
    log_set_level(LOG_LEVEL_INFO);
    return 0;
}

static int release_stderr(void **state)
{
    (void)state;
    dup2(saved_stderr, STDERR_FILENO);
    close(saved_stderr);
    close(log_reader);
    return 0;
}

/* The next write as a string; NULL when there was none. */
static const char *next_line(void)
{
    ssize_t n = recv(log_reader, line, sizeof(line) - 1, 0);
    if (n < 0)
        return NULL;
    line[n] = '\0';
    return line;
}

/* Behind `time level area: `. */
static const char *text_of(const char *whole)
{
    assert_non_null(whole);
    const char *at = strstr(whole, "test: ");
    assert_non_null(at);
    return at + strlen("test: ");
}

static void a_line_is_time_level_area_text(void **state)
{
    (void)state;
    time_t before = time(NULL);
    log_warning("worker", "tier %s took %d ms", "gpu", 250);
    time_t after = time(NULL);
    const char *got = next_line();
    assert_non_null(got);
    regex_t pattern;
    assert_int_equal(regcomp(&pattern,
                             "^20[0-9][0-9]-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-6][0-9]"
                             "\\.[0-9][0-9][0-9]Z warning worker: tier gpu took 250 ms\n$",
                             REG_NOSUB | REG_EXTENDED),
                     0);
    int match = regexec(&pattern, got, 0, NULL, 0);
    regfree(&pattern);
    if (match != 0)
        fail_msg("got \"%s\"", got);
    assert_null(next_line());

    /* UTC whatever the time zone, and now. */
    struct tm utc = {0};
    assert_non_null(strptime(got, "%Y-%m-%dT%H:%M:%S", &utc));
    time_t written = timegm(&utc);
    assert_true(written >= before && written <= after);
}

static void levels_are_words_and_filter(void **state)
{
    (void)state;
    log_error("test", "e");
    assert_non_null(strstr(next_line(), "Z error test: e\n"));
    log_info("test", "i");
    assert_non_null(strstr(next_line(), "Z info test: i\n"));
    log_debug("test", "d");
    assert_null(next_line());
    log_set_level(LOG_LEVEL_DEBUG);
    assert_int_equal(log_get_level(), LOG_LEVEL_DEBUG);
    log_debug("test", "d");
    assert_non_null(strstr(next_line(), "Z debug test: d\n"));
    log_set_level(LOG_LEVEL_ERROR);
    log_warning("test", "w");
    assert_null(next_line());
    log_error("test", "e");
    assert_non_null(next_line());
}

static void nothing_can_forge_a_line(void **state)
{
    (void)state;
    log_info("test", "%s", "a\nb\r\tc\x1b[2J\x7f");
    assert_string_equal(text_of(next_line()), "a\\x0ab\\x0d\\x09c\\x1b[2J\\x7f\n");
    assert_null(next_line());
    /* C1 controls are controls too; other text stays readable; invalid UTF-8 is shown as bytes. */
    log_info("test", "%s", "\xC2\x9B\x41 \xC3\xA9 \xE2\x82\xAC \xFF\xC3");
    assert_string_equal(text_of(next_line()), "\\xc2\\x9bA \xC3\xA9 \xE2\x82\xAC \\xff\\xc3\n");
}

static void a_long_line_is_cut_with_a_mark(void **state)
{
    (void)state;
    enum { LONG = 10000 };
    char *text = malloc(LONG + 1);
    assert_non_null(text);
    for (unsigned shift = 0; shift < 6; shift++) {
        /* Plain, three-byte characters at every alignment, and text that grows when escaped. */
        memset(text, 'x', LONG);
        for (size_t i = shift; shift > 0 && i + 3 <= LONG; i += 3)
            memcpy(text + i, "\xE2\x82\xAC", 3);
        if (shift == 5)
            memset(text, '\n', LONG);
        text[LONG] = '\0';
        log_info("test", "%s", text);
        const char *got = next_line();
        assert_non_null(got);
        size_t n = strlen(got);
        assert_true(n <= 4096 && n >= 4085);
        assert_memory_equal(got + n - 4, "\xE2\x80\xA6\n", 4);
        assert_null(next_line());
        /* Whole characters up to the mark. */
        if (shift > 0 && shift < 5)
            assert_memory_equal(got + n - 7, "\xE2\x82\xAC", 3);
    }
    /* The longest line that fits is not cut. */
    log_info("test", "x");
    size_t head = strlen(next_line()) - 2;
    memset(text, 'x', LONG);
    text[4096 - 1 - head] = '\0';
    log_info("test", "%s", text);
    assert_int_equal(strlen(next_line()), 4096);
    assert_null(strstr(line, "\xE2\x80\xA6"));
    free(text);
}

static void errno_survives(void **state)
{
    (void)state;
    errno = EXDEV;
    log_error("test", "x");
    assert_int_equal(errno, EXDEV);
    /* Also when stderr is gone. */
    int here = dup(STDERR_FILENO);
    close(STDERR_FILENO);
    errno = EXDEV;
    log_error("test", "x");
    assert_int_equal(errno, EXDEV);
    dup2(here, STDERR_FILENO);
    close(here);
}

int main(void)
{
    setenv("TZ", "Asia/Kolkata", 1);
    tzset();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_line_is_time_level_area_text, catch_stderr,
                                        release_stderr),
        cmocka_unit_test_setup_teardown(levels_are_words_and_filter, catch_stderr, release_stderr),
        cmocka_unit_test_setup_teardown(nothing_can_forge_a_line, catch_stderr, release_stderr),
        cmocka_unit_test_setup_teardown(a_long_line_is_cut_with_a_mark, catch_stderr,
                                        release_stderr),
        cmocka_unit_test_setup_teardown(errno_survives, catch_stderr, release_stderr),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
