/* Files that are replaced whole: what a reader meets, who may read them, what failure leaves. */
#include "unit.h"

#include "config/state_file.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char dir[] = "/tmp/failsoft-state-XXXXXX";
static char deep[128], path[160];

static int setup(void **state)
{
    (void)state;
    memcpy(dir + sizeof(dir) - sizeof("XXXXXX"), "XXXXXX", sizeof("XXXXXX"));
    if (!mkdtemp(dir))
        return -1;
    snprintf(deep, sizeof(deep), "%s/a/b", dir);
    snprintf(path, sizeof(path), "%s/file.txt", deep);
    return 0;
}

static void empty_folder(const char *folder)
{
    DIR *d = opendir(folder);

    for (struct dirent *e = d ? readdir(d) : NULL; e; e = readdir(d)) {
        if (e->d_name[0] != '.')
            unlinkat(dirfd(d), e->d_name, 0);
    }
    if (d)
        closedir(d);
    rmdir(folder);
}

static int teardown(void **state)
{
    char above[128];

    (void)state;
    chmod(deep, 0700);
    empty_folder(deep);
    snprintf(above, sizeof(above), "%s/a", dir);
    empty_folder(above);
    empty_folder(dir);
    return 0;
}

static unsigned mode_of(const char *name)
{
    struct stat st;

    assert_int_equal(stat(name, &st), 0);
    return st.st_mode & 0777;
}

static void holds(const char *name, const char *text)
{
    struct buf b;
    bool cut = true;

    buf_init(&b, 64);
    assert_int_equal(state_file_read(name, &b, &cut), 0);
    assert_false(cut);
    assert_span_equal(buf_span(&b), text);
    buf_free(&b);
}

static unsigned entries(const char *folder)
{
    unsigned n = 0;
    DIR *d = opendir(folder);

    for (struct dirent *e = d ? readdir(d) : NULL; e; e = readdir(d))
        n += e->d_name[0] != '.';
    if (d)
        closedir(d);
    return n;
}

static void test_write_and_read(void **state)
{
    (void)state;
    umask(0);
    assert_int_equal(state_file_write(path, SPAN_LIT("one")), 0);
    assert_int_equal(mode_of(path), 0600);
    assert_int_equal(mode_of(deep), 0700);
    holds(path, "one");
    assert_int_equal(state_file_write(path, SPAN_LIT("two, longer")), 0);
    assert_int_equal(state_file_write(path, SPAN_LIT("3")), 0);
    holds(path, "3");
    assert_int_equal(entries(deep), 1);
    umask(022);
}

/* A reader that has the old file open sees the old one to its end: nothing is written in place. */
static void test_readers_see_one_or_the_other(void **state)
{
    char old[8] = "";

    (void)state;
    assert_int_equal(state_file_write(path, SPAN_LIT("old")), 0);
    FILE *reader = fopen(path, "r");
    assert_non_null(reader);
    assert_int_equal(state_file_write(path, SPAN_LIT("new")), 0);
    assert_int_equal(fread(old, 1, 3, reader), 3);
    assert_string_equal(old, "old");
    fclose(reader);
}

static void test_what_is_no_file(void **state)
{
    struct buf b;
    bool cut = false;

    (void)state;
    buf_init(&b, 4);
    assert_int_equal(state_file_read(path, &b, &cut), -ENOENT);
    assert_int_equal(state_file_read(dir, &b, &cut), -EINVAL);
    char fifo[160];
    snprintf(fifo, sizeof(fifo), "%s/fifo", dir);
    assert_int_equal(mkfifo(fifo, 0600), 0);
    assert_int_equal(state_file_read(fifo, &b, &cut), -EINVAL);
    /* A folder, or a file, where something else should be. */
    assert_int_equal(state_file_write(dir, SPAN_LIT("x")), -EISDIR);
    snprintf(fifo, sizeof(fifo), "%s/fifo/x", dir);
    assert_int_equal(state_file_write(fifo, SPAN_LIT("x")), -ENOTDIR);
    buf_free(&b);
}

static void test_larger_than_the_cap(void **state)
{
    struct buf b;
    bool cut = false;

    (void)state;
    assert_int_equal(state_file_write(path, SPAN_LIT("12345")), 0);
    buf_init(&b, 4);
    assert_int_equal(state_file_read(path, &b, &cut), 0);
    assert_true(cut);
    assert_span_equal(buf_span(&b), "1234");
    buf_free(&b);
    buf_init(&b, 5);
    assert_int_equal(state_file_read(path, &b, &cut), 0);
    assert_false(cut);
    buf_free(&b);
}

static void test_kept_aside_once(void **state)
{
    char aside[176];

    (void)state;
    assert_int_equal(state_file_write(path, SPAN_LIT("first")), 0);
    assert_int_equal(state_file_keep_aside(path), 0);
    assert_int_equal(state_file_write(path, SPAN_LIT("second")), 0);
    assert_int_equal(state_file_keep_aside(path), -EEXIST);
    snprintf(aside, sizeof(aside), "%s.damaged", path);
    holds(aside, "first");
}

static void test_failure_leaves_the_old_file(void **state)
{
    char target[176];

    (void)state;
    assert_int_equal(state_file_write(path, SPAN_LIT("old")), 0);
    if (geteuid() != 0) { /* the superuser may write anywhere */
        assert_int_equal(chmod(deep, 0500), 0);
        assert_int_equal(state_file_write(path, SPAN_LIT("new")), -EACCES);
        assert_int_equal(chmod(deep, 0700), 0);
    }
    /* The fresh file can not take the place of a folder. */
    snprintf(target, sizeof(target), "%s/folder", deep);
    assert_int_equal(mkdir(target, 0700), 0);
    assert_int_equal(state_file_write(target, SPAN_LIT("new")), -EISDIR);
    assert_int_equal(rmdir(target), 0);
    assert_int_equal(entries(deep), 1);
    holds(path, "old");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_write_and_read, setup, teardown),
        cmocka_unit_test_setup_teardown(test_readers_see_one_or_the_other, setup, teardown),
        cmocka_unit_test_setup_teardown(test_what_is_no_file, setup, teardown),
        cmocka_unit_test_setup_teardown(test_larger_than_the_cap, setup, teardown),
        cmocka_unit_test_setup_teardown(test_kept_aside_once, setup, teardown),
        cmocka_unit_test_setup_teardown(test_failure_leaves_the_old_file, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
