/* Copies and comparison of worker options, and their making from a configuration. */
#include "tests/unit/unit.h"

#include "worker/options.h"

#include <stdlib.h>
#include <string.h>

static const char *const args[] = {"--verbose", "-x"};
static const char *const command[] = {"prog", "{port}", "-v"};
static const struct worker_pair env[] = {{"A", "1"}, {"B", NULL}};

static struct worker_options full_options(void)
{
    struct worker_options o;

    worker_options_init(&o);
    o.service = "chat";
    o.tier = "gpu";
    o.engine_path = "/e";
    o.model_path = "/m";
    o.device_name = "gpu0";
    o.sim_card = "card";
    o.command = command;
    o.command_count = 2;
    o.health = "/ready";
    o.args = args;
    o.arg_count = 2;
    o.env = env;
    o.env_count = 2;
    return o;
}

static void copy_owns_everything(void **state)
{
    char model[] = "/models/a.gguf";
    struct worker_options o = full_options();
    struct worker_options *copy;

    (void)state;
    o.model_path = model;
    assert_int_equal(worker_options_copy(&o, &copy), 0);
    assert_true(worker_options_equal(&o, copy));
    memset(model, 'x', sizeof(model) - 1);
    assert_string_equal(copy->model_path, "/models/a.gguf");
    assert_ptr_not_equal(copy->args, o.args);
    assert_string_equal(copy->args[1], "-x");
    assert_ptr_not_equal(copy->command, o.command);
    assert_string_equal(copy->command[1], "{port}");
    assert_ptr_not_equal(copy->health, o.health);
    assert_string_equal(copy->env[0].value, "1");
    assert_null(copy->env[1].value);
    assert_null(copy->url);
    worker_options_free(copy);
}

static void every_difference_counts(void **state)
{
    const struct worker_options a = full_options();

    (void)state;
#define DIFFERS(change)                                                                            \
    do {                                                                                           \
        struct worker_options b = full_options();                                                  \
        change;                                                                                    \
        assert_false(worker_options_equal(&a, &b));                                                \
        assert_false(worker_options_equal(&b, &a));                                                \
    } while (0)
    DIFFERS(b.service = "other");
    DIFFERS(b.tier = "cpu");
    DIFFERS(b.url = "http://x");
    DIFFERS(b.engine_path = "/f");
    DIFFERS(b.model_path = "/n");
    DIFFERS(b.run_dir = "/r");
    DIFFERS(b.embeddings = true);
    DIFFERS(b.context_tokens++);
    DIFFERS(b.slots++);
    DIFFERS(b.threads++);
    DIFFERS(b.gpu_layers--);
    DIFFERS(b.flash_attention = CONFIG_SWITCH_OFF);
    DIFFERS(b.cache_type_k = "q8_0");
    DIFFERS(b.device = WORKER_DEVICE_SIM);
    DIFFERS(b.sim_card = NULL);
    DIFFERS(b.arg_count = 1);
    DIFFERS(b.env_count = 1);
    DIFFERS(b.command_count = 3);
    DIFFERS(b.command = args);
    DIFFERS(b.health = NULL);
    DIFFERS(b.device_bytes = 1);
    DIFFERS(b.host_bytes = 1);
    DIFFERS(b.stop_grace_ms++);
    DIFFERS(b.load_timeout_ms++);
#undef DIFFERS
}

static void external_ignores_engine_settings(void **state)
{
    struct worker_options a = full_options(), b = full_options();

    (void)state;
    a.url = b.url = "http://127.0.0.1:1";
    b.threads = 7;
    b.stop_grace_ms = 1;
    assert_true(worker_options_equal(&a, &b));
    b.engine = WORKER_ENGINE_OLLAMA;
    assert_false(worker_options_equal(&a, &b));
}

static const char yaml[] =
    "engine: /opt/llama-server\n"
    "devices:\n"
    "  gpu0: { kind: sim }\n"
    "services:\n"
    "  chat:\n"
    "    kind: chat\n"
    "    model: /models/m.gguf\n"
    "    context: 4096\n"
    "    tiers:\n"
    "      - { name: gpu, device: gpu0, slots: 4 }\n"
    "      - { name: cpu, threads: 3, slots: 1 }\n"
    "  talk:\n"
    "    kind: chat\n"
    "    tiers:\n"
    "      - { name: gpu, url: \"http://127.0.0.1:11434\", engine: ollama }\n";

