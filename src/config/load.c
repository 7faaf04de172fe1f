/*
 * The steps of loading in their order (see load_internal.h), and reading the file.
 */
#include "config/load_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void config_free(struct config *c)
{
    struct arena arena;

    if (!c)
        return;
    /* The configuration lies in its own arena. */
    arena.chunks = c->arena;
    arena_free(&arena);
}

static int run_steps(struct loader *l, const char *text, size_t len)
{
    struct document_node *root = NULL;
    int r = document_parse(l->arena, text, len, l->report, &root);

    if (r < 0)
        return r;
    if ((r = load_tree(l, root)) < 0 || (r = load_finish(l)) < 0)
        return r;
    load_check(l);
    return 0;
}

static int load_text(const char *path, const char *text, size_t len, const char *base_dir,
                     struct config **ret, struct config_report *report)
{
    struct arena arena = {NULL};
    struct config *c = arena_alloc(&arena, 1, sizeof(*c));
    struct loader l = {.arena = &arena, .config = c, .report = report};
    size_t before = report->errors;
    int r = -ENOMEM;

    if (!c)
        goto out;
    l.place = (struct value_place){.arena = &arena,
                                   .base_dir = arena_copy(&arena, base_dir, strlen(base_dir))};
    c->path = arena_copy(&arena, path, strlen(path));
    if (!c->path || !l.place.base_dir)
        goto out;
    r = run_steps(&l, text, len);
    config_report_sort(report);
    if (r == 0 && report->errors > before)
        r = -EINVAL;
out:
    if (r < 0) {
        arena_free(&arena);
        return r;
    }
    c->arena = arena.chunks;
    *ret = c;
    return 0;
}

/* The absolute form of a folder, "." for NULL; does not need to exist. */
static int absolute_dir(const char *dir, char *out, size_t out_size)
{
    char cwd[PATH_MAX];
    int n;

    if (dir && dir[0] == '/') {
        n = snprintf(out, out_size, "%s", dir);
    } else {
        if (!getcwd(cwd, sizeof(cwd)))
            return -errno;
        n = dir && strcmp(dir, ".") != 0 ? snprintf(out, out_size, "%s/%s", cwd, dir)
                                         : snprintf(out, out_size, "%s", cwd);
    }
    return n < 0 || (size_t)n >= out_size ? -ENAMETOOLONG : 0;
}

int config_load_string(const char *text, size_t len, const char *base_dir, struct config **ret,
                       struct config_report *report)
{
    char dir[PATH_MAX];
    int r = absolute_dir(base_dir, dir, sizeof(dir));

    if (r < 0)
        return r;
    if (len > CONFIG_FILE_MAX_BYTES) {
        config_report_error(report, ((struct config_mark){0, 0}),
                            "larger than %d KiB, which no configuration is",
                            CONFIG_FILE_MAX_BYTES / 1024);
        return -EINVAL;
    }
    return load_text(report->path ? report->path : "", text, len, dir, ret, report);
}

/* Reads at most one byte more than allowed, so that too large is seen. */
static int read_all(int fd, char **ret_text, size_t *ret_len)
{
    size_t room = CONFIG_FILE_MAX_BYTES + 1;
    char *text = malloc(room);
    size_t len = 0;

    if (!text)
        return -ENOMEM;
    while (len < room) {
        ssize_t n = read(fd, text + len, room - len);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            int error = -errno;

            free(text);
            return error;
        }
        if (n == 0)
            break;
        len += (size_t)n;
    }
    *ret_text = text;
    *ret_len = len;
    return 0;
}

static int read_file(const char *path, char **ret_text, size_t *ret_len)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    struct stat st;
    int r;

    if (fd < 0)
        return -errno;
    if (fstat(fd, &st) == 0 && S_ISDIR(st.st_mode))
        r = -EISDIR;
    else
        r = read_all(fd, ret_text, ret_len);
    close(fd);
    return r;
}

static int dir_of(const char *path, char *out, size_t out_size)
{
    const char *slash = strrchr(path, '/');
    int n;

    if (!slash)
        n = snprintf(out, out_size, ".");
    else
        n = snprintf(out, out_size, "%.*s", slash == path ? 1 : (int)(slash - path), path);
    return n < 0 || (size_t)n >= out_size ? -ENAMETOOLONG : 0;
}

int config_load_file(const char *path, struct config **ret, struct config_report *report)
{
    char dir[PATH_MAX];
    char *text = NULL;
    size_t len = 0;
    int r;

    free(report->path);
    report->path = strdup(path);
    if (!report->path)
        return -ENOMEM;
    r = dir_of(path, dir, sizeof(dir));
    if (r == 0)
        r = read_file(path, &text, &len);
    if (r < 0) {
        report->unreadable = true;
        config_report_error(report, ((struct config_mark){0, 0}), "can not be read: %s",
                            strerrordesc_np(-r));
        return r;
    }
    r = config_load_string(text, len, dir, ret, report);
    free(text);
    return r;
}

static bool try_path(char *out, size_t out_size, const char *folder, const char *rest)
{
    int n = snprintf(out, out_size, "%s%s", folder, rest);

    return n >= 0 && (size_t)n < out_size && access(out, F_OK) == 0;
}

int config_find_default(char *out, size_t out_size)
{
    const char *xdg = getenv("XDG_CONFIG_HOME");
    const char *home = getenv("HOME");
    char path[PATH_MAX];

    /* XDG base directories: a relative value is to be ignored. */
    if (!try_path(path, sizeof(path), ".", "/failsoft.yaml") &&
        !(xdg && xdg[0] == '/' && try_path(path, sizeof(path), xdg, "/failsoft/failsoft.yaml")) &&
        !(!(xdg && xdg[0] == '/') && home &&
          try_path(path, sizeof(path), home, "/.config/failsoft/failsoft.yaml")) &&
        !try_path(path, sizeof(path), "/etc/failsoft", "/failsoft.yaml"))
        return -ENOENT;
    if (strlen(path) >= out_size)
        return -ENAMETOOLONG;
    memcpy(out, path, strlen(path) + 1);
    return 0;
}

const struct config_service *config_find_service(const struct config *c, const char *name,
                                                 size_t name_len)
{
    for (size_t i = 0; i < c->service_count; i++) {
        const struct config_service *s = &c->services[i];

        if (strlen(s->name) == name_len && memcmp(s->name, name, name_len) == 0)
            return s;
        for (size_t j = 0; j < s->aliases.count; j++) {
            if (strlen(s->aliases.items[j]) == name_len &&
                memcmp(s->aliases.items[j], name, name_len) == 0)
                return s;
        }
    }
    return NULL;
}

const char *config_service_kind_name(int kind)
{
    return option_service_kinds[kind];
}

const char *config_engine_name(int engine)
{
    return option_engines[engine];
}

const char *config_device_kind_name(int kind)
{
    return option_device_kinds[kind];
}
