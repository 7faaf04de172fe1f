/*
 * Reads an engine's log lines. Wordings are those of llama.cpp (src/llama-model.cpp,
 * src/llama-model-loader.cpp, src/llama-mmap.cpp, tools/server/server.cpp) with any prefix in front:
 * what is looked for is found anywhere in the line, so a change of prefix changes nothing here.
 */
#include "worker/load_report.h"

#include <stdio.h>
#include <string.h>

/* Lines that an abort writes: its message and a trace. */
enum { LOAD_REPORT_RECENT = 40 };

void load_report_reset(struct load_report *r)
{
    *r = (struct load_report){0};
}

/* Copies text so that it can stand in a sentence: control bytes and non-ASCII become '?'. */
static void copy_text(char *out, size_t out_size, struct span s)
{
    size_t n = s.len < out_size - 1 ? s.len : out_size - 1;

    for (size_t i = 0; i < n; i++)
        out[i] = s.ptr[i] >= 0x20 && s.ptr[i] < 0x7f ? s.ptr[i] : (s.ptr[i] == '\t' ? ' ' : '?');
    out[n] = '\0';
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static struct span skip(struct span s, size_t n)
{
    return (struct span){s.ptr + n, s.len - n};
}

/* `0.00.019.528 E rest`: time and level of llama.cpp's log. *ret_level is 0 without them. */
static struct span strip_prefix(struct span line, char *ret_level)
{
    size_t n = 0;

    *ret_level = 0;
    while (n < line.len && (is_digit(line.ptr[n]) || line.ptr[n] == '.'))
        n++;
    if (n >= 3 && n + 3 < line.len && line.ptr[n] == ' ' && line.ptr[n + 2] == ' ' &&
        strchr("EWIDT", line.ptr[n + 1]) != NULL) {
        *ret_level = line.ptr[n + 1];
        return span_trim(skip(line, n + 3));
    }
    return span_trim(line);
}

static bool take_number(struct span *s, uint32_t *ret_value)
{
    uint64_t value = 0;
    size_t n = 0;

    while (n < s->len && is_digit(s->ptr[n]) && value < 1000000000) {
        value = value * 10 + (uint64_t)(s->ptr[n] - '0');
        n++;
    }
    if (n == 0 || value > UINT32_MAX)
        return false;
    *s = skip(*s, n);
    *ret_value = (uint32_t)value;
    return true;
}

/* `offloaded 31/31 layers to GPU` */
static void read_offload(struct load_report *r, struct span line)
{
    ptrdiff_t at = span_find(line, SPAN_LIT("offloaded "));
    uint32_t offloaded, layers;
    struct span s;

    if (at < 0)
        return;
    s = skip(line, (size_t)at + sizeof("offloaded ") - 1);
    if (!take_number(&s, &offloaded) || s.len == 0 || s.ptr[0] != '/')
        return;
    s = skip(s, 1);
    if (!take_number(&s, &layers) || span_find(s, SPAN_LIT("layers")) < 0)
        return;
    r->offload_known = true;
    r->offloaded = offloaded;
    r->layers = layers;
}

/* Names of ggml's host buffer types: CPU, CPU_Mapped, CPU_REPACK, AMX, CUDA_Host, Vulkan_Host, … */
static bool is_host_buffer(struct span name)
{
    if (span_starts_with(name, SPAN_LIT("CPU")) || span_starts_with(name, SPAN_LIT("AMX")))
        return true;
    return name.len >= 5 && span_equals_nocase(skip(name, name.len - 5), SPAN_LIT("_Host"));
}

/* `load_tensors:        CUDA0 model buffer size =  4095.05 MiB` */
static void read_buffer(struct load_report *r, struct span line)
{
    ptrdiff_t at = span_find(line, SPAN_LIT(" model buffer size"));
    struct span name;
    size_t start;

    if (at <= 0)
        return;
    start = (size_t)at;
    while (start > 0 && line.ptr[start - 1] != ' ')
        start--;
    name = (struct span){line.ptr + start, (size_t)at - start};
    if (is_host_buffer(name)) {
        r->host_buffers++;
        return;
    }
    if (r->device_buffers++ == 0)
        copy_text(r->device, sizeof(r->device), name);
}

/* Says that something failed, but not what. */
static bool is_epilogue(struct span text)
{
    static const char *const words[] = {"exiting due to", "cleaning up before exit",
                                        "failed to load model", "for bugs during this step"};

    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if (span_find(text, span_from_str(words[i])) >= 0)
            return true;
    }
    return false;
}

