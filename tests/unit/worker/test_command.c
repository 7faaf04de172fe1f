/* The command line and environment of an engine: what it must have, and what must not reach it. */
#include "tests/unit/unit.h"

#include "worker/command.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct worker_options base_options(void)
{
    struct worker_options o;

    worker_options_init(&o);
    o.service = "chat";
    o.tier = "cpu";
    o.engine_path = "llama-server";
    o.model_path = "/models/m.gguf";
    o.context_tokens = 4096;
    o.slots = 4;
    return o;
}

static struct command build(const struct worker_options *o, char *const *environment)
{
    struct command c;

    assert_int_equal(command_build(o, "/opt/llama-server", "/run/s.sock", 3, environment, &c), 0);
    assert_null(c.argv[c.argc]);
    assert_null(c.envp[c.envc]);
    return c;
}

/* The value after a flag; NULL when the flag is absent; fails when it is there twice. */
static const char *value_of(const struct command *c, const char *flag)
{
    const char *value = NULL;

    for (size_t i = 1; i < c->argc; i++) {
        if (strcmp(c->argv[i], flag) == 0) {
            assert_null(value);
            value = c->argv[i + 1] ? c->argv[i + 1] : "";
        }
    }
    return value;
}

static const char *env_of(const struct command *c, const char *name)
{
    size_t len = strlen(name);
    const char *value = NULL;

    for (size_t i = 0; i < c->envc; i++) {
        if (strncmp(c->envp[i], name, len) == 0 && c->envp[i][len] == '=') {
            assert_null(value);
            value = c->envp[i] + len + 1;
        }
    }
    return value;
}

static char *const user_environment[] = {
    "PATH=/usr/bin",
    "HOME=/home/u",
    "LLAMA_API_KEY=secret",
    "LLAMA_ARG_CTX_SIZE=1",
    "AIP_MODE=PREDICTION",
    "CUDA_VISIBLE_DEVICES=1",
    "HIP_VISIBLE_DEVICES=0",
    "GGML_BACKEND_PATH=/evil.so",
    "FAILSOFT_SIM_CARD=other",
    "FAILSOFT_SIM_DIR=/dev/shm/x",
    NULL,
};

static void cpu_tier_sees_no_gpu(void **state)
{
    struct worker_options o = base_options();
    struct command c = build(&o, user_environment);

    (void)state;
    assert_string_equal(c.argv[0], "/opt/llama-server");
    assert_string_equal(value_of(&c, "--host"), "/run/s.sock");
    assert_string_equal(value_of(&c, "-m"), "/models/m.gguf");
    assert_string_equal(value_of(&c, "--device"), "none");
    assert_string_equal(value_of(&c, "-ngl"), "0");
    assert_string_equal(env_of(&c, "CUDA_VISIBLE_DEVICES"), "");
    assert_string_equal(env_of(&c, "HIP_VISIBLE_DEVICES"), "");
    assert_string_equal(env_of(&c, "ROCR_VISIBLE_DEVICES"), "");
    assert_string_equal(env_of(&c, "GGML_VK_VISIBLE_DEVICES"), "");
    assert_null(env_of(&c, "GGML_BACKEND_PATH"));
    assert_null(env_of(&c, "FAILSOFT_SIM_CARD"));
    assert_string_equal(env_of(&c, "GGML_NO_BACKTRACE"), "1");
    command_free(&c);
}

static void engine_settings_are_ours(void **state)
{
    struct worker_options o = base_options();
    struct command c = build(&o, user_environment);

    (void)state;
    assert_string_equal(value_of(&c, "-c"), "16384"); /* context of a slot times slots */
    assert_string_equal(value_of(&c, "-np"), "4");
    assert_string_equal(value_of(&c, "-t"), "3");
    assert_string_equal(value_of(&c, "-fa"), "on");
    assert_string_equal(value_of(&c, "-ctk"), "f16");
    assert_string_equal(value_of(&c, "-ctv"), "f16");
    assert_string_equal(value_of(&c, "-fit"), "off");
    assert_string_equal(value_of(&c, "-b"), "256");
    assert_string_equal(value_of(&c, "-ub"), "64");
    assert_string_equal(value_of(&c, "--sse-ping-interval"), "1");
    assert_string_equal(value_of(&c, "--cache-ram"), "256");
    assert_non_null(value_of(&c, "--no-context-shift"));
    assert_non_null(value_of(&c, "--no-webui"));
    assert_null(value_of(&c, "--embeddings"));
    assert_null(env_of(&c, "LLAMA_API_KEY"));
    assert_null(env_of(&c, "LLAMA_ARG_CTX_SIZE"));
    assert_null(env_of(&c, "AIP_MODE"));
    assert_string_equal(env_of(&c, "PATH"), "/usr/bin");
    assert_string_equal(env_of(&c, "HOME"), "/home/u");
    command_free(&c);
}

