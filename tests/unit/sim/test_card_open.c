/*
 * Making, opening, listing and removing cards, and every file that is not one.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "card_rig.h"

static void test_names(void **state)
{
    (void)state;
    assert_true(sim_card_name_valid("gpu0"));
    assert_true(sim_card_name_valid("A-b_9"));
    assert_true(sim_card_name_valid("1234567890123456789012345678901"));
    assert_false(sim_card_name_valid("12345678901234567890123456789012"));
    assert_false(sim_card_name_valid(""));
    assert_false(sim_card_name_valid("../x"));
    assert_false(sim_card_name_valid("a b"));
}

static void test_create_once(void **state)
{
    struct sim_card *card = rig_open(SIM_ROLE_OBSERVER);
    struct sim_settings settings;
    char why[SIM_WHY_MAX] = "";
    char path[128];
    struct stat info;

    (void)state;
    sim_settings_init(&settings, MIB);
    assert_int_equal(sim_card_create("t", &settings, why, sizeof why), -EEXIST);
    assert_non_null(strstr(why, "exists already"));
    assert_int_equal(rig_look(card)->settings.capacity_bytes, 64 * MIB);
    sim_card_close(card);
    rig_path("t", path, sizeof path);
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 07777, 0600);
    settings.slowdown_pct = 99;
    assert_int_equal(sim_card_create("u", &settings, why, sizeof why), -EINVAL);
}

static int create_body(void *argument)
{
    struct sim_settings settings;
    int r;

    sim_settings_init(&settings, 8 * MIB);
    r = sim_card_create(argument, &settings, NULL, 0);
    return r == 0 ? 0 : r == -EEXIST ? 1 : 2;
}

static void test_create_race(void **state)
{
    char name[] = "race";
    int made = 0;
    pid_t pids[6];

    (void)state;
    for (size_t i = 0; i < 6; i++)
        pids[i] = rig_fork(create_body, name);
    for (size_t i = 0; i < 6; i++) {
        int status = rig_reap(pids[i]);

        assert_true(status == 0 || status == 1 << 8);
        made += status == 0;
    }
    assert_int_equal(made, 1);
}

static void test_missing(void **state)
{
    struct sim_card *card = NULL;
    char why[SIM_WHY_MAX] = "";

    (void)state;
    assert_int_equal(sim_card_open("nope", SIM_ROLE_OBSERVER, &card, why, sizeof why), -ENOENT);
    assert_null(card);
    assert_non_null(strstr(why, "failsoft sim create nope"));
    assert_int_equal(sim_card_open("a/b", SIM_ROLE_OBSERVER, &card, why, sizeof why), -EINVAL);
}

static void poke(const char *name, off_t offset, const void *bytes, size_t size)
{
    char path[128];
    int fd;

    rig_path(name, path, sizeof path);
    fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, bytes, size, offset), size);
    close(fd);
}

static void expect_refused(const char *words)
{
    struct sim_card *card = NULL;
    char why[SIM_WHY_MAX] = "";

    assert_int_equal(sim_card_open("t", SIM_ROLE_ENGINE, &card, why, sizeof why), -EPROTO);
    assert_non_null(strstr(why, words));
    /* What cannot be opened can be removed all the same. */
    assert_int_equal(sim_card_destroy("t", false, why, sizeof why), 0);
}

static void test_other_version(void **state)
{
    const uint32_t version = SIM_VERSION + 1;

    (void)state;
    poke("t", offsetof(struct sim_shared, version), &version, sizeof version);
    expect_refused("another version");
}

static void test_other_size(void **state)
{
    const uint32_t size = 128;

    (void)state;
    poke("t", offsetof(struct sim_shared, size_bytes), &size, sizeof size);
    expect_refused("another version");
}

static void test_not_a_card(void **state)
{
    (void)state;
    poke("t", 0, "#!/bin/sh\n", 10);
    expect_refused("not a simulated card");
}

static void test_before_reboot(void **state)
{
    (void)state;
    poke("t", offsetof(struct sim_shared, boot_id), "00000000", 8);
    expect_refused("reboot");
}

static void test_cut_file(void **state)
{
    char path[128];

    (void)state;
    rig_path("t", path, sizeof path);
    assert_int_equal(truncate(path, 4096), 0);
    expect_refused("cut short");
}

static void test_empty_file(void **state)
{
    char path[128];

    (void)state;
    rig_path("t", path, sizeof path);
    assert_int_equal(truncate(path, 0), 0);
    expect_refused("not a simulated card");
}

static void test_symlink_not_followed(void **state)
{
    struct sim_card *card = NULL;
    char path[128];
    char other[128];

    (void)state;
    rig_path("t", path, sizeof path);
    rig_path("link", other, sizeof other);
    assert_int_equal(symlink(path, other), 0);
    assert_int_equal(sim_card_open("link", SIM_ROLE_OBSERVER, &card, NULL, 0), -ELOOP);
    assert_int_equal(unlink(other), 0);
}

static void test_list(void **state)
{
    struct sim_settings settings;
    char names[2][SIM_NAME_MAX];

    (void)state;
    sim_settings_init(&settings, MIB);
    assert_int_equal(sim_card_create("a-1", &settings, NULL, 0), 0);
    assert_int_equal(sim_card_list(names, 2), 2);
    assert_string_equal(names[0], "a-1");
    assert_string_equal(names[1], "t");
    assert_int_equal(sim_card_list(names, 0), 2);
}

static void test_destroy_in_use(void **state)
{
    struct sim_card *card = rig_open(SIM_ROLE_ENGINE);
    struct sim_loss loss = {SIM_LOSE_ABORT, SIM_MESSAGE_CUDA};
    char why[SIM_WHY_MAX] = "";
    uint64_t id = 0;

    (void)state;
    assert_int_equal(sim_card_destroy("t", false, why, sizeof why), -EBUSY);
    assert_non_null(strstr(why, "1 process"));
    assert_int_equal(sim_card_check(card, NULL), 0);
    assert_int_equal(sim_card_destroy("t", true, why, sizeof why), 0);
    assert_int_equal(sim_card_check(card, &loss), -ENODEV);
    assert_int_equal(loss.mode, SIM_LOSE_GRAPH);
    assert_int_equal(sim_card_alloc(card, 1, &id), -ENODEV);
    sim_card_close(card);
    assert_int_equal(sim_card_destroy("t", false, why, sizeof why), -ENOENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test_setup_teardown(test_create_once, rig_setup, rig_teardown),
        cmocka_unit_test_setup_teardown(test_create_race, rig_setup, rig_teardown),
        cmocka_unit_test_setup_teardown(test_missing, rig_setup, rig_teardown),
        cmocka_unit_test_setup_teardown(test_other_version, rig_setup, rig_teardown),
        cmocka_unit_test_setup_teardown(test_other_size, rig_setup, rig_teardown),
        cmocka_unit_test_setup_teardown(test_not_a_card, rig_setup, rig_teardown),
        cmocka_unit_test_setup_teardown(test_before_reboot, rig_setup, rig_teardown),
        cmocka_unit_test_setup_teardown(test_cut_file, rig_setup, rig_teardown),
        cmocka_unit_test_setup_teardown(test_empty_file, rig_setup, rig_teardown),
        cmocka_unit_test_setup_teardown(test_symlink_not_followed, rig_setup, rig_teardown),
        cmocka_unit_test_setup_teardown(test_list, rig_setup, rig_teardown),
        cmocka_unit_test_setup_teardown(test_destroy_in_use, rig_setup, rig_teardown),
    };

    return cmocka_run_group_tests_name("sim_card_open", tests, NULL, NULL);
}
