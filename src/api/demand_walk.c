/*
 * The walk over a valid JSON value. Strings are skipped with memchr, so that megabytes of base64
 * cost little; a string in front of a colon is a key. Pure; any thread.
 */
#include "api/demand_walk.h"

#include "base/swar.h"

enum {
    NUMBER_BYTES = 25, /* the longest that an encoder makes of a double, and a space */
    INDENT = 4,
    BLOCK = 64,
};

/* Keys that mean something here. Of an array the same place says KEY_ARRAY. */
enum key {
    KEY_OTHER = 0,
    KEY_ARRAY,
    KEY_CALL, /* what stands there may be written as JSON again */
    KEY_ESCAPED,
    KEY_CONTENT,
    KEY_OUTPUT,
    KEY_IMAGE_URL,
    KEY_URL,
    KEY_INPUT_AUDIO,
    KEY_DATA,
    KEY_FILE_DATA,
    KEY_SOURCE,
    KEY_TYPE,
    KEY_IMAGES,
    KEY_MULTIMODAL_DATA,
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

static bool is(struct span key, const char *name, size_t len)
{
    return key.len == len && memcmp(key.ptr, name, len) == 0;
}
#define IS(key, name) is(key, name, sizeof(name) - 1)

/* Payloads are known by their exact name, else they are text; calls by any a worker may take. */
static enum key key_of(struct span key)
{
    switch (key.len) {
    case 3: return IS(key, "url") ? KEY_URL : KEY_OTHER;
    case 4:
        if (IS(key, "type"))
            return KEY_TYPE;
        return IS(key, "data") ? KEY_DATA : KEY_OTHER;
    case 5: return span_equals_nocase(key, SPAN_LIT("input")) ? KEY_CALL : KEY_OTHER;
    case 6:
        if (IS(key, "source"))
            return KEY_SOURCE;
        if (IS(key, "images"))
            return KEY_IMAGES;
        return IS(key, "output") ? KEY_OUTPUT : KEY_OTHER;
    case 7: return IS(key, "content") ? KEY_CONTENT : KEY_OTHER;
    case 9:
        if (span_equals_nocase(key, SPAN_LIT("arguments")))
            return KEY_CALL;
        if (IS(key, "file_data"))
            return KEY_FILE_DATA;
        return IS(key, "image_url") ? KEY_IMAGE_URL : KEY_OTHER;
    case 10: return span_equals_nocase(key, SPAN_LIT("tool_calls")) ? KEY_CALL : KEY_OTHER;
    case 11: return IS(key, "input_audio") ? KEY_INPUT_AUDIO : KEY_OTHER;
    case 13: return span_equals_nocase(key, SPAN_LIT("function_call")) ? KEY_CALL : KEY_OTHER;
    case 15: return IS(key, "multimodal_data") ? KEY_MULTIMODAL_DATA : KEY_OTHER;
    default: return KEY_OTHER;
    }
}

static unsigned hex_digit(char c)
{
    return c <= '9' ? (unsigned)(c - '0') : (unsigned)((c | 0x20) - 'a') + 10;
}

/* Perhaps a \u: looked for as a pair, since a memchr for every line break of a text costs more. */
static bool may_hold_codes(struct span inner)
{
    const char *end = inner.ptr + inner.len;
    const char *p = memchr(inner.ptr, '\\', inner.len);
    if (p == NULL)
        return false;
    for (; end - p >= BLOCK; p += BLOCK) {
        uint64_t found = 0;
        for (size_t i = 0; i < BLOCK; i += sizeof(uint64_t)) {
            /* A byte that is zero is both; behind the text stands the closing quote. */
            uint64_t both = (swar_load(p + i) ^ (SWAR_ONES * '\\')) |
                            (swar_load(p + i + 1) ^ (SWAR_ONES * 'u'));
            found |= (both - SWAR_ONES) & ~both & SWAR_HIGHS;
        }
        if (found != 0)
            return true;
    }
    while ((p = memchr(p, '\\', (size_t)(end - p))) != NULL && *++p != 'u')
        ;
    return p != NULL;
}

/* Bytes of a text that is rendered as it is; the short escapes count as they are written. */
static uint64_t text_bytes(struct span inner)
{
    uint64_t n = inner.len;
    const char *end = inner.ptr + inner.len;
    const char *p = inner.ptr;
    if (!may_hold_codes(inner))
        return n;
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
        else
            n -= code >= 0x80 ? 4 : 5;
        p += 6;
    }
    return n;
}

