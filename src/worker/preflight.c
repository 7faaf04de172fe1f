/* The look before the start; see preflight.h. */
#include "worker/preflight.h"

#include "device/memory.h"
#include "device/sim_card.h"
#include "worker/cpu_limit.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

__attribute__((format(printf, 3, 4))) static bool fail(struct preflight *p, int rc,
                                                       const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(p->why, sizeof(p->why), format, args);
    va_end(args);
    p->rc = rc;
    return false;
}

/* A regular file that may be executed; errno says why not. */
static bool is_program(const char *path)
{
    struct stat st;

    if (stat(path, &st) < 0)
        return false;
    if (!S_ISREG(st.st_mode)) {
        errno = S_ISDIR(st.st_mode) ? EISDIR : EACCES;
        return false;
    }
    return access(path, X_OK) == 0;
}

/* What is to be started, in messages. */
static const char *what(const struct preflight *p)
{
    return worker_options_is_program(p->options) ? "program" : "engine";
}

static bool find_on_path(struct preflight *p, const char *name)
{
    const char *path = getenv("PATH");

    if (path == NULL)
        path = "/usr/local/bin:/usr/bin:/bin";
    while (*path != '\0') {
        size_t len = strcspn(path, ":");
        int n = snprintf(p->program, sizeof(p->program), "%.*s/%s", (int)len, path, name);

        if (len > 0 && n > 0 && (size_t)n < sizeof(p->program) && is_program(p->program))
            return true;
        path += len;
        path += *path == ':';
    }
    return fail(p, -ENOENT, "%s not found: there is no %s on PATH", what(p), name);
}

static bool check_engine(struct preflight *p)
{
    bool program = worker_options_is_program(p->options);
    const char *engine = program ? p->options->command[0] : p->options->engine_path;

    if (strchr(engine, '/') == NULL)
        return find_on_path(p, engine);
    if (strlen(engine) >= sizeof(p->program))
        return fail(p, -ENAMETOOLONG, "the %s's path is too long", what(p));
    memcpy(p->program, engine, strlen(engine) + 1);
    if (is_program(engine))
        return true;
    return fail(p, -errno, "%s %s can not be run: %s", what(p), engine, strerror(errno));
}

/* The four letters at the start of every GGUF file (ggml docs/gguf.md). */
static bool check_model(struct preflight *p)
{
    const char *model = p->options->model_path;
    int fd = open(model, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    char magic[4];
    struct stat st;
    ssize_t n;

    if (fd < 0)
        return fail(p, -errno, "model file %s can not be read: %s", model, strerror(errno));
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) {
        close(fd);
        return fail(p, -EINVAL, "model %s is not a regular file", model);
    }
    n = read(fd, magic, sizeof(magic));
    close(fd);
    if (n != (ssize_t)sizeof(magic) || memcmp(magic, "GGUF", 4) != 0)
        return fail(p, -EINVAL, "model file %s is not a GGUF file%s", model,
                    st.st_size == 0 ? ": it is empty" : "");
    p->model_bytes = (uint64_t)st.st_size;
    return true;
}

static bool check_plugin(struct preflight *p)
{
    const char *plugin = p->options->sim_plugin;

    if (plugin == NULL) {
        if (sim_plugin_find(p->plugin, sizeof(p->plugin)) < 0)
            return fail(p, -ENOENT,
                        "the simulated accelerator's plug-in libggml-failsoft-sim.so was not found "
                        "beside the program; set `plugin` of the device");
        return true;
    }
    if (strlen(plugin) >= sizeof(p->plugin))
        return fail(p, -ENAMETOOLONG, "the plug-in's path is too long");
    if (access(plugin, R_OK) < 0)
        return fail(p, -errno, "plug-in %s can not be read: %s", plugin, strerror(errno));
    memcpy(p->plugin, plugin, strlen(plugin) + 1);
    return true;
}

static void look_at_memory(struct preflight *p)
{
    const struct worker_options *o = p->options;
    bool sim = o->device == WORKER_DEVICE_SIM;
    const struct device_memory_ops *ops = sim ? &device_memory_sim : &device_memory_unknown;
    uint64_t held = 0;

    p->memory_known = true;
    p->held_bytes = 0;
    if (p->last_pid == 0 || o->device == WORKER_DEVICE_NONE)
        return;
    if (ops->held(sim ? o->sim_card : o->device_name, p->last_pid, &held) < 0)
        p->memory_known = false;
    p->held_bytes = held;
}

void preflight_run(struct preflight *p)
{
    bool program = worker_options_is_program(p->options);
    unsigned allowed;

    p->rc = 0;
    p->why[0] = '\0';
    p->plugin[0] = '\0';
    p->model_bytes = 0;
    if (!check_engine(p) || (!program && !check_model(p)))
        return;
    if (p->options->device == WORKER_DEVICE_SIM && !program && !check_plugin(p))
        return;
    allowed = cpu_limit_read("", cpu_limit_affinity());
    p->threads = cpu_limit_threads(p->options->threads, allowed);
    look_at_memory(p);
}