static bool looks_like_error(struct span text, char level)
{
    static const char *const words[] = {
        "error",
        "failed",
        "unable to",
        "what():",
        "terminate called",
        "abort",
        "assert",
        "out of memory",
        "device lost",
        "DeviceLost",
        "no such file",
        "cannot open",
        "not found",
        "permission denied",
        "segmentation fault",
        "illegal instruction",
    };

    if (level == 'E')
        return true;
    if (level != 0)
        return false; /* it was given a level, and that is not error */
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if (span_find_nocase(text, span_from_str(words[i])) >= 0)
            return true;
    }
    return false;
}

static void read_error(struct load_report *r, struct span text, char level)
{
    if (!looks_like_error(text, level))
        return;
    if (is_epilogue(text) && r->saw_first_error)
        return;
    /* An epilogue that comes first is kept until something better comes. */
    if (!r->saw_first_error)
        copy_text(r->first_error, sizeof(r->first_error), text);
    r->saw_first_error = r->saw_first_error || !is_epilogue(text);
    copy_text(r->last_error, sizeof(r->last_error), text);
    r->last_error_line = r->lines;
}

/* `warning: failed to mlock N-byte buffer (after previously locking M bytes): …`: it works all the
 * same (abetlen/llama-cpp-python#708). True: the line is a warning and no error. */
static bool read_warning(struct load_report *r, struct span text)
{
    if (span_find(text, SPAN_LIT("failed to mlock")) >= 0) {
        snprintf(r->warning, sizeof(r->warning),
                 "weights are not locked in memory (mlock failed); raise RLIMIT_MEMLOCK");
        return true;
    }
    return false;
}

const char *load_report_recent_error(const struct load_report *r)
{
    return r->lines - r->last_error_line < LOAD_REPORT_RECENT ? r->last_error : "";
}

bool load_report_line(struct load_report *r, struct span line)
{
    char level;
    struct span text = strip_prefix(line, &level);

    r->lines++;
    if (!r->loaded) {
        read_offload(r, text);
        read_buffer(r, text);
    } else if (level != 0 && level != 'E' && level != 'W') {
        return false; /* a dozen such lines come with every request */
    }
    if (!read_warning(r, text))
        read_error(r, text, level);
    if (!r->listening && (span_find(text, SPAN_LIT("server is listening")) >= 0 ||
                          span_find(text, SPAN_LIT("listening on ")) >= 0)) {
        r->listening = true;
        return true;
    }
    return false;
}

bool load_report_placement(const struct load_report *r, int32_t gpu_layers, const char *device_name,
                           char *out, size_t out_size)
{
    uint32_t wanted;

    out[0] = '\0';
    if (gpu_layers == 0)
        return true;
    if ((r->host_buffers > 0 && r->device_buffers == 0) ||
        (r->offload_known && r->offloaded == 0 && r->layers > 0)) {
        snprintf(
            out, out_size,
            "runs on the CPU: the engine put nothing on %s (offloaded %u of %u layers); is the "
            "driver loaded and the engine built for it?",
            device_name ? device_name : "the GPU", r->device_buffers ? r->offloaded : 0u,
            r->layers);
        return false;
    }
    if (!r->offload_known)
        return true;
    wanted = gpu_layers < 0 || (uint32_t)gpu_layers > r->layers ? r->layers : (uint32_t)gpu_layers;
    if (r->offloaded < wanted)
        snprintf(out, out_size, "offloaded %u of %u layers to %s, %u were wanted", r->offloaded,
                 r->layers, device_name ? device_name : "the GPU", wanted);
    return true;
}
