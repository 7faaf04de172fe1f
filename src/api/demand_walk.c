/*
 * The walk over a valid JSON value. Strings are skipped with memchr, so that megabytes of base64
 * cost little; a string in front of a colon is a key. Pure; any thread.
 */
#include "api/demand_walk.h"

enum {
    NUMBER_BYTES = 25, /* the longest that an encoder makes of a double, and a space */
    INDENT = 4,
};

static void add(uint64_t *sum, uint64_t n)
{
    *sum = *sum > UINT64_MAX - n ? UINT64_MAX : *sum + n;
}

static void add_one(uint32_t *sum)
{
    if (*sum < UINT32_MAX)
        (*sum)++;
}

static unsigned hex_digit(char c)
{
    return c <= '9' ? (unsigned)(c - '0') : (unsigned)((c | 0x20) - 'a') + 10;
}

/* Bytes of the text of a string, with escapes that an encoder would write again left as they are. */
static uint64_t text_bytes(struct span inner)
{
    uint64_t n = inner.len;
    const char *end = inner.ptr + inner.len;
    const char *p = inner.ptr;
    while (p < end && (p = memchr(p, '\\', (size_t)(end - p))) != NULL) {
        if (p[1] != 'u') {
            p += 2;
            continue;
        }
        unsigned code =
            hex_digit(p[2]) << 12 | hex_digit(p[3]) << 8 | hex_digit(p[4]) << 4 | hex_digit(p[5]);
        if (code >= 0xD800 && code <= 0xDFFF)
            n -= 4; /* each half of a pair: 6 bytes become 2 */
        else if (code >= 0x800)
            n -= 3;
        else if (code >= 0x80)
            n -= 4;
        p += 6;
    }
    return n;
}

/* What writing a text as JSON again may add to it, see the proof in api/demand.h. */
static uint64_t json_extra(struct span inner)
{
    uint64_t extra = 0;
    for (size_t i = 0; i < inner.len; i++) {
        unsigned char c = (unsigned char)inner.ptr[i];
        if (c == '<' || c == '>' || c == '&' || c == '\'' || c == 0x7f)
            extra += 5;
        else if (c >= 0x80)
            extra += 2;
        else if (c == ',' || c == ':')
            extra++;
    }
    return extra;
}

/* The closing quote of the string that opens at p. */
static const char *string_close(const char *p, const char *end)
{
    const char *open = p++;
    for (;;) {
        const char *quote = memchr(p, '"', (size_t)(end - p));
        const char *slash = quote;
        while (slash - 1 > open && slash[-1] == '\\')
            slash--;
        if ((quote - slash) % 2 == 0)
            return quote;
        p = quote + 1;
    }
}

static bool key_is(const struct demand_walk *w, unsigned depth, const char *name)
{
    return depth < DEMAND_WALK_KEYS && span_equals_str(w->keys[depth], name);
}

static bool as_json(const struct demand_walk *w)
{
    return w->mode == DEMAND_WALK_JSON || (w->calls_depth > 0 && w->depth >= w->calls_depth);
}

static void count_text(struct demand_walk *w, struct span inner)
{
    add(&w->bytes, text_bytes(inner));
    if (as_json(w))
        add(&w->bytes, json_extra(inner) + 2);
}

static void end_text(struct demand_walk *w)
{
    add_one(&w->texts);
    if (w->bytes - w->text_start > w->longest_bytes)
        w->longest_bytes = w->bytes - w->text_start;
    w->text_start = w->bytes;
}

/*
 * A string in a content part: [{"content":[{"type":…, here}]}], at any nesting of contents. True
 * when it is a payload that was dealt with.
 *   OpenAI     image_url.url, image_url (Responses), input_audio.data
 *   Anthropic  source.data, source.url
 *   Ollama     images[] of a message
 */
static bool take_payload(struct demand_walk *w, struct span inner)
{
    unsigned d = w->depth;
    if (w->ollama && d == 3 && key_is(w, 2, "images")) {
        add_one(&w->images);
        return true;
    }
    /* Parts stand in arrays, which have no key of their own. */
    if (!key_is(w, 2, "content") || d < 4 || w->keys[3].ptr != NULL)
        return false;
    if (d > 5 && (!key_is(w, 4, "content") || w->keys[5].ptr != NULL))
        return false;
    bool part = d == 4 || d == 6; /* a tool result holds contents again */
    bool in_part = d == 5 || d == 7;
    if ((part && key_is(w, d, "image_url")) ||
        (in_part && key_is(w, d - 1, "image_url") && key_is(w, d, "url"))) {
        add_one(&w->images);
        return true;
    }
    if (in_part && key_is(w, d - 1, "input_audio") && key_is(w, d, "data")) {
        add_one(&w->audio_parts);
        return true;
    }
    if (!in_part || !key_is(w, d - 1, "source"))
        return false;
    if (key_is(w, d, "media_type") && span_starts_with(inner, SPAN_LIT("image")))
        w->source_is_picture = true;
    if (key_is(w, d, "url")) {
        add_one(&w->images);
        return true;
    }
    if (!key_is(w, d, "data"))
        return false;
    w->source_depth = d;
    add(&w->source_bytes, text_bytes(inner));
    return true;
}

