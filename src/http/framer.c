/*
 * The event framer. Owned by one response; one thread. Two ways through it:
 *
 *   An event that begins and ends within one read is scanned once, its fields taken on the way, and
 *   points into the read: no copy, no allocation. This is nearly every event.
 *
 *   An event that is spread over reads is kept in `pending`; each new byte is looked at once (the
 *   scan resumes in `state`), and the fields are taken when the end is there.
 *
 * States of the scan (a: any byte but CR and LF; * the event is complete):
 *
 *   BOM_0..2     at the very start, 0 to 2 bytes of a byte order mark seen
 *   LINE_START   at the start of a line       LF → LINE_START*    CR → TAIL*      a → LINE
 *   LINE         within a line                LF → LINE_START     CR → AFTER_CR   a → LINE
 *   AFTER_CR     as LINE_START, but an LF belongs to the line ending before
 *   TAIL         between events, but an LF belongs to the event before; only at the end of a read
 *
 * So a CR ends a line, and an event, at once: nobody waits for an LF that may never come.
 *
 * Invariants: `pending` never exceeds the window; bytes are handed out in order, each exactly once.
 */
#include "http/framer.h"

#include "base/swar.h"

#include <errno.h>

enum scan_state {
    STATE_BOM_0,
    STATE_BOM_1,
    STATE_BOM_2,
    STATE_LINE_START,
    STATE_LINE,
    STATE_AFTER_CR,
    STATE_TAIL,
};

/* An idle stream keeps no more than this for each of its two buffers. */
enum { FRAMER_KEEP_BYTES = 1024 };

static const char byte_order_mark[] = "\xEF\xBB\xBF";
enum { BOM_BYTES = 3 };

/* A thousand idle streams hold a framer each. */
_Static_assert(sizeof(struct framer) < 160, "struct framer must stay small");

void framer_init(struct framer *f, enum framer_kind kind, size_t window_bytes)
{
    *f = (struct framer){
        .kind = kind,
        .window_bytes = window_bytes,
        .state = STATE_BOM_0,
        .at_start = true,
    };
    /* One more than the window for the LF of a CRLF that ends the event. */
    size_t cap = window_bytes < SIZE_MAX ? window_bytes + 1 : window_bytes;
    buf_init(&f->pending, cap);
    buf_init(&f->joined, cap);
}

void framer_free(struct framer *f)
{
    if (!f)
        return;
    buf_free(&f->pending);
    buf_free(&f->joined);
    f->input = SPAN_NONE;
    f->scanned = 0;
}

void framer_feed(struct framer *f, struct span input)
{
    f->input = input;
    f->scanned = 0;
}

/* Bytes of the current event that are kept from earlier reads. */
static size_t framer_held(const struct framer *f)
{
    return f->pending_given ? 0 : f->pending.len;
}

static void framer_advance(struct framer *f, size_t n)
{
    f->input.ptr += n;
    f->input.len -= n;
    f->scanned = 0;
}

/* The first CR or LF from p on, or end. */
static const char *find_line_end(const char *p, const char *end)
{
    while (end - p >= 8) {
        uint64_t word = swar_load(p);
        if (swar_has_byte(word, '\n') | swar_has_byte(word, '\r'))
            break;
        p += 8;
    }
    while (p < end && *p != '\n' && *p != '\r')
        p++;
    return p;
}

/* A complete event within some bytes. */
struct event_end {
    size_t length;
    bool open_cr; /* ended by a CR that is the last byte: an LF may follow */
    bool crlf;    /* ended by CRLF: the LF is not counted against the window */
};

static size_t counted_length(const struct event_end *end)
{
    return end->length - end->crlf;
}

/* p is behind the CR of the blank line that ends an event. */
static const char *end_on_cr(const char *p, const char *end, struct event_end *ret_end)
{
    ret_end->open_cr = p == end;
    ret_end->crlf = p < end && *p == '\n';
    return p + ret_end->crlf;
}

/* Steps over one byte of a possible byte order mark, or decides that it is none. */
static const char *step_bom(const char *p, unsigned char *state)
{
    unsigned matched = *state - STATE_BOM_0;
    if (*p == byte_order_mark[matched]) {
        *state = matched + 1 == BOM_BYTES ? STATE_LINE_START : (unsigned char)(*state + 1);
        return p + 1;
    }
    *state = matched ? STATE_LINE : STATE_LINE_START;
    return p;
}

