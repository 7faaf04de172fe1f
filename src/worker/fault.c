/*
 * From evidence to a class. The order is by how much the evidence says: a text that names the cause
 * beats an exit status, which beats a watchdog, a transport error, and a bare HTTP status.
 *
 * A text in a 4xx answer is not searched for device faults: it may quote the request, and nobody
 * shall be able to take a worker down by asking about "CUDA error: out of memory".
 * Pure; any thread.
 */
#include "worker/fault.h"

#include "worker/fault_patterns.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum {
    TEXT_MAX_BYTES = 16 * 1024, /* of an error text that is looked at */
    RESOLVE_ERROR_FIRST = 3000, /* libuv: UV_EAI_* are -3000 … -3014 */
    RESOLVE_ERROR_LAST = 3014,
};

/* No device holds a single buffer like this: the size is nonsense, not a lack of memory. */
static const double absurd_bytes = 256.0 * 1024 * 1024 * 1024;

static const char *const class_names[FAULT_CLASS_COUNT] = {
    [FAULT_NONE] = "none",
    [FAULT_CAPACITY] = "capacity",
    [FAULT_DEVICE_LOST] = "device-lost",
    [FAULT_ENGINE_DEAD] = "engine-dead",
    [FAULT_DRIVER] = "driver",
    [FAULT_STALL] = "stall",
    [FAULT_HOST_MEMORY] = "host-memory",
    [FAULT_BUSY] = "busy",
    [FAULT_LOADING] = "loading",
    [FAULT_REQUEST] = "request",
    [FAULT_TRANSIENT] = "transient",
    [FAULT_UNKNOWN] = "unknown",
};

const char *fault_class_name(enum fault_class class)
{
    return class >= 0 && class < FAULT_CLASS_COUNT ? class_names[class] : "unknown";
}

bool fault_counts(enum fault_class class)
{
    return class != FAULT_NONE && class != FAULT_BUSY && class != FAULT_LOADING &&
           class != FAULT_REQUEST;
}

bool fault_moves_on(enum fault_class class)
{
    return class != FAULT_NONE && class != FAULT_REQUEST;
}

bool fault_may_retry(enum fault_class class)
{
    return class == FAULT_TRANSIENT || class == FAULT_BUSY;
}

bool fault_whole_device(enum fault_class class)
{
    return class == FAULT_DEVICE_LOST || class == FAULT_DRIVER;
}

