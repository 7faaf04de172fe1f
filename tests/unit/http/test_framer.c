/*
 * The framer. A stream is fed in parts, and what comes out is written down as one line of text an
 * event, so that "the same events, however the reads were cut" is a comparison of strings:
 *
 *   W bytes=21 data="{…}" name=- id=- odd=-        a whole event (with its TAIL, if one came)
 *   P bytes=300                                    pieces of one event together
 *   R bytes=7 …                                    the rest at the end of the body
 */
#include "tests/unit/unit.h"

#include "http/framer.h"
#include "tests/unit/alloc_fail.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

struct transcript {
    struct buf text;    /* the lines */
    struct buf bytes;   /* all bytes that came out, in order */
    size_t event_bytes; /* of the last event, which a TAIL or a PIECE may prolong */
    size_t event_line;  /* where its line begins */
    bool in_pieces;
    unsigned tails;
    bool retry_no_memory; /* on -ENOMEM, call again as a caller that waits for memory would */
    unsigned no_memory;
};

static void transcript_init(struct transcript *t)
{
    *t = (struct transcript){0};
    buf_init(&t->text, SIZE_MAX / 2);
    buf_init(&t->bytes, SIZE_MAX / 2);
}

static void transcript_free(struct transcript *t)
{
    buf_free(&t->text);
    buf_free(&t->bytes);
}

static void write_field(struct transcript *t, const char *name, struct span value)
{
    if (!value.ptr) {
        assert_int_equal(buf_printf(&t->text, " %s=-", name), 0);
        return;
    }
    assert_int_equal(buf_printf(&t->text, " %s=\"", name), 0);
    assert_int_equal(buf_append_json(&t->text, value), 0);
    assert_int_equal(buf_append_str(&t->text, "\""), 0);
}

/* Writes "W bytes=N" in front of the fields; again when a TAIL or a PIECE has made it longer. */
static void write_head(struct transcript *t, char letter, struct span rest)
{
    char head[64];
    int n = snprintf(head, sizeof(head), "%c bytes=%zu", letter, t->event_bytes);
    char *kept = malloc(rest.len + 1);
    assert_non_null(kept);
    if (rest.len)
        memcpy(kept, rest.ptr, rest.len);
    t->text.len = t->event_line;
    assert_int_equal(buf_append(&t->text, head, (size_t)n), 0);
    assert_int_equal(buf_append(&t->text, kept, rest.len), 0);
    free(kept);
}

static void prolong(struct transcript *t, size_t more)
{
    const char *line = t->text.data + t->event_line;
    char letter = line[0];
    size_t head = 2;
    while (line[head] != ' ' && line[head] != '\n') /* the text ends in \n, not in a NUL */
        head++;
    t->event_bytes += more;
    write_head(t, letter, (struct span){line + head, t->text.len - t->event_line - head});
}

static void write_event(struct transcript *t, const struct framer_event *e, char letter)
{
    assert_int_equal(buf_append_span(&t->bytes, e->bytes), 0);
    if (e->kind == FRAMER_EVENT_TAIL) {
        assert_int_equal(e->bytes.len, 1);
        assert_int_equal(e->bytes.ptr[0], '\n');
        assert_false(t->in_pieces);
        assert_true(t->bytes.len > 1); /* it belongs to an event */
        t->tails++;
        prolong(t, 1);
        return;
    }
    if (e->kind == FRAMER_EVENT_PIECE) {
        assert_int_equal(e->first_piece, !t->in_pieces);
        assert_null(e->data.ptr);
        bool first = !t->in_pieces;
        t->in_pieces = !e->last_piece;
        if (!first) {
            prolong(t, e->bytes.len);
            return;
        }
        letter = 'P';
    } else {
        assert_false(t->in_pieces);
    }
    t->event_line = t->text.len;
    t->event_bytes = e->bytes.len;
    write_head(t, letter, SPAN_NONE);
    if (e->kind == FRAMER_EVENT_WHOLE) {
        write_field(t, "data", e->data);
        write_field(t, "name", e->name);
        write_field(t, "id", e->id);
        write_field(t, "odd", e->odd_line);
    }
    assert_int_equal(buf_append_str(&t->text, "\n"), 0);
}

/* True when the call is to be repeated. */
static bool out_of_memory(struct transcript *t, int r)
{
    if (r != -ENOMEM || !t->retry_no_memory)
        return false;
    t->no_memory++;
    return true;
}

