/*
 * Layout of the benchmark's requests and answers. The shapes are those of a llama-server: members
 * in its order, about 250 bytes an event, a role chunk first, then content, finish, usage, [DONE].
 */
#include "wire.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define WIRE_ID      "chatcmpl-Qn5tGZ0bench0failsoft0bench0aa"
#define WIRE_CREATED "1733050000"
#define WIRE_TAIL                                                                                  \
    "\"created\":" WIRE_CREATED ",\"id\":\"" WIRE_ID "\",\"model\":\"bench\","                     \
    "\"object\":\"chat.completion.chunk\""

static const char content_head[] =
    "data: {\"choices\":[{\"finish_reason\":null,\"index\":0,\"delta\":{\"content\":\" w";
static const char content_middle[] = "\"}}]," WIRE_TAIL ",\"t\":\"";
static const char content_end[] = "\"}\n\n";

#define SEQ_DIGITS  6u
#define TIME_DIGITS 16u
#define WORD_BYTES  8u /* " w" and the digits */
#define CONTENT_BYTES                                                                              \
    (sizeof(content_head) - 1 + SEQ_DIGITS + sizeof(content_middle) - 1 + 2 * TIME_DIGITS +        \
     sizeof(content_end) - 1)

static char pad_char(size_t i)
{
    return (char)('a' + (int)(i % 23));
}

static size_t printed(int n, size_t cap)
{
    return n < 0 || (size_t)n >= cap ? 0 : (size_t)n;
}

size_t wire_request_format(char *out, size_t cap, const struct wire_ask *ask)
{
    static const char tail[] = "\"}]}";
    size_t len = printed(
        snprintf(out, cap,
                 "{\"model\":\"bench\",\"stream\":%s,%s\"temperature\":0,\"max_tokens\":%u,"
                 "\"messages\":[{\"role\":\"system\",\"content\":\"You are a helpful assistant.\"},"
                 "{\"role\":\"user\",\"content\":\"bench e=%06u i=%06u f=%06u",
                 ask->stream ? "true" : "false",
                 ask->stream && ask->usage ? "\"stream_options\":{\"include_usage\":true}," : "",
                 ask->events, ask->events, ask->interval_us, ask->first_us),
        cap);
    size_t need = len + (ask->pad_bytes ? ask->pad_bytes + 5 : 0) + sizeof(tail) - 1;

    if (len == 0 || need >= cap) {
        return 0;
    }
    if (ask->pad_bytes) {
        memcpy(out + len, " pad:", 5);
        len += 5;
        for (size_t i = 0; i < ask->pad_bytes; i++) {
            out[len++] = pad_char(i);
        }
    }
    memcpy(out + len, tail, sizeof(tail));
    return need;
}

/* Digits of the given base at `at`, which has at least `count` bytes. */
static bool digits_read(const char *at, size_t count, unsigned base, uint64_t *ret_value)
{
    uint64_t value = 0;

    for (size_t i = 0; i < count; i++) {
        unsigned d;
        if (at[i] >= '0' && at[i] <= '9') {
            d = (unsigned)(at[i] - '0');
        } else if (base == 16 && at[i] >= 'a' && at[i] <= 'f') {
            d = (unsigned)(at[i] - 'a') + 10;
        } else {
            return false;
        }
        value = value * base + d;
    }
    *ret_value = value;
    return true;
}

static void digits_write(char *at, size_t count, unsigned base, uint64_t value)
{
    for (size_t i = count; i-- > 0; value /= base) {
        at[i] = "0123456789abcdef"[value % base];
    }
}

/* Is the member `"name"` there with the value true? Other serialisers may put spaces in. */
static bool member_is_true(const char *body, size_t len, const char *name)
{
    const char *end = body + len;
    const char *at = memmem(body, len, name, strlen(name));

    if (!at) {
        return false;
    }
    at += strlen(name);
    while (at < end && (*at == ' ' || *at == ':')) {
        at++;
    }
    return end - at >= 4 && memcmp(at, "true", 4) == 0;
}

static int pad_read(const char *at, const char *end, uint32_t *ret_bytes)
{
    size_t n = 0;

    if (end - at < 5 || memcmp(at, " pad:", 5) != 0) {
        *ret_bytes = 0;
        return 0;
    }
    at += 5;
    while (at + n < end && at[n] != '"') {
        if (at[n] != pad_char(n)) {
            return -EILSEQ;
        }
        n++;
    }
    if (at + n == end) {
        return -EILSEQ;
    }
    *ret_bytes = (uint32_t)n;
    return 0;
}

