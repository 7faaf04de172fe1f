/*
 * Reads sizes and counts text where api/request.c noted that they stand. Pure; any thread.
 */
#include "api/demand.h"

#include "api/demand_walk.h"

#include <errno.h>

enum { SHOWN_MAX = 40, MS_PER_S = 1000, EXPONENT_MAX = 400 };

/* Nanoseconds in 63 bits end there: 292 years. */
#define FOREVER_MS 9.2e12

struct reader {
    const struct api_route *route;
    const struct api_request *request;
    struct api_demand *demand;
    struct api_error *error;
    bool failed;
    bool output_open; /* one of the bounds says "until the end" */
    unsigned seen_num_ctx, seen_num_predict;
};

static void add(uint64_t *sum, uint64_t n)
{
    *sum = *sum > UINT64_MAX - n ? UINT64_MAX : *sum + n;
}

static void add_times(uint64_t *sum, uint64_t n, uint64_t times)
{
    add(sum, times > 0 && n > UINT64_MAX / times ? UINT64_MAX : n * times);
}

static void fail_value(struct reader *r, const char *name, struct span value, const char *what)
{
    if (r->failed)
        return;
    r->failed = true;
    size_t line, column;
    size_t offset = (size_t)(value.ptr - r->request->body.ptr);
    json_scan_locate(r->request->body, offset, &line, &column);
    bool cut = value.len > SHOWN_MAX;
    size_t shown = cut ? SHOWN_MAX : value.len;
    while (cut && shown > 0 && ((unsigned char)value.ptr[shown] & 0xC0) == 0x80)
        shown--; /* not inside a character */
    api_error_bad_member(r->error, name,
                         "'%s' is %.*s%s, but must be %s (line %zu, column %zu, byte %zu). No "
                         "worker was asked.",
                         name, (int)shown, value.ptr, cut ? "…" : "", what, line, column, offset);
}

static bool is_given(const struct reader *r, enum api_member member)
{
    enum json_kind kind = r->request->members[member].kind;
    return kind != JSON_KIND_NONE && kind != JSON_KIND_NULL;
}

/* Whole numbers: digits, a minus sign, and zeros behind a point. False: something else. */
static bool parse_whole(struct span v, bool *ret_negative, uint64_t *ret_value)
{
    size_t i = 0;
    uint64_t n = 0;
    bool negative = v.len > 0 && v.ptr[0] == '-';
    if (negative)
        i++;
    for (; i < v.len && v.ptr[i] >= '0' && v.ptr[i] <= '9'; i++)
        n = n > API_DEMAND_TOKENS_MAX ? n : n * 10 + (uint64_t)(v.ptr[i] - '0');
    if (i < v.len && v.ptr[i] == '.')
        for (i++; i < v.len && v.ptr[i] == '0';)
            i++;
    *ret_negative = negative && n > 0;
    *ret_value = n;
    return i == v.len;
}

#define SIZE_WORDS "a whole number of tokens from 0 to 2147483648"
static const char *const size_words[] = {
    SIZE_WORDS,
    SIZE_WORDS " or -1 (until the end)",
    SIZE_WORDS ", -1 (until the end) or -2 (until the context is full)",
};

/* `open`: the smallest negative number that has a meaning, as a count: 0, 1 or 2. */
static bool read_size(struct reader *r, const char *name, struct span value, enum json_kind kind,
                      unsigned open, bool *ret_open, uint64_t *ret_size)
{
    if (kind == JSON_KIND_NONE || kind == JSON_KIND_NULL)
        return false;
    bool negative;
    uint64_t n;
    if (kind != JSON_KIND_NUMBER || !parse_whole(value, &negative, &n) ||
        n > (negative ? open : API_DEMAND_TOKENS_MAX)) {
        fail_value(r, name, value, size_words[open]);
        return false;
    }
    *ret_open = negative;
    *ret_size = negative ? 0 : n;
    return true;
}

static void read_output(struct reader *r, const char *name, struct span value, enum json_kind kind,
                        unsigned open)
{
    bool is_open;
    uint64_t n;
    if (!read_size(r, name, value, kind, open, &is_open, &n))
        return;
    r->output_open |= is_open;
    r->demand->output_given = true;
    if (n > r->demand->output_tokens)
        r->demand->output_tokens = n;
}

