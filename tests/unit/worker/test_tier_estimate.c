/* Fingerprints, and what is estimated of a tier. */
#include "tests/unit/model/model_fixture.h"
#include "tests/unit/unit.h"

#include "worker/fingerprint.h"
#include "worker/plan_settings.h"
#include "worker/tier_estimate.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct estimate_settings some_settings(void)
{
    struct estimate_settings s;

    estimate_settings_init(&s);
    s.context_tokens = 1024;
    return s;
}

static void every_setting_that_changes_memory_changes_the_hash(void **state)
{
    (void)state;
    char *args[] = {"--swa-full", "x"};
    struct config_pair pair = {"GGML_CUDA_NO_VMM", "1"};
    struct config_tier plain = {0};
    struct estimate_settings s = some_settings();
    const uint64_t base = fingerprint_settings(&s, &plain);

    assert_int_not_equal(base, 0);
    assert_int_equal(base, fingerprint_settings(&s, &plain));

    struct config_tier other = {.args = {args, 1}};
    const uint64_t one_arg = fingerprint_settings(&s, &other);
    assert_int_not_equal(one_arg, base);
    other.args.count = 2;
    assert_int_not_equal(fingerprint_settings(&s, &other), one_arg);
    other = (struct config_tier){.command = {args, 1}};
    assert_int_not_equal(fingerprint_settings(&s, &other), one_arg);
    other = (struct config_tier){.env = {&pair, 1}};
    assert_int_not_equal(fingerprint_settings(&s, &other), base);
    other = (struct config_tier){.memory_bytes = 1};
    assert_int_not_equal(fingerprint_settings(&s, &other), base);

    struct estimate_settings changed = s;
    changed.context_tokens++;
    assert_int_not_equal(fingerprint_settings(&changed, &plain), base);
    changed = s;
    changed.slots = 2;
    assert_int_not_equal(fingerprint_settings(&changed, &plain), base);
    changed = s;
    changed.gpu_layers = 1;
    assert_int_not_equal(fingerprint_settings(&changed, &plain), base);
    changed = s;
    changed.cache_type_v = 8;
    assert_int_not_equal(fingerprint_settings(&changed, &plain), base);
}

static void facts_are_no_part_of_it(void **state)
{
    (void)state;
    struct config_tier plain = {0};
    struct estimate_settings s = some_settings();
    const uint64_t base = fingerprint_settings(&s, &plain);
    static const struct model_facts facts;

    s.projector = &facts;
    assert_int_equal(fingerprint_settings(&s, &plain), base);
}

static void a_model_is_its_headers_and_sizes(void **state)
{
    (void)state;
    struct gguf_file a = {.fingerprint = 1, .file_bytes = 100};
    struct gguf_file b = {.fingerprint = 1, .file_bytes = 101};
    const struct gguf_file *one[] = {&a, NULL, NULL};
    const struct gguf_file *larger[] = {&b, NULL, NULL};
    const struct gguf_file *projector[] = {&a, &b, NULL};
    const struct gguf_file *draft[] = {&a, NULL, &b};

    assert_int_equal(fingerprint_model(one, 3), fingerprint_model(one, 3));
    assert_int_not_equal(fingerprint_model(one, 3), fingerprint_model(larger, 3));
    assert_int_not_equal(fingerprint_model(one, 3), fingerprint_model(projector, 3));
    assert_int_not_equal(fingerprint_model(draft, 3), fingerprint_model(projector, 3));
}

