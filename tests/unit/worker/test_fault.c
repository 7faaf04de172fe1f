/*
 * The classifier against what engines, drivers and kernels print. The texts are those of the field
 * cases, several with other numbers; letter case never decides.
 */
#include "tests/unit/unit.h"

#include "worker/fault.h"

#include <ctype.h>
#include <errno.h>

static struct fault fault;

static void classify(struct fault_evidence e)
{
    fault_classify(&e, &fault);
}

/* As it is, and in capitals. */
static void check_log(const char *line, enum fault_class want)
{
    char copy[512];
    for (int form = 0; form < 2; form++) {
        size_t n = strlen(line);
        assert_true(n < sizeof(copy));
        for (size_t i = 0; i <= n; i++)
            copy[i] = form == 1 ? (char)toupper((unsigned char)line[i]) : line[i];
        fault_classify_log_line((struct span){copy, n}, true, &fault);
        if (fault.class != want)
            fail_msg("'%s' is %s, expected %s", copy, fault_class_name(fault.class),
                     fault_class_name(want));
    }
}

static void test_log_lines(void **state)
{
    static const struct {
        const char *line;
        enum fault_class class;
    } rows[] = {
        /* F01 F02 F13 F33 F51: capacity */
        {"CUDA error: out of memory", FAULT_CAPACITY},
        {"ggml_backend_cuda_buffer_type_alloc_buffer: allocating 28426.68 MiB on device 0: "
         "cudaMalloc failed: out of memory",
         FAULT_CAPACITY},
        {"ggml_vulkan: Requested buffer size exceeds device buffer size limit: "
         "ErrorOutOfDeviceMemory",
         FAULT_CAPACITY},
        {"ggml_vulkan: Device memory allocation of size 369827840 failed.", FAULT_CAPACITY},
        {"graph_reserve: failed to allocate compute pp buffers", FAULT_CAPACITY},
        {"NvMapMemAllocInternalTagged: 1075072515 error 12", FAULT_CAPACITY},
        {"CUBLAS_STATUS_ALLOC_FAILED", FAULT_CAPACITY},
        {"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB", FAULT_CAPACITY},
        {"alloc_tensor_range: failed to allocate Sim0 buffer of size 97000000", FAULT_CAPACITY},
        {"ggml_backend_sched_graph_compute_async failed with error -2", FAULT_CAPACITY},
        /* F11 F15 F18 F19: device lost */
        {"terminate called after throwing an instance of 'vk::DeviceLostError'", FAULT_DEVICE_LOST},
        {"  what():  vk::Queue::submit: ErrorDeviceLost", FAULT_DEVICE_LOST},
        {"VK_ERROR_DEVICE_LOST", FAULT_DEVICE_LOST},
        {"cudaSetDevice err: 999", FAULT_DEVICE_LOST},
        {"cudart init failure: 999", FAULT_DEVICE_LOST},
        {"NVRM: Xid (PCI:0000:06:00): 79, GPU has fallen off the bus.", FAULT_DEVICE_LOST},
        {"NVRM: Xid (PCI:0000:41:00): 79, pid='<unknown>', name=<unknown>", FAULT_DEVICE_LOST},
        {"NVRM: The NVIDIA GPU 0000:06:00.0 has fallen off the bus and is not responding to "
         "commands.",
         FAULT_DEVICE_LOST},
        {"NVRM: Xid (PCI:0000:01:00): 154, GPU recovery action changed", FAULT_DEVICE_LOST},
        {"NVRM: Xid (PCI:0000:01:00): 62, 3282", FAULT_DEVICE_LOST},
        {"llama-server GPU discovery watchdog timed out", FAULT_DEVICE_LOST},
        {"amdgpu 0000:0c:00.0: amdgpu: GPU reset begin!", FAULT_DEVICE_LOST},
        {"[drm:amdgpu_job_timedout] *ERROR* ring gfx_0.0.0 timeout", FAULT_DEVICE_LOST},
        {"ggml_backend_sched_graph_compute_async failed with error -1", FAULT_DEVICE_LOST},
        /* application class: the process only */
        {"NVRM: Xid (PCI:0000:06:00): 13, pid=12", FAULT_ENGINE_DEAD},
        {"NVRM: Xid (PCI:0000:06:00): 31, pid=1300", FAULT_ENGINE_DEAD},
        {"NVRM: Xid (PCI:0000:06:00): 999, what", FAULT_UNKNOWN},
        /* F16 F22: driver */
        {"ggml_cuda_init: failed to initialize CUDA: forward compatibility was attempted on non "
         "supported HW",
         FAULT_DRIVER},
        {"load_tensors: offloaded 0/33 layers to GPU", FAULT_DRIVER},
        {"load_tensors: offloaded 0/7 layers to GPU", FAULT_DRIVER},
        {"Failed to initialize NVML: Driver/library version mismatch", FAULT_DRIVER},
        {"NVIDIA driver too old", FAULT_DRIVER},
        {"CUDA driver version is insufficient for CUDA runtime version", FAULT_DRIVER},
        /* F120: host memory */
        {"oom-kill:constraint=CONSTRAINT_NONE,task=llama-server", FAULT_HOST_MEMORY},
        {"Out of memory: Killed process 4711 (llama-server)", FAULT_HOST_MEMORY},
        {"terminate called after throwing an instance of 'std::bad_alloc'", FAULT_HOST_MEMORY},
        {"alloc_tensor_range: failed to allocate CPU buffer of size 1000", FAULT_HOST_MEMORY},
        {"ggml_cuda_host_malloc: failed to allocate 3354.83 MiB of pinned memory",
         FAULT_HOST_MEMORY},
        {"mmap failed: Cannot allocate memory", FAULT_HOST_MEMORY},
        /* F33 F48: nonsense sizes */
        {"ggml_cuda_host_malloc: failed to allocate 335445.83 MiB of pinned memory", FAULT_UNKNOWN},
        {"Failed to allocate memory for requested buffer of size 4662799785353222400",
         FAULT_UNKNOWN},
        {"Failed to allocate memory for requested buffer of size 9999999999999999999999999",
         FAULT_UNKNOWN},
        {"Failed to allocate memory for requested buffer of size 466279978", FAULT_CAPACITY},
        /* F08 F53 and kin: the engine */
        {"CUDA error: an illegal memory access was encountered", FAULT_ENGINE_DEAD},
        {"llama runner terminated", FAULT_ENGINE_DEAD},
        {"GGML_ASSERT(n > 0) failed", FAULT_ENGINE_DEAD},
        {"AsyncEngineDeadError: Background loop has errored already.", FAULT_ENGINE_DEAD},
        {"Segmentation fault (core dumped)", FAULT_ENGINE_DEAD},
        {"CUDA error: invalid argument", FAULT_ENGINE_DEAD},
        /* F38 F39: passing */
        {"cuda driver library failed to get device context 800", FAULT_TRANSIENT},
        {"CUDA-capable device(s) is/are busy or unavailable", FAULT_TRANSIENT},
        {"gpu VRAM usage didn't recover within timeout", FAULT_TRANSIENT},
        {"unable to refresh free memory, using old values", FAULT_TRANSIENT},
        /* F125 and ordinary lines: no fault */
        {"warning: failed to mlock 1048576-byte buffer (after previously locking 0 bytes): Cannot "
         "allocate memory",
         FAULT_NONE},
        {"load_tensors: offloaded 33/33 layers to GPU", FAULT_NONE},
        {"srv  update_slots: all slots are idle", FAULT_NONE},
        {"main: server is listening on http://127.0.0.1:8080", FAULT_NONE},
        {"ggml_cuda_init: found 1 CUDA devices (Total VRAM: 24576 MiB)", FAULT_NONE},
        {"llama_context: Sim0 compute buffer size = 13.00 MiB", FAULT_NONE},
        {"slot print_timing: prompt eval time = 268.49 ms", FAULT_NONE},
        {"srv stop: cancel task, id_task = 242", FAULT_NONE},
        {"", FAULT_NONE},
    };
    (void)state;
    for (size_t i = 0; i < UNIT_COUNT(rows); i++)
        check_log(rows[i].line, rows[i].class);
    fault_classify_log_line(SPAN_LIT("failed to mlock 5-byte buffer"), true, &fault);
    assert_non_null(strstr(fault.reason, "RLIMIT_MEMLOCK"));
    fault_classify_log_line(SPAN_LIT("NVRM: Xid (PCI:0000:06:00): 79, x"), true, &fault);
    assert_non_null(strstr(fault.reason, "Xid 79"));
}

