/* What is learned outlives the gateway: debounce, damage, a folder that refuses. */
#include "unit.h"

#include "config/state_file.h"
#include "gateway/learned.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { HOUR_MS = 3600 * 1000 };

static char dir[64], path[96], aside[128];
static uv_loop_t loop;
static const struct learning_key key = {.model = 1, .settings = 2, .engine = 3, .device = 4};

static int setup(void **state)
{
    (void)state;
    snprintf(dir, sizeof(dir), "/tmp/failsoft-learned-XXXXXX");
    if (!mkdtemp(dir))
        return -1;
    snprintf(path, sizeof(path), "%s/learned.txt", dir);
    snprintf(aside, sizeof(aside), "%s.damaged", path);
    return uv_loop_init(&loop);
}

static int teardown(void **state)
{
    (void)state;
    DIR *d = opendir(dir);
    for (struct dirent *e = d ? readdir(d) : NULL; e; e = readdir(d)) {
        if (e->d_name[0] != '.')
            unlinkat(dirfd(d), e->d_name, 0);
    }
    if (d)
        closedir(d);
    if (rmdir(dir) < 0)
        unlink(dir);
    return uv_loop_close(&loop);
}

static struct learned *open_it(uint64_t write_after_ms)
{
    struct learned *l = NULL;
    assert_int_equal(learned_open(&loop, path, write_after_ms, &l), 0);
    return l;
}

static void count_closed(void *ctx)
{
    ++*(int *)ctx;
}

static void close_it(struct learned *l)
{
    int closed = 0;
    learned_close(l, count_closed, &closed);
    assert_int_equal(uv_run(&loop, UV_RUN_DEFAULT), 0);
    assert_int_equal(closed, 1);
}

static uint64_t seen(struct learned *l, uint32_t *ret_count)
{
    return learning_seen_bytes(learned_table(l), &key, ret_count);
}

static void note(struct learned *l, uint64_t bytes)
{
    assert_int_equal(learning_note(learned_table(l), &key, bytes), 0);
    learned_changed(l);
}

static void write_text(const char *text)
{
    assert_int_equal(state_file_write(path, span_from_str(text)), 0);
}

static bool exists(const char *name)
{
    return access(name, F_OK) == 0;
}

static void test_outlives_a_restart(void **state)
{
    (void)state;
    uint32_t count;
    struct learned *l = open_it(HOUR_MS);
    note(l, 1000);
    note(l, 2000);
    learning_set_unfit(learned_table(l), &key, true);
    close_it(l); /* writes at once, whatever the pause */
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    l = open_it(HOUR_MS);
    assert_int_equal(seen(l, &count), 2000);
    assert_int_equal(count, 2);
    assert_true(learning_is_unfit(learned_table(l), &key));
    close_it(l);
    assert_false(exists(aside));
}

/* Nothing to say: no file, no folder. */
static void test_writes_only_what_changed(void **state)
{
    (void)state;
    close_it(open_it(1));
    assert_false(exists(path));
    struct learned *l = open_it(1);
    note(l, 1);
    close_it(l);
    assert_int_equal(unlink(path), 0);
    close_it(open_it(1));
    assert_false(exists(path));
}

struct changes {
    struct learned *l;
    uint64_t bytes;
    unsigned left;
};

static void on_change(uv_timer_t *timer)
{
    struct changes *c = timer->data;
    note(c->l, ++c->bytes);
    if (c->left-- == 0)
        uv_timer_stop(timer);
}

/*
 * A gateway that is killed cannot close: what is a while old is on the disk by then, also when
 * something changes all the time. Several changes are one write.
 */
static void test_is_written_after_the_pause(void **state)
{
    (void)state;
    enum { PAUSE_MS = 300, EVERY_MS = 30, CHANGES = 200 };
    struct changes c = {.l = open_it(PAUSE_MS), .left = CHANGES};
    uv_timer_t timer;
    uv_timer_init(&loop, &timer);
    timer.data = &c;
    uv_timer_start(&timer, on_change, 0, EVERY_MS);
    while (c.bytes == 0)
        uv_run(&loop, UV_RUN_ONCE);
    assert_false(exists(path));
    while (c.left > 0 && !exists(path))
        uv_run(&loop, UV_RUN_ONCE);
    assert_true(exists(path));
    struct learning table;
    struct learning_entry entries[4];
    struct learned_reading reading;
    learning_init(&table, entries, 4);
    assert_int_equal(learned_read(path, &table, &reading), 0);
    assert_false(reading.cut || reading.foreign || reading.skipped);
    uint32_t count;
    assert_true(learning_seen_bytes(&table, &key, &count) > 1);
    uv_close((uv_handle_t *)&timer, NULL);
    close_it(c.l);
}

static const char good_line[] =
    "load 0000000000000001 0000000000000002 0000000000000003 0000000000000004 fits 5000\n";

