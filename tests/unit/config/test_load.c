/*
 * What a right file becomes: values, defaults, defaults that follow from others.
 */
#include "unit.h"

#include "config/config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct config *load(const char *yaml)
{
    struct config_report report;
    struct config *c = NULL;

    config_report_init(&report);
    if (config_load_string(yaml, strlen(yaml), "/etc/fs", &c, &report) != 0)
        fail_msg("%u:%u %s", report.count ? report.items[0].line : 0,
                 report.count ? report.items[0].column : 0,
                 report.count ? report.items[0].message : "?");
    assert_int_equal(report.warnings, 0);
    config_report_free(&report);
    return c;
}

static const char *sampling_of(const struct config_service *s, const char *name)
{
    for (size_t i = 0; i < s->sampling.count; i++) {
        if (strcmp(s->sampling.items[i].name, name) == 0)
            return s->sampling.items[i].value;
    }
    return NULL;
}

static unsigned count_of(const struct config_service *s, const char *name)
{
    unsigned n = 0;

    for (size_t i = 0; i < s->sampling.count; i++)
        n += strcmp(s->sampling.items[i].name, name) == 0;
    return n;
}

static void test_smallest(void **state)
{
    struct config *c = load("services: { chat: { model: m.gguf } }");
    const struct config_tier *t = &c->services[0].tiers[0];

    (void)state;
    assert_string_equal(c->host, "127.0.0.1");
    assert_int_equal(c->port, 8080);
    assert_string_equal(c->engine_path, "llama-server");
    assert_null(c->runtime_dir);
    assert_int_equal(c->log_level, LOG_LEVEL_INFO);
    assert_int_equal(c->limits.body_bytes, 64 << 20);
    assert_int_equal(c->limits.max_connections, 0);
    assert_int_equal(c->service_count, 1);
    assert_int_equal(c->services[0].kind, CONFIG_SERVICE_KIND_CHAT);
    assert_int_equal(c->services[0].context_tokens, 4096);
    assert_int_equal(c->services[0].flash_attention, CONFIG_SWITCH_ON);
    assert_string_equal(c->services[0].cache_type_k, "f16");
    assert_int_equal(c->services[0].tier_count, 1);
    assert_string_equal(t->name, "cpu");
    assert_int_equal(t->kind, CONFIG_TIER_KIND_CPU);
    assert_true(t->managed);
    assert_int_equal(t->engine, CONFIG_ENGINE_LLAMA_SERVER);
    assert_string_equal(t->model_path, "/etc/fs/m.gguf");
    assert_int_equal(t->slots, 1);
    assert_int_equal(t->gpu_layers, 0);
    assert_int_equal(t->first_event_timeout_ms, 600000);
    assert_int_equal(t->stall_timeout_ms, 180000);
    assert_int_equal(t->queue.length, 64);
    assert_int_equal(t->queue.wait_ms, 60000);
    assert_int_equal(t->availability.failures, 3);
    config_free(c);
}

static void test_tiers_follow_devices(void **state)
{
    struct config *c = load("devices: { a: { kind: sim }, b: { kind: nvidia } }\n"
                            "services:\n"
                            "  chat: { model: /m.gguf }\n"
                            "  b: { model: /m.gguf, tiers: [{ name: gpu, device: b }] }\n");
    const struct config_service *s = &c->services[0];

    (void)state;
    assert_int_equal(s->tier_count, 2);
    assert_string_equal(s->tiers[0].name, "gpu");
    assert_ptr_equal(s->tiers[0].device, &c->devices[0]);
    assert_int_equal(s->tiers[0].gpu_layers, -1);
    assert_int_equal(s->tiers[0].first_event_timeout_ms, 60000);
    assert_string_equal(s->tiers[1].name, "cpu");
    assert_null(s->tiers[1].device);
    assert_string_equal(c->devices[0].card, "a");
    config_free(c);
}