static void from_configuration(void **state)
{
    struct config_report report;
    struct config *config = NULL;
    const struct config_service *chat, *talk;
    struct worker_options o;

    (void)state;
    config_report_init(&report);
    if (config_load_string(yaml, sizeof(yaml) - 1, "/", &config, &report) < 0) {
        for (size_t i = 0; i < report.count; i++)
            print_error("%u: %s\n", report.items[i].line, report.items[i].message);
        fail();
    }
    chat = config_find_service(config, "chat", 4);
    talk = config_find_service(config, "talk", 4);
    assert_int_equal(worker_options_from_config(config, chat, &chat->tiers[0], &o), 0);
    assert_int_equal(o.device, WORKER_DEVICE_SIM);
    assert_int_equal(o.gpu_layers, -1);
    assert_true(o.require_device);
    assert_string_equal(o.sim_card, "gpu0");
    assert_int_equal(o.slots, 4);
    assert_int_equal(o.context_tokens, 4096);
    assert_string_equal(o.engine_path, "/opt/llama-server");
    assert_string_equal(o.model_path, "/models/m.gguf");
    worker_options_release(&o);
    assert_int_equal(worker_options_from_config(config, chat, &chat->tiers[1], &o), 0);
    assert_int_equal(o.device, WORKER_DEVICE_NONE);
    assert_int_equal(o.gpu_layers, 0);
    assert_false(o.require_device);
    assert_int_equal(o.threads, 3);
    assert_true(o.oom_score_above > 0);
    worker_options_release(&o);
    assert_int_equal(worker_options_from_config(config, talk, &talk->tiers[0], &o), 0);
    assert_string_equal(o.url, "http://127.0.0.1:11434");
    assert_int_equal(o.engine, WORKER_ENGINE_OLLAMA);
    worker_options_release(&o);
    config_free(config);
    config_report_free(&report);
}

static void programs_from_configuration(void **state)
{
    static const char text[] =
        "devices:\n  gpu0: { kind: nvidia, index: 2 }\nservices:\n  speech:\n    kind: "
        "transcription\n"
        "    tiers:\n"
        "      - { name: gpu, command: [~/w, '{port}'], memory: 2MiB, host_memory: 1MiB, health: "
        "/up }\n"
        "      - { name: cpu, command: [w, -v], env: { AT: 'unix:{socket}' }, host_memory: 1MiB }\n"
        "  ocr: { kind: generic, paths: [/ocr], tiers: [{ name: cpu, command: [o, '{port}'], "
        "host_memory: 1MiB }] }\n";
    struct config_report report;
    struct config *config = NULL;
    const struct config_service *s;
    struct worker_options o;

    (void)state;
    setenv("HOME", "/h", 1);
    config_report_init(&report);
    assert_int_equal(config_load_string(text, sizeof(text) - 1, "/", &config, &report), 0);
    s = config_find_service(config, "speech", 6);
    assert_int_equal(worker_options_from_config(config, s, &s->tiers[0], &o), 0);
    assert_true(worker_options_is_program(&o) && !worker_options_uses_socket(&o));
    assert_int_equal(o.engine, WORKER_ENGINE_OPENAI);
    assert_string_equal(o.command[0], "/h/w");
    assert_string_equal(o.command[1], "{port}");
    assert_string_equal(o.health, "/up");
    assert_int_equal(o.device, WORKER_DEVICE_NVIDIA);
    assert_int_equal(o.device_index, 2);
    assert_int_equal(o.device_bytes, 2 << 20);
    assert_int_equal(o.host_bytes, 1 << 20);
    /* Whether it is on the device cannot be read off its output. */
    assert_false(o.require_device);
    assert_int_equal(o.cache_ram_mib, 0);
    worker_options_release(&o);
    assert_int_equal(worker_options_from_config(config, s, &s->tiers[1], &o), 0);
    assert_true(worker_options_uses_socket(&o));
    assert_string_equal(o.command[0], "w");
    worker_options_release(&o);
    s = config_find_service(config, "ocr", 3);
    assert_int_equal(worker_options_from_config(config, s, &s->tiers[0], &o), 0);
    assert_int_equal(o.engine, WORKER_ENGINE_GENERIC);
    worker_options_release(&o);
    config_free(config);
    config_report_free(&report);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copy_owns_everything),
        cmocka_unit_test(every_difference_counts),
        cmocka_unit_test(external_ignores_engine_settings),
        cmocka_unit_test(from_configuration),
        cmocka_unit_test(programs_from_configuration),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