/* One read: a copy of the bytes that is gone afterwards, as the read buffer of a loop is. */
static void feed_part(struct framer *f, struct transcript *t, struct span part)
{
    char *copy = __real_malloc(part.len ? part.len : 1);
    assert_non_null(copy);
    if (part.len)
        memcpy(copy, part.ptr, part.len);
    framer_feed(f, (struct span){copy, part.len});
    struct framer_event e;
    int r;
    while ((r = framer_next(f, &e)) != 0) {
        if (out_of_memory(t, r))
            continue;
        assert_int_equal(r, 1);
        write_event(t, &e, 'W');
    }
    assert_int_equal(framer_next(f, &e), 0);
    while ((r = framer_save(f)) != 0)
        assert_true(out_of_memory(t, r));
    assert_true(f->pending.len <= f->window_bytes);
    free(copy);
}

static void finish(struct framer *f, struct transcript *t)
{
    struct framer_event e;
    int r;
    while ((r = framer_finish(f, &e)) < 0)
        assert_true(out_of_memory(t, r));
    if (r > 0)
        write_event(t, &e, 'R');
    assert_int_equal(framer_finish(f, &e), 0);
}

/* Feeds a stream cut at `cuts` (ascending, `count` of them). */
static void run_cut(enum framer_kind kind, size_t window, struct span stream, const size_t *cuts,
                    size_t count, struct transcript *t)
{
    struct framer f;
    framer_init(&f, kind, window);
    size_t from = 0;
    for (size_t i = 0; i <= count; i++) {
        size_t to = i < count ? cuts[i] : stream.len;
        feed_part(&f, t, (struct span){stream.ptr + from, to - from});
        from = to;
    }
    finish(&f, t);
    framer_free(&f);
    /* Nothing lost, nothing added, nothing changed. */
    assert_int_equal(t->bytes.len, stream.len);
    if (stream.len)
        assert_memory_equal(t->bytes.data, stream.ptr, stream.len);
}

static void run_every(enum framer_kind kind, size_t window, struct span stream, size_t step,
                      struct transcript *t)
{
    size_t cuts[4096];
    size_t count = 0;
    for (size_t at = step; at < stream.len; at += step) {
        assert_true(count < UNIT_COUNT(cuts));
        cuts[count++] = at;
    }
    run_cut(kind, window, stream, cuts, count, t);
}

static void expect_same(const struct transcript *got, const char *expected, const char *how,
                        size_t where)
{
    if (!span_equals_str(buf_span(&got->text), expected))
        fail_msg("%s %zu:\n%.*sexpected:\n%s", how, where, SPAN_FMT(buf_span(&got->text)),
                 expected);
}

/* The stream gives `expected` (or, if NULL, what it gives as a whole) for every way to cut it. */
static void check_stream(enum framer_kind kind, size_t window, struct span stream,
                         const char *expected)
{
    struct transcript whole;
    transcript_init(&whole);
    run_cut(kind, window, stream, NULL, 0, &whole);
    assert_int_equal(buf_append(&whole.text, "", 1), 0);
    whole.text.len--;
    if (expected)
        expect_same(&whole, expected, "as a whole", 0);
    for (size_t cut = 0; cut <= stream.len; cut++) {
        struct transcript t;
        transcript_init(&t);
        run_cut(kind, window, stream, &cut, 1, &t);
        expect_same(&t, whole.text.data, "cut at", cut);
        transcript_free(&t);
    }
    for (size_t step = 1; step <= 9; step++) {
        struct transcript t;
        transcript_init(&t);
        run_every(kind, window, stream, step, &t);
        expect_same(&t, whole.text.data, "parts of", step);
        transcript_free(&t);
    }
    transcript_free(&whole);
}

enum { WINDOW = 4096 };

struct stream_case {
    const char *stream;
    const char *expected;
};

static void check_cases(enum framer_kind kind, const struct stream_case *cases, size_t count)
{
    for (size_t i = 0; i < count; i++)
        check_stream(kind, WINDOW, span_from_str(cases[i].stream), cases[i].expected);
}