static void test_every_value(void **state)
{
    struct config *c = load(
        "listen: '[::1]:0'\n"
        "engine: ./bin/llama-server\n"
        "runtime_dir: /run/fs\n"
        "shutdown_grace: 0\n"
        "log: { level: debug }\n"
        "limits: { body: 32MiB, head: 8KiB, write_queue: 1MB, event: 1MiB, response: 2MiB,\n"
        "  head_timeout: 1s, body_timeout: 2s, idle_timeout: 3m, write_timeout: 1500ms,\n"
        "  connections: 100 }\n"
        "devices:\n"
        "  gpu0: { kind: sim, reserve: 1GiB, card: card-1, plugin: sim.so }\n"
        "services:\n"
        "  talk:\n"
        "    kind: chat\n"
        "    model: ~/a.gguf\n"
        "    context: auto\n"
        "    recovery_budget: 2s\n"
        "    aliases: [gpt-4o, default]\n"
        "    paths: [/talk]\n"
        "    sampling: { temperature: 0.2, seed: 7 }\n"
        "    cache_type_k: q8_0\n"
        "    cache_type_v: q8_0\n"
        "    flash_attention: yes\n"
        "    tiers:\n"
        "      - name: hybrid\n"
        "        gpu_layers: 12\n"
        "        slots: 3\n"
        "        threads: 2\n"
        "        args: [--mlock, '-b', 256]\n"
        "        env: { GGML_NO_BACKTRACE: 1, EMPTY: '' }\n"
        "        first_event_timeout: 5s\n"
        "        stall_timeout: 6s\n"
        "        connect_timeout: 100ms\n"
        "        load_timeout: 2m\n"
        "        retry_after_max: 0\n"
        "        stop_grace: 1s\n"
        "        queue: { length: 0, wait: 1s }\n"
        "        restart: { backoff: 1s, backoff_max: 2s, settled: 3s }\n"
        "        availability: { failures: 1, hold: 1s, hold_max: 2s }\n"
        "      - { name: substitute, model: small.gguf }\n"
        "      - { name: remote, url: 'http://[fd00::1]:81/llm/', engine: openai, model: big }\n");
    const struct config_service *s = &c->services[0];
    const struct config_tier *t = &s->tiers[0];
    char home[512];

    (void)state;
    snprintf(home, sizeof(home), "%s/a.gguf", getenv("HOME"));
    assert_string_equal(c->host, "::1");
    assert_int_equal(c->port, 0);
    assert_string_equal(c->engine_path, "/etc/fs/bin/llama-server");
    assert_string_equal(c->runtime_dir, "/run/fs");
    assert_int_equal(c->shutdown_grace_ms, 0);
    assert_int_equal(c->log_level, LOG_LEVEL_DEBUG);
    assert_int_equal(c->limits.write_queue_bytes, 1000000);
    assert_int_equal(c->limits.idle_timeout_ms, 180000);
    assert_int_equal(c->limits.write_timeout_ms, 1500);
    assert_int_equal(c->limits.max_connections, 100);
    assert_int_equal(c->devices[0].kind, CONFIG_DEVICE_KIND_SIM);
    assert_int_equal(c->devices[0].reserve_bytes, 1 << 30);
    assert_string_equal(c->devices[0].card, "card-1");
    assert_string_equal(c->devices[0].plugin, "/etc/fs/sim.so");
    assert_string_equal(s->model_path, home);
    assert_int_equal(s->context_tokens, 0);
    assert_int_equal(s->aliases.count, 2);
    assert_string_equal(s->aliases.items[1], "default");
    assert_string_equal(s->paths.items[0], "/talk");
    assert_true(s->sampling_given);
    assert_string_equal(sampling_of(s, "temperature"), "0.2");
    assert_string_equal(sampling_of(s, "seed"), "7");
    assert_string_equal(sampling_of(s, "top_k"), "40");
    assert_int_equal(count_of(s, "temperature"), 1);
    assert_string_equal(s->cache_type_v, "q8_0");
    assert_int_equal(s->flash_attention, CONFIG_SWITCH_ON);
    assert_int_equal(s->tier_count, 3);
    assert_int_equal(t->kind, CONFIG_TIER_KIND_HYBRID);
    assert_ptr_equal(t->device, &c->devices[0]);
    assert_int_equal(t->gpu_layers, 12);
    assert_int_equal(t->slots, 3);
    assert_int_equal(t->threads, 2);
    assert_int_equal(t->args.count, 3);
    assert_string_equal(t->args.items[2], "256");
    assert_string_equal(t->env.items[0].name, "GGML_NO_BACKTRACE");
    assert_string_equal(t->env.items[1].value, "");
    assert_int_equal(t->first_event_timeout_ms, 5000);
    assert_int_equal(t->load_timeout_ms, 120000);
    assert_int_equal(t->retry_after_max_ms, 0);
    assert_int_equal(t->queue.length, 0);
    assert_int_equal(t->restart.settled_ms, 3000);
    assert_string_equal(s->tiers[1].model_path, "/etc/fs/small.gguf");
    assert_true(s->tiers[1].model_path_own);
    assert_int_equal(s->tiers[1].gpu_layers, 0);
    assert_false(s->tiers[2].managed);
    assert_string_equal(s->tiers[2].url_host, "fd00::1");
    assert_int_equal(s->tiers[2].url_port, 81);
    assert_string_equal(s->tiers[2].url_prefix, "/llm");
    assert_string_equal(s->tiers[2].model, "big");
    assert_null(s->tiers[2].model_path);
    assert_int_equal(s->tiers[2].slots, 0);
    assert_int_equal(s->tiers[2].engine, CONFIG_ENGINE_OPENAI);
    assert_int_equal(s->tiers[2].first_event_timeout_ms, 60000);
    config_free(c);
}

