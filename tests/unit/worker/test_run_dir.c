/* The private folder of the sockets. */
#include "tests/unit/unit.h"

#include "worker/run_dir.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static char base[64];

static int setup(void **state)
{
    (void)state;
    snprintf(base, sizeof(base), "/tmp/failsoft-test-XXXXXX");
    return mkdtemp(base) != NULL && setenv("XDG_RUNTIME_DIR", base, 1) == 0 ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    unsetenv("XDG_RUNTIME_DIR");
    return rmdir(base); /* fails when a test left something */
}

static void in_base(const char *name, char *out, size_t out_size)
{
    snprintf(out, out_size, "%s/%s", base, name);
}

static void make_socket(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);

    snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    close(fd);
}

static void default_place(void **state)
{
    char path[128], expected[128];

    (void)state;
    snprintf(expected, sizeof(expected), "%s/failsoft-%ld", base, (long)getpid());
    assert_int_equal(run_dir_default(path, sizeof(path)), 0);
    assert_string_equal(path, expected);
    assert_int_equal(run_dir_default(path, 8), -ENAMETOOLONG);
    setenv("XDG_RUNTIME_DIR", "/nonexistent", 1);
    assert_int_equal(run_dir_default(path, sizeof(path)), 0);
    snprintf(expected, sizeof(expected), "/tmp/failsoft-%u-%ld", (unsigned)getuid(),
             (long)getpid());
    assert_string_equal(path, expected);
    setenv("XDG_RUNTIME_DIR", base, 1);
}

static void made_private_or_refused(void **state)
{
    char path[128];
    struct stat st;
    bool made = false;

    (void)state;
    in_base("run", path, sizeof(path));
    assert_int_equal(run_dir_prepare(path, &made), 0);
    assert_true(made);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
    assert_int_equal(run_dir_prepare(path, &made), 0);
    assert_false(made);
    chmod(path, 0750);
    assert_int_equal(run_dir_prepare(path, &made), -EACCES);
    rmdir(path);
    assert_int_equal(symlink("/tmp", path), 0);
    assert_int_equal(run_dir_prepare(path, &made), -ENOTDIR);
    unlink(path);
}

static void abandoned_folders_are_swept(void **state)
{
    char path[128], old[96], alive[96], socket_path[128];
    bool made;
    pid_t gone = fork();

    (void)state;
    if (gone == 0)
        _exit(0);
    assert_int_equal(waitpid(gone, NULL, 0), gone);
    snprintf(old, sizeof(old), "%s/failsoft-%ld", base, (long)gone);
    snprintf(alive, sizeof(alive), "%s/failsoft-%ld", base, (long)getppid());
    assert_int_equal(mkdir(old, 0700), 0);
    assert_int_equal(mkdir(alive, 0700), 0);
    snprintf(socket_path, sizeof(socket_path), "%s/chat-gpu-1.sock", old);
    make_socket(socket_path);
    assert_int_equal(run_dir_default(path, sizeof(path)), 0);
    assert_int_equal(run_dir_prepare(path, &made), 0);
    assert_int_not_equal(access(old, F_OK), 0);
    assert_int_equal(access(alive, F_OK), 0);
    rmdir(alive);
    rmdir(path);
}

static void socket_names(void **state)
{
    char path[200], other[200], dir[200];

    (void)state;
    assert_int_equal(run_dir_socket_path("/run/x", "my/chat ../é", "cpu", path, sizeof(path)), 0);
    assert_ptr_equal(strstr(path + 7, "/"), NULL);
    assert_memory_equal(path, "/run/x/my_chat_..", 17);
    assert_int_equal(run_dir_socket_path("/run/x", "my/chat ../é", "cpu", other, sizeof(other)), 0);
    assert_string_not_equal(path, other); /* two workers of one tier live side by side */
    memset(dir, 'd', sizeof(dir));
    for (size_t len = 60; len < 120; len++) {
        dir[len] = '\0';
        if (run_dir_socket_path(dir, "a-very-long-service-name-that-goes-on", "substitute", path,
                                sizeof(path)) == 0)
            assert_true(strlen(path) <= RUN_DIR_SOCKET_PATH_MAX);
        dir[len] = 'd';
    }
}

static void only_sockets_are_unlinked(void **state)
{
    char path[128];

    (void)state;
    in_base("s.sock", path, sizeof(path));
    assert_int_equal(run_dir_unlink_socket(path), 0);
    make_socket(path);
    assert_int_equal(run_dir_unlink_socket(path), 0);
    assert_int_not_equal(access(path, F_OK), 0);
    fclose(fopen(path, "w"));
    assert_int_equal(run_dir_unlink_socket(path), -EEXIST);
    assert_int_equal(access(path, F_OK), 0);
    unlink(path);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(default_place), T(made_private_or_refused),   T(abandoned_folders_are_swept),
        T(socket_names),  T(only_sockets_are_unlinked),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
