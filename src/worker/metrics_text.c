/* The text format of metrics; see metrics_text.h. */
#include "worker/metrics_text.h"

#include <stdlib.h>
#include <string.h>

enum { METRICS_NUMBER_BYTES = 48 };

static struct span skip(struct span s, size_t n)
{
    return (struct span){s.ptr + n, s.len - n};
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

static struct span take_line(struct span *rest)
{
    const char *end = memchr(rest->ptr, '\n', rest->len);
    size_t len = end ? (size_t)(end - rest->ptr) : rest->len;
    struct span line = {rest->ptr, len};

    *rest = skip(*rest, end ? len + 1 : len);
    if (line.len > 0 && line.ptr[line.len - 1] == '\r')
        line.len--;
    return span_trim(line);
}

/* Length of the label set including both braces; 0: it does not end. */
static size_t label_set_length(struct span s)
{
    bool quoted = false;

    for (size_t i = 1; i < s.len; i++) {
        if (quoted && s.ptr[i] == '\\')
            i++;
        else if (s.ptr[i] == '"')
            quoted = !quoted;
        else if (!quoted && s.ptr[i] == '}')
            return i + 1;
    }
    return 0;
}

/* A time may stand behind the value: only the first word is it. */
static bool parse_value(struct span s, double *ret_value)
{
    char text[METRICS_NUMBER_BYTES];
    size_t n = 0;
    char *end;
    double value;

    s = span_trim(s);
    while (n < s.len && !is_blank(s.ptr[n]))
        n++;
    if (n == 0 || n >= sizeof(text))
        return false;
    memcpy(text, s.ptr, n);
    text[n] = '\0';
    value = strtod(text, &end);
    if (*end != '\0')
        return false;
    *ret_value = value;
    return true;
}

static bool parse_sample(struct span line, struct metrics_sample *ret)
{
    size_t n = 0, set = 0;

    while (n < line.len && line.ptr[n] != '{' && !is_blank(line.ptr[n]))
        n++;
    if (n == 0 || n == line.len || line.ptr[0] == '#')
        return false;
    ret->name = (struct span){line.ptr, n};
    line = span_trim(skip(line, n));
    ret->labels = SPAN_LIT("");
    if (line.len > 0 && line.ptr[0] == '{') {
        set = label_set_length(line);
        if (set == 0)
            return false;
        ret->labels = (struct span){line.ptr + 1, set - 2};
    }
    return parse_value(skip(line, set), &ret->value);
}

bool metrics_next(struct span *rest, struct metrics_sample *ret_sample)
{
    while (rest->len > 0) {
        struct metrics_sample sample;

        if (parse_sample(take_line(rest), &sample)) {
            *ret_sample = sample;
            return true;
        }
    }
    return false;
}

bool metrics_label(struct span labels, const char *name, struct span *ret_value)
{
    while (labels.len > 0) {
        size_t equals = 0, i;

        while (equals < labels.len && labels.ptr[equals] != '=')
            equals++;
        i = equals + 1;
        while (i < labels.len && is_blank(labels.ptr[i]))
            i++;
        if (i >= labels.len || labels.ptr[i] != '"')
            return false;
        size_t start = ++i;
        while (i < labels.len && labels.ptr[i] != '"')
            i += labels.ptr[i] == '\\' ? 2 : 1;
        if (i >= labels.len)
            return false;
        if (span_equals_str(span_trim((struct span){labels.ptr, equals}), name)) {
            *ret_value = (struct span){labels.ptr + start, i - start};
            return true;
        }
        labels = span_trim(skip(labels, i + 1));
        if (labels.len > 0 && labels.ptr[0] == ',')
            labels = span_trim(skip(labels, 1));
    }
    return false;
}

bool metrics_label_u64(struct span labels, const char *name, uint64_t *ret_value)
{
    struct span text;
    uint64_t value = 0;

    if (!metrics_label(labels, name, &text) || text.len == 0 || text.len > 18)
        return false;
    for (size_t i = 0; i < text.len; i++) {
        if (text.ptr[i] < '0' || text.ptr[i] > '9')
            return false;
        value = value * 10 + (uint64_t)(text.ptr[i] - '0');
    }
    *ret_value = value;
    return true;
}