/* The same words on a CPU tier. */
static void test_cpu_tier(void **state)
{
    (void)state;
    fault_classify_log_line(SPAN_LIT("load_tensors: offloaded 0/33 layers to GPU"), false, &fault);
    assert_int_equal(fault.class, FAULT_NONE);
    fault_classify_log_line(SPAN_LIT("error: out of memory"), false, &fault);
    assert_int_equal(fault.class, FAULT_HOST_MEMORY);
    classify((struct fault_evidence){.status = 500, .text = SPAN_LIT("Compute error.")});
    assert_int_equal(fault.class, FAULT_UNKNOWN);
    classify((struct fault_evidence){
        .status = 500, .text = SPAN_LIT("Compute error."), .on_device = true});
    assert_int_equal(fault.class, FAULT_DEVICE_LOST);
    classify((struct fault_evidence){
        .in_band = true, .text = SPAN_LIT("Compute error."), .on_device = true});
    assert_int_equal(fault.class, FAULT_DEVICE_LOST);
}

static void test_answers(void **state)
{
    static const struct {
        int status;
        const char *text;
        enum fault_class class;
    } rows[] = {
        /* F112 */
        {500, "Context size has been exceeded.", FAULT_REQUEST},
        {400,
         "{\"error\":{\"code\":400,\"message\":\"request (4390 tokens) exceeds the available "
         "context size (4096 tokens), try increasing it\",\"type\":"
         "\"exceed_context_size_error\",\"n_prompt_tokens\":4390,\"n_ctx\":4096}}",
         FAULT_REQUEST},
        {500, "request (99 tokens) exceeds the available context size (7 tokens)", FAULT_REQUEST},
        /* F113 */
        {500, "Jinja Exception: Conversation roles must alternate user/assistant/user/assistant/",
         FAULT_REQUEST},
        /* invalid JSON and wrong feature at llama-server */
        {500, "[json.exception.parse_error.101] parse error at line 1", FAULT_REQUEST},
        {501, "{\"error\":{\"code\":501,\"type\":\"not_supported_error\"}}", FAULT_REQUEST},
        {500, "This server does not support completions. Start it without `--embeddings`",
         FAULT_REQUEST},
        /* F104 */
        {413, "Payload too large", FAULT_REQUEST},
        {422, "", FAULT_REQUEST},
        {401, "no key", FAULT_REQUEST},
        /* F61 */
        {503,
         "{\"error\":{\"code\":503,\"message\":\"Loading model\",\"type\":"
         "\"unavailable_error\"}}",
         FAULT_LOADING},
        {503, "{\"status\":\"loading model\"}", FAULT_LOADING},
        /* F70 F78 */
        {500, "server busy, please try again.  maximum pending requests exceeded", FAULT_BUSY},
        {503, "server busy, please try again.  maximum pending requests exceeded", FAULT_BUSY},
        {500, "unexpected server status: llm busy - no slots available", FAULT_BUSY},
        {503, "", FAULT_BUSY},
        {503, "no slot is available", FAULT_BUSY},
        {429, "out of memory", FAULT_BUSY},
        {529, "", FAULT_BUSY},
        /* F74: counts, so that it is not asked again and again */
        {500, "model name=X failed to load", FAULT_UNKNOWN},
        {404, "model 'qwen' not found, try pulling it first", FAULT_UNKNOWN},
        {404, "File Not Found", FAULT_REQUEST},
        /* F08 F06 F73 */
        {500, "an error was encountered while running the model: unexpected EOF",
         FAULT_ENGINE_DEAD},
        {500, "POST predict: Post \"http://127.0.0.1:36001/completion\": EOF", FAULT_ENGINE_DEAD},
        {500, "Process can not ProxyRequest, state is failed", FAULT_ENGINE_DEAD},
        {500, "llama runner process has terminated: exit status 2", FAULT_ENGINE_DEAD},
        {500, "llama runner process has terminated: cudaMalloc failed: out of memory",
         FAULT_CAPACITY},
        {500, "model failed to load, this may be due to resource limitations", FAULT_CAPACITY},
        {500, "model requires more system memory (5.6 GiB) than is available (3.1 GiB)",
         FAULT_HOST_MEMORY},
        {500, "Failed to allocate memory for requested buffer of size 4662799785353222400",
         FAULT_UNKNOWN},
        {503, "CUDA out of memory", FAULT_CAPACITY},
        /* nothing known */
        {500, "", FAULT_TRANSIENT},
        {500, "something new", FAULT_TRANSIENT},
        {502, "<html>Bad Gateway</html>", FAULT_TRANSIENT},
        {504, "", FAULT_TRANSIENT},
        {508, "", FAULT_UNKNOWN},
        {408, "", FAULT_TRANSIENT},
        {200, "\n<!DOCTYPE html><html>", FAULT_UNKNOWN},
        {200, "{\"choices\":[]}", FAULT_NONE},
        {200, "a text about CUDA error: out of memory", FAULT_NONE},
    };
    (void)state;
    for (size_t i = 0; i < UNIT_COUNT(rows); i++) {
        classify((struct fault_evidence){.phase = FAULT_PHASE_HEAD,
                                         .status = rows[i].status,
                                         .text = span_from_str(rows[i].text),
                                         .on_device = true});
        if (fault.class != rows[i].class)
            fail_msg("%d '%s' is %s, expected %s", rows[i].status, rows[i].text,
                     fault_class_name(fault.class), fault_class_name(rows[i].class));
        if (fault.class != FAULT_NONE)
            assert_true(fault.reason[0] != '\0');
    }
}