/* F83, openai/openai-python#498: the space after the colon is optional; at most one is taken. */
static void data_fields(void **state)
{
    (void)state;
    static const struct stream_case cases[] = {
        {"data: {\"a\":1}\n\n", "W bytes=15 data=\"{\\\"a\\\":1}\" name=- id=- odd=-\n"},
        {"data:{\"a\":1}\n\n", "W bytes=14 data=\"{\\\"a\\\":1}\" name=- id=- odd=-\n"},
        {"data:  {\"a\":1}\n\n", "W bytes=16 data=\" {\\\"a\\\":1}\" name=- id=- odd=-\n"},
        {"data:\tx\n\n", "W bytes=9 data=\"\\tx\" name=- id=- odd=-\n"},
        {"data\n\n", "W bytes=6 data=\"\" name=- id=- odd=-\n"},
        {"data:\n\n", "W bytes=7 data=\"\" name=- id=- odd=-\n"},
        {"data: \n\n", "W bytes=8 data=\"\" name=- id=- odd=-\n"},
        {"data: a:b: c\n\n", "W bytes=14 data=\"a:b: c\" name=- id=- odd=-\n"},
        {"data: a\ndata: b\n\n", "W bytes=17 data=\"a\\nb\" name=- id=- odd=-\n"},
        {"data\ndata\n\n", "W bytes=11 data=\"\\n\" name=- id=- odd=-\n"},
        {"data: a\n: c\ndata\nid: 1\ndata:b\n\n",
         "W bytes=31 data=\"a\\n\\nb\" name=- id=\"1\" odd=-\n"},
        /* Joined data of one event must not leak into the next. */
        {"data: a\ndata: b\n\ndata: c\n\ndata: d\ndata: e\n\n",
         "W bytes=17 data=\"a\\nb\" name=- id=- odd=-\n"
         "W bytes=9 data=\"c\" name=- id=- odd=-\n"
         "W bytes=17 data=\"d\\ne\" name=- id=- odd=-\n"},
        {"event: delta\nid: 7\nretry: 3000\ndata: x\n\n",
         "W bytes=40 data=\"x\" name=\"delta\" id=\"7\" odd=-\n"},
        {"event: a\nevent\nid: 1\nid: 2\ndata: x\n\n",
         "W bytes=36 data=\"x\" name=\"\" id=\"2\" odd=-\n"},
        {"data: [DONE]\n\n", "W bytes=14 data=\"[DONE]\" name=- id=- odd=-\n"},
    };
    check_cases(FRAMER_KIND_SSE, cases, UNIT_COUNT(cases));
}

/* F85, ollama/ollama#16443, coder/coder#28185 and others: blocks without data are told apart. */
static void blocks_without_data(void **state)
{
    (void)state;
    static const struct stream_case cases[] = {
        {":\n\ndata: 1\n\n", "W bytes=3 data=- name=- id=- odd=-\n"
                             "W bytes=9 data=\"1\" name=- id=- odd=-\n"},
        {": OPENROUTER PROCESSING\n\n", "W bytes=25 data=- name=- id=- odd=-\n"},
        {"data: : OPENROUTER PROCESSING\n\n",
         "W bytes=31 data=\": OPENROUTER PROCESSING\" name=- id=- odd=-\n"},
        {"retry: 3000\n\n", "W bytes=13 data=- name=- id=- odd=-\n"},
        {"id: 5\n\n", "W bytes=7 data=- name=- id=\"5\" odd=-\n"},
        {"event: ping\n\n", "W bytes=13 data=- name=\"ping\" id=- odd=-\n"},
        {"\n\n\ndata: x\n\n\n", "W bytes=1 data=- name=- id=- odd=-\n"
                                "W bytes=1 data=- name=- id=- odd=-\n"
                                "W bytes=1 data=- name=- id=- odd=-\n"
                                "W bytes=9 data=\"x\" name=- id=- odd=-\n"
                                "W bytes=1 data=- name=- id=- odd=-\n"},
        {": ping\ndata: x\n\n", "W bytes=16 data=\"x\" name=- id=- odd=-\n"},
        {"", ""},
    };
    check_cases(FRAMER_KIND_SSE, cases, UNIT_COUNT(cases));
}

