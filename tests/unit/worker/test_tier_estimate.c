/* Fingerprints, and what is estimated of a tier. */
#include "tests/unit/unit.h"

#include "worker/fingerprint.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_setting_that_changes_memory_changes_the_hash),
        cmocka_unit_test(facts_are_no_part_of_it),
        cmocka_unit_test(a_model_is_its_headers_and_sizes),
        cmocka_unit_test(another_engine_build_is_another_engine),
        cmocka_unit_test(a_device_is_its_name_kind_and_size),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