/* A client cannot take a worker down by what it asks about. */
static void test_quoted_request(void **state)
{
    (void)state;
    classify(
        (struct fault_evidence){.status = 400,
                                .on_device = true,
                                .text = SPAN_LIT("cannot parse 'GPU has fallen off the bus'")});
    assert_int_equal(fault.class, FAULT_REQUEST);
    classify(
        (struct fault_evidence){.status = 500,
                                .on_device = true,
                                .text = SPAN_LIT("Jinja Exception: CUDA error: out of memory")});
    assert_int_equal(fault.class, FAULT_REQUEST);
}

static void test_in_band(void **state)
{
    (void)state;
    classify((struct fault_evidence){.in_band = true, .text = SPAN_LIT("whatever")});
    assert_int_equal(fault.class, FAULT_UNKNOWN);
    classify((struct fault_evidence){.in_band = true, .status = 504, .text = SPAN_LIT("Timeout")});
    assert_int_equal(fault.class, FAULT_TRANSIENT);
    classify((struct fault_evidence){
        .in_band = true, .status = 400, .text = SPAN_LIT("maximum context length is 9 tokens")});
    assert_int_equal(fault.class, FAULT_REQUEST);
    classify((struct fault_evidence){.in_band = true,
                                     .text = SPAN_LIT("running the model: unexpected EOF")});
    assert_int_equal(fault.class, FAULT_ENGINE_DEAD);
}