static void on_option(void *ctx, const struct json_member *m)
{
    struct reader *r = ctx;
    char text[32];
    struct span key;
    if (!json_scan_get_key(m, text, sizeof(text), &key))
        return;
    if (span_equals_str(key, "num_ctx")) {
        bool open;
        if (r->seen_num_ctx++ > 0)
            fail_value(r, "options.num_ctx", m->value, "given once");
        r->demand->context_given = read_size(r, "options.num_ctx", m->value, m->kind, 0, &open,
                                             &r->demand->context_tokens);
    } else if (span_equals_str(key, "num_predict")) {
        if (r->seen_num_predict++ > 0)
            fail_value(r, "options.num_predict", m->value, "given once");
        read_output(r, "options.num_predict", m->value, m->kind, 2);
    }
}

static void read_options(struct reader *r)
{
    const struct api_request_member *m = &r->request->members[API_MEMBER_OPTIONS];
    enum json_kind kind;
    if (r->route->dialect != API_DIALECT_OLLAMA || m->kind == JSON_KIND_NONE ||
        m->kind == JSON_KIND_NULL)
        return;
    if (m->kind != JSON_KIND_OBJECT)
        fail_value(r, "options", m->value, "an object");
    else
        (void)json_scan(m->value, on_option, r, &kind, NULL); /* validated with the body */
}

static void read_sizes(struct reader *r)
{
    static const struct {
        enum api_member member;
        const char *name;
        unsigned open;
    } bounds[] = {
        {API_MEMBER_MAX_TOKENS, "max_tokens", 1},
        {API_MEMBER_MAX_COMPLETION_TOKENS, "max_completion_tokens", 1},
        {API_MEMBER_MAX_OUTPUT_TOKENS, "max_output_tokens", 1},
        {API_MEMBER_N_PREDICT, "n_predict", 2},
    };
    if (r->route->dialect != API_DIALECT_OLLAMA)
        for (size_t i = 0; i < sizeof(bounds) / sizeof(bounds[0]); i++) {
            const struct api_request_member *m = &r->request->members[bounds[i].member];
            unsigned open = r->route->dialect == API_DIALECT_ANTHROPIC ? 0 : bounds[i].open;
            read_output(r, bounds[i].name, m->value, m->kind, open);
        }
    read_options(r);
    if (r->output_open) {
        r->demand->output_given = false;
        r->demand->output_tokens = 0;
    }
}

/* "1h30m", "-1", "300": sign, then numbers with units, as Go's time.ParseDuration. */
static bool parse_duration(struct span s, bool *ret_negative, double *ret_ms)
{
    static const struct {
        struct span unit;
        double ms;
    } units[] = {{SPAN_LIT("ms"), 1},    {SPAN_LIT("us"), 1e-3}, {SPAN_LIT("ns"), 1e-6},
                 {SPAN_LIT("h"), 3.6e6}, {SPAN_LIT("m"), 6e4},   {SPAN_LIT("s"), 1e3}};
    size_t i = s.len > 0 && (s.ptr[0] == '-' || s.ptr[0] == '+');
    *ret_negative = i == 1 && s.ptr[0] == '-';
    *ret_ms = 0;
    if (i == s.len)
        return false;
    while (i < s.len) {
        double n = 0;
        double scale = 1;
        bool point = false;
        size_t digits = 0;
        for (; i < s.len && (s.ptr[i] == '.' || (s.ptr[i] >= '0' && s.ptr[i] <= '9')); i++) {
            if (s.ptr[i] == '.') {
                if (point)
                    return false;
                point = true;
                continue;
            }
            digits++;
            n = n * 10 + (s.ptr[i] - '0');
            scale *= point ? 10 : 1;
        }
        if (digits == 0)
            return false;
        double ms = i == s.len ? 1e3 : 0; /* no unit: seconds */
        struct span rest = {s.ptr + i, s.len - i};
        for (size_t k = 0; ms == 0 && k < sizeof(units) / sizeof(units[0]); k++)
            if (span_starts_with(rest, units[k].unit)) {
                ms = units[k].ms;
                i += units[k].unit.len;
            }
        if (ms == 0)
            return false;
        *ret_ms += n / scale * ms;
    }
    return true;
}

/* A JSON number of seconds, which may have an exponent. */
static bool parse_seconds(struct span s, bool *ret_negative, double *ret_ms)
{
    size_t at = 0;
    while (at < s.len && s.ptr[at] != 'e' && s.ptr[at] != 'E')
        at++;
    bool ok = parse_duration((struct span){s.ptr, at}, ret_negative, ret_ms);
    if (!ok || at == s.len)
        return ok;
    bool down = s.ptr[++at] == '-';
    unsigned exponent = 0;
    for (at += down || s.ptr[at] == '+'; at < s.len; at++)
        exponent = exponent > EXPONENT_MAX ? exponent : exponent * 10 + (unsigned)(s.ptr[at] - '0');
    for (; exponent > 0 && *ret_ms > 0 && *ret_ms < FOREVER_MS; exponent--)
        *ret_ms *= down ? 0.1 : 10;
    return true;
}

