/*
 * The files that a configuration names: are they there and of the right kind? Apart from loading,
 * because it blocks on disks that may be asleep or far away.
 */
#include "config/config.h"

#include "config/load_internal.h"
#include "config/words.h"
#include "model/gguf_file.h"
#include "model/gguf_magic.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The headers of the file and its shards. One that is too large for the reader may still be good. */
static void check_headers(struct config_report *report, struct config_mark mark, const char *path,
                          const char *quoted)
{
    struct gguf_file file;
    int r = gguf_file_read(path, &file);

    if (r < 0) {
        config_report_error(report, mark, "model file %s can not be read: %s", quoted,
                            strerrordesc_np(-r));
        return;
    }
    if (!file.usable && file.shards[0].verdict != GGUF_TOO_LARGE)
        config_report_error(report, mark, "model file %s %s", quoted, file.problem);
    gguf_file_free(&file);
}

static void check_model(struct config_report *report, struct config_mark mark, const char *path)
{
    char quoted[WORDS_QUOTED_PATH_SIZE];
    char verdict[256];
    struct gguf_magic m;
    int r = gguf_magic_read_file(path, &m);

    words_quote_path(path, quoted);
    if (r == -ENOENT || r == -ENOTDIR)
        config_report_error(report, mark, "model file %s does not exist", quoted);
    else if (r < 0)
        config_report_error(report, mark, "model file %s can not be read: %s", quoted,
                            strerrordesc_np(-r));
    else if (m.verdict == GGUF_MAGIC_OK || m.verdict == GGUF_MAGIC_NO_TENSORS)
        check_headers(report, mark, path, quoted); /* a first shard may hold metadata alone */
    else
        config_report_error(report, mark, "model file %s %s", quoted,
                            gguf_magic_describe(&m, verdict, sizeof(verdict)));
}

static bool is_executable_file(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && S_ISREG(st.st_mode) && access(path, X_OK) == 0;
}

static bool is_on_path(const char *name)
{
    const char *dirs = getenv("PATH");
    char path[PATH_MAX];

    while (dirs && *dirs) {
        size_t n = strcspn(dirs, ":");

        if (n > 0 &&
            (size_t)snprintf(path, sizeof(path), "%.*s/%s", (int)n, dirs, name) < sizeof(path) &&
            is_executable_file(path))
            return true;
        dirs += n + (dirs[n] == ':');
    }
    return false;
}

/* A program that failsoft runs: `what` it is called, `hint` where it is not on PATH. */
static void check_program(struct config_report *report, struct config_mark mark, const char *what,
                          const char *program, const char *hint)
{
    char quoted[WORDS_QUOTED_PATH_SIZE];
    struct stat st;

    words_quote_path(program, quoted);
    if (!strchr(program, '/')) {
        if (!is_on_path(program))
            config_report_error(report, mark, "no %s %s on PATH, which %s", what, quoted, hint);
    } else if (stat(program, &st) < 0) {
        config_report_error(report, mark, "%s %s: %s", what, quoted, strerrordesc_np(errno));
    } else if (S_ISDIR(st.st_mode)) {
        config_report_error(report, mark, "%s %s is a folder; the path of the program is needed",
                            what, quoted);
    } else if (!is_executable_file(program)) {
        config_report_error(report, mark, "%s %s is not an executable file", what, quoted);
    }
}

static void check_plugin(struct config_report *report, const struct config_device *d)
{
    char quoted[WORDS_QUOTED_PATH_SIZE];

    if (d->plugin && access(d->plugin, R_OK) < 0)
        config_report_error(report, load_mark(d->marks, OPTION_SCOPE_DEVICE, "plugin"),
                            "plug-in %s: %s", words_quote_path(d->plugin, quoted),
                            strerrordesc_np(errno));
}

/* A service's file is looked at once, although several tiers use it. */
static bool check_service_models(const struct config_service *s, struct config_report *report)
{
    bool shared = false;
    bool managed = false;

    for (size_t i = 0; i < s->tier_count; i++) {
        const struct config_tier *t = &s->tiers[i];

        if (t->command.count > 0) {
            check_program(report, load_mark(t->marks, OPTION_SCOPE_TIER, "command"), "program",
                          t->command.items[0], "the tier runs; install it, or write its path");
            continue;
        }
        managed |= t->managed;
        if (t->managed && t->model_path && t->model_path_own)
            check_model(report, t->model_mark, t->model_path);
        else if (t->managed && t->model_path)
            shared = true;
    }
    if (shared)
        check_model(report, s->model_mark, s->model_path);
    return managed;
}

int config_check_files(const struct config *c, struct config_report *report)
{
    size_t before = report->errors;
    bool managed = false;

    for (size_t i = 0; i < c->service_count; i++)
        managed |= check_service_models(&c->services[i], report);
    if (managed)
        check_program(report, load_mark(c->marks, OPTION_SCOPE_ROOT, "engine"), "engine",
                      c->engine_path,
                      "the managed tiers need; install it, or set `engine: "
                      "/path/to/llama-server`");
    for (size_t i = 0; i < c->device_count; i++)
        check_plugin(report, &c->devices[i]);
    config_report_sort(report);
    return report->errors > before ? -EINVAL : 0;
}
