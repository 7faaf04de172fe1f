/*
 * The JSON scanner: a loop over states with one bit a level of nesting (object or array), so
 * neither the stack nor the heap grows with the input. Grammar of RFC 8259, and of what it leaves
 * open: text is UTF-8 without a byte order mark, and a \u escape of half a surrogate pair is
 * refused (§8.2 calls its effect unpredictable; engines answer it with an error of their own).
 * Duplicate keys and numbers of any size are the caller's business.
 *
 *            ┌──────── ',' in an array ─────────┐
 *            ▼                                  │
 *   VALUE ──┬─ scalar ─────────────────────► AFTER ── depth 0 ──► end
 *           ├─ '[' ► FIRST_ITEM ─ ']' ────────► ▲ │
 *           │           └─ else ► VALUE         │ │ '}' or ']' closes a level
 *           └─ '{' ► FIRST_KEY ── '}' ──────────┘ │
 *                       └─ else ► KEY ► VALUE     │
 *                                  ▲              │
 *                                  └─ ',' in an object
 *
 * Pure; any thread.
 */
#include "base/json_scan.h"

#include "base/swar.h"
#include "base/utf8.h"

#include <errno.h>
#include <stdint.h>

enum scan_state {
    SCAN_VALUE,
    SCAN_FIRST_ITEM,
    SCAN_FIRST_KEY,
    SCAN_KEY,
    SCAN_AFTER,
    SCAN_END,
    SCAN_FAILED,
};

struct scanner {
    const char *begin, *p, *end;
    unsigned depth;
    uint64_t is_object[JSON_SCAN_MAX_DEPTH / 64];
    enum json_kind kind; /* of the whole text */
    struct json_member member;
    void (*on_member)(void *ctx, const struct json_member *m);
    void *ctx;
    struct json_scan_error error;
};

/* Bytes that end the fast skipping of a string: quote, backslash, controls, non-ASCII. */
#define STOP_ROW(v) v, v, v, v, v, v, v, v, v, v, v, v, v, v, v, v
static const bool string_stop[256] = {
    STOP_ROW(true),         STOP_ROW(true), ['"'] = true,   ['\\'] = true,
    [128] = STOP_ROW(true), STOP_ROW(true), STOP_ROW(true), STOP_ROW(true),
    STOP_ROW(true),         STOP_ROW(true), STOP_ROW(true), STOP_ROW(true),
};

static enum scan_state fail(struct scanner *s, const char *at, const char *message)
{
    s->error = (struct json_scan_error){(size_t)(at - s->begin), message};
    return SCAN_FAILED;
}

static void skip_space(struct scanner *s)
{
    const char *p = s->p;
    while (p < s->end && (*p == ' ' || *p == '\n' || *p == '\t' || *p == '\r'))
        p++;
    s->p = p;
}

static int hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

/* Reads the four digits of \uXXXX at p; -1 with *ret_wrong at the first byte that is no digit. */
static int32_t take_hex4(const char *p, const char *end, const char **ret_wrong)
{
    int32_t value = 0;
    for (int i = 0; i < 4; i++, p++) {
        int digit = p < end ? hex_value(*p) : -1;
        if (digit < 0) {
            *ret_wrong = p;
            return -1;
        }
        value = value * 16 + digit;
    }
    return value;
}

static bool is_high_surrogate(int32_t code)
{
    return code >= 0xD800 && code <= 0xDBFF;
}

static bool is_low_surrogate(int32_t code)
{
    return code >= 0xDC00 && code <= 0xDFFF;
}

/* s->p is at the backslash of \u. Checks the escape and, for a high surrogate, its other half. */
static bool scan_unicode_escape(struct scanner *s)
{
    const char *escape = s->p;
    const char *wrong = NULL;
    int32_t code = take_hex4(escape + 2, s->end, &wrong);
    if (code < 0)
        goto not_hex;
    s->p = escape + 6;
    if (is_low_surrogate(code)) {
        fail(s, escape, "unpaired surrogate in a \\u escape");
        return false;
    }
    if (!is_high_surrogate(code))
        return true;
    const char *second = s->p;
    if (second == s->end || (second[0] == '\\' && second + 1 == s->end)) {
        fail(s, s->end, "the text ends inside a string");
        return false;
    }
    if (second[0] != '\\' || second[1] != 'u') {
        fail(s, escape, "unpaired surrogate in a \\u escape");
        return false;
    }
    code = take_hex4(second + 2, s->end, &wrong);
    if (code < 0)
        goto not_hex;
    if (!is_low_surrogate(code)) {
        fail(s, escape, "unpaired surrogate in a \\u escape");
        return false;
    }
    s->p = second + 6;
    return true;

not_hex:
    fail(s, wrong,
         wrong == s->end ? "the text ends inside a string"
                         : "expected four hexadecimal digits after \\u");
    return false;
}