/* F89, ggml-org/llama.cpp#14566 and others: errors outside the standard are shown as they are. */
static void lines_outside_the_standard(void **state)
{
    (void)state;
    static const struct stream_case cases[] = {
        {"error: {\"code\":500}\n\ndata: [DONE]\n\n",
         "W bytes=21 data=- name=- id=- odd=\"error: {\\\"code\\\":500}\"\n"
         "W bytes=14 data=\"[DONE]\" name=- id=- odd=-\n"},
        {"{\"error\":\"x\"}\n\n",
         "W bytes=15 data=- name=- id=- odd=\"{\\\"error\\\":\\\"x\\\"}\"\n"},
        {"{\"error\":\"x\"}", "R bytes=13 data=- name=- id=- odd=\"{\\\"error\\\":\\\"x\\\"}\"\n"},
        {"data: 1\n\n{\"error\":\"x\"}\n",
         "W bytes=9 data=\"1\" name=- id=- odd=-\n"
         "R bytes=14 data=- name=- id=- odd=\"{\\\"error\\\":\\\"x\\\"}\"\n"},
        /* Printed over several lines: together they are the text. */
        {"{\n  \"error\": 1\n}\n",
         "R bytes=17 data=- name=- id=- odd=\"{\\n  \\\"error\\\": 1\\n}\"\n"},
        /* Otherwise the first one counts. */
        {"foo: 1\nbar: 2\ndata: x\n\n", "W bytes=23 data=\"x\" name=- id=- odd=\"foo: 1\"\n"},
        {"Data: x\n\n", "W bytes=9 data=- name=- id=- odd=\"Data: x\"\n"},
        {" data: x\n\n", "W bytes=10 data=- name=- id=- odd=\" data: x\"\n"},
        {"datax: y\n\n", "W bytes=10 data=- name=- id=- odd=\"datax: y\"\n"},
        {"dat: y\n\n", "W bytes=8 data=- name=- id=- odd=\"dat: y\"\n"},
        {"<html>\n\n", "W bytes=8 data=- name=- id=- odd=\"<html>\"\n"},
        {"retryy\n\n", "W bytes=8 data=- name=- id=- odd=\"retryy\"\n"},
        {"retry\n\n", "W bytes=7 data=- name=- id=- odd=-\n"},
    };
    check_cases(FRAMER_KIND_SSE, cases, UNIT_COUNT(cases));
}

/* What is left when the body ends. */
static void rests(void **state)
{
    (void)state;
    static const struct stream_case cases[] = {
        {"data: [DONE]", "R bytes=12 data=\"[DONE]\" name=- id=- odd=-\n"},
        {"data: [DONE]\n", "R bytes=13 data=\"[DONE]\" name=- id=- odd=-\n"},
        {"data: [DONE]\r", "R bytes=13 data=\"[DONE]\" name=- id=- odd=-\n"},
        {"data: [DONE]\r\n", "R bytes=14 data=\"[DONE]\" name=- id=- odd=-\n"},
        {"data: 1\n\ndata: {\"a\":", "W bytes=9 data=\"1\" name=- id=- odd=-\n"
                                     "R bytes=11 data=\"{\\\"a\\\":\" name=- id=- odd=-\n"},
        {"data: a\ndata: b", "R bytes=15 data=\"a\\nb\" name=- id=- odd=-\n"},
        {": pi", "R bytes=4 data=- name=- id=- odd=-\n"},
        {"d", "R bytes=1 data=- name=- id=- odd=\"d\"\n"},
        {"\xEF\xBB", "R bytes=2 data=- name=- id=- odd=\"\xEF\xBF\xBD\xEF\xBF\xBD\"\n"},
        {"\xEF\xBB\xBF", "R bytes=3 data=- name=- id=- odd=-\n"},
        {"data: 1\r\r", "W bytes=9 data=\"1\" name=- id=- odd=-\n"},
        {"data: 1\r\n\r\n", "W bytes=11 data=\"1\" name=- id=- odd=-\n"},
    };
    check_cases(FRAMER_KIND_SSE, cases, UNIT_COUNT(cases));
}

static void byte_order_mark_only_at_the_start(void **state)
{
    (void)state;
    static const struct stream_case cases[] = {
        {"\xEF\xBB\xBF"
         "data: x\n\n",
         "W bytes=12 data=\"x\" name=- id=- odd=-\n"},
        {"\xEF\xBB\xBF"
         "data: x\n\n\xEF\xBB\xBF"
         "data: y\n\n",
         "W bytes=12 data=\"x\" name=- id=- odd=-\n"
         "W bytes=12 data=- name=- id=- odd=\"\xEF\xBB\xBF"
         "data: y\"\n"},
        {"\xEF\xBB\xBF\xEF\xBB\xBF"
         "data: x\n\n",
         "W bytes=15 data=- name=- id=- odd=\"\xEF\xBB\xBF"
         "data: x\"\n"},
        {"\xEF\xBB\xBF\n"
         "data: x\n\n",
         "W bytes=4 data=- name=- id=- odd=-\n"
         "W bytes=9 data=\"x\" name=- id=- odd=-\n"},
        {"\xEF\xBB\xBF\r\n\r\n", "W bytes=5 data=- name=- id=- odd=-\n"
                                 "W bytes=2 data=- name=- id=- odd=-\n"},
        {"\xEF\xBB\n\n", "W bytes=4 data=- name=- id=- odd=\"\xEF\xBF\xBD\xEF\xBF\xBD\"\n"},
        {"\xEF\n\ndata: x\n\n", "W bytes=3 data=- name=- id=- odd=\"\xEF\xBF\xBD\"\n"
                                "W bytes=9 data=\"x\" name=- id=- odd=-\n"},
        {"\n\xEF\xBB\xBF"
         "data: x\n\n",
         "W bytes=1 data=- name=- id=- odd=-\n"
         "W bytes=12 data=- name=- id=- odd=\"\xEF\xBB\xBF"
         "data: x\"\n"},
    };
    check_cases(FRAMER_KIND_SSE, cases, UNIT_COUNT(cases));
    static const struct stream_case lines[] = {
        {"\xEF\xBB\xBF{}\n{}\n", "W bytes=6 data=\"{}\" name=- id=- odd=-\n"
                                 "W bytes=3 data=\"{}\" name=- id=- odd=-\n"},
        {"\xEF\xBB\xBF\n{}\n", "W bytes=4 data=- name=- id=- odd=-\n"
                               "W bytes=3 data=\"{}\" name=- id=- odd=-\n"},
    };
    check_cases(FRAMER_KIND_NDJSON, lines, UNIT_COUNT(lines));
}

