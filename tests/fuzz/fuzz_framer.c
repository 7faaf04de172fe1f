/*
 * Fuzzes the framer. The first bytes of an input choose kind, window and how the reads are cut, the
 * rest is the stream. It is read three ways, and all must agree on every event:
 *
 *   - by a plain reading of the standard, line by line, kept as simple as possible (below);
 *   - by the framer, fed at once;
 *   - by the framer, fed in parts of the chosen sizes.
 *
 * Besides, all bytes come out once and in order, and what is held never exceeds the window.
 */
#include "http/framer.h"

#include <stdint.h>
#include <stdlib.h>

#undef NDEBUG
#include <assert.h>

/* What is known of an event; offsets into the stream. */
struct record {
    size_t start, length;
    bool in_pieces, is_rest;
    bool has_data, has_name, has_id, has_odd;
    uint32_t data_hash, name_hash, id_hash, odd_hash;
};

struct records {
    struct record *list;
    size_t count, capacity;
};

static struct record *add_record(struct records *r)
{
    if (r->count == r->capacity) {
        r->capacity = r->capacity ? r->capacity * 2 : 64;
        r->list = realloc(r->list, r->capacity * sizeof(*r->list));
        assert(r->list);
    }
    r->list[r->count] = (struct record){0};
    return &r->list[r->count++];
}

enum { HASH_START = 5381 };

static uint32_t hash_more(uint32_t h, const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        h = (uint32_t)((uint64_t)h * 33 % 4294967291u) ^ (unsigned char)p[i];
    return h;
}

/* ---- the plain reading ------------------------------------------------------------------------ */

struct line {
    size_t start, length, next; /* next: behind its ending */
    bool ended;
};

static struct line line_at(struct span s, size_t at)
{
    struct line l = {at, 0, at, false};
    while (l.next < s.len && s.ptr[l.next] != '\n' && s.ptr[l.next] != '\r')
        l.next++;
    l.length = l.next - at;
    if (l.next < s.len) {
        l.ended = true;
        bool cr = s.ptr[l.next++] == '\r';
        if (cr && l.next < s.len && s.ptr[l.next] == '\n')
            l.next++;
    }
    return l;
}

static bool is_name(const char *p, size_t n, const char *name)
{
    return n == strlen(name) && memcmp(p, name, n) == 0;
}

static void plain_line(struct record *r, const char *p, size_t n, const char **odd_start)
{
    if (n == 0 || p[0] == ':')
        return;
    size_t colon = 0;
    while (colon < n && p[colon] != ':')
        colon++;
    size_t from = colon < n ? colon + 1 : n;
    if (from < n && p[from] == ' ')
        from++;
    uint32_t hash = hash_more(HASH_START, p + from, n - from);
    if (is_name(p, colon, "data")) {
        r->data_hash =
            r->has_data ? hash_more(hash_more(r->data_hash, "\n", 1), p + from, n - from) : hash;
        r->has_data = true;
    } else if (is_name(p, colon, "event")) {
        r->has_name = true;
        r->name_hash = hash;
    } else if (is_name(p, colon, "id")) {
        r->has_id = true;
        r->id_hash = hash;
    } else if (!is_name(p, colon, "retry")) {
        if (!r->has_odd)
            *odd_start = p;
        if (!r->has_odd || **odd_start == '{')
            r->odd_hash = hash_more(HASH_START, *odd_start, (size_t)(p + n - *odd_start));
        r->has_odd = true;
    }
}

static void read_sse_plainly(struct span s, size_t window, struct records *out)
{
    size_t at = 0;
    while (at < s.len) {
        struct record *r = add_record(out);
        const char *odd_start = NULL;
        r->start = at;
        if (at == 0 && s.len >= 3 && memcmp(s.ptr, "\xEF\xBB\xBF", 3) == 0)
            at = 3;
        bool blank = false;
        struct line l = {0};
        while (!blank && at < s.len) {
            l = line_at(s, at);
            blank = l.ended && l.length == 0;
            plain_line(r, s.ptr + l.start, l.length, &odd_start);
            at = l.next;
        }
        r->length = at - r->start;
        r->is_rest = !blank;
        size_t counted = r->length;
        if (blank && l.next - l.start == 2)
            counted--;
        r->in_pieces = counted > window;
    }
}

static void read_ndjson_plainly(struct span s, size_t window, struct records *out)
{
    size_t at = 0;
    while (at < s.len) {
        struct record *r = add_record(out);
        r->start = at;
        size_t from = at;
        if (at == 0 && s.len >= 3 && memcmp(s.ptr, "\xEF\xBB\xBF", 3) == 0)
            from = 3;
        while (at < s.len && s.ptr[at] != '\n')
            at++;
        size_t end = at;
        r->is_rest = at == s.len;
        at += !r->is_rest;
        if (end > from && s.ptr[end - 1] == '\r')
            end--;
        for (size_t i = from; i < end; i++)
            r->has_data |= s.ptr[i] != ' ' && s.ptr[i] != '\t';
        r->data_hash = hash_more(HASH_START, s.ptr + from, end > from ? end - from : 0);
        r->length = at - r->start;
        r->in_pieces = r->length > window;
    }
}

/* ---- the framer ------------------------------------------------------------------------------- */