static void test_transport(void **state)
{
    static const struct {
        int error;
        enum fault_phase phase;
        bool reused;
        enum fault_class class;
    } rows[] = {
        {-ECONNREFUSED, FAULT_PHASE_CONNECT, false, FAULT_ENGINE_DEAD},
        {-ENOENT, FAULT_PHASE_CONNECT, false, FAULT_ENGINE_DEAD},
        {-EHOSTUNREACH, FAULT_PHASE_CONNECT, false, FAULT_ENGINE_DEAD},
        {-3008, FAULT_PHASE_CONNECT, false, FAULT_ENGINE_DEAD},
        {-ETIMEDOUT, FAULT_PHASE_CONNECT, false, FAULT_STALL},
        {-ECONNRESET, FAULT_PHASE_HEAD, true, FAULT_TRANSIENT}, /* F106 */
        {-EPIPE, FAULT_PHASE_SEND, true, FAULT_TRANSIENT},
        {-ECONNRESET, FAULT_PHASE_HEAD, false, FAULT_TRANSIENT},
        {-ECONNABORTED, FAULT_PHASE_FIRST_EVENT, false, FAULT_TRANSIENT},
        {-ECONNRESET, FAULT_PHASE_STREAM, false, FAULT_ENGINE_DEAD},
        {-ECONNABORTED, FAULT_PHASE_STREAM, false, FAULT_ENGINE_DEAD},
        {-EPROTO, FAULT_PHASE_HEAD, false, FAULT_UNKNOWN},
        {-EMFILE, FAULT_PHASE_CONNECT, false, FAULT_BUSY},
        {-EIO, FAULT_PHASE_HEAD, false, FAULT_UNKNOWN},
    };
    (void)state;
    for (size_t i = 0; i < UNIT_COUNT(rows); i++) {
        classify((struct fault_evidence){.phase = rows[i].phase,
                                         .transport_error = rows[i].error,
                                         .connection_reused = rows[i].reused});
        if (fault.class != rows[i].class)
            fail_msg("row %zu is %s", i, fault_class_name(fault.class));
        if (rows[i].reused)
            assert_non_null(strstr(fault.reason, "kept connection"));
    }
    classify((struct fault_evidence){.phase = FAULT_PHASE_FIRST_EVENT, .timed_out = true});
    assert_int_equal(fault.class, FAULT_STALL);
    classify((struct fault_evidence){
        .phase = FAULT_PHASE_FIRST_EVENT, .timed_out = true, .status = 200});
    assert_int_equal(fault.class, FAULT_STALL);
    classify((struct fault_evidence){0});
    assert_int_equal(fault.class, FAULT_NONE);
}