/* Resumes the scan for the blank line in *state. True with *ret_end when it is there. */
static bool sse_find_end(struct span bytes, unsigned char *state, struct event_end *ret_end)
{
    const char *p = bytes.ptr;
    const char *end = p + bytes.len;
    while (p < end) {
        switch (*state) {
        case STATE_AFTER_CR:
            *state = STATE_LINE_START;
            if (*p == '\n')
                p++;
            break;
        case STATE_LINE_START:
            if (*p == '\n' || *p == '\r') {
                *ret_end = (struct event_end){0};
                p++;
                if (p[-1] == '\r')
                    p = end_on_cr(p, end, ret_end);
                ret_end->length = (size_t)(p - bytes.ptr);
                return true;
            }
            *state = STATE_LINE;
            break;
        case STATE_LINE:
            p = find_line_end(p, end);
            if (p < end)
                *state = *p++ == '\r' ? STATE_AFTER_CR : STATE_LINE_START;
            break;
        default: p = step_bom(p, state); break;
        }
    }
    return false;
}

static bool ndjson_find_end(struct span bytes, struct event_end *ret_end)
{
    const char *hit = memchr(bytes.ptr, '\n', bytes.len);
    if (!hit)
        return false;
    *ret_end = (struct event_end){.length = (size_t)(hit - bytes.ptr) + 1};
    return true;
}

static bool find_end(const struct framer *f, unsigned char *state, struct event_end *ret_end)
{
    struct span bytes = {f->input.ptr + f->scanned, f->input.len - f->scanned};
    if (f->kind == FRAMER_KIND_NDJSON ? !ndjson_find_end(bytes, ret_end)
                                      : !sse_find_end(bytes, state, ret_end))
        return false;
    ret_end->length += f->scanned;
    return true;
}

static int sse_take_data(struct framer *f, struct framer_event *e, struct span value)
{
    if (!e->data.ptr) {
        e->data = value;
        return 0;
    }
    int r = 0;
    if (e->data.ptr != f->joined.data) {
        f->joined.len = 0;
        r = buf_append_span(&f->joined, e->data);
    }
    if (r == 0)
        r = buf_append(&f->joined, "\n", 1);
    if (r == 0)
        r = buf_append_span(&f->joined, value);
    /* More data than the window holds: the event is too, so its fields are never shown. */
    if (r < 0)
        return r == -EMSGSIZE ? 0 : r;
    e->data = buf_span(&f->joined);
    return 0;
}

/*
 * A line outside the standard. Bare JSON that was printed over several lines has its lines next to
 * each other, and line endings are white space in JSON: together they are the text that was meant.
 */
static void sse_take_odd_line(struct framer_event *e, struct span line)
{
    if (!e->odd_line.ptr)
        e->odd_line = line;
    else if (e->odd_line.ptr[0] == '{')
        e->odd_line.len = (size_t)(line.ptr + line.len - e->odd_line.ptr);
}

/* Takes the field of one line that is not blank, without its ending (WHATWG HTML §9.2.6). */
static int sse_take_line(struct framer *f, struct framer_event *e, struct span line)
{
    enum { LONGEST_NAME = 5 };
    if (line.ptr[0] == ':')
        return 0;
    size_t look = line.len < LONGEST_NAME + 1 ? line.len : LONGEST_NAME + 1;
    const char *colon = memchr(line.ptr, ':', look);
    struct span name = line;
    struct span value = {line.ptr + line.len, 0};
    if (colon) {
        name.len = (size_t)(colon - line.ptr);
        value = (struct span){colon + 1, line.len - name.len - 1};
        if (value.len > 0 && value.ptr[0] == ' ') {
            value.ptr++;
            value.len--;
        }
    }
    if (span_equals(name, SPAN_LIT("data")))
        return sse_take_data(f, e, value);
    if (span_equals(name, SPAN_LIT("event")))
        e->name = value;
    else if (span_equals(name, SPAN_LIT("id")))
        e->id = value;
    else if (!span_equals(name, SPAN_LIT("retry")))
        sse_take_odd_line(e, line);
    return 0;
}

/* Where an event's first line begins: behind a byte order mark at the start of the stream. */
static const char *skip_bom(const struct framer *f, struct span bytes)
{
    if (f->at_start && bytes.len >= BOM_BYTES && memcmp(bytes.ptr, byte_order_mark, BOM_BYTES) == 0)
        return bytes.ptr + BOM_BYTES;
    return bytes.ptr;
}