static void read_keep_alive(struct reader *r)
{
    const struct api_request_member *m = &r->request->members[API_MEMBER_KEEP_ALIVE];
    if (r->route->dialect != API_DIALECT_OLLAMA || !is_given(r, API_MEMBER_KEEP_ALIVE))
        return;
    struct span s = m->value;
    if (m->kind == JSON_KIND_STRING)
        s = (struct span){s.ptr + 1, s.len - 2};
    bool negative = false;
    double ms = 0;
    bool ok = s.len <= SHOWN_MAX;
    if (m->kind == JSON_KIND_NUMBER)
        ok = ok && parse_seconds(s, &negative, &ms);
    else
        ok = ok && m->kind == JSON_KIND_STRING && parse_duration(s, &negative, &ms);
    if (!ok) {
        fail_value(r, "keep_alive", m->value, "seconds, or a duration like \"5m\"");
        return;
    }
    r->demand->keep_alive_given = true;
    /* Ollama: below zero is forever; what is longer than its clock (292 years) is no less. */
    r->demand->keep_alive_forever = (negative && ms > 0) || ms > FOREVER_MS;
    r->demand->keep_alive_ms = r->demand->keep_alive_forever ? 0 : (uint64_t)ms;
}

/* Most members are absent: that is looked at first. False: so it is, and *ret is untouched. */
static bool walk(struct reader *r, enum api_member member, enum demand_walk_mode mode,
                 struct demand_walk *ret)
{
    if (!is_given(r, member))
        return false;
    *ret = (struct demand_walk){.mode = mode, .ollama = r->route->dialect == API_DIALECT_OLLAMA};
    demand_walk(ret, r->request->members[member].value);
    add(&r->demand->prompt_bytes, ret->bytes);
    r->demand->images += ret->images;
    r->demand->audio_parts += ret->audio_parts;
    return true;
}

static bool embeds(enum api_operation operation)
{
    switch (operation) {
    case API_OPERATION_EMBEDDINGS:
    case API_OPERATION_NATIVE_EMBEDDING:
    case API_OPERATION_OLLAMA_EMBED:
    case API_OPERATION_OLLAMA_EMBEDDINGS:
    case API_OPERATION_RERANK: return true;
    default: return false;
    }
}

static void read_inputs(struct reader *r)
{
    static const enum api_member texts[] = {API_MEMBER_INPUT, API_MEMBER_CONTENT, API_MEMBER_PROMPT,
                                            API_MEMBER_DOCUMENTS};
    struct demand_walk w;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        if (!walk(r, texts[i], DEMAND_WALK_PROMPT, &w))
            continue;
        r->demand->inputs += w.texts;
        if (w.longest_bytes > r->demand->longest_input_bytes)
            r->demand->longest_input_bytes = w.longest_bytes;
    }
    /* A reranker reads the query with each document. */
    if (!walk(r, API_MEMBER_QUERY, DEMAND_WALK_PROMPT, &w))
        return;
    add(&r->demand->longest_input_bytes, w.bytes);
    if (r->demand->inputs > 1)
        add_times(&r->demand->prompt_bytes, w.bytes, r->demand->inputs - 1);
}

/* A template of the client's own writes its words around every message. */
static void read_templates(struct reader *r)
{
    struct demand_walk w;
    if (walk(r, API_MEMBER_TEMPLATE, DEMAND_WALK_PROMPT, &w))
        add_times(&r->demand->prompt_bytes, w.bytes, r->demand->messages);
    if (walk(r, API_MEMBER_CHAT_TEMPLATE, DEMAND_WALK_PROMPT, &w))
        add_times(&r->demand->prompt_bytes, w.bytes, r->demand->messages);
}