static void test_exit(void **state)
{
    (void)state;
    classify((struct fault_evidence){.exited = true, .exit_status = 134});
    assert_int_equal(fault.class, FAULT_ENGINE_DEAD);
    assert_non_null(strstr(fault.reason, "signal 6"));
    classify((struct fault_evidence){.exited = true, .exit_status = 1});
    assert_non_null(strstr(fault.reason, "status 1"));
    classify((struct fault_evidence){.exited = true, .exit_status = 137});
    assert_non_null(strstr(fault.reason, "signal 9"));
    /* What it printed says more: the cause is first, its death after it. */
    classify((struct fault_evidence){
        .exited = true,
        .exit_status = 134,
        .on_device = true,
        .text = SPAN_LIT("load: ok\nCUDA error: out of memory\nGGML_ASSERT failed\n")});
    assert_int_equal(fault.class, FAULT_CAPACITY);
    classify((struct fault_evidence){
        .exited = true,
        .exit_status = 134,
        .on_device = true,
        .text = SPAN_LIT("terminate called after throwing an instance of 'std::runtime_error'\n"
                         "  what():  vk::Queue::submit: ErrorDeviceLost")});
    assert_int_equal(fault.class, FAULT_DEVICE_LOST);
    classify((struct fault_evidence){
        .exited = true, .expected_exit = true, .text = SPAN_LIT("CUDA error: out of memory")});
    assert_int_equal(fault.class, FAULT_NONE);
}

static void test_consequences(void **state)
{
    (void)state;
    for (int c = 0; c < FAULT_CLASS_COUNT; c++) {
        enum fault_class class = (enum fault_class)c;
        bool harmless = class == FAULT_NONE || class == FAULT_BUSY || class == FAULT_LOADING ||
                        class == FAULT_REQUEST;
        assert_int_equal(fault_counts(class), !harmless);
        assert_int_equal(fault_moves_on(class), class != FAULT_NONE && class != FAULT_REQUEST);
        assert_int_equal(fault_may_retry(class), class == FAULT_BUSY || class == FAULT_TRANSIENT);
        assert_int_equal(fault_whole_device(class),
                         class == FAULT_DEVICE_LOST || class == FAULT_DRIVER);
    }
    assert_string_equal(fault_class_name(FAULT_DEVICE_LOST), "device-lost");
}