static void sim_tier_gets_plugin_and_card(void **state)
{
    struct worker_options o = base_options();
    struct command c;

    (void)state;
    o.device = WORKER_DEVICE_SIM;
    o.gpu_layers = -1;
    o.sim_plugin = "/lib/sim.so";
    o.sim_card = "gpu0";
    c = build(&o, user_environment);
    assert_null(value_of(&c, "--device"));
    assert_string_equal(value_of(&c, "-ngl"), "999");
    assert_string_equal(env_of(&c, "GGML_BACKEND_PATH"), "/lib/sim.so");
    assert_string_equal(env_of(&c, "FAILSOFT_SIM_CARD"), "gpu0");
    assert_string_equal(env_of(&c, "FAILSOFT_SIM_DIR"), "/dev/shm/x");
    assert_string_equal(env_of(&c, "CUDA_VISIBLE_DEVICES"), ""); /* a real GPU stays hidden */
    command_free(&c);
}

static void real_gpu_keeps_what_the_owner_set(void **state)
{
    struct worker_options o = base_options();
    char *const nothing[] = {"PATH=/bin", NULL};
    struct command c;

    (void)state;
    o.device = WORKER_DEVICE_NVIDIA;
    o.device_index = 2;
    o.gpu_layers = 10;
    c = build(&o, user_environment);
    assert_string_equal(env_of(&c, "CUDA_VISIBLE_DEVICES"), "1");
    assert_string_equal(value_of(&c, "-ngl"), "10");
    command_free(&c);
    c = build(&o, nothing);
    assert_string_equal(env_of(&c, "CUDA_VISIBLE_DEVICES"), "2");
    assert_string_equal(env_of(&c, "CUDA_DEVICE_ORDER"), "PCI_BUS_ID");
    assert_null(env_of(&c, "HIP_VISIBLE_DEVICES"));
    command_free(&c);
}

static void the_two_tiers_compute_alike(void **state)
{
    /* Whatever changes answers must be the same on both command lines. */
    static const char *const flags[] = {"-fa", "-ctk", "-ctv", "-b", "-ub", "-c", "-np", "--temp"};
    struct worker_options cpu = base_options(), gpu = base_options();
    const struct worker_pair sampling[] = {{"temperature", "0.7"}, {"unknown_thing", "1"}};
    struct command a, b;

    (void)state;
    gpu.device = WORKER_DEVICE_SIM;
    gpu.gpu_layers = -1;
    cpu.sampling = gpu.sampling = sampling;
    cpu.sampling_count = gpu.sampling_count = 2;
    a = build(&cpu, NULL);
    b = build(&gpu, NULL);
    for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++) {
        assert_non_null(value_of(&a, flags[i]));
        assert_string_equal(value_of(&a, flags[i]), value_of(&b, flags[i]));
    }
    assert_string_equal(value_of(&a, "--temp"), "0.7");
    command_free(&a);
    command_free(&b);
}

static void embeddings_fit_one_batch(void **state)
{
    struct worker_options o = base_options();
    struct command c;

    (void)state;
    o.embeddings = true;
    o.slots = 1;
    o.context_tokens = 2000;
    c = build(&o, NULL);
    assert_non_null(value_of(&c, "--embeddings"));
    assert_string_equal(value_of(&c, "-b"), "2000");
    assert_string_equal(value_of(&c, "-ub"), "2000");
    assert_string_equal(value_of(&c, "--cache-ram"), "0");
    command_free(&c);
    /* The engine aborts on a batch that its slots cannot share evenly. */
    o.slots = 3;
    o.context_tokens = 1000;
    c = build(&o, NULL);
    assert_string_equal(value_of(&c, "-b"), "1002");
    assert_string_equal(value_of(&c, "-ub"), "1002");
    command_free(&c);
}

static void owners_arguments_come_last(void **state)
{
    struct worker_options o = base_options();
    const char *const args[] = {"-b", "512"};
    const struct worker_pair env[] = {{"CUDA_VISIBLE_DEVICES", "7"}, {"EMPTY", NULL}};
    struct command c;

    (void)state;
    o.args = args;
    o.arg_count = 2;
    o.env = env;
    o.env_count = 2;
    c = build(&o, user_environment);
    assert_string_equal(c.argv[c.argc - 2], "-b");
    assert_string_equal(c.argv[c.argc - 1], "512");
    assert_string_equal(env_of(&c, "CUDA_VISIBLE_DEVICES"), "7");
    assert_string_equal(env_of(&c, "EMPTY"), "");
    command_free(&c);
}

/* --- programs other than llama-server --- */

static const char *const speech[] = {"whisper", "--port", "{port}",
                                     "--at=http://127.0.0.1:{port}/{x}", "{socket}"};
static const struct worker_pair speech_env[] = {{"BIND", "127.0.0.1:{port}"}, {"EMPTY", NULL}};

static struct worker_options program_options(void)
{
    struct worker_options o = base_options();

    o.command = speech;
    o.command_count = 5;
    o.env = speech_env;
    o.env_count = 2;
    return o;
}

static struct command build_program(const struct worker_options *o, const char *socket_path)
{
    struct command_place place = {.program = "/opt/whisper",
                                  .socket_path = socket_path,
                                  .port = socket_path ? 0 : 20123,
                                  .threads = 3,
                                  .wrapper = "failsoft"};
    struct command c;

