/*
 * Models on disk: one file, shards, and what is said when one is missing.
 */
#include "gguf_writer.h"

#include "alloc_fail.h"

#include "model/gguf_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[64];

static void path_of(const char *name, char *out, size_t size)
{
    snprintf(out, size, "%s/%s", folder, name);
}

/* Written as a sparse file: the data section is a hole. */
static void store(const char *name, const struct gguf_writer *w)
{
    char path[128];
    int fd;

    path_of(name, path, sizeof(path));
    fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, w->data, w->len), (ssize_t)w->len);
    assert_int_equal(ftruncate(fd, (off_t)(w->len + w->data_bytes)), 0);
    close(fd);
}

static void write_shard(const char *name, unsigned number, unsigned count, const char *tensor,
                        uint64_t rows)
{
    struct gguf_writer w;

    writer_init(&w);
    if (number == 1)
        writer_string(&w, "general.architecture", "llama");
    writer_number(&w, "split.count", count);
    writer_number(&w, "split.no", number - 1);
    if (tensor != NULL)
        writer_tensor(&w, tensor, 1, 1024, rows, 2048 * rows);
    writer_finish(&w);
    store(name, &w);
    writer_free(&w);
}

static void test_one(void **state)
{
    struct gguf_writer w;
    struct gguf_file f;
    char path[128];

    (void)state;
    writer_init(&w);
    writer_string(&w, "general.architecture", "llama");
    /* 40 GiB of weights that take no room. */
    for (unsigned i = 0; i < 40; i++)
        writer_tensor(&w, "blk.0.ffn_up.weight", 1, 1024, 512 * 1024, 1ull << 30);
    writer_finish(&w);
    store("one.gguf", &w);
    path_of("one.gguf", path, sizeof(path));
    assert_int_equal(gguf_file_read(path, &f), 0);
    assert_true(f.usable);
    assert_int_equal(f.shard_count, 1);
    assert_true(f.tensor_bytes == 40ull << 30);
    assert_true(f.memory_bytes <= 2 * 1024 * 1024 && f.read_bytes <= GGUF_WINDOW_BYTES);
    gguf_file_free(&f);
    assert_int_equal(gguf_file_read("/nowhere.gguf", &f), -ENOENT);
    assert_int_equal(gguf_file_read("/", &f), -EISDIR);
    assert_int_equal(gguf_file_read("/dev/null", &f), -EINVAL);
    writer_free(&w);
}

static void test_shards(void **state)
{
    struct gguf_file f;
    char path[128];
    char other[128];

    (void)state;
    write_shard("m-00001-of-00003.gguf", 1, 3, NULL, 0); /* metadata alone */
    write_shard("m-00002-of-00003.gguf", 2, 3, "blk.0.ffn_up.weight", 100);
    write_shard("m-00003-of-00003.gguf", 3, 3, "blk.1.ffn_up.weight", 200);
    path_of("m-00001-of-00003.gguf", path, sizeof(path));
    assert_int_equal(gguf_file_read(path, &f), 0);
    if (!f.usable)
        fail_msg("%s", f.problem);
    assert_int_equal(f.shard_count, 3);
    assert_true(f.tensor_bytes == 300 * 2048);
    gguf_file_free(&f);

    path_of("m-00002-of-00003.gguf", other, sizeof(other));
    assert_int_equal(gguf_file_read(other, &f), 0);
    assert_false(f.usable);
    assert_non_null(strstr(f.problem, "name the first, which ends in -00001-of-00003.gguf"));
    gguf_file_free(&f);

    assert_int_equal(truncate(other, 100), 0);
    assert_int_equal(gguf_file_read(path, &f), 0);
    assert_false(f.usable);
    assert_non_null(strstr(f.problem, "m-00002-of-00003.gguf that is cut off"));
    gguf_file_free(&f);
    assert_int_equal(unlink(other), 0);
    assert_int_equal(gguf_file_read(path, &f), 0);
    assert_non_null(strstr(f.problem, "needs its shard m-00002-of-00003.gguf: No such file"));
    gguf_file_free(&f);
}

static void test_shard_counts(void **state)
{
    struct gguf_file f;
    char path[128];

    (void)state;
    path_of("m-00001-of-00001.gguf", path, sizeof(path));
    write_shard("m-00001-of-00001.gguf", 1, 65535, "a", 1);
    assert_int_equal(gguf_file_read(path, &f), 0);
    assert_false(f.usable);
    assert_non_null(strstr(f.problem, "one of 65535 shards; at most 512 are read"));
    gguf_file_free(&f);
    write_shard("m-00001-of-00001.gguf", 1, 1, NULL, 0);
    assert_int_equal(gguf_file_read(path, &f), 0);
    assert_false(f.usable);
    assert_string_equal(f.problem, "has no weights in it");
    gguf_file_free(&f);
}

static void test_failing_allocations(void **state)
{
    struct gguf_file f;
    char path[128];

    (void)state;
    write_shard("n-00001-of-00002.gguf", 1, 2, "blk.0.a", 1);
    write_shard("n-00002-of-00002.gguf", 2, 2, "blk.0.b", 1);
    path_of("n-00001-of-00002.gguf", path, sizeof(path));
    for (unsigned n = 1;; n++) {
        int r;

        alloc_fail_arm(n);
        r = gguf_file_read(path, &f);
        if (!alloc_fail_disarm()) {
            assert_int_equal(r, 0);
            assert_true(f.usable);
            gguf_file_free(&f);
            break;
        }
        assert_int_equal(r, -ENOMEM);
    }
    gguf_file_free(NULL);
}

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof(folder), "/tmp/failsoft-gguf-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    static const char *const names[] = {"one.gguf",
                                        "m-00001-of-00001.gguf",
                                        "m-00001-of-00003.gguf",
                                        "m-00002-of-00003.gguf",
                                        "m-00003-of-00003.gguf",
                                        "n-00001-of-00002.gguf",
                                        "n-00002-of-00002.gguf"};

    (void)state;
    for (size_t i = 0; i < UNIT_COUNT(names); i++) {
        char path[128];

        path_of(names[i], path, sizeof(path));
        (void)unlink(path);
    }
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one),
        cmocka_unit_test(test_shards),
        cmocka_unit_test(test_shard_counts),
        cmocka_unit_test(test_failing_allocations),
    };

    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