static void another_engine_build_is_another_engine(void **state)
{
    (void)state;
    char folder[] = "/tmp/failsoft-fingerprint-XXXXXX";
    char path[64];
    const struct timespec then[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
    const struct timespec later[2] = {{.tv_sec = 1001}, {.tv_sec = 1001}};

    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/engine", folder);
    const uint64_t missing = fingerprint_engine(path);
    assert_int_not_equal(missing, 0);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fclose(file);
    assert_int_equal(utimensat(AT_FDCWD, path, then, 0), 0);
    const uint64_t first = fingerprint_engine(path);
    assert_int_not_equal(first, missing);
    assert_int_equal(first, fingerprint_engine(path));
    assert_int_equal(utimensat(AT_FDCWD, path, later, 0), 0);
    assert_int_not_equal(first, fingerprint_engine(path));
    /* A bare name is what is found on PATH. */
    char *old = strdup(getenv("PATH") ? getenv("PATH") : "");
    assert_int_equal(setenv("PATH", folder, 1), 0);
    assert_int_equal(fingerprint_engine("engine"), fingerprint_engine(path));
    assert_int_equal(setenv("PATH", old, 1), 0);
    free(old);
    unlink(path);
    rmdir(folder);
}

static void a_device_is_its_name_kind_and_size(void **state)
{
    (void)state;
    const uint64_t base = fingerprint_device("gpu0", CONFIG_DEVICE_KIND_NVIDIA, 24);

    assert_int_not_equal(base, 0);
    assert_int_equal(base, fingerprint_device("gpu0", CONFIG_DEVICE_KIND_NVIDIA, 24));
    assert_int_not_equal(base, fingerprint_device("gpu1", CONFIG_DEVICE_KIND_NVIDIA, 24));
    assert_int_not_equal(base, fingerprint_device("gpu0", CONFIG_DEVICE_KIND_SIM, 24));
    assert_int_not_equal(base, fingerprint_device("gpu0", CONFIG_DEVICE_KIND_NVIDIA, 12));
}

/* --- estimates: a model of 2 layers with 2 heads of 64 that have keys, in a folder of its own --- */

enum { KV_TOKEN_BYTES = 2 * 2 * 128 * 2 }; /* layers, keys and values, numbers, bytes */

struct scene {
    char folder[48];
    char model[80];
    struct config *config;
};

static void write_model(const struct scene *s, const char *name, uint64_t cut)
{
    struct fixture f;
    char path[96];

    fixture_plain(&f, "llama", 2, true);
    fixture_finish(&f);
    snprintf(path, sizeof(path), "%s/%s", s->folder, name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(f.w.data, 1, f.w.len, file), f.w.len);
    assert_int_equal(ftruncate(fileno(file), (off_t)(f.w.len + f.w.data_bytes - cut)), 0);
    fclose(file);
    fixture_free(&f);
}

static void begin(struct scene *s, const char *tier)
{
    struct config_report report;
    char text[1024];

    snprintf(s->folder, sizeof(s->folder), "/tmp/failsoft-tier-XXXXXX");
    assert_non_null(mkdtemp(s->folder));
    snprintf(s->model, sizeof(s->model), "%s/m.gguf", s->folder);
    write_model(s, "m.gguf", 0);
    write_model(s, "draft.gguf", 0);
    snprintf(
        text, sizeof(text),
        "engine: \"true\"\ndevices: { gpu0: { kind: sim } }\nservices:\n  chat:\n    kind: chat\n"
        "    model: %s\n    context: 1024\n    tiers:\n      - { name: gpu, device: gpu0, %s }\n",
        s->model, tier);
    config_report_init(&report);
    if (config_load_string(text, strlen(text), s->folder, &s->config, &report) < 0)
        fail_msg("%s", report.count > 0 ? report.items[0].message : "?");
    config_report_free(&report);
}

static void end(struct scene *s)
{
    char path[96];

    config_free(s->config);
    snprintf(path, sizeof(path), "%s/draft.gguf", s->folder);
    unlink(path);
    unlink(s->model);
    assert_int_equal(rmdir(s->folder), 0);
}

static int source_of(const struct scene *s, struct tier_source *source)
{
    return tier_source_init(s->config, &s->config->services[0], &s->config->services[0].tiers[0],
                            source);
}

static void read_estimate(const struct scene *s, struct tier_estimate *ret)
{
    struct tier_source source;

    assert_int_equal(source_of(s, &source), 0);
    assert_int_equal(tier_estimate_read(&source, ret), 0);
    tier_source_free(&source);
}

static void what_admission_asks_of_a_tier(void **state)
{
    (void)state;
    struct scene s;
    struct tier_estimate t;

    begin(&s, "slots: 2");
    read_estimate(&s, &t);
    const struct estimate *e = &t.estimate;
    assert_int_equal(e->kv_tokens, 2048);
    assert_int_equal(e->device[ESTIMATE_CACHE].bytes, 2048 * KV_TOKEN_BYTES);
    assert_int_equal(t.floor_bytes,
                     e->device[ESTIMATE_WEIGHTS].bytes + e->device[ESTIMATE_CACHE].bytes);
    assert_true(t.floor_bytes <= e->device_total.upper_bytes);
    /* Keys and values, and what the mask of the graph grows by. */
    assert_in_range(t.device_bytes_per_token, KV_TOKEN_BYTES, KV_TOKEN_BYTES + 512);
    assert_true(t.host_bytes_per_token < 512);
    uint64_t largest = 0;
    for (int i = 0; i < ESTIMATE_PART_COUNT; i++)
        if (e->device[i].upper_bytes > largest)
            largest = e->device[i].upper_bytes;
    assert_int_equal(t.largest_bytes, largest);
    assert_null(t.settings.projector);
    assert_false(t.declared);
    end(&s);
}

/* More context is never under what the slope said. */
static void the_slope_is_what_more_context_costs(void **state)
{
    (void)state;
    struct scene s;
    struct tier_source source;
    struct tier_model *m;
    struct tier_estimate now, longer;
    const char *path;

    begin(&s, "slots: 2");
    assert_int_equal(source_of(&s, &source), 0);
    assert_int_equal(tier_model_open(&source, &m, &path), 0);
    tier_model_estimate(m, NULL, &now);
    struct estimate_settings settings = source.settings;
    settings.context_tokens += 4096;
    tier_model_estimate(m, &settings, &longer);
    const uint64_t tokens = longer.estimate.kv_tokens - now.estimate.kv_tokens;
    const uint64_t more =
        longer.estimate.device_total.upper_bytes - now.estimate.device_total.upper_bytes;
    assert_int_equal(tokens, 2 * 4096);
    assert_true(now.device_bytes_per_token * tokens >= more);
    assert_true((now.device_bytes_per_token - 1) * tokens < more);
    tier_model_free(m);
    tier_source_free(&source);
    end(&s);
}

static void files_and_arguments_of_a_tier_count(void **state)
{
    (void)state;
    struct scene s;
    struct tier_estimate plain, draft, unknown;
    struct tier_source source;

    begin(&s, "slots: 1");
    read_estimate(&s, &plain);
    end(&s);

    begin(&s, "slots: 1, args: [\"--model-draft\", \"/nowhere\"]");
    struct config_tier *tier = &s.config->services[0].tiers[0];
    char path[96];
    snprintf(path, sizeof(path), "%s/draft.gguf", s.folder);
    char *given = tier->args.items[1];
    tier->args.items[1] = path;
    read_estimate(&s, &draft);
    tier->args.items[1] = given;
    assert_true(draft.estimate.device[ESTIMATE_DRAFT].bytes > 0);
    assert_int_not_equal(draft.model_hash, plain.model_hash);
    assert_int_not_equal(draft.settings_hash, plain.settings_hash);
    assert_int_equal(draft.engine_hash, plain.engine_hash);
    end(&s);

    begin(&s, "slots: 1, args: [\"--override-tensor\", \"a=CPU\", \"--cache-ram\", \"3\"]");
    read_estimate(&s, &unknown);
    assert_int_equal(unknown.estimate.confidence, ESTIMATE_CONFIDENCE_LOW);
    assert_non_null(strstr(unknown.estimate.reasons[0], "--override-tensor"));
    assert_int_equal(source_of(&s, &source), 0);
    assert_int_equal(source.host_cache_bytes, 3 << 20);
    tier_source_free(&source);
    end(&s);
}

static void a_file_that_cannot_be_used_predicts_nothing(void **state)
{
    (void)state;
    struct scene s;
    struct tier_source source;
    struct tier_model *m;
    struct tier_estimate t;
    const char *path = NULL;

    begin(&s, "slots: 1");
    assert_int_equal(source_of(&s, &source), 0);
    write_model(&s, "m.gguf", 100);
    assert_int_equal(tier_estimate_read(&source, &t), -EBADMSG);
    assert_int_equal(tier_model_open(&source, &m, &path), 0);
    assert_false(tier_model_facts(m)->usable);
    tier_model_free(m);
    unlink(s.model);
    assert_int_equal(tier_model_open(&source, &m, &path), -ENOENT);
    assert_string_equal(path, s.model);
    assert_int_equal(tier_estimate_read(&source, &t), -ENOENT);
    tier_source_free(&source);
    end(&s);
}

static void a_program_takes_what_is_declared(void **state)
{
    (void)state;
    struct scene s;
    struct tier_estimate t;

    begin(&s, "slots: 1");
    char *command[] = {"whisper", "--port", "{port}"};
    struct config_tier *tier = &s.config->services[0].tiers[0];
    const struct config_tier saved = *tier;
    tier->command = (struct config_strings){command, 3};
    tier->memory_bytes = 700;
    tier->host_memory_bytes = 300;
    read_estimate(&s, &t);
    assert_true(t.declared);
    assert_int_equal(t.estimate.device_total.upper_bytes, 700);
    assert_int_equal(t.estimate.host_total.bytes, 300);
    assert_int_equal(t.floor_bytes, 0); /* what is measured may be less */
    assert_int_equal(t.device_bytes_per_token, 0);
    assert_int_equal(t.largest_bytes, 0);
    *tier = saved;
    end(&s);
}

static void somebody_elses_engine_has_no_source(void **state)
{
    (void)state;
    struct scene s;
    struct tier_source source;

    begin(&s, "slots: 1");
    struct config_tier *tier = &s.config->services[0].tiers[0];
    tier->managed = false;
    assert_int_equal(source_of(&s, &source), -ENOENT);
    end(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_setting_that_changes_memory_changes_the_hash),
        cmocka_unit_test(facts_are_no_part_of_it),
        cmocka_unit_test(a_model_is_its_headers_and_sizes),
        cmocka_unit_test(another_engine_build_is_another_engine),
        cmocka_unit_test(a_device_is_its_name_kind_and_size),
        cmocka_unit_test(what_admission_asks_of_a_tier),
        cmocka_unit_test(the_slope_is_what_more_context_costs),
        cmocka_unit_test(files_and_arguments_of_a_tier_count),
        cmocka_unit_test(a_file_that_cannot_be_used_predicts_nothing),
        cmocka_unit_test(a_program_takes_what_is_declared),
        cmocka_unit_test(somebody_elses_engine_has_no_source),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