static void read_text(struct reader *r)
{
    static const struct {
        enum api_member member;
        enum demand_walk_mode mode;
    } texts[] = {
        {API_MEMBER_SYSTEM, DEMAND_WALK_MESSAGES},
        {API_MEMBER_INPUT_EXTRA, DEMAND_WALK_MESSAGES},
        {API_MEMBER_PROMPT, DEMAND_WALK_PROMPT},
        {API_MEMBER_CONTEXT, DEMAND_WALK_PROMPT},
        {API_MEMBER_SUFFIX, DEMAND_WALK_PROMPT},
        {API_MEMBER_INSTRUCTIONS, DEMAND_WALK_PROMPT},
        {API_MEMBER_INPUT_PREFIX, DEMAND_WALK_PROMPT},
        {API_MEMBER_INPUT_SUFFIX, DEMAND_WALK_PROMPT},
        {API_MEMBER_TOOLS, DEMAND_WALK_JSON},
        {API_MEMBER_FUNCTIONS, DEMAND_WALK_JSON},
        {API_MEMBER_RESPONSE_FORMAT, DEMAND_WALK_JSON},
        {API_MEMBER_FORMAT, DEMAND_WALK_JSON},
        {API_MEMBER_JSON_SCHEMA, DEMAND_WALK_JSON},
        {API_MEMBER_CHAT_TEMPLATE_KWARGS, DEMAND_WALK_JSON},
        {API_MEMBER_TEXT, DEMAND_WALK_JSON},
        {API_MEMBER_DOCUMENTS, DEMAND_WALK_JSON},
    };
    struct demand_walk w;
    if (walk(r, API_MEMBER_MESSAGES, DEMAND_WALK_MESSAGES, &w))
        r->demand->messages = w.elements;
    if (r->route->operation == API_OPERATION_RESPONSES &&
        walk(r, API_MEMBER_INPUT, DEMAND_WALK_MESSAGES, &w))
        r->demand->messages += w.elements > 0 ? w.elements : 1; /* a text is a message */
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        (void)walk(r, texts[i].member, texts[i].mode, &w);
    read_templates(r);
    /* Ollama's pictures of a prompt: their number, not their bytes. */
    const struct api_request_member *images = &r->request->members[API_MEMBER_IMAGES];
    if (images->kind == JSON_KIND_ARRAY) {
        w = (struct demand_walk){.mode = DEMAND_WALK_PROMPT};
        demand_walk(&w, images->value);
        r->demand->images += w.elements;
    }
}

static uint32_t little_endian(const char *p)
{
    const unsigned char *b = (const unsigned char *)p;
    return (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

/* RIFF: chunks of id, length, content, padded to even lengths. 0 when it cannot be read. */
static uint64_t wav_ms(struct span file)
{
    uint64_t bytes_per_s = 0;
    for (size_t at = 12; file.len - at >= 8;) {
        const char *chunk = file.ptr + at;
        uint64_t length = little_endian(chunk + 4);
        uint64_t left = file.len - at - 8;
        if (memcmp(chunk, "fmt ", 4) == 0 && length >= 16 && left >= 16)
            bytes_per_s = little_endian(chunk + 16);
        if (memcmp(chunk, "data", 4) == 0) {
            uint64_t data = length < left ? length : left; /* streams write 2^32-1 */
            return bytes_per_s ? (data * MS_PER_S + bytes_per_s - 1) / bytes_per_s : 0;
        }
        length += length & 1;
        if (length > left)
            return 0;
        at += 8 + (size_t)length;
    }
    return 0;
}

static void read_audio(struct reader *r)
{
    struct span file = r->request->multipart_file;
    r->demand->audio_bytes = file.len;
    if (file.len < 12)
        return;
    const unsigned char *b = (const unsigned char *)file.ptr;
    if (memcmp(b, "RIFF", 4) == 0 && memcmp(b + 8, "WAVE", 4) == 0)
        r->demand->audio_ms = wav_ms(file);
    else if (memcmp(b, "ID3", 3) == 0 || (b[0] == 0xFF && (b[1] & 0xE0) == 0xE0))
        r->demand->audio_ms = file.len; /* MP3 begins at 8 kbit/s: a byte a millisecond */
}

int api_demand_read(const struct api_route *route, const struct api_request *request,
                    struct api_demand *ret, struct api_error *ret_error)
{
    struct api_demand demand = {0};
    struct reader r = {.route = route, .request = request, .demand = &demand, .error = ret_error};
    if (request->body_kind == API_BODY_MULTIPART) {
        read_audio(&r);
    } else if (request->body_kind == API_BODY_JSON && embeds(route->operation)) {
        read_sizes(&r);
        read_keep_alive(&r);
        if (!r.failed)
            read_inputs(&r);
    } else if (request->body_kind == API_BODY_JSON &&
               (api_operation_generates(route->operation) ||
                route->operation == API_OPERATION_COUNT_TOKENS)) {
        read_sizes(&r);
        read_keep_alive(&r);
        if (!r.failed)
            read_text(&r);
    }
    if (r.failed)
        return -EBADMSG;
    *ret = demand;
    return 0;
}

uint64_t api_demand_prompt_tokens_upper(const struct api_demand *demand, uint64_t template_bytes)
{
    uint64_t sum = demand->prompt_bytes;
    add_times(&sum, template_bytes, (uint64_t)demand->messages + 1);
    add(&sum, API_DEMAND_EDGE_TOKENS);
    return sum;
}