/*
 * F84, rexxars/eventsource-parser#17 and others: LF, CRLF and CR, also mixed; every choice for each
 * of the line ends of a stream, cut at every place.
 */
static void every_mixture_of_line_endings(void **state)
{
    (void)state;
    static const char *const endings[] = {"\n", "\r\n", "\r"};
    static const char *const lines[] = {"data: A", "", "id: 1", "data: \xE9\x82\xA3", "", ""};
    enum { LINES = UNIT_COUNT(lines) };
    for (unsigned choice = 0; choice < 729; choice++) {
        char stream[128];
        size_t n = 0;
        unsigned left = choice;
        const char *previous = "";
        unsigned expected_events = 3;
        for (size_t i = 0; i < LINES; i++, left /= 3) {
            const char *ending = endings[left % 3];
            /* CR and then an empty line that ends in LF are one CRLF: a blank line is gone. */
            if (lines[i][0] == '\0' && strcmp(previous, "\r") == 0 && ending[0] == '\n')
                expected_events = 0;
            previous = ending;
            size_t line = strlen(lines[i]);
            memcpy(stream + n, lines[i], line);
            n += line;
            memcpy(stream + n, ending, strlen(ending));
            n += strlen(ending);
        }
        check_stream(FRAMER_KIND_SSE, WINDOW, (struct span){stream, n}, NULL);
        if (expected_events == 0)
            continue;
        struct transcript t;
        transcript_init(&t);
        run_cut(FRAMER_KIND_SSE, WINDOW, (struct span){stream, n}, NULL, 0, &t);
        unsigned events = 0;
        for (size_t i = 0; i < t.text.len; i++)
            events += t.text.data[i] == '\n';
        assert_int_equal(events, expected_events);
        assert_true(span_find(buf_span(&t.text), SPAN_LIT("data=\"A\" name=- id=-")) > 0);
        assert_true(
            span_find(buf_span(&t.text), SPAN_LIT("data=\"\xE9\x82\xA3\" name=- id=\"1\"")) > 0);
        transcript_free(&t);
    }
}

/* A CR at the end of a read neither delays the event nor doubles it. */
static void a_cr_at_the_end_of_a_read(void **state)
{
    (void)state;
    struct framer f;
    struct framer_event e;
    framer_init(&f, FRAMER_KIND_SSE, WINDOW);
    static const char first[] = "data: A\r\ndata: B\r";
    framer_feed(&f, span_from_str(first));
    assert_int_equal(framer_next(&f, &e), 0);
    assert_int_equal(framer_save(&f), 0);
    /* The LF of that line's CRLF is no blank line. */
    framer_feed(&f, SPAN_LIT("\n"));
    assert_int_equal(framer_next(&f, &e), 0);
    assert_int_equal(framer_save(&f), 0);
    framer_feed(&f, SPAN_LIT("\r"));
    assert_int_equal(framer_next(&f, &e), 1); /* at once */
    assert_int_equal(e.kind, FRAMER_EVENT_WHOLE);
    assert_span_equal(e.data, "A\nB");
    assert_span_equal(e.bytes, "data: A\r\ndata: B\r\n\r");
    assert_int_equal(framer_next(&f, &e), 0);
    assert_int_equal(framer_save(&f), 0);
    framer_feed(&f, SPAN_LIT("\ndata: C\r\r"));
    assert_int_equal(framer_next(&f, &e), 1);
    assert_int_equal(e.kind, FRAMER_EVENT_TAIL);
    assert_span_equal(e.bytes, "\n");
    assert_int_equal(framer_next(&f, &e), 1);
    assert_int_equal(e.kind, FRAMER_EVENT_WHOLE);
    assert_span_equal(e.data, "C");
    assert_int_equal(framer_next(&f, &e), 0);
    assert_int_equal(framer_save(&f), 0);
    /* No LF this time: the next event is complete in itself. */
    framer_feed(&f, SPAN_LIT("data: D\n\n\n"));
    assert_int_equal(framer_next(&f, &e), 1);
    assert_int_equal(e.kind, FRAMER_EVENT_WHOLE);
    assert_span_equal(e.bytes, "data: D\n\n");
    assert_int_equal(framer_next(&f, &e), 1);
    assert_int_equal(e.kind, FRAMER_EVENT_WHOLE);
    assert_null(e.data.ptr);
    assert_int_equal(framer_next(&f, &e), 0);
    assert_int_equal(framer_save(&f), 0);
    assert_int_equal(framer_finish(&f, &e), 0);
    framer_free(&f);
}

