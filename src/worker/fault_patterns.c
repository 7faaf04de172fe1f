/*
 * The table of texts. Rows are ordered: what is specific stands before what is general, and what is
 * the client's own before what would count against a worker, because an error text may quote the
 * request. Each row names the field case it comes from.
 */
#include "worker/fault_patterns.h"

#include <stddef.h>

#define ANSWER FAULT_SCOPE_ANSWER
#define LOG    FAULT_SCOPE_LOG
#define BOTH   FAULT_SCOPE_BOTH
#define DEVICE FAULT_SCOPE_DEVICE

#define LOST_STATE "the driver lost its state (999); a restart of the worker may not help"

/* clang-format off */
const struct fault_pattern fault_patterns[] = {
    /* Warnings that look like faults. */
    /* F125 abetlen/llama-cpp-python#708 */
    {FAULT_NONE, LOG, "failed to mlock", "the model could not be locked in memory (raise RLIMIT_MEMLOCK)"},
    {FAULT_NONE, LOG, "failed to munlock", "the model could not be unlocked"},

    /* The client's own, deterministic. */
    /* F112 ggml-org/llama.cpp#19774, ikawrakow/ik_llama.cpp#2420 */
    {FAULT_REQUEST, ANSWER, "exceed_context_size", "the prompt is longer than the context"},
    {FAULT_REQUEST, ANSWER, "exceeds the available context", "the prompt is longer than the context"},
    {FAULT_REQUEST, ANSWER, "context size has been exceeded", "the context is full"},
    {FAULT_REQUEST, ANSWER, "context_length_exceeded", "the prompt is longer than the context"},
    {FAULT_REQUEST, ANSWER, "maximum context length", "the prompt is longer than the context"},
    {FAULT_REQUEST, ANSWER, "exceeds*context length", "the prompt is longer than the context"},
    {FAULT_REQUEST, ANSWER, "prompt is too long", "the prompt is too long"},
    {FAULT_REQUEST, ANSWER, "input is too large to process", "the input is larger than the batch"},
    {FAULT_REQUEST, ANSWER, "input*too long", "the input is too long"},
    /* F113 idiap/sdialog#122, ollama/ollama#6371 */
    {FAULT_REQUEST, ANSWER, "jinja", "the chat template refused the messages"},
    {FAULT_REQUEST, ANSWER, "roles must alternate", "the chat template refused the messages"},
    {FAULT_REQUEST, ANSWER, "chat template", "the chat template refused the messages"},
    {FAULT_REQUEST, ANSWER, "json.exception", "the worker could not use the JSON"},
    {FAULT_REQUEST, ANSWER, "failed to parse", "the worker could not parse a part of the request"},
    {FAULT_REQUEST, ANSWER, "invalid_request_error", "the worker refused the request"},
    {FAULT_REQUEST, ANSWER, "server does not support", "the worker does not offer this"},
    {FAULT_REQUEST, ANSWER, "model does not support", "the model cannot do this"},
    {FAULT_REQUEST, ANSWER, "input is not supported", "the model cannot take this kind of input"},
    {FAULT_REQUEST, ANSWER, "not_supported_error", "the worker does not offer this"},
    /* Words of openai/whisper, Pillow and FFmpeg for a file that is no sound or picture; the general
     * "failed to load" below is about models. */
    {FAULT_REQUEST, ANSWER, "failed to load audio", "the file cannot be read as sound"},
    {FAULT_REQUEST, ANSWER, "failed to load image", "the file cannot be read as a picture"},
    {FAULT_REQUEST, ANSWER, "cannot identify image file", "the file cannot be read as a picture"},
    {FAULT_REQUEST, ANSWER, "invalid data found when processing input", "the file cannot be decoded"},
    /* F104 yhirose/cpp-httplib#1737 */
    {FAULT_REQUEST, ANSWER, "payload too large", "the body is too large for the worker"},

    /* Not ready, not broken. */
    /* F61 mostlygeek/llama-swap#146 */
    {FAULT_LOADING, ANSWER, "loading model", "the model is loading"},
    {FAULT_LOADING, ANSWER, "model is*loading", "the model is loading"},
    {FAULT_LOADING, ANSWER, "still loading", "the model is loading"},
    {FAULT_LOADING, ANSWER, "\"status\"*\"loading", "the model is loading"},
    /* F70 ollama/ollama#4159, #4124, #4144 */
    {FAULT_BUSY, ANSWER, "server busy", "the worker's queue is full"},
    {FAULT_BUSY, ANSWER, "maximum pending requests", "the worker's queue is full"},
    {FAULT_BUSY, ANSWER, "no slot*available", "every slot is taken"},
    {FAULT_BUSY, ANSWER, "llm busy", "every slot is taken"},
    {FAULT_BUSY, ANSWER, "queue is full", "the worker's queue is full"},
    {FAULT_BUSY, ANSWER, "queue full", "the worker's queue is full"},
    {FAULT_BUSY, ANSWER, "too many*requests", "the worker limits requests"},
    {FAULT_BUSY, ANSWER, "rate limit", "the worker limits requests"},
    {FAULT_BUSY, ANSWER, "rate_limit", "the worker limits requests"},
    {FAULT_BUSY, ANSWER, "overloaded", "the worker is overloaded"},

    /* The device is gone. */
    /* F11 ggml-org/llama.cpp#17334, #19955 */
    {FAULT_DEVICE_LOST, BOTH, "devicelost", "the device was lost (Vulkan)"},
    {FAULT_DEVICE_LOST, BOTH, "device_lost", "the device was lost"},
    {FAULT_DEVICE_LOST, BOTH, "device*lost", "the device was lost"},
    {FAULT_DEVICE_LOST, BOTH, "device hung", "the device hung"},
    /* F19 NVIDIA/open-gpu-kernel-modules#1151, NVIDIA/NVSentinel#155 */
    {FAULT_DEVICE_LOST, BOTH, "fallen off the bus", "the GPU has fallen off the bus"},
    {FAULT_DEVICE_LOST, BOTH, "gpu*is lost", "the GPU is lost"},
    {FAULT_DEVICE_LOST, BOTH, "gpu*requires reset", "the GPU must be reset"},
    /* F18 ollama/ollama#18144 */
    {FAULT_DEVICE_LOST, BOTH, "gpu reset required", "the GPU must be reset"},
    {FAULT_DEVICE_LOST, LOG, "gpu discovery watchdog timed out", "the driver does not answer"},
    {FAULT_DEVICE_LOST, LOG, "gpu reset begin", "the driver resets the GPU (amdgpu)"},
    {FAULT_DEVICE_LOST, LOG, "ring gfx*timeout", "a ring of the GPU timed out (amdgpu)"},
    {FAULT_DEVICE_LOST, LOG, "ring comp*timeout", "a ring of the GPU timed out (amdgpu)"},
    {FAULT_DEVICE_LOST, LOG, "ring sdma*timeout", "a ring of the GPU timed out (amdgpu)"},
    {FAULT_DEVICE_LOST, LOG, "gpu hang", "the GPU hung"},
    {FAULT_DEVICE_LOST, BOTH, "uncorrectable ecc", "uncorrectable memory error of the GPU"},
    /* F15 ollama/ollama#10053, #8426 */
    {FAULT_DEVICE_LOST, BOTH, "cuda*err*: 999", LOST_STATE},
    {FAULT_DEVICE_LOST, BOTH, "cuda*failure: 999", LOST_STATE},
    {FAULT_DEVICE_LOST, BOTH, "cuda_error_unknown", LOST_STATE},
    {FAULT_DEVICE_LOST, BOTH, "cudaerrorunknown", LOST_STATE},

    /* The driver needs a person. */
    /* F16 ollama/ollama#15918 */
    {FAULT_DRIVER, BOTH, "forward compatibility was attempted", "driver and CUDA differ (no reboot?)"},
    {FAULT_DRIVER, BOTH, "driver/library version mismatch", "the driver was updated without a reboot"},
    {FAULT_DRIVER, BOTH, "failed to initialize nvml", "NVML does not start"},
    {FAULT_DRIVER, BOTH, "failed to initialize cuda", "CUDA does not start"},
    {FAULT_DRIVER, LOG | DEVICE, "offloaded 0/# layers", "no layer was put on the GPU"},
    /* F22 ollama/ollama#14258 */
    {FAULT_DRIVER, BOTH, "driver too old", "the driver is too old"},
    {FAULT_DRIVER, BOTH, "driver is too old", "the driver is too old"},
    {FAULT_DRIVER, BOTH, "driver version is insufficient", "the driver is too old"},
    {FAULT_DRIVER, BOTH, "no cuda-capable device", "the driver shows no GPU"},
    {FAULT_DRIVER, BOTH, "no kernel image is available", "the engine was not built for this GPU"},
    {FAULT_DRIVER, LOG | DEVICE, "no usable gpu found", "the engine finds no usable GPU"},

    /* Passing by itself. */
    /* F38 ollama/ollama#9016; F39 ollama/ollama#6637 */
    {FAULT_TRANSIENT, BOTH, "failed to get device context", "the device is being set up by somebody else"},
    {FAULT_TRANSIENT, BOTH, "is/are busy or unavailable", "the device is in use elsewhere"},
    {FAULT_TRANSIENT, LOG, "vram usage didn't recover", "memory of the last model is not back yet"},
    {FAULT_TRANSIENT, LOG, "unable to refresh free memory", "memory figures are stale"},

    /* Host memory. */
    /* F120 ollama/ollama#10739 */
    {FAULT_HOST_MEMORY, LOG, "oom-kill", "the kernel killed a process for memory"},
    {FAULT_HOST_MEMORY, LOG, "out of memory: killed process", "the kernel killed a process for memory"},
    {FAULT_HOST_MEMORY, BOTH, "insufficient host memory", "not enough host memory"},
    {FAULT_HOST_MEMORY, BOTH, "requires more system memory", "not enough host memory"},
    {FAULT_HOST_MEMORY, BOTH, "pinned memory", "host memory for transfers could not be had"},
    {FAULT_HOST_MEMORY, BOTH, "cuda_host_malloc", "host memory for transfers could not be had"},
    {FAULT_HOST_MEMORY, BOTH, "bad_alloc", "out of host memory"},
    {FAULT_HOST_MEMORY, BOTH, "cannot allocate memory", "out of host memory"},
    {FAULT_HOST_MEMORY, BOTH, "unable to allocate*cpu*buffer", "out of host memory"},
    {FAULT_HOST_MEMORY, BOTH, "failed to allocate*cpu*buffer", "out of host memory"},
    {FAULT_HOST_MEMORY, BOTH, "outofhostmemory", "out of host memory (Vulkan)"},

    /* Capacity of the device. */
    /* F13 ggml-org/llama.cpp#18160, #29270 */
    {FAULT_CAPACITY, BOTH, "exceeds device buffer size limit", "one buffer is larger than the device allows"},
    {FAULT_CAPACITY, BOTH, "outofdevicememory", "out of device memory (Vulkan)"},
    {FAULT_CAPACITY, BOTH, "device memory allocation*failed", "out of device memory"},
    /* F01 ggml-org/llama.cpp#13085; F02 ollama/ollama#4985 */
    {FAULT_CAPACITY, BOTH, "cudamalloc failed", "out of device memory (CUDA)"},
    {FAULT_CAPACITY, BOTH, "hipmalloc*failed", "out of device memory (HIP)"},
    {FAULT_CAPACITY, BOTH, "status_alloc_failed", "out of device memory (library workspace)"},
    {FAULT_CAPACITY, BOTH, "out of memory", "out of memory"},
    {FAULT_CAPACITY, BOTH, "out_of_memory", "out of memory"},
    {FAULT_CAPACITY, BOTH, "outofmemory", "out of memory"},
    /* F51 huggingface/speech-to-speech#8 */
    {FAULT_CAPACITY, BOTH, "nvmapmemalloc*error 12", "out of shared memory (Jetson)"},
    {FAULT_CAPACITY, BOTH, "unable to allocate*buffer", "a buffer could not be allocated"},
    {FAULT_CAPACITY, BOTH, "failed to allocate*buffer", "a buffer could not be allocated"},
    {FAULT_CAPACITY, BOTH, "failed to allocate memory", "memory could not be allocated"},
    {FAULT_CAPACITY, BOTH, "failed to allocate*mib", "memory could not be allocated"},
    {FAULT_CAPACITY, BOTH, "due to resource limitations", "the model does not fit (Ollama)"},
    {FAULT_CAPACITY, LOG | DEVICE, "graph_compute* failed with error -2", "the device had no memory for a request"},

    /* The process or its context on the device is beyond use. */
    /* F08 ollama/ollama#8258 */
    {FAULT_ENGINE_DEAD, BOTH, "illegal memory access", "the engine's context on the device broke"},
    {FAULT_ENGINE_DEAD, BOTH, "unspecified launch failure", "the engine's context on the device broke"},
    {FAULT_ENGINE_DEAD, BOTH, "misaligned address", "the engine's context on the device broke"},
    {FAULT_ENGINE_DEAD, BOTH, "device-side assert", "the engine's context on the device broke"},
    {FAULT_ENGINE_DEAD, BOTH, "launch timed out", "the engine's context on the device broke"},
    {FAULT_ENGINE_DEAD, BOTH, "memory access fault by gpu", "the engine's context on the device broke"},
    {FAULT_ENGINE_DEAD, BOTH, "runner*terminated", "the engine behind the worker ended"},
    {FAULT_ENGINE_DEAD, BOTH, "runner*unexpectedly stopped", "the engine behind the worker ended"},
    {FAULT_ENGINE_DEAD, BOTH, "runner*no longer running", "the engine behind the worker ended"},
    {FAULT_ENGINE_DEAD, ANSWER, "unexpected eof", "the engine behind the worker ended"},
    {FAULT_ENGINE_DEAD, ANSWER, "completion\": eof", "the engine behind the worker ended"},
    {FAULT_ENGINE_DEAD, ANSWER, "connection refused", "the engine behind the worker is gone"},
    /* F06 vllm-project/vllm#39863 */
    {FAULT_ENGINE_DEAD, BOTH, "enginedeaderror", "the engine behind the worker died"},
    {FAULT_ENGINE_DEAD, BOTH, "background loop has errored", "the engine behind the worker died"},
    {FAULT_ENGINE_DEAD, BOTH, "engine core*died", "the engine behind the worker died"},
    /* F73 mostlygeek/llama-swap#92 */
    {FAULT_ENGINE_DEAD, ANSWER, "state is failed", "the engine behind the worker does not start"},
    {FAULT_ENGINE_DEAD, BOTH, "ggml_assert", "the engine stopped at an assertion"},
    {FAULT_ENGINE_DEAD, LOG, "terminate called", "the engine ended with an exception"},
    {FAULT_ENGINE_DEAD, LOG, "segmentation fault", "the engine crashed"},
    {FAULT_ENGINE_DEAD, BOTH, "cuda error", "an error of CUDA"},

    /* llama-server, when the graph failed: the worker lives on, the device does not compute. */
    {FAULT_DEVICE_LOST, LOG | DEVICE, "graph_compute* failed with error", "the device could not compute"},
    {FAULT_DEVICE_LOST, ANSWER | DEVICE, "compute error", "the device could not compute"},
    {FAULT_UNKNOWN, ANSWER, "compute error", "the engine could not compute"},

    /* F74 NousResearch/hermes-agent#102044: not the client's, and not gone at the next try. */
    {FAULT_UNKNOWN, ANSWER, "failed to load", "the worker cannot load the model"},
    {FAULT_UNKNOWN, ANSWER, "model*not found", "the worker does not have the model"},
    {FAULT_NONE, 0, NULL, NULL},
};
/* clang-format on */

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Length of the piece at p (up to '*' or the end) if it matches at `at`; 0 when not. */
static size_t match_piece(const char *p, size_t piece_len, struct span line, size_t at,
                          size_t *ret_end)
{
    for (size_t i = 0; i < piece_len; i++) {
        if (at >= line.len)
            return 0;
        if (p[i] == '#') {
            if (!is_digit(line.ptr[at]))
                return 0;
            while (at < line.len && is_digit(line.ptr[at]))
                at++;
        } else if (lower(line.ptr[at++]) != p[i]) {
            return 0;
        }
    }
    *ret_end = at;
    return piece_len;
}

bool fault_pattern_matches(const char *pattern, struct span line)
{
    size_t at = 0;
    while (*pattern != '\0') {
        size_t piece_len = 0;
        while (pattern[piece_len] != '\0' && pattern[piece_len] != '*')
            piece_len++;
        size_t end = at;
        /* The first place will do: pieces are plain, so an earlier end is never worse. */
        while (at < line.len && match_piece(pattern, piece_len, line, at, &end) == 0)
            at++;
        if (at >= line.len)
            return false;
        at = end;
        pattern += piece_len;
        if (*pattern == '*')
            pattern++;
    }
    return true;
}