static void on_string(struct demand_walk *w, struct span inner)
{
    if (w->mode == DEMAND_WALK_MESSAGES && take_payload(w, inner))
        return;
    if (w->mode == DEMAND_WALK_PROMPT && w->depth >= 1 &&
        key_is(w, w->depth - 1, "multimodal_data")) {
        add_one(&w->images);
        return;
    }
    count_text(w, inner);
    if (w->mode == DEMAND_WALK_PROMPT && w->depth <= 1)
        end_text(w);
}

static void on_key(struct demand_walk *w, struct span key)
{
    if (w->depth < DEMAND_WALK_KEYS)
        w->keys[w->depth] = key;
    if (w->calls_depth == 0 && w->mode == DEMAND_WALK_MESSAGES &&
        (span_equals_str(key, "tool_calls") || span_equals_str(key, "input") ||
         span_equals_str(key, "function_call")))
        w->calls_depth = w->depth + 1;
    if (w->mode != DEMAND_WALK_PROMPT)
        count_text(w, key);
}

static void on_mark(struct demand_walk *w, char mark)
{
    if (mark == '{' || mark == '[') {
        w->depth++;
        if (w->depth < DEMAND_WALK_KEYS)
            w->keys[w->depth] = SPAN_NONE;
    }
    if (w->mode != DEMAND_WALK_PROMPT)
        add(&w->bytes, as_json(w) ? 2 + (uint64_t)INDENT * w->depth : 1);
    if (mark != '}' && mark != ']')
        return;
    if (w->source_depth == w->depth && w->source_depth > 0) {
        if (w->source_is_picture)
            add_one(&w->images);
        else
            add(&w->bytes, w->source_bytes);
        w->source_depth = 0;
        w->source_bytes = 0;
    }
    if (mark == '}' && key_is(w, w->depth - 1, "source"))
        w->source_is_picture = false;
    w->depth--;
    if (w->depth < w->calls_depth)
        w->calls_depth = 0;
    if (w->mode == DEMAND_WALK_PROMPT && w->depth == 1)
        end_text(w);
}

/* A number or a word; returns its end. */
static const char *on_bare(struct demand_walk *w, const char *p, const char *end)
{
    const char *start = p;
    while (p < end && memchr(",]} \t\r\n", *p, 7) == NULL)
        p++;
    if (w->mode == DEMAND_WALK_PROMPT) {
        if (*start == '-' || (*start >= '0' && *start <= '9')) {
            add(&w->bytes, 1);
            w->loose_ids |= w->depth == 1;
        }
    } else {
        uint64_t length = (uint64_t)(p - start);
        add(&w->bytes, as_json(w) && length < NUMBER_BYTES ? NUMBER_BYTES : length);
    }
    return p;
}

void demand_walk(struct demand_walk *w, struct span value)
{
    const char *p = value.ptr;
    const char *end = value.ptr + value.len;
    bool fresh = true; /* the next value is a new element */
    while (p < end) {
        char c = *p;
        if (c == ' ' || c == '\t' || c == '\r' || c == '\n') {
            p++;
            continue;
        }
        if (w->depth == 1 && fresh && c != ']' && c != '}' && value.ptr[0] == '[') {
            add_one(&w->elements);
            fresh = false;
        }
        if (c == '"') {
            const char *close = string_close(p, end);
            struct span inner = {p + 1, (size_t)(close - p) - 1};
            p = close + 1;
            const char *next = p;
            while (next < end && (*next == ' ' || *next == '\t' || *next == '\r' || *next == '\n'))
                next++;
            if (next < end && *next == ':')
                on_key(w, inner);
            else
                on_string(w, inner);
        } else if (memchr("{}[],:", c, 6) != NULL) {
            fresh |= c == ',' && w->depth == 1;
            on_mark(w, c);
            p++;
        } else {
            p = on_bare(w, p, end);
        }
    }
    if (w->loose_ids)
        end_text(w);
}