static void ndjson_lines(void **state)
{
    (void)state;
    static const struct stream_case cases[] = {
        {"{\"a\":1}\n{\"b\":2}\r\n", "W bytes=8 data=\"{\\\"a\\\":1}\" name=- id=- odd=-\n"
                                     "W bytes=9 data=\"{\\\"b\\\":2}\" name=- id=- odd=-\n"},
        {"\n \t\r\n{}\n", "W bytes=1 data=- name=- id=- odd=-\n"
                          "W bytes=4 data=- name=- id=- odd=-\n"
                          "W bytes=3 data=\"{}\" name=- id=- odd=-\n"},
        /* A CR within a line is white space of the JSON. */
        {"{\r}\n", "W bytes=4 data=\"{\\u000d}\" name=- id=- odd=-\n"},
        {"{}\n{\"done\":true}", "W bytes=3 data=\"{}\" name=- id=- odd=-\n"
                                "R bytes=13 data=\"{\\\"done\\\":true}\" name=- id=- odd=-\n"},
        {"", ""},
    };
    check_cases(FRAMER_KIND_NDJSON, cases, UNIT_COUNT(cases));
}

/* F81, api7/aisix#111 and others: characters cut by reads come out with their bytes as they were. */
static void characters_cut_by_reads(void **state)
{
    (void)state;
    static const char stream[] = "data: {\"c\":\"\xC3\xA9\xE9\x82\xA3\xF0\x9F\x8C\x8D\"}\r\n\r\n"
                                 "data: \xFF\xFE\x80\n\n"; /* invalid bytes too */
    check_stream(FRAMER_KIND_SSE, WINDOW, SPAN_LIT(stream), NULL);
}

/* The window is exact, and the same for every way to cut the stream. */
static void the_window_is_exact(void **state)
{
    (void)state;
    static const char *const streams[] = {
        "data: 0123456789\n\n",       /* 18 */
        "data: 012345678\r\n\r\n",    /* 18 without the last LF */
        "data: 01234567\ndata:\r\r",  /* 22 */
        ": comment comment comm\n\n", /* 24 */
        "data: a\ndata: b\ndata: c\ndata: d\ndata: e\n\n",
    };
    for (size_t i = 0; i < UNIT_COUNT(streams); i++) {
        char stream[256];
        int n = snprintf(stream, sizeof(stream), "data: x\n\n%sdata: y\n\n\r\r\r\n\ndata: z",
                         streams[i]);
        size_t counted = strlen(streams[i]);
        counted -= counted > 2 && strcmp(streams[i] + counted - 2, "\r\n") == 0;
        for (size_t window = 9; window < 48; window++) {
            struct span s = {stream, (size_t)n};
            check_stream(FRAMER_KIND_SSE, window, s, NULL);
            struct transcript t;
            transcript_init(&t);
            run_cut(FRAMER_KIND_SSE, window, s, NULL, 0, &t);
            bool in_pieces = span_find(buf_span(&t.text), SPAN_LIT("P bytes=")) >= 0;
            assert_int_equal(in_pieces, counted > window);
            transcript_free(&t);
        }
    }
    /* More lines of data in one read than the window could hold joined. */
    check_stream(FRAMER_KIND_SSE, 16,
                 SPAN_LIT("data: 012345\ndata: 012345\ndata: 012345\ndata: 012345\n\ndata: x\n\n"),
                 "P bytes=53\nW bytes=9 data=\"x\" name=- id=- odd=-\n");
    for (size_t window = 1; window < 12; window++)
        check_stream(FRAMER_KIND_NDJSON, window, SPAN_LIT("{}\n{\"a\":1}\n\n{\"b\":22}\n{\"c\""),
                     NULL);
    /* Even the smallest windows lose nothing. */
    for (size_t window = 0; window < 9; window++)
        check_stream(FRAMER_KIND_SSE, window,
                     SPAN_LIT("\xEF\xBB\xBF"
                              "data: x\r\n\r\n\r\rid\n\nda"),
                     NULL);
}