/* By how much a byte grows when its text is written as JSON again: the proof in api/demand.h. */
enum { HEX = 5, LOOK = 255 };
#define NON_ASCII_ROW 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2
static const unsigned char growth[256] = {
    ['<'] = HEX,
    ['>'] = HEX,
    ['&'] = HEX,
    ['\''] = HEX,
    [0x7f] = HEX,
    [','] = 1,
    [':'] = 1,
    ['\\'] = LOOK,
    ['0'] = LOOK,
    LOOK,
    LOOK,
    LOOK,
    LOOK,
    LOOK,
    LOOK,
    LOOK,
    LOOK,
    LOOK,
    [0x80] = NON_ASCII_ROW,
    NON_ASCII_ROW,
    NON_ASCII_ROW,
    NON_ASCII_ROW,
    NON_ASCII_ROW,
    NON_ASCII_ROW,
    NON_ASCII_ROW,
    NON_ASCII_ROW,
};

/* A text as JSON: escapes may be kept as they are, or become longer ones. */
static uint64_t json_bytes(struct span inner)
{
    uint64_t n = inner.len + 2;
    for (size_t i = 0; i < inner.len; i++) {
        unsigned more = growth[(unsigned char)inner.ptr[i]];
        if (more != LOOK) {
            n += more;
            continue;
        }
        char next = inner.ptr[i + 1]; /* at the end: the closing quote */
        if (inner.ptr[i] != '\\') {
            /* "arguments" are numbers in a text: 1e20 is written out. */
            n += next == '.' || next == 'e' || next == 'E' ? NUMBER_BYTES : 0;
            continue;
        }
        n += next == 'b' || next == 'f' ? HEX - 1 : 0;
        i += next == 'u' ? 5 : 1;
    }
    return n;
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

static bool key_is(const struct demand_walk *w, unsigned depth, enum key key)
{
    return depth < DEMAND_WALK_KEYS && w->keys[depth] == key;
}

static bool as_json(const struct demand_walk *w)
{
    return w->mode == DEMAND_WALK_JSON || (w->calls_depth > 0 && w->depth >= w->calls_depth);
}

static void count_text(struct demand_walk *w, struct span inner)
{
    add(&w->bytes, as_json(w) ? json_bytes(inner) : text_bytes(inner));
}

static void end_text(struct demand_walk *w)
{
    add_one(&w->texts);
    if (w->bytes - w->text_start > w->longest_bytes)
        w->longest_bytes = w->bytes - w->text_start;
    w->text_start = w->bytes;
}

/*
 * Depth of the content part that the walk is in, [{"content":[{"type":…, here}]}]: 4, or 6 in a
 * tool result, which holds contents again; 0: in none. Arrays take a place in `keys`.
 */
static unsigned part_depth(const struct demand_walk *w)
{
    if (w->depth < 4 || w->keys[3] != KEY_ARRAY ||
        (w->keys[2] != KEY_CONTENT && w->keys[2] != KEY_OUTPUT))
        return 0;
    if (w->depth < 6)
        return 4;
    return w->keys[4] == KEY_CONTENT && w->keys[5] == KEY_ARRAY ? 6 : 0;
}

static bool take_from_source(struct demand_walk *w, struct span inner)
{
    switch (w->keys[w->depth]) {
    case KEY_TYPE: w->source_is_payload = IS(inner, "base64"); return true;
    case KEY_URL: add_one(&w->images); return true;
    case KEY_DATA: add(&w->source_bytes, text_bytes(inner)); return true;
    default: return false;
    }
}

/*
 * True when the string is a payload that was dealt with.
 *   OpenAI     image_url.url, image_url (Responses), input_audio.data, file.file_data, file_data
 *   Anthropic  source.data, source.url
 *   Ollama     images[] of a message
 */
static bool take_payload(struct demand_walk *w, struct span inner)
{
    unsigned d = w->depth;
    if (d < 3)
        return false;
    if (w->ollama && d == 3 && w->keys[2] == KEY_IMAGES) {
        add_one(&w->images);
        return true;
    }
    if (w->source_depth > 0 && d == w->source_depth)
        return take_from_source(w, inner);
    unsigned part = part_depth(w);
    if (part == 0 || d > part + 1)
        return false;
    enum key key = w->keys[d];
    if (key == KEY_FILE_DATA || (d == part && key == KEY_IMAGE_URL) ||
        (d > part && key == KEY_URL && w->keys[part] == KEY_IMAGE_URL)) {
        add_one(&w->images);
        return true;
    }
    if (d > part && key == KEY_DATA && w->keys[part] == KEY_INPUT_AUDIO) {
        add_one(&w->audio_parts);
        return true;
    }
    return false;
}

static void on_string(struct demand_walk *w, struct span inner)
{
    if (w->mode == DEMAND_WALK_MESSAGES && take_payload(w, inner))
        return;
    if (w->mode == DEMAND_WALK_PROMPT && w->depth >= 1 &&
        key_is(w, w->depth - 1, KEY_MULTIMODAL_DATA)) {
        add_one(&w->images);
        return;
    }
    count_text(w, inner);
    if (w->mode == DEMAND_WALK_PROMPT && w->depth <= 1)
        end_text(w);
}

static void on_key(struct demand_walk *w, struct span name)
{
    enum key key = key_of(name);
    if (key == KEY_OTHER && memchr(name.ptr, '\\', name.len) != NULL)
        key = KEY_ESCAPED; /* may be any */
    if (w->depth < DEMAND_WALK_KEYS)
        w->keys[w->depth] = (unsigned char)key;
    if (w->mode == DEMAND_WALK_PROMPT)
        return;
    if (w->calls_depth == 0 || w->calls_depth == w->depth)
        w->calls_depth = key == KEY_CALL || key == KEY_ESCAPED ? w->depth : 0;
    if (w->source_depth > 0 && w->depth == w->source_depth)
        w->source_types += key == KEY_TYPE || key == KEY_ESCAPED;
    count_text(w, name);
}

static void on_open(struct demand_walk *w, enum key first)
{
    bool source = first == KEY_OTHER && key_is(w, w->depth, KEY_SOURCE) && w->source_depth == 0 &&
                  part_depth(w) == w->depth;
    w->depth++;
    if (w->depth < DEMAND_WALK_KEYS)
        w->keys[w->depth] = (unsigned char)first;
    if (!source)
        return;
    w->source_depth = w->depth;
    w->source_types = 0;
    w->source_is_payload = false;
    w->source_bytes = 0;
}

static void on_close(struct demand_walk *w)
{
    if (w->source_depth == w->depth && w->source_depth > 0) {
        if (w->source_is_payload && w->source_types == 1)
            add_one(&w->images);
        else
            add(&w->bytes, w->source_bytes);
        w->source_depth = 0;
    }
    w->depth--;
    if (w->depth < w->calls_depth)
        w->calls_depth = 0;
    if (w->mode == DEMAND_WALK_PROMPT && w->depth == 1)
        end_text(w);
}

/* A brace, a bracket or a comma; a colon needs no line of its own. */
static void count_mark(struct demand_walk *w, char mark)
{
    if (w->mode == DEMAND_WALK_PROMPT)
        return;
    if (!as_json(w))
        add(&w->bytes, 1);
    else
        add(&w->bytes, 2 + (mark == ':' ? 0 : (uint64_t)INDENT * w->depth));
}

/* A number or a word; returns its end. */
static const char *on_bare(struct demand_walk *w, const char *p, const char *end)
{
    const char *start = p;
    /* All that may end one is below the digits, or a bracket; all that is in one is not. */
    while (p<end && * p> ' ' && *p != ',' && *p != ']' && *p != '}')
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

static const char *skip_space(const char *p, const char *end)
{
    while (p < end && (*p == ' ' || *p == '\t' || *p == '\r' || *p == '\n'))
        p++;
    return p;
}

/* A string, as a value or as a key; returns what follows. */
static const char *on_quote(struct demand_walk *w, const char *p, const char *end)
{
    const char *close = string_close(p, end);
    struct span inner = {p + 1, (size_t)(close - p) - 1};
    p = skip_space(close + 1, end);
    if (p < end && *p == ':')
        on_key(w, inner);
    else
        on_string(w, inner);
    return p;
}

void demand_walk(struct demand_walk *w, struct span value)
{
    const char *p = value.ptr;
    const char *end = value.ptr + value.len;
    bool in_list = value.ptr[0] == '[';
    bool fresh = true; /* the next value is a new element */
    while ((p = skip_space(p, end)) < end) {
        char c = *p;
        if (fresh && in_list && w->depth == 1 && c != ']') {
            add_one(&w->elements);
            fresh = false;
        }
        switch (c) {
        case '"': p = on_quote(w, p, end); continue;
        case '{':
        case '[':
            on_open(w, c == '[' ? KEY_ARRAY : KEY_OTHER);
            count_mark(w, c);
            break;
        case '}':
        case ']':
            count_mark(w, c);
            on_close(w);
            break;
        case ',':
            fresh |= w->depth == 1;
            count_mark(w, c);
            break;
        case ':': count_mark(w, c); break;
        default: p = on_bare(w, p, end); continue;
        }
        p++;
    }
    if (w->loose_ids)
        end_text(w);
}
