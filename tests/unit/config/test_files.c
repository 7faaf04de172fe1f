/*
 * The files that a configuration names, made in a folder of the test's own.
 */
#include "unit.h"

#include "config/config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char dir[] = "/tmp/failsoft-files-XXXXXX";

/* One tensor: the header, zeros up to the alignment, four bytes of it. */
static const char good_gguf[64 + 4 + 1] =
    "GGUF\3\0\0\0\1\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"
    "\1\0\0\0\0\0\0\0x\1\0\0\0\1\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";

static void write_file(const char *name, const void *bytes, size_t len, mode_t mode)
{
    char path[128];
    int fd;

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, mode);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, len), (ssize_t)len);
    close(fd);
}

static int make_files(void **state)
{
    char path[128];

    (void)state;
    assert_non_null(mkdtemp(dir));
    write_file("good.gguf", good_gguf, sizeof(good_gguf) - 1, 0644);
    write_file("page.gguf", "<!DOCTYPE html><html>", 21, 0644);
    write_file("cut.gguf", good_gguf, 11, 0644);
    write_file("cut-last.gguf", good_gguf, sizeof(good_gguf) - 2, 0644);
    write_file("engine", "#!/bin/sh\n", 10, 0755);
    write_file("text", "x", 1, 0644);
    snprintf(path, sizeof(path), "%s/folder", dir);
    return mkdir(path, 0755);
}

static int remove_files(void **state)
{
    static const char *const names[] = {"good.gguf",     "page.gguf", "cut.gguf", "cut-later.gguf",
                                        "cut-last.gguf", "engine",    "text"};
    char path[128];

    (void)state;
    for (size_t i = 0; i < UNIT_COUNT(names); i++) {
        snprintf(path, sizeof(path), "%s/%s", dir, names[i]);
        unlink(path);
    }
    snprintf(path, sizeof(path), "%s/folder", dir);
    rmdir(path);
    return rmdir(dir);
}

/* Loads and checks; the report has exactly one problem with `text` at the place, or none for NULL. */
static void check(const char *yaml, unsigned line, unsigned column, const char *text)
{
    struct config_report report;
    struct config *c = NULL;
    int r;

    config_report_init(&report);
    assert_int_equal(config_load_string(yaml, strlen(yaml), dir, &c, &report), 0);
    r = config_check_files(c, &report);
    for (size_t i = text ? 1 : 0; i < report.count; i++)
        print_error("unexpected: %s\n", report.items[i].message);
    assert_int_equal(report.count, text ? 1 : 0);
    assert_int_equal(r, text ? -EINVAL : 0);
    if (text) {
        if (!strstr(report.items[0].message, text))
            fail_msg("%s: %s", text, report.items[0].message);
        assert_int_equal(report.items[0].line, line);
        assert_int_equal(report.items[0].column, column);
    }
    config_free(c);
    config_report_free(&report);
}

static void test_models(void **state)
{
    (void)state;
    check("engine: ./engine\nservices: { a: { model: good.gguf } }", 0, 0, NULL);
    check("engine: ./engine\nservices: { a: { model: none.gguf } }", 2, 25, "does not exist");
    check("engine: ./engine\nservices: { a: { model: folder } }", 2, 25, "is a folder");
    check("engine: ./engine\nservices: { a: { model: page.gguf } }", 2, 25,
          "is not a GGUF file: it begins with `<!DO`; a web page");
    check("engine: ./engine\nservices: { a: { model: cut.gguf } }", 2, 25,
          "is cut off: the header needs 24 bytes, the file has 11");
    check("engine: ./engine\nservices: { a: { model: cut-last.gguf } }", 2, 25,
          "is cut off in its weights: needs 68 bytes, has 67");
    check("engine: ./engine\nservices: { a: { model: /dev/null } }", 2, 25, "not a regular file");
}

/* One file, one message, also with several tiers; a tier's own file is told apart. */
static void test_tiers(void **state)
{
    (void)state;
    check("engine: ./engine\ndevices: { g: { kind: sim } }\nservices: { a: { model: none.gguf } }",
          3, 25, "does not exist");
    check("engine: ./engine\nservices: { a: { model: good.gguf, tiers: [{ name: cpu }, { name: "
          "substitute, model: text }] } }",
          2, 86, "begins with `x`");
    check("services: { a: { model: none.gguf, tiers: [{ name: cpu, url: 'http://h' }] } }", 0, 0,
          NULL);
}

static void test_engine(void **state)
{
    (void)state;
    check("engine: ./none\nservices: { a: { model: good.gguf } }", 1, 9, "No such file");
    check("engine: ./folder\nservices: { a: { model: good.gguf } }", 1, 9, "is a folder");
    check("engine: ./text\nservices: { a: { model: good.gguf } }", 1, 9, "not an executable file");
    check("engine: no-such-engine\nservices: { a: { model: good.gguf } }", 1, 9,
          "no engine `no-such-engine` on PATH");
    check("engine: sh\nservices: { a: { model: good.gguf } }", 0, 0, NULL);
    /* Nothing is run here, so nothing is needed. */
    check("engine: ./none\nservices: { a: { tiers: [{ name: cpu, url: 'http://h' }] } }", 0, 0,
          NULL);
}

/* A path of the program is relative to the file; llama-server is not needed for it. */
static void test_program(void **state)
{
#define PROGRAM(p)                                                                                 \
    "engine: ./none\nservices: { a: { kind: generic, paths: [/a], tiers:\n"                        \
    "  [{ name: cpu, host_memory: 1MiB, command: [" p ", '{port}'] }] } }"
    (void)state;
    check(PROGRAM("./engine"), 0, 0, NULL);
    check(PROGRAM("sh"), 0, 0, NULL);
    check(PROGRAM("./none"), 3, 45, "No such file");
    check(PROGRAM("./folder"), 3, 45, "is a folder");
    check(PROGRAM("./text"), 3, 45, "not an executable file");
    check(PROGRAM("no-such-program"), 3, 45,
          "no program `no-such-program` on PATH, which the tier runs");
#undef PROGRAM
}

static void test_plugin(void **state)
{
    (void)state;
    check(
        "engine: ./engine\ndevices: { g: { kind: sim, plugin: none.so } }\nservices: { a: { model: "
        "good.gguf } }",
        2, 36, "No such file");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_models), cmocka_unit_test(test_tiers),
        cmocka_unit_test(test_engine), cmocka_unit_test(test_program),
        cmocka_unit_test(test_plugin),
    };

    return cmocka_run_group_tests(tests, make_files, remove_files);
}