static bool set(struct fault *ret, enum fault_class class, const char *reason)
{
    ret->class = class;
    snprintf(ret->reason, sizeof(ret->reason), "%s", reason);
    return true;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* The largest number in a line that is a size: bare, or followed by KiB, MiB, GiB. */
static double largest_size(struct span line)
{
    double largest = 0;
    for (size_t i = 0; i < line.len;) {
        if (!is_digit(line.ptr[i])) {
            i++;
            continue;
        }
        bool in_word = i > 0 && (line.ptr[i - 1] == 'x' || line.ptr[i - 1] == '_');
        double value = 0;
        while (i < line.len && is_digit(line.ptr[i]))
            value = value * 10 + (line.ptr[i++] - '0');
        if (i + 1 < line.len && line.ptr[i] == '.' && is_digit(line.ptr[i + 1]))
            for (i++; i < line.len && is_digit(line.ptr[i]); i++)
                ;
        struct span unit = {line.ptr + i, line.len - i};
        while (unit.len > 0 && unit.ptr[0] == ' ') {
            unit.ptr++;
            unit.len--;
        }
        unit.len = unit.len > 3 ? 3 : unit.len;
        if (span_equals_nocase(unit, SPAN_LIT("mib")))
            value *= 1024.0 * 1024;
        else if (span_equals_nocase(unit, SPAN_LIT("gib")))
            value *= 1024.0 * 1024 * 1024;
        else if (span_equals_nocase(unit, SPAN_LIT("kib")))
            value *= 1024;
        if (!in_word && value > largest)
            largest = value;
    }
    return largest;
}

/* NVIDIA's kernel messages: NVRM: Xid (PCI:0000:06:00): 79, … */
static bool classify_xid(struct span line, struct fault *ret)
{
    static const char marker[] = "NVRM: Xid (";
    ptrdiff_t at = span_find_nocase(line, span_from_str(marker));
    if (at < 0)
        return false;
    const char *end = line.ptr + line.len;
    const char *p = memchr(line.ptr + at, ')', line.len - (size_t)at);
    while (p != NULL && p < end && !is_digit(*p))
        p++;
    unsigned number = 0;
    for (; p != NULL && p < end && is_digit(*p) && number < 10000; p++)
        number = number * 10 + (unsigned)(*p - '0');
    switch (number) {
    case 8:
    case 13:
    case 31:
    case 43:
    case 45: /* an application's own fault, or cleaned up */ ret->class = FAULT_ENGINE_DEAD; break;
    case 48:
    case 61:
    case 62:
    case 64:
    case 74:
    case 79:
    case 95:
    case 119:
    case 120:
    case 140:
    case 143:
    case 154: ret->class = FAULT_DEVICE_LOST; break;
    default: ret->class = FAULT_UNKNOWN; break;
    }
    snprintf(ret->reason, sizeof(ret->reason), "the NVIDIA driver reports Xid %u", number);
    return true;
}

/* A lack of memory: where it is on a CPU tier, and when the size is nonsense (F33, F48). */
static void refine_memory(struct span line, bool on_device, struct fault *ret)
{
    bool memory = ret->class == FAULT_CAPACITY || ret->class == FAULT_HOST_MEMORY;
    if (memory && largest_size(line) >= absurd_bytes)
        set(ret, FAULT_UNKNOWN, "an allocation of an absurd size");
    else if (ret->class == FAULT_CAPACITY && !on_device)
        set(ret, FAULT_HOST_MEMORY, "out of host memory");
}

/* One line against the table. True when a row decided, which may be FAULT_NONE. */
static bool classify_line(struct span line, unsigned scope, bool on_device, struct fault *ret)
{
    if (scope == FAULT_SCOPE_LOG && classify_xid(line, ret))
        return true;
    for (const struct fault_pattern *p = fault_patterns; p->pattern != NULL; p++) {
        if ((p->scope & scope) == 0 || ((p->scope & FAULT_SCOPE_DEVICE) != 0 && !on_device))
            continue;
        if (!fault_pattern_matches(p->pattern, line))
            continue;
        set(ret, p->class, p->reason);
        refine_memory(line, on_device, ret);
        return true;
    }
    return false;
}

/*
 * Every line of a text; the first one that names a specific cause wins over "the engine ended",
 * because engines print the cause first and their death after it.
 */
static bool classify_text(struct span text, unsigned scope, bool on_device, struct fault *ret)
{
    struct fault weak = {0};
    text.len = text.len > TEXT_MAX_BYTES ? TEXT_MAX_BYTES : text.len;
    while (text.len > 0) {
        const char *lf = memchr(text.ptr, '\n', text.len);
        struct span line = {text.ptr, lf ? (size_t)(lf - text.ptr) : text.len};
        size_t step = line.len + (lf ? 1 : 0);
        struct fault f = {0};
        if (classify_line(line, scope, on_device, &f) && f.class != FAULT_NONE) {
            if (f.class != FAULT_ENGINE_DEAD && f.class != FAULT_UNKNOWN) {
                *ret = f;
                return true;
            }
            if (weak.class == FAULT_NONE)
                weak = f;
        }
        text.ptr += step;
        text.len -= step;
    }
    if (weak.class != FAULT_NONE)
        *ret = weak;
    return weak.class != FAULT_NONE;
}

static bool is_html(struct span text)
{
    text = span_trim(text);
    while (text.len > 0 && (text.ptr[0] == '\n' || text.ptr[0] == '\r'))
        text = (struct span){text.ptr + 1, text.len - 1};
    return span_starts_with(text, SPAN_LIT("<")) &&
           (span_find_nocase(text, SPAN_LIT("<html")) >= 0 ||
            span_find_nocase(text, SPAN_LIT("<!doctype")) >= 0);
}

/* 4xx of a worker: the client's own, but for the few that say "not now" or "not this worker". */
static bool classify_4xx(const struct fault_evidence *e, struct fault *ret)
{
    struct fault f = {0};
    if (e->status == 408 || e->status == 425)
        return set(ret, FAULT_TRANSIENT, "the worker asks to try again");
    if (e->status == 429)
        return set(ret, FAULT_BUSY, "the worker limits requests");
    if (classify_text(e->text, FAULT_SCOPE_ANSWER, false, &f)) {
        bool no_model = e->status == 404 && f.class == FAULT_UNKNOWN;
        if (f.class == FAULT_REQUEST || f.class == FAULT_LOADING || no_model) {
            *ret = f;
            return true;
        }
    }
    ret->class = FAULT_REQUEST;
    /* Others in this range are about who asks and what is offered, not about the content. */
    ret->doubt = e->status == 400 || e->status == 413 || e->status == 415 || e->status == 422;
    snprintf(ret->reason, sizeof(ret->reason), "the worker refused the request (HTTP %d)",
             e->status);
    return true;
}

static bool is_blank(struct span text)
{
    for (size_t i = 0; i < text.len; i++) {
        if (text.ptr[i] != ' ' && text.ptr[i] != '\t' && text.ptr[i] != '\r' && text.ptr[i] != '\n')
            return false;
    }
    return true;
}

static bool classify_status(const struct fault_evidence *e, struct fault *ret)
{
    char reason[96];
    snprintf(reason, sizeof(reason), "the worker answered HTTP %d", e->status);
    switch (e->status) {
    case 0: return false;
    case 501: return set(ret, FAULT_REQUEST, "the worker does not offer this");
    case 503:
    case 529: return set(ret, FAULT_BUSY, "the worker has no room now");
    case 500:
        ret->doubt = !e->in_band && !is_blank(e->text);
        return set(ret, FAULT_TRANSIENT, reason);
    case 502:
    case 504: return set(ret, FAULT_TRANSIENT, reason);
    default: break;
    }
    if (e->status >= 500)
        return set(ret, FAULT_UNKNOWN, reason);
    if (is_html(e->text))
        return set(ret, FAULT_UNKNOWN, "a page of HTML came instead of an answer");
    return false;
}

static bool classify_exit(const struct fault_evidence *e, struct fault *ret)
{
    if (!e->exited)
        return false;
    if (e->expected_exit)
        return set(ret, FAULT_NONE, "the worker was stopped");
    ret->class = FAULT_ENGINE_DEAD;
    if (e->exit_status == 137)
        return set(ret, FAULT_ENGINE_DEAD,
                   "the worker was killed (signal 9, by somebody or by the kernel for memory)");
    if (e->exit_status > 128)
        snprintf(ret->reason, sizeof(ret->reason), "the worker ended with signal %d",
                 e->exit_status - 128);
    else
        snprintf(ret->reason, sizeof(ret->reason), "the worker exited with status %d",
                 e->exit_status);
    return true;
}

static bool classify_reset(const struct fault_evidence *e, struct fault *ret)
{
    /* F106: the worker closed an idle connection just as it was used again. */
    if (e->connection_reused)
        return set(ret, FAULT_TRANSIENT, "a kept connection had been closed by the worker");
    if (e->phase == FAULT_PHASE_STREAM)
        return set(ret, FAULT_ENGINE_DEAD, "the connection was cut in the middle of the answer");
    return set(ret, FAULT_TRANSIENT, "the connection was cut before the answer");
}

static bool classify_transport(const struct fault_evidence *e, struct fault *ret)
{
    int error = -e->transport_error;
    switch (error) {
    case 0: return false;
    case ECONNREFUSED:
    case ENOENT: return set(ret, FAULT_ENGINE_DEAD, "nothing listens at the worker's address");
    case EHOSTUNREACH:
    case ENETUNREACH:
    case EHOSTDOWN:
    case ENETDOWN: return set(ret, FAULT_ENGINE_DEAD, "the worker's host cannot be reached");
    case ETIMEDOUT:
        return set(ret, FAULT_STALL,
                   e->phase == FAULT_PHASE_CONNECT ? "the worker does not accept the connection"
                                                   : "the worker does not answer");
    case ECONNRESET:
    case EPIPE:
    case ECONNABORTED: return classify_reset(e, ret);
    case EMFILE:
    case ENFILE:
    case ENOMEM:
    case ENOBUFS:
        return set(ret, FAULT_BUSY, "the gateway itself has no descriptor or memory left");
    case EPROTO:
    case EBADMSG: return set(ret, FAULT_UNKNOWN, "the worker does not speak proper HTTP");
    case EMSGSIZE: return set(ret, FAULT_UNKNOWN, "the worker's answer is over a limit");
    default: break;
    }
    if (error >= RESOLVE_ERROR_FIRST && error <= RESOLVE_ERROR_LAST)
        return set(ret, FAULT_ENGINE_DEAD, "the worker's host name cannot be resolved");
    return set(ret, FAULT_UNKNOWN, "the connection to the worker failed");
}

void fault_classify(const struct fault_evidence *e, struct fault *ret)
{
    *ret = (struct fault){0};
    bool answer = e->status != 0 || e->in_band;
    unsigned scope = answer ? FAULT_SCOPE_ANSWER : FAULT_SCOPE_LOG;
    if (e->exited && e->expected_exit)
        classify_exit(e, ret);
    else if (e->status >= 400 && e->status < 500)
        classify_4xx(e, ret);
    else if ((e->status < 200 || e->status >= 300 || e->in_band) &&
             classify_text(e->text, scope, e->on_device, ret))
        return;
    else if (classify_exit(e, ret))
        return;
    else if (e->timed_out)
        set(ret, FAULT_STALL, "the worker made no progress in time");
    else if (!classify_transport(e, ret) && !classify_status(e, ret) && e->in_band)
        set(ret, FAULT_UNKNOWN, "the worker reported an error in its stream");
}

void fault_classify_log_line(struct span line, bool on_device, struct fault *ret)
{
    *ret = (struct fault){0};
    line.len = line.len > TEXT_MAX_BYTES ? TEXT_MAX_BYTES : line.len;
    classify_line(line, FAULT_SCOPE_LOG, on_device, ret);
}