/* Sampling goes into JSON bodies as it is: every default must be a number of JSON. */
static void test_sampling_defaults(void **state)
{
    struct config *c = load("services: { a: { model: /m }, e: { kind: embeddings, model: /m } }");
    const struct config_service *s = &c->services[0];

    (void)state;
    assert_false(s->sampling_given);
    assert_string_equal(sampling_of(s, "temperature"), "0.8");
    assert_string_equal(sampling_of(s, "top_p"), "0.95");
    assert_string_equal(sampling_of(s, "min_p"), "0.05");
    assert_null(sampling_of(s, "seed"));
    for (size_t i = 0; i < s->sampling.count; i++)
        assert_int_equal(strspn(s->sampling.items[i].value, "-0123456789."),
                         strlen(s->sampling.items[i].value));
    assert_int_equal(c->services[1].sampling.count, 0);
    assert_int_equal(c->services[1].context_tokens, 0);
    config_free(c);
}

static void test_find_service(void **state)
{
    struct config *c = load("services: { a: { model: /m, aliases: [x/y:z] }, b: { model: /m } }");

    (void)state;
    assert_ptr_equal(config_find_service(c, "b", 1), &c->services[1]);
    assert_ptr_equal(config_find_service(c, "x/y:z!", 5), &c->services[0]);
    assert_null(config_find_service(c, "x/y", 3));
    assert_null(config_find_service(c, "", 0));
    config_free(c);
}

static void test_files_that_can_not_be_read(void **state)
{
    struct config_report report;
    struct config *c = NULL;

    (void)state;
    config_report_init(&report);
    assert_int_equal(config_load_file("/nowhere/failsoft.yaml", &c, &report), -ENOENT);
    assert_true(report.unreadable);
    assert_string_equal(report.items[0].message, "can not be read: No such file or directory");
    config_report_free(&report);
    assert_int_equal(config_load_file("/", &c, &report), -EISDIR);
    assert_true(report.unreadable);
    config_report_free(&report);
    assert_null(c);
}

static void test_relative_to_the_file(void **state)
{
    static const char yaml[] = "services: { chat: { model: ./models/m.gguf } }\n";
    struct config_report report;
    struct config *c = NULL;
    char dir[] = "/tmp/failsoft-config-XXXXXX";
    char path[64];
    char expected[64];
    FILE *f;

    (void)state;
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof(path), "%s/f.yaml", dir);
    snprintf(expected, sizeof(expected), "%s/models/m.gguf", dir);
    f = fopen(path, "w");
    assert_non_null(f);
    fputs(yaml, f);
    fclose(f);
    config_report_init(&report);
    assert_int_equal(config_load_file(path, &c, &report), 0);
    assert_string_equal(c->services[0].model_path, expected);
    assert_string_equal(c->path, path);
    config_free(c);
    config_report_free(&report);
    unlink(path);
    rmdir(dir);
}

static void test_too_large(void **state)
{
    size_t len = CONFIG_FILE_MAX_BYTES + 1;
    char *text = calloc(1, len);
    struct config_report report;
    struct config *c = NULL;

    (void)state;
    memset(text, '#', len);
    config_report_init(&report);
    assert_int_equal(config_load_string(text, len, "/", &c, &report), -EINVAL);
    assert_string_equal(report.items[0].message, "larger than 1024 KiB, which no configuration is");
    config_report_free(&report);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_smallest),
        cmocka_unit_test(test_tiers_follow_devices),
        cmocka_unit_test(test_every_value),
        cmocka_unit_test(test_sampling_defaults),
        cmocka_unit_test(test_find_service),
        cmocka_unit_test(test_files_that_can_not_be_read),
        cmocka_unit_test(test_relative_to_the_file),
        cmocka_unit_test(test_too_large),
    };

    config_free(NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
