/* Which folder outlives a restart: the order of the places, and what is no place. */
#include "unit.h"

#include "config/state_dir.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct config config;

static int setup(void **state)
{
    (void)state;
    config = (struct config){0};
    unsetenv("STATE_DIRECTORY");
    unsetenv("XDG_STATE_HOME");
    unsetenv("HOME");
    return 0;
}

static void found(const char *expected)
{
    char out[128] = "";

    assert_int_equal(state_dir_find(&config, out, sizeof(out)), 0);
    assert_string_equal(out, expected);
}

static void test_order(void **state)
{
    char chosen[] = "/srv/chosen";
    char out[128];

    (void)state;
    assert_int_equal(state_dir_find(&config, out, sizeof(out)), -ENOENT);
    setenv("HOME", "/u/me", 1);
    found("/u/me/.local/state/failsoft");
    setenv("XDG_STATE_HOME", "/u/me/state", 1);
    found("/u/me/state/failsoft");
    setenv("STATE_DIRECTORY", "/var/lib/failsoft:/var/lib/other", 1);
    found("/var/lib/failsoft");
    config.state_dir = chosen;
    found("/srv/chosen");
}

static void test_relative_values_are_no_place(void **state)
{
    char out[128];

    (void)state;
    setenv("STATE_DIRECTORY", "lib", 1);
    setenv("XDG_STATE_HOME", "", 1);
    setenv("HOME", "me", 1);
    assert_int_equal(state_dir_find(&config, out, sizeof(out)), -ENOENT);
    assert_int_equal(state_dir_path(&config, STATE_DIR_LEARNED, out, sizeof(out)), -ENOENT);
}

static void test_path(void **state)
{
    char chosen[] = "/srv/chosen";
    char out[24];

    (void)state;
    config.state_dir = chosen;
    assert_int_equal(state_dir_path(&config, STATE_DIR_LEARNED, out, sizeof(out)), 0);
    assert_string_equal(out, "/srv/chosen/learned.txt");
    /* Never a path that is cut: it would be another file. */
    assert_int_equal(state_dir_path(&config, STATE_DIR_LEARNED, out, sizeof(out) - 1),
                     -ENAMETOOLONG);
    assert_int_equal(state_dir_find(&config, out, strlen(chosen)), -ENAMETOOLONG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_order, setup),
        cmocka_unit_test_setup(test_relative_values_are_no_place, setup),
        cmocka_unit_test_setup(test_path, setup),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
