/* What an engine says about itself: lines of llama.cpp v0.4.0 and of older builds (F16, F125). */
#include "tests/unit/unit.h"

#include "worker/load_report.h"

#include <string.h>

static struct load_report report_of(const char *const *lines, size_t count)
{
    struct load_report r;

    load_report_reset(&r);
    for (size_t i = 0; i < count; i++)
        load_report_line(&r, span_from_str(lines[i]));
    return r;
}

#define REPORT(...)                                                                                \
    report_of((const char *const[]){__VA_ARGS__},                                                  \
              sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *))

static void weights_on_the_gpu(void **state)
{
    struct load_report r =
        REPORT("0.00.199.328 I load_tensors: offloaded 31/31 layers to GPU",
               "0.00.2 I load_tensors:   CPU_Mapped model buffer size =  20.00 MiB",
               "load_tensors:        CUDA0 model buffer size =  4095.05 MiB");
    char why[256];

    (void)state;
    assert_true(r.offload_known);
    assert_int_equal(r.offloaded, 31);
    assert_int_equal(r.layers, 31);
    assert_int_equal(r.device_buffers, 1);
    assert_string_equal(r.device, "CUDA0");
    assert_true(load_report_placement(&r, -1, "gpu0", why, sizeof(why)));
    assert_string_equal(why, "");
}

static void all_layers_claimed_but_nothing_there(void **state)
{
    /* Said by v0.4.0 started with -ngl 999 and no device. */
    struct load_report r =
        REPORT("0.00.199.328 I load_tensors: offloaded 31/31 layers to GPU",
               "0.00.200.328 I load_tensors:   CPU_Mapped model buffer size =  92.10 MiB",
               "0.00.200.400 I load_tensors:    CUDA_Host model buffer size =  12.10 MiB");
    char why[256];

    (void)state;
    assert_false(load_report_placement(&r, -1, "gpu0", why, sizeof(why)));
    assert_non_null(strstr(why, "runs on the CPU"));
    assert_non_null(strstr(why, "gpu0"));
    assert_true(load_report_placement(&r, 0, "gpu0", why, sizeof(why))); /* nothing was wanted */
}

static void driver_mismatch_offloads_nothing(void **state)
{
    struct load_report r = REPORT(
        "ggml_cuda_init: failed to initialize CUDA: forward compatibility was attempted on non "
        "supported HW",
        "load_tensors: offloaded 0/33 layers to GPU");
    char why[256];

    (void)state;
    assert_false(load_report_placement(&r, -1, "gpu0", why, sizeof(why)));
    assert_non_null(strstr(why, "0 of 33"));
    assert_non_null(strstr(r.first_error, "forward compatibility"));
}

static void partial_offload_is_a_warning(void **state)
{
    struct load_report r = REPORT("load_tensors: offloaded 20/33 layers to GPU",
                                  "load_tensors: Vulkan0 model buffer size = 1.0 MiB");
    char why[256];

    (void)state;
    assert_true(load_report_placement(&r, -1, "gpu0", why, sizeof(why)));
    assert_non_null(strstr(why, "20 of 33"));
    assert_true(load_report_placement(&r, 20, "gpu0", why, sizeof(why)));
    assert_string_equal(why, "");
}

static void silence_proves_nothing(void **state)
{
    struct load_report r = REPORT("some other engine", "offloaded what/33 layers", "offloaded 3");
    char why[256];

    (void)state;
    assert_false(r.offload_known);
    assert_true(load_report_placement(&r, -1, "gpu0", why, sizeof(why)));
    assert_string_equal(why, "");
}

static void first_error_is_the_cause(void **state)
{
    struct load_report r = REPORT(
        "0.00.018.000 I common_init_: (for bugs during this step try to reproduce them with -fit "
        "off)",
        "0.00.019.902 E gguf_init_from_file: failed to open GGUF file '/n.gguf' (No such file or "
        "directory)",
        "0.00.019.911 E cmn  common_init_: failed to load model '/n.gguf'",
        "0.00.019.915 E srv    load_model: failed to load model, '/n.gguf'",
        "0.00.020.473 E srv  llama_server: exiting due to model loading error");

    (void)state;
    assert_non_null(strstr(r.first_error, "gguf_init_from_file: failed to open"));
    assert_ptr_equal(strstr(r.first_error, "0.00"), NULL);
    assert_non_null(strstr(r.last_error, "gguf_init_from_file"));
    r = REPORT("0.00.020.473 E srv  llama_server: exiting due to model loading error");
    assert_non_null(strstr(r.first_error, "exiting due to"));
    r = REPORT("error: invalid argument: --bogus");
    assert_string_equal(r.first_error, "error: invalid argument: --bogus");
    r = REPORT("CUDA error: out of memory");
    assert_string_equal(r.last_error, "CUDA error: out of memory");
    r = REPORT("0.00.1 I slot 0: no errors here", "0.00.1 W something failed, but is a warning");
    assert_string_equal(r.first_error, "");
}

static void old_errors_explain_nothing(void **state)
{
    struct load_report r = REPORT("0.1 I fine", "CUDA error: device lost", "  in function f");

    (void)state;
    r.loaded = true;
    assert_string_equal(load_report_recent_error(&r), "CUDA error: device lost");
    for (int i = 0; i < 100; i++)
        load_report_line(&r, SPAN_LIT("0.00.1 I slot 0: processing"));
    assert_string_equal(load_report_recent_error(&r), "");
    load_report_line(&r, SPAN_LIT("0.00.2 E srv operator(): something"));
    assert_string_equal(load_report_recent_error(&r), "srv operator(): something");
}

static void mlock_is_a_warning(void **state)
{
    struct load_report r = REPORT("warning: failed to mlock 4096-byte buffer (after previously "
                                  "locking 0 bytes): Cannot allocate memory");

    (void)state;
    assert_string_equal(r.first_error, "");
    assert_non_null(strstr(r.warning, "RLIMIT_MEMLOCK"));
}

static void listening_is_said_once(void **state)
{
    struct load_report r;

    (void)state;
    load_report_reset(&r);
    assert_false(load_report_line(&r, SPAN_LIT("0.00.1 I model loaded")));
    assert_true(load_report_line(
        &r, SPAN_LIT("0.00.275.171 I srv  llama_server: listening on unix:///tmp/s.sock")));
    assert_false(load_report_line(&r, SPAN_LIT("server is listening on http://x")));
}

static void binary_lines_are_harmless(void **state)
{
    struct load_report r;
    char line[300];

    (void)state;
    load_report_reset(&r);
    for (unsigned i = 0; i < 256; i++) {
        memset(line, (int)i, sizeof(line));
        for (size_t len = 0; len < 6; len++)
            load_report_line(&r, (struct span){line, len});
        load_report_line(&r, (struct span){line, sizeof(line)});
    }
    load_report_line(&r, (struct span){"error \0 \x1b[31m\xff", 14});
    assert_string_equal(r.first_error, "error ? ?[31m?");
    load_report_line(&r, SPAN_LIT("offloaded 99999999999999999999/1 layers"));
    assert_false(r.offload_known);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_on_the_gpu),
        cmocka_unit_test(all_layers_claimed_but_nothing_there),
        cmocka_unit_test(driver_mismatch_offloads_nothing),
        cmocka_unit_test(partial_offload_is_a_warning),
        cmocka_unit_test(silence_proves_nothing),
        cmocka_unit_test(first_error_is_the_cause),
        cmocka_unit_test(old_errors_explain_nothing),
        cmocka_unit_test(mlock_is_a_warning),
        cmocka_unit_test(listening_is_said_once),
        cmocka_unit_test(binary_lines_are_harmless),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