/* F90, open-webui/open-webui#24928: a 64 MiB line passes in pieces; memory stays at the window. */
static void an_endless_line_needs_bounded_memory(void **state)
{
    (void)state;
    enum { READ = 65536, READS = 1024, SMALL_WINDOW = 131072 };
    struct framer f;
    struct framer_event e;
    framer_init(&f, FRAMER_KIND_SSE, SMALL_WINDOW);
    char *read = malloc(READ);
    assert_non_null(read);
    memset(read, 'x', READ);
    memcpy(read, "data: ", 6);
    size_t out = 0;
    unsigned first = 0, last = 0;
    for (unsigned i = 0; i < READS; i++) {
        if (i == READS - 1)
            memcpy(read + READ - 2, "\n\n", 2);
        framer_feed(&f, (struct span){read, READ});
        int r;
        while ((r = framer_next(&f, &e)) > 0) {
            assert_int_equal(e.kind, FRAMER_EVENT_PIECE);
            out += e.bytes.len;
            first += e.first_piece;
            last += e.last_piece;
        }
        assert_int_equal(r, 0);
        assert_int_equal(framer_save(&f), 0);
        assert_true(f.pending.len <= SMALL_WINDOW && f.pending.cap <= SMALL_WINDOW + 1);
        assert_true(f.joined.cap <= SMALL_WINDOW + 1);
    }
    assert_int_equal(out, (size_t)READ * READS);
    assert_int_equal(first, 1);
    assert_int_equal(last, 1);
    /* Nothing large is kept, and the next event is an ordinary one. */
    assert_true(f.pending.cap + f.joined.cap <= 2048);
    framer_feed(&f, SPAN_LIT("data: after\n\n"));
    assert_int_equal(framer_next(&f, &e), 1);
    assert_int_equal(e.kind, FRAMER_EVENT_WHOLE);
    assert_span_equal(e.data, "after");
    assert_int_equal(framer_save(&f), 0);
    framer_free(&f);
    free(read);
}

/* A body that ends within an event in pieces says so. */
static void a_cut_in_pieces_is_told(void **state)
{
    (void)state;
    struct framer f;
    struct framer_event e;
    framer_init(&f, FRAMER_KIND_SSE, 8);
    framer_feed(&f, SPAN_LIT("data: 0123456789"));
    assert_int_equal(framer_next(&f, &e), 1);
    assert_true(e.first_piece && !e.last_piece);
    assert_int_equal(framer_next(&f, &e), 0);
    assert_int_equal(framer_save(&f), 0);
    assert_int_equal(framer_finish(&f, &e), 1);
    assert_int_equal(e.kind, FRAMER_EVENT_PIECE);
    assert_int_equal(e.bytes.len, 0);
    assert_true(!e.first_piece && e.last_piece);
    assert_int_equal(framer_finish(&f, &e), 0);
    framer_free(&f);
}

/* An event within one read: no copy, no allocation; neighbours lie next to each other. */
static void whole_events_cost_no_memory(void **state)
{
    (void)state;
    static const char read[] = "data: 1\n\ndata: 2\r\n\r\n: ping\n\ndata: 3\r\r";
    struct framer f;
    struct framer_event e;
    alloc_fail_reset_count();
    framer_init(&f, FRAMER_KIND_SSE, WINDOW);
    framer_feed(&f, SPAN_LIT(read));
    const char *at = read;
    unsigned count = 0;
    while (framer_next(&f, &e) > 0) {
        assert_ptr_equal(e.bytes.ptr, at);
        at += e.bytes.len;
        count++;
    }
    assert_int_equal(count, 4);
    assert_ptr_equal(at, read + sizeof(read) - 1);
    assert_int_equal(framer_save(&f), 0);
    assert_int_equal(alloc_fail_count(), 0);
    assert_null(f.pending.data);
    assert_null(f.joined.data);
    framer_free(&f);
    framer_free(NULL);
}

