/* Which source for which device, and where the world is found. */
#include "device/source.h"

#include <stdio.h>
#include <stdlib.h>

static void set_root(char out[DEVICE_PATH_MAX], const char *variable, const char *otherwise)
{
    const char *given = getenv(variable);
    int n =
        snprintf(out, DEVICE_PATH_MAX, "%s", given != NULL && given[0] != '\0' ? given : otherwise);

    /* A path that does not fit is no path; a cut one might be another's. */
    if (n < 0 || n >= DEVICE_PATH_MAX)
        out[0] = '\0';
}

void device_roots_init(struct device_roots *roots)
{
    set_root(roots->proc, "FAILSOFT_PROC", "/proc");
    set_root(roots->sys, "FAILSOFT_SYS", "/sys");
    set_root(roots->cgroup, "FAILSOFT_CGROUP", "/sys/fs/cgroup");
    set_root(roots->nvml_library, "FAILSOFT_NVML_LIBRARY", "libnvidia-ml.so.1");
    set_root(roots->kmsg, "FAILSOFT_KMSG", "/dev/kmsg");
}

const struct device_source_ops *device_source_for(enum device_kind kind)
{
    switch (kind) {
    case DEVICE_KIND_NVIDIA: return &device_source_nvml;
    case DEVICE_KIND_AMD: return &device_source_amd;
    case DEVICE_KIND_INTEL: return &device_source_intel;
    case DEVICE_KIND_SIM: break;
    }
    return &device_source_sim;
}