int wire_request_parse(const char *body, size_t len, struct wire_ask *ret_ask)
{
    static const char mark[] = "bench e=";
    const size_t wish_bytes = sizeof(mark) - 1 + 3 * SEQ_DIGITS + 6;
    struct wire_ask ask = {0};
    uint64_t events, interval_us, first_us;
    const char *at = memmem(body, len, mark, sizeof(mark) - 1);

    if (!at || (size_t)(body + len - at) < wish_bytes) {
        return -EBADMSG;
    }
    at += sizeof(mark) - 1;
    if (!digits_read(at, SEQ_DIGITS, 10, &events) ||
        !digits_read(at + SEQ_DIGITS + 3, SEQ_DIGITS, 10, &interval_us) ||
        !digits_read(at + 2 * (SEQ_DIGITS + 3), SEQ_DIGITS, 10, &first_us) || events == 0 ||
        events > WIRE_EVENTS_MAX) {
        return -EBADMSG;
    }
    at += 3 * SEQ_DIGITS + 6;
    int r = pad_read(at, body + len, &ask.pad_bytes);
    if (r < 0) {
        return r;
    }
    ask.events = (uint32_t)events;
    ask.interval_us = (uint32_t)interval_us;
    ask.first_us = (uint32_t)first_us;
    ask.stream = member_is_true(body, len, "\"stream\"");
    ask.usage = ask.stream && member_is_true(body, len, "\"include_usage\"");
    ask.progress = ask.stream && member_is_true(body, len, "\"return_progress\"");
    *ret_ask = ask;
    return 0;
}

static size_t content_format(char *out, const struct wire_event *event)
{
    char *at = out;

    memcpy(at, content_head, sizeof(content_head) - 1);
    at += sizeof(content_head) - 1;
    digits_write(at, SEQ_DIGITS, 10, event->seq);
    at += SEQ_DIGITS;
    memcpy(at, content_middle, sizeof(content_middle) - 1);
    at += sizeof(content_middle) - 1;
    digits_write(at, TIME_DIGITS, 16, event->rx_ns);
    at += TIME_DIGITS;
    digits_write(at, TIME_DIGITS, 16, event->tx_ns);
    at += TIME_DIGITS;
    memcpy(at, content_end, sizeof(content_end));
    return CONTENT_BYTES;
}

static uint32_t prompt_tokens(const struct wire_ask *ask)
{
    return ask->pad_bytes ? ask->pad_bytes : 17;
}

size_t wire_event_format(char *out, size_t cap, const struct wire_event *event,
                         const struct wire_ask *ask)
{
    switch (event->kind) {
    case WIRE_KIND_CONTENT: return cap > CONTENT_BYTES ? content_format(out, event) : 0;
    case WIRE_KIND_ROLE:
    case WIRE_KIND_PROGRESS:
        return printed(snprintf(out, cap,
                                "data: {\"choices\":[{\"finish_reason\":null,\"index\":0,\"delta\":"
                                "{\"role\":\"assistant\",\"content\":null}}]," WIRE_TAIL "%s}\n\n",
                                event->kind == WIRE_KIND_ROLE
                                    ? ""
                                    : ",\"prompt_progress\":{\"total\":17,\"cache\":0,"
                                      "\"processed\":17,\"time_ms\":1}"),
                       cap);
    case WIRE_KIND_FINISH:
        return printed(snprintf(out, cap,
                                "data: {\"choices\":[{\"finish_reason\":\"stop\",\"index\":0,"
                                "\"delta\":{}}]," WIRE_TAIL "}\n\n"),
                       cap);
    case WIRE_KIND_USAGE:
        return printed(snprintf(out, cap,
                                "data: {\"choices\":[]," WIRE_TAIL ",\"usage\":{"
                                "\"completion_tokens\":%u,\"prompt_tokens\":%u,"
                                "\"total_tokens\":%u}}\n\n",
                                ask->events, prompt_tokens(ask), ask->events + prompt_tokens(ask)),
                       cap);
    case WIRE_KIND_DONE: return printed(snprintf(out, cap, "data: [DONE]\n\n"), cap);
    }
    return 0;
}

static int content_parse(const char *event, struct wire_event *ret_event)
{
    char expected[CONTENT_BYTES + 1];
    struct wire_event e = {.kind = WIRE_KIND_CONTENT};
    const char *seq_at = event + sizeof(content_head) - 1;
    const char *time_at = seq_at + SEQ_DIGITS + sizeof(content_middle) - 1;
    uint64_t seq;

    if (!digits_read(seq_at, SEQ_DIGITS, 10, &seq) ||
        !digits_read(time_at, TIME_DIGITS, 16, &e.rx_ns) ||
        !digits_read(time_at + TIME_DIGITS, TIME_DIGITS, 16, &e.tx_ns)) {
        return -EBADMSG;
    }
    e.seq = (uint32_t)seq;
    content_format(expected, &e);
    if (memcmp(expected, event, CONTENT_BYTES) != 0) {
        return -EBADMSG;
    }
    *ret_event = e;
    return 0;
}

