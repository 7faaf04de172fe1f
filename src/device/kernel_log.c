/* Kernel lines about GPUs. Pure; see kernel_log.h. */
#include "device/kernel_log.h"

#include "device/text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

/* --- PCI addresses --- */

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Hexadecimal up to `end`; -1: none, or above max. */
static long take_hex(struct span *text, long max)
{
    long value = 0;
    size_t n = 0;
    int digit;

    while (n < text->len && n < 8 && (digit = hex_digit(text->ptr[n])) >= 0) {
        value = value * 16 + digit;
        n++;
    }
    *text = (struct span){text->ptr + n, text->len - n};
    return n == 0 || value > max ? -1 : value;
}

static bool take_char(struct span *text, char c)
{
    if (text->len == 0 || text->ptr[0] != c)
        return false;
    *text = (struct span){text->ptr + 1, text->len - 1};
    return true;
}

/* An address at the front of *text, which is left behind it. */
static int take_pci(struct span *text, char out[DEVICE_PCI_MAX])
{
    struct span rest = *text;
    long part[3] = {0, 0, 0}, function = 0;
    size_t n = 0;

    do {
        if (n == 3 || (part[n] = take_hex(&rest, 0xffff)) < 0)
            return -EINVAL;
        n++;
    } while (take_char(&rest, ':'));
    if (take_char(&rest, '.') && (function = take_hex(&rest, 7)) < 0)
        return -EINVAL;
    /* "06:00.0" has no domain, and without a function it would be a time of day. */
    if (n == 1 || (n == 2 && rest.ptr[-2] != '.'))
        return -EINVAL;
    if (n == 2) {
        part[2] = part[1];
        part[1] = part[0];
        part[0] = 0;
    }
    if (part[1] > 0xff || part[2] > 0x1f)
        return -EINVAL;
    snprintf(out, DEVICE_PCI_MAX, "%04lx:%02lx:%02lx.%lx", (unsigned long)part[0] & 0xffff,
             (unsigned long)part[1] & 0xff, (unsigned long)part[2] & 0x1f,
             (unsigned long)function & 7);
    *text = rest;
    return 0;
}

int kernel_log_pci(struct span text, char out[DEVICE_PCI_MAX])
{
    char pci[DEVICE_PCI_MAX];

    if (span_starts_with(text, SPAN_LIT("PCI:")))
        text = (struct span){text.ptr + 4, text.len - 4};
    if (take_pci(&text, pci) < 0 || text.len != 0)
        return -EINVAL;
    memcpy(out, pci, DEVICE_PCI_MAX);
    return 0;
}

/* The first address anywhere in the text, at the start of a word. */
static bool find_pci(struct span text, char out[DEVICE_PCI_MAX])
{
    for (size_t i = 0; i < text.len; i++) {
        struct span at = {text.ptr + i, text.len - i};
        struct span after = at;

        if (i > 0 && (hex_digit(text.ptr[i - 1]) >= 0 ||
                      (text.ptr[i - 1] == ':' && (i < 4 || memcmp(at.ptr - 4, "PCI:", 4) != 0))))
            continue;
        if (take_pci(&after, out) == 0)
            return true;
    }
    return false;
}

bool kernel_log_is_about(const struct device_event *event, const char *pci)
{
    return event->pci[0] != '\0' && pci[0] != '\0' && strcmp(event->pci, pci) == 0;
}

/* --- Xid --- */