/* Only a bare 500 with a body, and a refusal of the content, put the request in doubt. */
static void test_doubt(void **state)
{
    static const struct {
        struct fault_evidence e;
        bool doubt;
    } rows[] = {
        {{.status = 500, .text = SPAN_LIT("Internal Server Error")}, true},
        {{.status = 500, .text = SPAN_LIT("<html><title>500</title></html>")}, true},
        {{.status = 500, .text = SPAN_LIT("CUDA error: out of memory"), .on_device = true}, false},
        {{.status = 500, .text = SPAN_LIT("bad_alloc")}, false},
        {{.status = 500, .text = SPAN_LIT("CUDA-capable device(s) is/are busy or unavailable")},
         false},
        {{.status = 500, .text = SPAN_LIT("server busy, please try again")}, false},
        {{.status = 500, .text = SPAN_LIT("")}, false},
        {{.status = 500, .text = SPAN_LIT(" \r\n")}, false},
        {{.status = 500, .in_band = true, .text = SPAN_LIT("decode failed")}, false},
        {{.status = 500, .text = SPAN_LIT("Internal Server Error"), .exited = true}, false},
        {{.status = 500, .text = SPAN_LIT("Internal Server Error"), .timed_out = true}, false},
        {{.status = 500,
          .text = SPAN_LIT("Internal Server Error"),
          .transport_error = -ECONNRESET,
          .phase = FAULT_PHASE_FIRST_EVENT},
         false},
        {{.status = 502, .text = SPAN_LIT("Bad Gateway")}, false},
        {{.status = 503, .text = SPAN_LIT("Service Unavailable")}, false},
        {{.status = 504, .text = SPAN_LIT("Gateway Timeout")}, false},
        {{.status = 429, .text = SPAN_LIT("slow down")}, false},
        {{.status = 400, .text = SPAN_LIT("bad file")}, true},
        {{.status = 415, .text = SPAN_LIT("bad file")}, true},
        {{.status = 422, .text = SPAN_LIT("bad file")}, true},
        {{.status = 401, .text = SPAN_LIT("who are you")}, false},
        {{.status = 404, .text = SPAN_LIT("nothing here")}, false},
        {{.status = 501, .text = SPAN_LIT("not offered")}, false},
        {{.transport_error = -ECONNRESET}, false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        classify(rows[i].e);
        if (fault.doubt != rows[i].doubt)
            fail_msg("HTTP %d '%.*s' (row %zu): doubt is %d", rows[i].e.status,
                     SPAN_FMT(rows[i].e.text), i, fault.doubt);
        assert_true(!fault.doubt || fault.class == FAULT_TRANSIENT || fault.class == FAULT_REQUEST);
    }
}

/* Words for a file that is none, not to be taken for a model that does not load. */
static void test_file_that_is_none(void **state)
{
    static const char *const texts[] = {
        "RuntimeError: Failed to load audio: ffmpeg version 5.1.6",
        "PIL.UnidentifiedImageError: cannot identify image file <_io.BytesIO object at 0x7f>",
        "av.error.InvalidDataError: [Errno 1094995529] Invalid data found when processing input",
    };
    (void)state;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        classify((struct fault_evidence){.status = 500, .text = span_from_str(texts[i])});
        assert_int_equal(fault.class, FAULT_REQUEST);
    }
}

/* Anything at all may stand in a log. */
static void test_odd_bytes(void **state)
{
    static const char odd[] = "\0\xff\r out\0of memory \x1b[31mCUDA error: out of memory\0";
    (void)state;
    fault_classify_log_line((struct span){odd, sizeof(odd) - 1}, true, &fault);
    assert_int_equal(fault.class, FAULT_CAPACITY);
    fault_classify_log_line(SPAN_NONE, true, &fault);
    assert_int_equal(fault.class, FAULT_NONE);
    fault_classify_log_line(SPAN_LIT("NVRM: Xid (PCI"), true, &fault);
    assert_int_equal(fault.class, FAULT_UNKNOWN);
    fault_classify_log_line(SPAN_LIT("NVRM: Xid (PCI:1): 99999999999999999999"), true, &fault);
    assert_int_equal(fault.class, FAULT_UNKNOWN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_log_lines),
        cmocka_unit_test(test_cpu_tier),
        cmocka_unit_test(test_answers),
        cmocka_unit_test(test_quoted_request),
        cmocka_unit_test(test_in_band),
        cmocka_unit_test(test_transport),
        cmocka_unit_test(test_exit),
        cmocka_unit_test(test_consequences),
        cmocka_unit_test(test_odd_bytes),
        cmocka_unit_test(test_doubt),
        cmocka_unit_test(test_file_that_is_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