static void large_buffers_are_given_back(void **state)
{
    (void)state;
    struct framer f;
    struct transcript t;
    transcript_init(&t);
    framer_init(&f, FRAMER_KIND_SSE, 100000);
    char part[5001];
    memset(part, 'x', sizeof(part));
    memcpy(part, "data: ", 6);
    part[4999] = '\n';
    feed_part(&f, &t, (struct span){part, 5000});
    feed_part(&f, &t, (struct span){part, 5000});
    assert_true(f.pending.cap >= 10000);
    feed_part(&f, &t, SPAN_LIT("\ndata: y"));
    assert_true(f.pending.cap <= 1024 && f.joined.cap <= 1024);
    feed_part(&f, &t, SPAN_LIT("\n\n"));
    assert_true(span_find(buf_span(&t.text), SPAN_LIT("W bytes=9 data=\"y\"")) > 0);
    framer_free(&f);
    transcript_free(&t);
}

static void saving_too_early_is_refused(void **state)
{
    (void)state;
    struct framer f;
    struct framer_event e;
    framer_init(&f, FRAMER_KIND_SSE, WINDOW);
    framer_feed(&f, SPAN_LIT("data: 1\n\ndata: 2\n\n"));
    assert_int_equal(framer_next(&f, &e), 1);
    assert_int_equal(framer_save(&f), -EBUSY);
    assert_int_equal(framer_finish(&f, &e), -EBUSY);
    assert_int_equal(framer_next(&f, &e), 1);
    assert_span_equal(e.data, "2");
    assert_int_equal(framer_next(&f, &e), 0);
    assert_int_equal(framer_save(&f), 0);
    framer_free(&f);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    static const char text[] =
        "data: 1\ndata: 2\n\ndata: 3\r\n\r\ndata: 4\ndata: 5\n\nid: 1\n\ndata: 6\ndata";
    for (size_t step = 1; step < sizeof(text); step++) {
        struct transcript plain;
        transcript_init(&plain);
        run_every(FRAMER_KIND_SSE, WINDOW, SPAN_LIT(text), step, &plain);
        assert_int_equal(buf_append(&plain.text, "", 1), 0);
        for (unsigned n = 1;; n++) {
            struct transcript t;
            transcript_init(&t);
            /* The transcript has its room beforehand: only the framer's allocations count. */
            assert_int_equal(buf_reserve(&t.text, 65536), 0);
            assert_int_equal(buf_reserve(&t.bytes, 65536), 0);
            t.retry_no_memory = true;
            struct framer f;
            framer_init(&f, FRAMER_KIND_SSE, WINDOW);
            bool failed = false;
            /* Arm anew for every read: the test's own allocations lie between. */
            for (size_t at = 0; at < sizeof(text) - 1; at += step) {
                size_t len = sizeof(text) - 1 - at < step ? sizeof(text) - 1 - at : step;
                framer_feed(&f, (struct span){text + at, len});
                struct framer_event e;
                for (;;) {
                    alloc_fail_arm(n);
                    int r = framer_next(&f, &e);
                    failed |= alloc_fail_disarm();
                    if (r == 0)
                        break;
                    if (r < 0) {
                        assert_int_equal(r, -ENOMEM);
                        alloc_fail_arm(0);
                        r = framer_next(&f, &e);
                        if (r == 0)
                            break; /* data of an event that is not complete had been joined */
                        assert_int_equal(r, 1);
                    }
                    write_event(&t, &e, 'W');
                }
                alloc_fail_arm(n);
                int r = framer_save(&f);
                failed |= alloc_fail_disarm();
                if (r < 0) {
                    assert_int_equal(r, -ENOMEM);
                    assert_int_equal(framer_save(&f), 0);
                }
            }
            finish(&f, &t);
            framer_free(&f);
            assert_int_equal(buf_append(&t.text, "", 1), 0);
            assert_string_equal(t.text.data, plain.text.data);
            transcript_free(&t);
            if (!failed)
                break;
        }
        transcript_free(&plain);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(data_fields),
        cmocka_unit_test(blocks_without_data),
        cmocka_unit_test(lines_outside_the_standard),
        cmocka_unit_test(rests),
        cmocka_unit_test(byte_order_mark_only_at_the_start),
        cmocka_unit_test(every_mixture_of_line_endings),
        cmocka_unit_test(a_cr_at_the_end_of_a_read),
        cmocka_unit_test(ndjson_lines),
        cmocka_unit_test(characters_cut_by_reads),
        cmocka_unit_test(the_window_is_exact),
        cmocka_unit_test(an_endless_line_needs_bounded_memory),
        cmocka_unit_test(a_cut_in_pieces_is_told),
        cmocka_unit_test(whole_events_cost_no_memory),
        cmocka_unit_test(large_buffers_are_given_back),
        cmocka_unit_test(saving_too_early_is_refused),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