static void test_damage_loses_only_its_lines(void **state)
{
    (void)state;
    char text[512];
    snprintf(text, sizeof(text), "failsoft-learning 1\nload nonsense\n%s\x01\x02\xff\nend 3\n",
             good_line);
    write_text(text);
    uint32_t count;
    struct learned *l = open_it(HOUR_MS);
    assert_int_equal(seen(l, &count), 5000);
    assert_true(exists(aside));
    close_it(l); /* a good one takes its place */
    struct learning table;
    struct learning_entry entries[4];
    struct learned_reading reading = {.skipped = 9};
    learning_init(&table, entries, 4);
    assert_int_equal(learned_read(path, &table, &reading), 0);
    assert_int_equal(reading.skipped, 0);
    assert_false(reading.cut);
    assert_int_equal(learning_seen_bytes(&table, &key, &count), 5000);
    struct learned_reading old;
    assert_int_equal(learned_read(aside, &table, &old), 0);
    assert_int_equal(old.skipped, 2);
}

static void test_cut_off(void **state)
{
    (void)state;
    char text[512];
    uint32_t count;
    snprintf(text, sizeof(text), "failsoft-learning 1\n%sload 00000000000000", good_line);
    write_text(text);
    struct learned *l = open_it(HOUR_MS);
    assert_int_equal(seen(l, &count), 5000);
    assert_true(exists(aside));
    close_it(l);
    unlink(aside);
    /* Cut between two lines: nothing is broken but its end. */
    snprintf(text, sizeof(text), "failsoft-learning 1\n%s", good_line);
    write_text(text);
    struct learned_reading reading;
    l = open_it(HOUR_MS);
    assert_int_equal(learned_read(path, learned_table(l), &reading), 0);
    assert_true(reading.cut);
    assert_int_equal(reading.skipped, 0);
    assert_true(exists(aside));
    close_it(l);
}

static void test_of_another_version(void **state)
{
    (void)state;
    char text[512];
    uint32_t count;
    snprintf(text, sizeof(text), "failsoft-learning 2\n%send 1\n", good_line);
    write_text(text);
    struct learned *l = open_it(HOUR_MS);
    assert_int_equal(seen(l, &count), 0);
    assert_int_equal(count, 0);
    assert_true(exists(aside)); /* going back to the other version loses nothing */
    close_it(l);
    write_text("");
    l = open_it(HOUR_MS);
    assert_int_equal(seen(l, &count), 0);
    close_it(l);
}

/* Far more than a table holds: read up to that, never more. */
static void test_huge(void **state)
{
    (void)state;
    enum { LINES = 20000 };
    struct buf b;
    uint32_t count;
    buf_init(&b, SIZE_MAX);
    assert_int_equal(buf_append_str(&b, "failsoft-learning 1\n"), 0);
    for (unsigned i = 0; i < LINES; i++)
        assert_int_equal(buf_append_str(&b, good_line), 0);
    assert_int_equal(state_file_write(path, buf_span(&b)), 0);
    buf_free(&b);
    struct learned *l = open_it(HOUR_MS);
    assert_int_equal(seen(l, &count), 5000);
    assert_int_equal(count, LEARNING_SAMPLES);
    close_it(l);
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_true((size_t)st.st_size < learning_text_max(LEARNED_CAPACITY));
}

/* A file where the folder should be: nobody can write there, not even the superuser. */
static void test_a_folder_that_refuses(void **state)
{
    (void)state;
    uint32_t count;
    assert_int_equal(rmdir(dir), 0);
    FILE *file = fopen(dir, "w");
    assert_non_null(file);
    fclose(file);
    struct learned *l = open_it(1);
    note(l, 7);
    for (unsigned i = 0; i < 20; i++) {
        usleep(2000);
        uv_run(&loop, UV_RUN_NOWAIT);
    }
    note(l, 8);
    assert_int_equal(seen(l, &count), 8);
    close_it(l);
    assert_false(exists(path));
}

static void test_memory_only(void **state)
{
    (void)state;
    uint32_t count;
    struct learned *l = NULL;
    assert_int_equal(learned_open(&loop, "", 1, &l), 0);
    note(l, 9);
    assert_int_equal(seen(l, &count), 9);
    close_it(l);
    learned_close(NULL, count_closed, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_outlives_a_restart, setup, teardown),
        cmocka_unit_test_setup_teardown(test_writes_only_what_changed, setup, teardown),
        cmocka_unit_test_setup_teardown(test_is_written_after_the_pause, setup, teardown),
        cmocka_unit_test_setup_teardown(test_damage_loses_only_its_lines, setup, teardown),
        cmocka_unit_test_setup_teardown(test_cut_off, setup, teardown),
        cmocka_unit_test_setup_teardown(test_of_another_version, setup, teardown),
        cmocka_unit_test_setup_teardown(test_huge, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_folder_that_refuses, setup, teardown),
        cmocka_unit_test_setup_teardown(test_memory_only, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