enum device_fault kernel_log_xid_fault(uint32_t xid)
{
    static const struct {
        uint16_t xid;
        enum device_fault fault;
    } known[] = {
        {8, DEVICE_FAULT_APPLICATION},  /* a kernel of the GPU timed out */
        {13, DEVICE_FAULT_APPLICATION}, /* graphics engine exception */
        {31, DEVICE_FAULT_APPLICATION}, /* memory page fault */
        {32, DEVICE_FAULT_APPLICATION}, /* invalid push buffer */
        {43, DEVICE_FAULT_APPLICATION}, /* the channel was reset; others are well */
        {45, DEVICE_FAULT_APPLICATION}, /* clean-up after a fault or a kill */
        {48, DEVICE_FAULT_RESET},       /* double bit ECC error */
        {61, DEVICE_FAULT_RESET},       /* internal micro-controller warning, halted */
        {62, DEVICE_FAULT_RESET},       /* internal micro-controller halt */
        {63, DEVICE_FAULT_NONE},        /* row remapping or page retirement recorded */
        {64, DEVICE_FAULT_RESET},       /* row remapping failed */
        {68, DEVICE_FAULT_APPLICATION}, /* video processor exception */
        {69, DEVICE_FAULT_APPLICATION}, /* graphics engine class error */
        {74, DEVICE_FAULT_SUSPECT},     /* NVLink error */
        {79, DEVICE_FAULT_LOST},        /* fallen off the bus */
        {92, DEVICE_FAULT_NONE},        /* many single bit ECC errors, corrected */
        {94, DEVICE_FAULT_APPLICATION}, /* contained memory error */
        {95, DEVICE_FAULT_RESET},       /* uncontained memory error */
        {109, DEVICE_FAULT_RESET},      /* context switch timeout */
        {110, DEVICE_FAULT_RESET},      /* security fault */
        {119, DEVICE_FAULT_RESET},      /* GSP does not answer */
        {120, DEVICE_FAULT_RESET},      /* GSP error */
        {136, DEVICE_FAULT_RESET},      /* ALI training failed */
        {140, DEVICE_FAULT_RESET},      /* unrecovered ECC error */
        {143, DEVICE_FAULT_RESET},      /* initialisation failed */
        {154, DEVICE_FAULT_RESET},      /* recovery action changed; its text says to what */
    };

    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (known[i].xid == xid)
            return known[i].fault;
    }
    return DEVICE_FAULT_SUSPECT;
}

/* "…recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)": is the new one "none"? */
static bool is_all_clear(struct span text)
{
    ptrdiff_t to = span_find_nocase(text, SPAN_LIT(") to 0x"));

    return to >= 0 && text.len > (size_t)to + 7 && text.ptr[to + 7] == '0' &&
           (text.len == (size_t)to + 8 || hex_digit(text.ptr[to + 8]) < 0);
}

static void set_text(struct device_event *event, struct span line)
{
    snprintf(event->text, sizeof(event->text), "%.*s",
             (int)(line.len < DEVICE_WHY_MAX ? line.len : DEVICE_WHY_MAX - 1), line.ptr);
}

/* "Xid (PCI:0000:06:00): 79, text" */
static bool xid_line(struct span line, struct device_event *event)
{
    ptrdiff_t at = span_find(line, SPAN_LIT("Xid ("));
    struct span rest;
    ptrdiff_t close;
    uint64_t xid = 0;
    size_t n = 0;

    if (at < 0)
        return false;
    rest = (struct span){line.ptr + at + 5, line.len - (size_t)at - 5};
    close = span_find(rest, SPAN_LIT("):"));
    if (close < 0)
        return false;
    if (kernel_log_pci((struct span){rest.ptr, (size_t)close}, event->pci) < 0)
        event->pci[0] = '\0';
    rest = span_trim((struct span){rest.ptr + close + 2, rest.len - (size_t)close - 2});
    while (n < rest.len && rest.ptr[n] >= '0' && rest.ptr[n] <= '9')
        n++;
    if (device_text_parse_u64((struct span){rest.ptr, n}, &xid) < 0 || xid > 100000)
        return false;
    event->kind = DEVICE_EVENT_XID;
    event->code = (uint32_t)xid;
    event->fault = kernel_log_xid_fault(event->code);
    if (xid == 154 && is_all_clear(rest))
        event->fault = DEVICE_FAULT_NONE;
    return true;
}

/* --- lines --- */

/* Without the record head of /dev/kmsg and dmesg's time. */
static struct span strip_head(struct span line)
{
    ptrdiff_t semicolon = span_find(line, SPAN_LIT(";"));
    ptrdiff_t bracket;

