/*
 * The log writer. A line is put together on the stack and written with one write(2): lines of
 * several threads never mix, nothing is allocated, and nothing is lost in a buffer when the process
 * dies. Any thread; the level is the only state.
 */
#include "base/log.h"

#include "base/utf8.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    LOG_LINE_BYTES =
        4096, /* with the line feed; at most PIPE_BUF, so a pipe keeps lines whole too */
    LOG_TEXT_BYTES = 4096, /* the text before escaping; more could not be shown anyway */
};

static const char log_cut_mark[] = "\xE2\x80\xA6"; /* … */

static atomic_int log_level_now = LOG_LEVEL_INFO;

void log_set_level(enum log_level level)
{
    atomic_store_explicit(&log_level_now, (int)level, memory_order_relaxed);
}

enum log_level log_get_level(void)
{
    return (enum log_level)atomic_load_explicit(&log_level_now, memory_order_relaxed);
}

static const char *log_level_word(enum log_level level)
{
    static const char *const words[] = {"error", "warning", "info", "debug"};
    return (unsigned)level < sizeof(words) / sizeof(words[0]) ? words[level] : "unknown";
}

/*
 * How a byte sequence of the text is shown: as it is (*ret_taken bytes, the return value equals
 * it), or as \xNN. C1 controls (C2 80 … C2 9F) move a terminal's cursor as the C0 ones do.
 */
static size_t log_escape(const char *p, size_t n, char out[8], size_t *ret_taken)
{
    static const char hex[] = "0123456789abcdef";
    unsigned char c = (unsigned char)p[0];
    size_t sequence = utf8_sequence_length(p, n);
    bool c1_control = sequence == 2 && c == 0xC2 && (unsigned char)p[1] < 0xA0;
    if (sequence == 0 || c < 0x20 || c == 0x7F || c1_control) {
        out[0] = '\\';
        out[1] = 'x';
        out[2] = hex[c >> 4];
        out[3] = hex[c & 15];
        *ret_taken = 1;
        return 4;
    }
    memcpy(out, p, sequence);
    *ret_taken = sequence;
    return sequence;
}

/* Appends text, escaped, to line[len…limit). The new length; ends with the mark when it is cut. */
static size_t log_append_text(char *line, size_t len, size_t limit, const char *text, size_t n,
                              bool already_cut)
{
    size_t fits = len; /* where the mark may go */
    for (size_t i = 0; i < n;) {
        char shown[8];
        size_t taken;
        size_t size = log_escape(text + i, n - i, shown, &taken);
        if (len + size > limit) {
            already_cut = true;
            break;
        }
        memcpy(line + len, shown, size);
        len += size;
        i += taken;
        if (len + sizeof(log_cut_mark) - 1 <= limit)
            fits = len;
    }
    if (!already_cut)
        return len;
    memcpy(line + fits, log_cut_mark, sizeof(log_cut_mark) - 1);
    return fits + sizeof(log_cut_mark) - 1;
}

void log_write(enum log_level level, const char *area, const char *format, ...)
{
    if (level > log_get_level())
        return;
    int saved_errno = errno; /* a log call between a failing call and its check changes nothing */

    struct timespec now = {0, 0};
    struct tm utc = {0};
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &utc);

    char line[LOG_LINE_BYTES];
    size_t len = strftime(line, sizeof(line), "%Y-%m-%dT%H:%M:%S", &utc);
    int head = snprintf(line + len, 128, ".%03dZ %s %.64s: ", (int)(now.tv_nsec / 1000000),
                        log_level_word(level), area);
    len += head > 0 ? (size_t)head : 0;

    char text[LOG_TEXT_BYTES];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    bool cut = n >= (int)sizeof(text);
    size_t text_len = n < 0 ? 0 : cut ? sizeof(text) - 1 : (size_t)n;

    len = log_append_text(line, len, sizeof(line) - 1, text, text_len, cut);
    line[len++] = '\n';

    /* A full or closed stderr must not stop the program; a line that cannot be written is lost. */
    while (write(STDERR_FILENO, line, len) < 0 && errno == EINTR)
        continue;
    errno = saved_errno;
}