/* The state of a scan that stands at the end of bytes, within or at the start of the line. */
static unsigned char sse_state_at_end(const struct framer *f, struct span bytes, const char *line)
{
    if (f->at_start && bytes.len < BOM_BYTES && memcmp(bytes.ptr, byte_order_mark, bytes.len) == 0)
        return (unsigned char)(STATE_BOM_0 + bytes.len);
    return line == bytes.ptr + bytes.len ? STATE_LINE_START : STATE_LINE;
}

/*
 * Reads an event from its first byte on, boundary and fields in one pass. >0: complete, *ret_end
 * filled; 0: not complete, *ret_state tells where the scan stands and *ret_rest is the unfinished
 * last line; -ENOMEM.
 */
static int sse_read(struct framer *f, struct span bytes, struct framer_event *e,
                    struct event_end *ret_end, unsigned char *ret_state, struct span *ret_rest)
{
    const char *end = bytes.ptr + bytes.len;
    const char *p = skip_bom(f, bytes);
    for (;;) {
        const char *line_end = find_line_end(p, end);
        if (line_end == end) {
            *ret_state = sse_state_at_end(f, bytes, p);
            *ret_rest = (struct span){p, (size_t)(end - p)};
            return 0;
        }
        bool blank = line_end == p;
        if (!blank) {
            int r = sse_take_line(f, e, (struct span){p, (size_t)(line_end - p)});
            if (r < 0)
                return r;
        }
        p = line_end + 1;
        if (blank) {
            *ret_end = (struct event_end){0};
            if (*line_end == '\r')
                p = end_on_cr(p, end, ret_end);
            ret_end->length = (size_t)(p - bytes.ptr);
            return 1;
        }
        if (*line_end == '\r') {
            if (p == end) {
                *ret_state = STATE_AFTER_CR;
                *ret_rest = (struct span){p, 0};
                return 0;
            }
            if (*p == '\n')
                p++;
        }
    }
}

static void ndjson_read_line(const struct framer *f, struct span bytes, struct framer_event *e)
{
    const char *start = skip_bom(f, bytes);
    struct span line = {start, (size_t)(bytes.ptr + bytes.len - start)};
    if (line.len > 0 && line.ptr[line.len - 1] == '\n')
        line.len--;
    if (line.len > 0 && line.ptr[line.len - 1] == '\r')
        line.len--;
    if (span_trim(line).len > 0)
        e->data = line;
}

/* Takes the fields of a complete event. 0; -ENOMEM. */
static int read_fields(struct framer *f, struct span bytes, struct framer_event *e)
{
    if (f->kind == FRAMER_KIND_NDJSON) {
        ndjson_read_line(f, bytes, e);
        return 0;
    }
    struct event_end end;
    unsigned char state;
    struct span rest;
    int r = sse_read(f, bytes, e, &end, &state, &rest);
    return r < 0 ? r : 0;
}

/* The current event ends in the input: takes its part off, ready for the next event. */
static void finish_event(struct framer *f, const struct event_end *end)
{
    framer_advance(f, end->length);
    f->state = end->open_cr ? STATE_TAIL : STATE_LINE_START;
    f->at_start = false;
}

static int give_piece(struct framer *f, struct framer_event *ret_event, struct span bytes,
                      bool last)
{
    *ret_event = (struct framer_event){
        .kind = FRAMER_EVENT_PIECE,
        .bytes = bytes,
        .first_piece = !f->in_pieces,
        .last_piece = last,
    };
    f->in_pieces = !last;
    f->at_start = false;
    return 1;
}

/* The current event has outgrown the window and nothing of it is held. */
static int next_piece(struct framer *f, struct framer_event *ret_event)
{
    struct event_end end;
    if (find_end(f, &f->state, &end)) {
        int r = give_piece(f, ret_event, (struct span){f->input.ptr, end.length}, true);
        finish_event(f, &end);
        return r;
    }
    struct span bytes = f->input;
    framer_advance(f, bytes.len);
    return give_piece(f, ret_event, bytes, false);
}