    if (line.len > 0 && line.ptr[0] >= '0' && line.ptr[0] <= '9' && semicolon > 0 &&
        memchr(line.ptr, ' ', (size_t)semicolon) == NULL)
        line = (struct span){line.ptr + semicolon + 1, line.len - (size_t)semicolon - 1};
    bracket = span_find(line, SPAN_LIT("] "));
    if (line.len > 0 && line.ptr[0] == '[' && bracket > 0)
        line = (struct span){line.ptr + bracket + 2, line.len - (size_t)bracket - 2};
    return span_trim(line);
}

static void remember(struct kernel_log *log, struct span text)
{
    size_t max = sizeof(log->tail);

    if (text.len > max / 2)
        text = (struct span){text.ptr + text.len - max / 2, max / 2};
    if (log->tail_len + text.len + 1 > max) {
        size_t keep = max - text.len - 1;

        memmove(log->tail, log->tail + log->tail_len - keep, keep);
        log->tail_len = keep;
    }
    if (log->tail_len > 0)
        log->tail[log->tail_len++] = ' ';
    memcpy(log->tail + log->tail_len, text.ptr, text.len);
    log->tail_len += text.len;
}

/* A line of NVIDIA's driver without an Xid; may be the middle of a sentence. */
static bool nvrm_line(struct kernel_log *log, struct span text, struct device_event *event)
{
    if (find_pci(text, event->pci))
        memcpy(log->pci, event->pci, DEVICE_PCI_MAX);
    remember(log, text);
    if (span_find_nocase((struct span){log->tail, log->tail_len}, SPAN_LIT("fallen off the bus")) <
        0)
        return false;
    memcpy(event->pci, log->pci, DEVICE_PCI_MAX);
    set_text(event, (struct span){log->tail, log->tail_len});
    event->kind = DEVICE_EVENT_FAULT;
    event->fault = DEVICE_FAULT_LOST;
    memset(log, 0, sizeof(*log));
    return true;
}

static bool other_driver_line(struct span line, struct device_event *event)
{
    static const struct {
        const char *driver, *words;
        enum device_fault fault;
    } known[] = {
        {"amdgpu ", "device lost from bus", DEVICE_FAULT_LOST},
        {"amdgpu ", "GPU reset begin", DEVICE_FAULT_RESET},
        {"amdgpu ", "GPU Recovery Failed", DEVICE_FAULT_LOST},
        {"amdgpu ", "GPU reset succeeded", DEVICE_FAULT_NONE},
        {"xe ", "declared wedged", DEVICE_FAULT_LOST},
        {"i915 ", "GPU HANG", DEVICE_FAULT_APPLICATION},
        {"i915 ", "device wedged", DEVICE_FAULT_LOST},
    };

    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (!span_starts_with(line, span_from_str(known[i].driver)) ||
            span_find_nocase(line, span_from_str(known[i].words)) < 0)
            continue;
        if (!find_pci(line, event->pci))
            event->pci[0] = '\0';
        event->kind = DEVICE_EVENT_FAULT;
        event->fault = known[i].fault;
        return true;
    }
    return false;
}

bool kernel_log_line(struct kernel_log *log, struct span line, struct device_event *ret_event)
{
    struct device_event event = {0};
    struct span nvrm = SPAN_LIT("NVRM:");

    line = strip_head(line);
    if (span_starts_with(line, nvrm)) {
        struct span text = span_trim((struct span){line.ptr + nvrm.len, line.len - nvrm.len});

        /* A whole line of its own, which also ends what stood before it. */
        if (xid_line(line, &event))
            memset(log, 0, sizeof(*log));
        else if (!nvrm_line(log, text, &event))
            return false;
        else {
            *ret_event = event;
            return true;
        }
    } else if (!other_driver_line(line, &event)) {
        return false;
    }
    set_text(&event, line);
    *ret_event = event;
    return true;
}