static bool holds(const char *hay, size_t len, const char *needle)
{
    return memmem(hay, len, needle, strlen(needle)) != NULL;
}

static bool number_after(const char *hay, size_t len, const char *name, uint32_t *ret_value)
{
    const char *end = hay + len;
    const char *at = memmem(hay, len, name, strlen(name));
    uint32_t value = 0;
    bool any = false;

    if (!at) {
        return false;
    }
    for (at += strlen(name); at < end && (*at == ' ' || *at == ':'); at++) {
    }
    for (; at < end && *at >= '0' && *at <= '9'; at++) {
        value = value * 10 + (uint32_t)(*at - '0');
        any = true;
    }
    *ret_value = value;
    return any;
}

int wire_event_parse(const char *event, size_t len, struct wire_event *ret_event)
{
    struct wire_event e = {0};

    if (len == CONTENT_BYTES && memcmp(event, content_head, sizeof(content_head) - 1) == 0) {
        return content_parse(event, ret_event);
    }
    if (len < 8 || memcmp(event, "data: ", 6) != 0 || memcmp(event + len - 2, "\n\n", 2) != 0) {
        return -EBADMSG;
    }
    if (len == 14 && memcmp(event, "data: [DONE]\n\n", 14) == 0) {
        e.kind = WIRE_KIND_DONE;
    } else if (holds(event, len, "\"prompt_progress\"")) {
        e.kind = WIRE_KIND_PROGRESS;
    } else if (holds(event, len, "\"role\":\"assistant\",\"content\":null")) {
        e.kind = WIRE_KIND_ROLE;
    } else if (holds(event, len, "\"finish_reason\":\"stop\"")) {
        e.kind = WIRE_KIND_FINISH;
    } else if (number_after(event, len, "\"completion_tokens\"", &e.completion_tokens) &&
               number_after(event, len, "\"prompt_tokens\"", &e.prompt_tokens)) {
        e.kind = WIRE_KIND_USAGE;
    } else {
        return -EBADMSG;
    }
    *ret_event = e;
    return 0;
}

size_t wire_answer_format(char *out, size_t cap, const struct wire_ask *ask)
{
    char words[WIRE_WORDS_MAX * WORD_BYTES + 1];
    uint32_t count = ask->events < WIRE_WORDS_MAX ? ask->events : WIRE_WORDS_MAX;

    for (uint32_t i = 0; i < count; i++) {
        memcpy(words + i * WORD_BYTES, " w", 2);
        digits_write(words + i * WORD_BYTES + 2, SEQ_DIGITS, 10, i);
    }
    words[count * WORD_BYTES] = '\0';
    return printed(
        snprintf(
            out, cap,
            "{\"choices\":[{\"finish_reason\":\"stop\",\"index\":0,\"message\":{\"role\":"
            "\"assistant\",\"content\":\"%s\"}}],\"created\":" WIRE_CREATED
            ",\"model\":\"bench\",\"object\":\"chat.completion\",\"usage\":{"
            "\"completion_tokens\":%u,\"prompt_tokens\":%u,\"total_tokens\":%u},\"id\":\"%s\"}",
            words, ask->events, prompt_tokens(ask), ask->events + prompt_tokens(ask), WIRE_ID),
        cap);
}

bool wire_answer_check(const char *body, size_t len, const struct wire_ask *ask)
{
    static const char name[] = "\"content\":\"";
    uint32_t completion = 0, prompt = 0;
    const char *end = body + len;
    const char *at = memmem(body, len, name, sizeof(name) - 1);

    if (!at || len < 2 || body[0] != '{' || body[len - 1] != '}') {
        return false;
    }
    at += sizeof(name) - 1;
    for (uint32_t i = 0; i < ask->events; i++, at += WORD_BYTES) {
        uint64_t seq;
        if ((size_t)(end - at) < WORD_BYTES + 1 || memcmp(at, " w", 2) != 0 ||
            !digits_read(at + 2, SEQ_DIGITS, 10, &seq) || seq != i) {
            return false;
        }
    }
    return *at == '"' && holds(body, len, "\"finish_reason\":\"stop\"") &&
           number_after(body, len, "\"completion_tokens\"", &completion) &&
           number_after(body, len, "\"prompt_tokens\"", &prompt) && completion == ask->events &&
           prompt == prompt_tokens(ask);
}