    assert_int_equal(command_build_program(o, &place, user_environment, &c), 0);
    assert_null(c.argv[c.argc]);
    assert_null(c.envp[c.envc]);
    return c;
}

static void check_argv(const struct command *c, const char *const *expected, size_t count)
{
    for (size_t i = 0; i < count && i < c->argc; i++)
        assert_string_equal(c->argv[i], expected[i]);
    assert_int_equal(c->argc, count);
}

/* Places are filled in, nothing else is touched, and none of llama-server's flags come with it. */
static void program_is_told_its_port(void **state)
{
    static const char *const expected[] = {"/opt/whisper", "--port", "20123",
                                           "--at=http://127.0.0.1:20123/{x}", "{socket}"};
    struct worker_options o = program_options();
    struct command c = build_program(&o, NULL);

    (void)state;
    check_argv(&c, expected, 5);
    assert_string_equal(env_of(&c, "BIND"), "127.0.0.1:20123");
    assert_string_equal(env_of(&c, "EMPTY"), "");
    assert_string_equal(env_of(&c, "PATH"), "/usr/bin");
    /* On the CPU, within the quota. */
    assert_string_equal(env_of(&c, "CUDA_VISIBLE_DEVICES"), "");
    assert_string_equal(env_of(&c, "HIP_VISIBLE_DEVICES"), "");
    assert_string_equal(env_of(&c, "OMP_NUM_THREADS"), "3");
    assert_null(env_of(&c, "GGML_BACKEND_PATH"));
    command_free(&c);
}

static void program_is_told_its_socket(void **state)
{
    struct worker_options o = program_options();
    struct command c = build_program(&o, "/run/a-rather-long-folder/speech-cpu-0.sock");

    (void)state;
    assert_string_equal(c.argv[2], "{port}");
    assert_string_equal(c.argv[4], "/run/a-rather-long-folder/speech-cpu-0.sock");
    assert_string_equal(env_of(&c, "BIND"), "127.0.0.1:{port}");
    command_free(&c);
}

static void owner_decides_about_threads(void **state)
{
    static const struct worker_pair own[] = {{"OMP_NUM_THREADS", "1"}};
    struct worker_options o = program_options();
    struct command c;

    (void)state;
    o.env = own;
    o.env_count = 1;
    c = build_program(&o, NULL);
    assert_string_equal(env_of(&c, "OMP_NUM_THREADS"), "1");
    command_free(&c);
}

/* It cannot hold memory of a card that is not there: our own process does, and starts it. */
static void program_on_a_simulated_card_is_wrapped(void **state)
{
    static const char *const expected[] = {"failsoft", "sim", "hold",         "card0",  "--bytes",
                                           "1000000B", "--",  "/opt/whisper", "--port", "20123"};
    struct worker_options o = program_options();
    struct command c;

    (void)state;
    o.command_count = 3;
    o.device = WORKER_DEVICE_SIM;
    o.sim_card = "card0";
    o.sim_plugin = "/lib/sim.so";
    o.device_bytes = 1000000;
    c = build_program(&o, NULL);
    check_argv(&c, expected, 10);
    /* The plug-in would hold it a second time. */
    assert_null(env_of(&c, "GGML_BACKEND_PATH"));
    assert_string_equal(env_of(&c, "CUDA_VISIBLE_DEVICES"), "");
    command_free(&c);
}

static void program_on_a_real_card_sees_it(void **state)
{
    char *const nothing[] = {"PATH=/bin", NULL};
    struct command_place place = {.program = "/opt/whisper", .port = 20123, .threads = 3};
    struct worker_options o = program_options();
    struct command c;

    (void)state;
    o.device = WORKER_DEVICE_NVIDIA;
    o.device_index = 1;
    o.device_bytes = 1000000;
    assert_int_equal(command_build_program(&o, &place, nothing, &c), 0);
    assert_string_equal(c.argv[0], "/opt/whisper");
    assert_string_equal(env_of(&c, "CUDA_VISIBLE_DEVICES"), "1");
    command_free(&c);
    o.device = WORKER_DEVICE_AMD;
    assert_int_equal(command_build_program(&o, &place, nothing, &c), 0);
    assert_string_equal(env_of(&c, "HIP_VISIBLE_DEVICES"), "1");
    command_free(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cpu_tier_sees_no_gpu),
        cmocka_unit_test(engine_settings_are_ours),
        cmocka_unit_test(sim_tier_gets_plugin_and_card),
        cmocka_unit_test(real_gpu_keeps_what_the_owner_set),
        cmocka_unit_test(the_two_tiers_compute_alike),
        cmocka_unit_test(embeddings_fit_one_batch),
        cmocka_unit_test(owners_arguments_come_last),
        cmocka_unit_test(program_is_told_its_port),
        cmocka_unit_test(program_is_told_its_socket),
        cmocka_unit_test(owner_decides_about_threads),
        cmocka_unit_test(program_on_a_simulated_card_is_wrapped),
        cmocka_unit_test(program_on_a_real_card_sees_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