/* s->p is at a backslash. */
static bool scan_escape(struct scanner *s)
{
    if (s->p + 1 == s->end) {
        fail(s, s->end, "the text ends inside a string");
        return false;
    }
    switch (s->p[1]) {
    case '"':
    case '\\':
    case '/':
    case 'b':
    case 'f':
    case 'n':
    case 'r':
    case 't': s->p += 2; return true;
    case 'u': return scan_unicode_escape(s);
    default: fail(s, s->p + 1, "unknown escape after '\\' in a string"); return false;
    }
}

static const char *skip_plain(const char *p, const char *end)
{
    while (end - p >= 16) {
        uint64_t a = swar_load(p);
        uint64_t b = swar_load(p + 8);
        uint64_t stop = swar_has_byte(a, '"') | swar_has_byte(a, '\\') | swar_has_below(a, 0x20) |
                        swar_has_high(a) | swar_has_byte(b, '"') | swar_has_byte(b, '\\') |
                        swar_has_below(b, 0x20) | swar_has_high(b);
        if (stop)
            break;
        p += 16;
    }
    while (p < end && !string_stop[(unsigned char)*p])
        p++;
    return p;
}

/* s->p is at the opening quote; afterwards behind the closing one. */
static bool scan_string(struct scanner *s, bool *ret_has_escape)
{
    bool has_escape = false;
    s->p++;
    for (;;) {
        s->p = skip_plain(s->p, s->end);
        if (s->p == s->end) {
            fail(s, s->end, "the text ends inside a string");
            return false;
        }
        unsigned char c = (unsigned char)*s->p;
        if (c == '"')
            break;
        if (c == '\\') {
            has_escape = true;
            if (!scan_escape(s))
                return false;
        } else if (c < 0x20) {
            fail(s, s->p, "control character in a string must be written as an escape");
            return false;
        } else {
            /* Text that is not ASCII seldom comes as a single character. */
            while (s->p < s->end && (unsigned char)*s->p >= 0x80) {
                size_t n = utf8_sequence_length(s->p, (size_t)(s->end - s->p));
                if (n == 0) {
                    fail(s, s->p, "invalid UTF-8 in a string");
                    return false;
                }
                s->p += n;
            }
        }
    }
    s->p++;
    *ret_has_escape = has_escape;
    return true;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* At least one digit; false with the error set when there is none. */
static bool skip_digits(struct scanner *s, const char *message)
{
    const char *p = s->p;
    while (p < s->end && is_digit(*p))
        p++;
    if (p == s->p) {
        fail(s, p, p == s->end ? "the text ends inside a number" : message);
        return false;
    }
    s->p = p;
    return true;
}

static bool scan_number(struct scanner *s)
{
    if (*s->p == '-')
        s->p++;
    if (s->p < s->end && *s->p == '0') {
        s->p++;
        if (s->p < s->end && is_digit(*s->p)) {
            fail(s, s->p, "a number must not begin with a zero");
            return false;
        }
    } else if (!skip_digits(s, "expected a digit after '-'")) {
        return false;
    }
    if (s->p < s->end && *s->p == '.') {
        s->p++;
        if (!skip_digits(s, "expected a digit after '.'"))
            return false;
    }
    if (s->p < s->end && (*s->p == 'e' || *s->p == 'E')) {
        s->p++;
        if (s->p < s->end && (*s->p == '+' || *s->p == '-'))
            s->p++;
        if (!skip_digits(s, "expected a digit in the exponent"))
            return false;
    }
    return true;
}

static bool scan_word(struct scanner *s, const char *word)
{
    for (; *word; word++, s->p++) {
        if (s->p == s->end) {
            fail(s, s->end, "the text ends inside true, false or null");
            return false;
        }
        if (*s->p != *word) {
            fail(s, s->p, "unknown word: only true, false and null are allowed");
            return false;
        }
    }
    return true;
}

static enum json_kind kind_of_first_byte(char c)
{
    switch (c) {
    case '{': return JSON_KIND_OBJECT;
    case '[': return JSON_KIND_ARRAY;
    case '"': return JSON_KIND_STRING;
    case 't': return JSON_KIND_TRUE;
    case 'f': return JSON_KIND_FALSE;
    case 'n': return JSON_KIND_NULL;
    default: return c == '-' || is_digit(c) ? JSON_KIND_NUMBER : JSON_KIND_NONE;
    }
}

static bool scan_scalar(struct scanner *s, enum json_kind kind)
{
    bool has_escape;
    switch (kind) {
    case JSON_KIND_STRING: return scan_string(s, &has_escape);
    case JSON_KIND_NUMBER: return scan_number(s);
    case JSON_KIND_TRUE: return scan_word(s, "true");
    case JSON_KIND_FALSE: return scan_word(s, "false");
    case JSON_KIND_NULL: return scan_word(s, "null");
    default: fail(s, s->p, "expected a value"); return false;
    }
}

static bool in_object(const struct scanner *s)
{
    unsigned level = s->depth - 1;
    return s->is_object[level / 64] >> (level % 64) & 1;
}

static enum scan_state open_level(struct scanner *s, bool is_object)
{
    if (s->depth == JSON_SCAN_MAX_DEPTH)
        return fail(s, s->p, "too deep: more than 512 levels of nesting");
    uint64_t bit = UINT64_C(1) << (s->depth % 64);
    if (is_object)
        s->is_object[s->depth / 64] |= bit;
    else
        s->is_object[s->depth / 64] &= ~bit;
    s->depth++;
    s->p++;
    return is_object ? SCAN_FIRST_KEY : SCAN_FIRST_ITEM;
}

static enum scan_state close_level(struct scanner *s)
{
    s->depth--;
    s->p++;
    return SCAN_AFTER;
}

static enum scan_state ends_early(struct scanner *s)
{
    if (s->depth == 0)
        return fail(s, s->end, "the text is empty; expected a value");
    return fail(s, s->end,
                in_object(s) ? "the text ends inside an object" : "the text ends inside an array");
}

static enum scan_state step_value(struct scanner *s)
{
    enum json_kind kind = kind_of_first_byte(*s->p);
    if (s->depth == 0) {
        s->kind = kind;
    } else if (s->depth == 1) {
        s->member.value.ptr = s->p;
        s->member.kind = kind;
    }
    if (kind == JSON_KIND_OBJECT || kind == JSON_KIND_ARRAY)
        return open_level(s, kind == JSON_KIND_OBJECT);
    return scan_scalar(s, kind) ? SCAN_AFTER : SCAN_FAILED;
}

static enum scan_state step_key(struct scanner *s)
{
    if (*s->p != '"')
        return fail(s, s->p, "expected a key in double quotes");
    const char *open = s->p;
    bool has_escape;
    if (!scan_string(s, &has_escape))
        return SCAN_FAILED;
    if (s->depth == 1) {
        s->member.key = (struct span){open + 1, (size_t)(s->p - open) - 2};
        s->member.key_has_escape = has_escape;
    }
    skip_space(s);
    if (s->p == s->end)
        return ends_early(s);
    if (*s->p != ':')
        return fail(s, s->p, "expected ':' after a key");
    s->p++;
    return SCAN_VALUE;
}

/* A value has ended; s->p is at what follows it, white space skipped. */
static enum scan_state step_after(struct scanner *s)
{
    if (s->p == s->end)
        return ends_early(s);
    if (in_object(s)) {
        if (*s->p == '}')
            return close_level(s);
        if (*s->p != ',')
            return fail(s, s->p, "expected ',' or '}' after a value");
        s->p++;
        return SCAN_KEY;
    }
    if (*s->p == ']')
        return close_level(s);
    if (*s->p != ',')
        return fail(s, s->p, "expected ',' or ']' after a value");
    s->p++;
    return SCAN_VALUE;
}

static void report_member(struct scanner *s)
{
    if (s->depth != 1 || !s->on_member || !in_object(s))
        return;
    s->member.value.len = (size_t)(s->p - s->member.value.ptr);
    s->on_member(s->ctx, &s->member);
}

static enum scan_state scan_step(struct scanner *s, enum scan_state state)
{
    if (state == SCAN_AFTER) {
        report_member(s);
        if (s->depth == 0)
            return SCAN_END;
        skip_space(s);
        return step_after(s);
    }
    skip_space(s);
    if (s->p == s->end)
        return ends_early(s);
    switch (state) {
    case SCAN_FIRST_ITEM: return *s->p == ']' ? close_level(s) : step_value(s);
    case SCAN_FIRST_KEY: return *s->p == '}' ? close_level(s) : step_key(s);
    case SCAN_KEY: return step_key(s);
    default: return step_value(s);
    }
}

int json_scan(struct span text, void (*on_member)(void *ctx, const struct json_member *m),
              void *ctx, enum json_kind *ret_kind, struct json_scan_error *ret_error)
{
    /* An empty span may have no pointer; arithmetic needs one. */
    const char *begin = text.len ? text.ptr : "";
    struct scanner s = {
        .begin = begin,
        .p = begin,
        .end = begin + text.len,
        .on_member = on_member,
        .ctx = ctx,
    };
    enum scan_state state = SCAN_VALUE;
    if (text.len >= 3 && memcmp(begin, "\xEF\xBB\xBF", 3) == 0)
        state = fail(&s, begin, "a byte order mark is not allowed before a value");
    while (state != SCAN_END && state != SCAN_FAILED)
        state = scan_step(&s, state);
    if (state == SCAN_END) {
        skip_space(&s);
        if (s.p != s.end)
            state = fail(&s, s.p, "unexpected text after the value");
    }
    if (state == SCAN_FAILED) {
        if (ret_error)
            *ret_error = s.error;
        return -EBADMSG;
    }
    *ret_kind = s.kind;
    return 0;
}

/* Writes a code point as UTF-8 to out (4 bytes of room); its length. */
static size_t put_utf8(int32_t code, char *out)
{
    uint32_t c = (uint32_t)code;
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    if (c < 0x800) {
        out[0] = (char)(0xC0 | c >> 6);
        out[1] = (char)(0x80 | (c & 0x3F));
        return 2;
    }
    if (c < 0x10000) {
        out[0] = (char)(0xE0 | c >> 12);
        out[1] = (char)(0x80 | (c >> 6 & 0x3F));
        out[2] = (char)(0x80 | (c & 0x3F));
        return 3;
    }
    out[0] = (char)(0xF0 | c >> 18);
    out[1] = (char)(0x80 | (c >> 12 & 0x3F));
    out[2] = (char)(0x80 | (c >> 6 & 0x3F));
    out[3] = (char)(0x80 | (c & 0x3F));
    return 4;
}

/* The code point of the \u escape (or pair of them) at *p, which moves behind it; -1 when broken.
 */
static int32_t take_code_point(const char **p, const char *end)
{
    const char *wrong;
    int32_t code = take_hex4(*p + 2, end, &wrong);
    if (code < 0 || is_low_surrogate(code))
        return -1;
    *p += 6;
    if (!is_high_surrogate(code))
        return code;
    if (end - *p < 6 || (*p)[0] != '\\' || (*p)[1] != 'u')
        return -1;
    int32_t low = take_hex4(*p + 2, end, &wrong);
    if (low < 0 || !is_low_surrogate(low))
        return -1;
    *p += 6;
    return 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
}

/* One character of a raw string at *p: its bytes into out (4 of room). Their number, 0: broken. */
static size_t take_character(const char **p, const char *end, char *out)
{
    static const char letters[] = "\"\\/bfnrt";
    static const char meanings[] = "\"\\/\b\f\n\r\t";
    if (**p != '\\') {
        out[0] = *(*p)++;
        return out[0] != '\0';
    }
    if (end - *p < 2 || (*p)[1] == '\0')
        return 0;
    if ((*p)[1] == 'u') {
        int32_t code = take_code_point(p, end);
        return code > 0 ? put_utf8(code, out) : 0;
    }
    const char *hit = strchr(letters, (*p)[1]);
    if (!hit)
        return 0;
    out[0] = meanings[hit - letters];
    *p += 2;
    return 1;
}

int json_scan_get_string(struct span raw, char *out, size_t out_size)
{
    if (raw.len < 2 || raw.ptr[0] != '"' || raw.ptr[raw.len - 1] != '"')
        return -EINVAL;
    const char *p = raw.ptr + 1;
    const char *end = raw.ptr + raw.len - 1;
    size_t len = 0;
    while (p < end) {
        char bytes[4];
        size_t n = take_character(&p, end, bytes);
        if (n == 0)
            return -EINVAL;
        if (len + n >= out_size)
            return -EMSGSIZE;
        memcpy(out + len, bytes, n);
        len += n;
    }
    if (len >= out_size)
        return -EMSGSIZE;
    out[len] = '\0';
    return 0;
}

bool json_scan_get_key(const struct json_member *m, char *text, size_t text_size,
                       struct span *ret_key)
{
    if (!m->key_has_escape) {
        *ret_key = m->key;
        return m->key.len < text_size;
    }
    struct span quoted = {m->key.ptr - 1, m->key.len + 2};
    if (json_scan_get_string(quoted, text, text_size) < 0)
        return false;
    *ret_key = span_from_str(text);
    return true;
}

void json_scan_locate(struct span text, size_t offset, size_t *ret_line, size_t *ret_column)
{
    size_t line = 1;
    size_t start = 0;
    if (offset > text.len)
        offset = text.len;
    while (start < offset) {
        const char *hit = memchr(text.ptr + start, '\n', offset - start);
        if (!hit)
            break;
        line++;
        start = (size_t)(hit - text.ptr) + 1;
    }
    *ret_line = line;
    *ret_column = offset - start + 1;
}
