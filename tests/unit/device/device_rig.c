/* Rig of the device tests: see device_rig.h. */
#include "device_rig.h"

#include "device/host.h"

#include <dlfcn.h>
#include <ftw.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

char rig_root[64];
struct device_roots rig_roots;
struct stub_nvml *rig_nvml;

struct stub_nvml *rig_open_stub(const char *path)
{
    struct stub_nvml *(*state)(void);
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    void *symbol;

    if (handle == NULL)
        fail_msg("%s", dlerror());
    symbol = dlsym(handle, "stub_nvml_state");
    memcpy(&state, &symbol, sizeof(symbol));
    dlclose(handle); /* and not unloaded: its state stays */
    return state();
}

static void load_stub(void)
{
    rig_nvml = rig_open_stub(STUB_NVML_PATH);
    pthread_mutex_lock(&rig_nvml->lock);
    rig_nvml->init = rig_nvml->handle = rig_nvml->memory_v1 = rig_nvml->memory_v2 = 0;
    rig_nvml->processes_v1 = rig_nvml->processes_v2 = rig_nvml->processes_v3 = 0;
    rig_nvml->field = rig_nvml->events_register = 0;
    rig_nvml->events_wait = 10;
    rig_nvml->blocked = rig_nvml->wide_entries = false;
    rig_nvml->xid = rig_nvml->recovery = 0;
    rig_nvml->n_compute = rig_nvml->n_graphics = 0;
    rig_nvml->n_init = rig_nvml->n_shutdown = rig_nvml->n_memory_v1 = rig_nvml->n_memory_v2 = 0;
    rig_nvml->n_processes_v3 = rig_nvml->n_fields = rig_nvml->last_version = 0;
    rig_nvml->total = 24576 * MIB;
    rig_nvml->used = 600 * MIB;
    rig_nvml->free = 23500 * MIB;
    rig_nvml->reserved = 476 * MIB;
    rig_nvml->used_v1 = 1076 * MIB;
    snprintf(rig_nvml->name, sizeof(rig_nvml->name), "NVIDIA GeForce RTX 3090");
    snprintf(rig_nvml->bus_id, sizeof(rig_nvml->bus_id), "00000000:06:00.0");
    pthread_mutex_unlock(&rig_nvml->lock);
}

int rig_setup(void **state)
{
    (void)state;
    snprintf(rig_root, sizeof(rig_root), "/tmp/failsoft-device-XXXXXX");
    if (mkdtemp(rig_root) == NULL)
        return -1;
    snprintf(rig_roots.proc, sizeof(rig_roots.proc), "%s/proc", rig_root);
    snprintf(rig_roots.sys, sizeof(rig_roots.sys), "%s/sys", rig_root);
    snprintf(rig_roots.cgroup, sizeof(rig_roots.cgroup), "%s/cgroup", rig_root);
    snprintf(rig_roots.kmsg, sizeof(rig_roots.kmsg), "%s/kmsg", rig_root);
    snprintf(rig_roots.nvml_library, sizeof(rig_roots.nvml_library), "%s", STUB_NVML_PATH);
    load_stub();
    return 0;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

int rig_teardown(void **state)
{
    (void)state;
    return nftw(rig_root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* The full path, with the folders above it made. */
static void make_way(const char *path, char *full, size_t full_size)
{
    snprintf(full, full_size, "%s/%s", rig_root, path);
    for (char *p = full + strlen(rig_root) + 1; (p = strchr(p, '/')) != NULL; p++) {
        *p = '\0';
        mkdir(full, 0700);
        *p = '/';
    }
}

void rig_put_bytes(const char *path, const void *bytes, size_t n)
{
    char full[512];
    FILE *f;

    make_way(path, full, sizeof(full));
    f = fopen(full, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    fclose(f);
}

void rig_put(const char *path, const char *format, ...)
{
    char text[32768];
    va_list ap;
    int n;

    va_start(ap, format);
    n = vsnprintf(text, sizeof(text), format, ap);
    va_end(ap);
    assert_true(n >= 0 && (size_t)n < sizeof(text));
    rig_put_bytes(path, text, (size_t)n);
}

void rig_remove(const char *path)
{
    char full[512];

    snprintf(full, sizeof(full), "%s/%s", rig_root, path);
    assert_int_equal(remove(full), 0);
}

void rig_link(const char *path, const char *target)
{
    char full[512];

    make_way(path, full, sizeof(full));
    assert_int_equal(symlink(target, full), 0);
}

void rig_meminfo(uint64_t total_bytes, uint64_t available_bytes)
{
    char available[64] = "";

    if (available_bytes != UINT64_MAX)
        snprintf(available, sizeof(available), "MemAvailable:   %" PRIu64 " kB\n",
                 available_bytes / 1024);
    rig_put("proc/meminfo",
            "MemTotal:       %" PRIu64 " kB\nMemFree:          123456 kB\n%s"
            "Buffers:          123 kB\nSwapTotal:       2097148 kB\nSwapFree:        1048572 kB\n",
            total_bytes / 1024, available);
}

int rig_sample(const struct device_source_ops *ops, const struct device_spec *spec,
               struct device_sample *ret)
{
    struct host_meminfo host = {0};
    char why[DEVICE_WHY_MAX] = "";
    void *source = NULL;
    int rc;

    device_sample_init(ret, spec->name, ops->name);
    ret->sampled_at_ms = 1000;
    rc = ops->open(spec, &rig_roots, &source, &ret->state, why);
    if (rc < 0) {
        device_sample_say(ret, "%s", why);
        return rc;
    }
    rc = ops->sample(source, ret);
    (void)host_meminfo_read(rig_roots.proc, &host);
    device_sample_check(ret, host.total_bytes);
    ops->close(source);
    return rc;
}