/* A part of the current event is held from earlier reads. */
static int next_spread(struct framer *f, struct framer_event *ret_event)
{
    struct event_end end;
    unsigned char state = f->state;
    bool complete = find_end(f, &state, &end);
    size_t here = complete ? counted_length(&end) : f->input.len;
    if (here > f->window_bytes - f->pending.len) {
        /* `state` is left where it was: the input is scanned again as pieces. */
        f->pending_given = true;
        return give_piece(f, ret_event, buf_span(&f->pending), false);
    }
    if (!complete) {
        f->state = state;
        f->scanned = f->input.len;
        return 0;
    }
    size_t held = f->pending.len;
    int r = buf_append(&f->pending, f->input.ptr, end.length);
    if (r < 0)
        return r;
    struct framer_event e = {.kind = FRAMER_EVENT_WHOLE, .bytes = buf_span(&f->pending)};
    r = read_fields(f, e.bytes, &e);
    if (r < 0) {
        f->pending.len = held;
        return r;
    }
    f->pending_given = true;
    finish_event(f, &end);
    *ret_event = e;
    return 1;
}

/* The current event begins with the input. */
static int next_fresh(struct framer *f, struct framer_event *ret_event)
{
    struct framer_event e = {.kind = FRAMER_EVENT_WHOLE};
    struct event_end end;
    unsigned char state = f->state;
    struct span rest;
    int r;
    if (f->kind == FRAMER_KIND_NDJSON)
        r = ndjson_find_end(f->input, &end);
    else
        r = sse_read(f, f->input, &e, &end, &state, &rest);
    if (r < 0)
        return r;
    if (r == 0) {
        f->state = state;
        if (f->input.len > f->window_bytes) {
            struct span bytes = f->input;
            framer_advance(f, bytes.len);
            return give_piece(f, ret_event, bytes, false);
        }
        f->scanned = f->input.len;
        return 0;
    }
    e.bytes = (struct span){f->input.ptr, end.length};
    if (counted_length(&end) > f->window_bytes) {
        give_piece(f, ret_event, e.bytes, true);
    } else {
        if (f->kind == FRAMER_KIND_NDJSON)
            ndjson_read_line(f, e.bytes, &e);
        *ret_event = e;
    }
    finish_event(f, &end);
    return 1;
}

int framer_next(struct framer *f, struct framer_event *ret_event)
{
    if (f->scanned == f->input.len)
        return 0;
    if (f->state == STATE_TAIL) {
        f->state = STATE_LINE_START;
        if (f->input.ptr[0] == '\n') {
            *ret_event = (struct framer_event){
                .kind = FRAMER_EVENT_TAIL,
                .bytes = {f->input.ptr, 1},
            };
            framer_advance(f, 1);
            return 1;
        }
    }
    if (f->in_pieces)
        return next_piece(f, ret_event);
    return framer_held(f) > 0 ? next_spread(f, ret_event) : next_fresh(f, ret_event);
}

/* Gives back what an idle stream does not need. */
static void trim_buffer(struct buf *b, size_t need)
{
    if (b->cap > FRAMER_KEEP_BYTES && need <= FRAMER_KEEP_BYTES)
        buf_free(b);
}

int framer_save(struct framer *f)
{
    if (f->scanned != f->input.len)
        return -EBUSY;
    if (f->pending_given) {
        f->pending.len = 0;
        f->pending_given = false;
        trim_buffer(&f->pending, f->input.len);
    }
    int r = buf_append_span(&f->pending, f->input);
    if (r < 0)
        return r;
    f->joined.len = 0;
    trim_buffer(&f->joined, 0);
    framer_feed(f, SPAN_NONE);
    return 0;
}

int framer_finish(struct framer *f, struct framer_event *ret_event)
{
    int r = framer_save(f);
    if (r < 0)
        return r;
    if (f->in_pieces)
        return give_piece(f, ret_event, SPAN_NONE, true);
    if (f->pending.len == 0)
        return 0;

    struct framer_event e = {.kind = FRAMER_EVENT_WHOLE, .bytes = buf_span(&f->pending)};
    if (f->kind == FRAMER_KIND_NDJSON) {
        ndjson_read_line(f, e.bytes, &e);
    } else {
        struct event_end end;
        unsigned char state;
        struct span rest;
        r = sse_read(f, e.bytes, &e, &end, &state, &rest);
        if (r == 0 && rest.len > 0)
            r = sse_take_line(f, &e, rest);
        if (r < 0)
            return r;
    }
    /* A second call finds nothing left; the bytes stay until they are freed. */
    f->pending_given = true;
    *ret_event = e;
    return 1;
}