struct reading {
    struct records records;
    size_t at; /* bytes that came out */
    struct span stream;
    bool in_pieces;
};

static uint32_t hash_span(struct span s)
{
    return hash_more(HASH_START, s.ptr, s.len);
}

static void take_event(struct reading *g, const struct framer_event *e, bool is_rest)
{
    assert(e->bytes.len <= g->stream.len - g->at);
    assert(e->bytes.len == 0 || memcmp(e->bytes.ptr, g->stream.ptr + g->at, e->bytes.len) == 0);
    size_t start = g->at;
    g->at += e->bytes.len;
    if (e->kind == FRAMER_EVENT_TAIL) {
        assert(g->records.count > 0 && !g->in_pieces && e->bytes.len == 1);
        assert(g->stream.ptr[start - 1] == '\r' && g->stream.ptr[start] == '\n');
        g->records.list[g->records.count - 1].length++;
        return;
    }
    if (e->kind == FRAMER_EVENT_PIECE) {
        assert(e->first_piece == !g->in_pieces);
        g->in_pieces = !e->last_piece;
        if (!e->first_piece) {
            g->records.list[g->records.count - 1].length += e->bytes.len;
            g->records.list[g->records.count - 1].is_rest = is_rest;
            return;
        }
        *add_record(&g->records) =
            (struct record){.start = start, .length = e->bytes.len, .in_pieces = true};
        return;
    }
    assert(!g->in_pieces && e->bytes.len > 0);
    *add_record(&g->records) = (struct record){
        .start = start,
        .length = e->bytes.len,
        .is_rest = is_rest,
        .has_data = e->data.ptr,
        .has_name = e->name.ptr,
        .has_id = e->id.ptr,
        .has_odd = e->odd_line.ptr,
        .data_hash = hash_span(e->data),
        .name_hash = hash_span(e->name),
        .id_hash = hash_span(e->id),
        .odd_hash = hash_span(e->odd_line),
    };
}

static void read_with_framer(enum framer_kind kind, size_t window, struct span stream,
                             uint32_t cut_seed, struct reading *g)
{
    struct framer f;
    struct framer_event e;
    framer_init(&f, kind, window);
    *g = (struct reading){.stream = stream};
    size_t largest = cut_seed % 37 + 1;
    for (size_t at = 0; at < stream.len;) {
        size_t n = stream.len - at;
        if (cut_seed) {
            cut_seed = cut_seed * 1664525u + 1013904223u;
            size_t part = (cut_seed >> 16) % largest + 1;
            n = part < n ? part : n;
        }
        /* A read buffer that is gone after the read. */
        char *copy = malloc(n);
        assert(copy);
        memcpy(copy, stream.ptr + at, n);
        framer_feed(&f, (struct span){copy, n});
        int r;
        while ((r = framer_next(&f, &e)) > 0)
            take_event(g, &e, false);
        assert(r == 0 && framer_next(&f, &e) == 0);
        assert(framer_save(&f) == 0);
        assert(f.pending.len <= window);
        free(copy);
        at += n;
    }
    int r = framer_finish(&f, &e);
    assert(r >= 0);
    if (r > 0)
        take_event(g, &e, true);
    assert(framer_finish(&f, &e) == 0);
    assert(g->at == stream.len);
    framer_free(&f);
}

/* ---- comparing -------------------------------------------------------------------------------- */

static void compare(const struct records *a, const struct records *b)
{
    assert(a->count == b->count);
    for (size_t i = 0; i < a->count; i++) {
        const struct record *x = &a->list[i];
        const struct record *y = &b->list[i];
        assert(x->start == y->start && x->length == y->length);
        assert(x->in_pieces == y->in_pieces && x->is_rest == y->is_rest);
        if (x->in_pieces)
            continue;
        assert(x->has_data == y->has_data && x->has_name == y->has_name);
        assert(x->has_id == y->has_id && x->has_odd == y->has_odd);
        assert(!x->has_data || x->data_hash == y->data_hash);
        assert(!x->has_name || x->name_hash == y->name_hash);
        assert(!x->has_id || x->id_hash == y->id_hash);
        assert(!x->has_odd || x->odd_hash == y->odd_hash);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum { CONTROL_BYTES = 4 };
    if (size < CONTROL_BYTES)
        return 0;
    enum framer_kind kind = data[0] & 1 ? FRAMER_KIND_NDJSON : FRAMER_KIND_SSE;
    /* Mostly roomy, often tight. */
    size_t window = data[0] & 2 ? data[1] : 65536;
    uint32_t cut_seed = (uint32_t)data[2] << 8 | data[3] | 0x10000;
    struct span stream = {(const char *)data + CONTROL_BYTES, size - CONTROL_BYTES};

    struct records plain = {0};
    if (kind == FRAMER_KIND_SSE)
        read_sse_plainly(stream, window, &plain);
    else
        read_ndjson_plainly(stream, window, &plain);
    struct reading whole, parts;
    read_with_framer(kind, window, stream, 0, &whole);
    read_with_framer(kind, window, stream, cut_seed, &parts);
    compare(&plain, &whole.records);
    compare(&plain, &parts.records);
    free(plain.list);
    free(whole.records.list);
    free(parts.records.list);
    return 0;
}
