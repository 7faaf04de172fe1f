/*
 * How long a request's body takes before anything is decided: CPU time of api_request_parse, and of
 * api_demand_read on top of it, for small chats and for megabytes. Printed, never judged.
 *
 *   bench-demand [ROUNDS]
 *
 * Compare a large body with the row of memchr, the least that looking at every byte takes.
 */
#include "api/demand.h"

#include "base/buf.h"
#include "base/units.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ROUNDS = 400000, PARTS = 20, SMALL_BYTES = 4096, MIB = 1 << 20 };

struct work {
    struct api_route route;
    struct span body;
    struct api_request request;
};

static void fail(const char *what)
{
    fprintf(stderr, "bench-demand: %s\n", what);
    exit(3);
}

static uint64_t cpu_ns(void)
{
    struct timespec t;
    if (clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t) != 0)
        fail("no clock");
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static void parse(struct work *w)
{
    struct api_error error;
    if (api_request_parse(&w->route, SPAN_NONE, w->body, &w->request, &error) != 0)
        fail(error.message);
}

static void count(struct work *w)
{
    static volatile uint64_t bytes; /* so that it is counted */
    struct api_demand demand;
    struct api_error error;
    if (api_demand_read(&w->route, &w->request, &demand, &error) != 0)
        fail(error.message);
    bytes = demand.prompt_bytes;
    (void)bytes;
}

static void look(struct work *w)
{
    static volatile char absent = '\0'; /* so that no call is left out */
    if (memchr(w->body.ptr, absent, w->body.len) != NULL)
        fail("a NUL in a body");
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Of PARTS equal parts the best, the middle and the worst, in nanoseconds a call. */
static void measure(const char *name, const char *what, void (*call)(struct work *), struct work *w,
                    uint64_t rounds)
{
    double parts[PARTS];
    /* Megabytes need fewer calls for the same precision. */
    uint64_t calls = rounds / PARTS / (1 + w->body.len / SMALL_BYTES);
    if (calls == 0)
        calls = 1;
    for (unsigned i = 0; i < PARTS; i++) {
        uint64_t begin = cpu_ns();
        for (uint64_t k = 0; k < calls; k++)
            call(w);
        parts[i] = (double)(cpu_ns() - begin) / (double)calls;
    }
    qsort(parts, PARTS, sizeof(parts[0]), compare);
    printf("%-28s %9zu  %-12s %9.0f %9.0f %9.0f\n", name, w->body.len, what, parts[0],
           parts[PARTS / 2], parts[PARTS - 1]);
}

static void run(const char *name, struct api_route route, struct span body, uint64_t rounds)
{
    static struct work w;
    w = (struct work){.route = route, .body = body};
    measure(name, "memchr", look, &w, rounds);
    measure(name, "parse", parse, &w, rounds);
    measure(name, "demand", count, &w, rounds);
}

/* `before`, `unit` again and again up to `bytes`, `after`. */
static struct span grow(struct buf *b, const char *before, const char *unit, size_t bytes,
                        const char *after)
{
    b->len = 0;
    int error = buf_append_str(b, before);
    while (error == 0 && b->len < bytes)
        error = buf_append_str(b, unit);
    if (error == 0)
        error = buf_append_str(b, after);
    if (error < 0)
        fail("no memory");
    return buf_span(b);
}

static const char small_chat[] =
    "{\"model\":\"chat\",\"messages\":[{\"role\":\"system\",\"content\":\"You are a helpful "
    "assistant.\"},{\"role\":\"user\",\"content\":\"Write one sentence about the sea and the "
    "wind, then say \\\"done\\\".\\nNothing else, please.\"}],\"temperature\":0.7,\"top_p\":0.95,"
    "\"max_tokens\":128,\"stream\":true,\"stream_options\":{\"include_usage\":true}}";

static const char small_tools[] =
    "{\"model\":\"chat\",\"messages\":[{\"role\":\"user\",\"content\":\"Weather in "
    "Oslo?\"}],\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"get_weather\","
    "\"description\":\"Tells the weather of a place\",\"parameters\":{\"type\":\"object\","
    "\"properties\":{\"place\":{\"type\":\"string\"},\"days\":{\"type\":\"integer\",\"minimum\":1}}"
    ","
    "\"required\":[\"place\"]}}}]}";

int main(int argc, char **argv)
{
    uint64_t rounds = ROUNDS;
    if (argc > 2 || (argc == 2 && (units_parse_u64(argv[1], &rounds) != 0 || rounds < PARTS))) {
        fprintf(stderr, "usage: bench-demand [ROUNDS]\n");
        return 2;
    }
    const struct api_route chat = {
        .operation = API_OPERATION_CHAT, .dialect = API_DIALECT_OPENAI, .body = API_BODY_JSON};
    const struct api_route messages = {.operation = API_OPERATION_MESSAGES,
                                       .dialect = API_DIALECT_ANTHROPIC,
                                       .body = API_BODY_JSON};
    struct buf b;
    buf_init(&b, 16 * (size_t)MIB);
    printf("%-28s %9s  %-12s %9s %9s %9s\n", "body (CPU time in ns)", "bytes", "", "best", "median",
           "worst");
    run("small chat", chat, span_from_str(small_chat), rounds);
    run("small chat with a tool", chat, span_from_str(small_tools), rounds);
    run("1 MiB text", chat,
        grow(&b, "{\"messages\":[{\"role\":\"user\",\"content\":\"",
             "The quick brown fox jumps over the lazy dog, and nobody asks why it did.\\n", MIB,
             "\"}]}"),
        rounds);
    run("1 MiB text, many messages", chat,
        grow(&b, "{\"messages\":[",
             "{\"role\":\"user\",\"content\":\"The quick brown fox jumps over the lazy dog.\"},",
             MIB, "{}]}"),
        rounds);
    run("1 MiB of tools", chat,
        grow(&b, "{\"tools\":[",
             "{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"a\":1}}},", MIB,
             "{}]}"),
        rounds);
    run("8 MiB picture", chat,
        grow(&b,
             "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\",\"image_url\":"
             "{\"url\":\"data:image/png;base64,",
             "iVBORw0KGgoAAAANSUhEUgAAAAUAAAAFCAYAAACNbyblAAAAHElEQVQI12P4", 8 * (size_t)MIB,
             "\"}}]}]}"),
        rounds);
    run("8 MiB picture (source)", messages,
        grow(&b,
             "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image\",\"source\":{"
             "\"type\":\"base64\",\"media_type\":\"image/png\",\"data\":\"",
             "iVBORw0KGgoAAAANSUhEUgAAAAUAAAAFCAYAAACNbyblAAAAHElEQVQI12P4", 8 * (size_t)MIB,
             "\"}}]}]}"),
        rounds);
    buf_free(&b);
    return 0;
}
