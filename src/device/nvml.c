/* NVIDIA's library, found and started. Blocks on files and on the driver. */
#include "device/nvml.h"

#include "device/sample.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

/* A function pointer from dlsym() without a cast that ISO C forbids (dlsym(3)). */
#define FIND(member, symbol)                                                                       \
    do {                                                                                           \
        void *found = dlsym(nvml.handle, symbol);                                                  \
        memcpy(&nvml.member, &found, sizeof(found));                                               \
    } while (0)

static void find_processes(struct nvml *out)
{
    static const char *const kinds[] = {
        "nvmlDeviceGetComputeRunningProcesses",
        "nvmlDeviceGetGraphicsRunningProcesses",
        "nvmlDeviceGetMPSComputeRunningProcesses",
    };
    static const char *const suffixes[] = {"_v3", "_v2", ""};
    struct nvml nvml = *out;
    char symbol[64];

    for (size_t kind = 0; kind < 3; kind++) {
        for (size_t version = 0; version < 3; version++) {
            snprintf(symbol, sizeof(symbol), "%s%s", kinds[kind], suffixes[version]);
            FIND(processes[kind][version], symbol);
        }
    }
    *out = nvml;
}

int nvml_load(const char *path, struct nvml *ret, int *ret_code, char *why)
{
    struct nvml nvml = {0};
    char text[96];
    int code;

    nvml.handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (nvml.handle == NULL) {
        const char *error = dlerror();

        snprintf(why, DEVICE_WHY_MAX, "%s", error ? error : "NVML can not be loaded");
        return -ENOENT;
    }
    FIND(init, "nvmlInit_v2");
    FIND(shutdown, "nvmlShutdown");
    FIND(device_by_index, "nvmlDeviceGetHandleByIndex_v2");
    FIND(device_name, "nvmlDeviceGetName");
    FIND(device_pci, "nvmlDeviceGetPciInfo_v3");
    FIND(memory_v1, "nvmlDeviceGetMemoryInfo");
    FIND(memory_v2, "nvmlDeviceGetMemoryInfo_v2");
    FIND(fields, "nvmlDeviceGetFieldValues");
    FIND(events_create, "nvmlEventSetCreate");
    FIND(events_register, "nvmlDeviceRegisterEvents");
    FIND(events_wait, "nvmlEventSetWait_v2");
    if (nvml.events_wait == NULL)
        FIND(events_wait, "nvmlEventSetWait");
    FIND(events_free, "nvmlEventSetFree");
    find_processes(&nvml);
    if (nvml.init == NULL || nvml.shutdown == NULL || nvml.device_by_index == NULL) {
        snprintf(why, DEVICE_WHY_MAX, "%s is not NVML: it lacks nvmlInit_v2", path);
        dlclose(nvml.handle);
        return -ENOENT;
    }
    code = nvml.init();
    if (code != NVML_RETURN_SUCCESS) {
        snprintf(why, DEVICE_WHY_MAX, "nvmlInit: %s", nvml_return_text(code, text, sizeof(text)));
        dlclose(nvml.handle);
        *ret_code = code;
        return -EIO;
    }
    *ret = nvml;
    return 0;
}

void nvml_unload(struct nvml *nvml)
{
    if (nvml->handle == NULL)
        return;
    nvml->shutdown();
    dlclose(nvml->handle);
    memset(nvml, 0, sizeof(*nvml));
}

const char *nvml_return_text(int code, char *out, size_t out_size)
{
    static const struct {
        int code;
        const char *text;
    } known[] = {
        {NVML_RETURN_UNINITIALIZED, "uninitialized"},
        {NVML_RETURN_INVALID_ARGUMENT, "invalid argument"},
        {NVML_RETURN_NOT_SUPPORTED, "not supported"},
        {NVML_RETURN_NO_PERMISSION, "no permission"},
        {NVML_RETURN_NOT_FOUND, "not found"},
        {NVML_RETURN_INSUFFICIENT_SIZE, "insufficient size"},
        {NVML_RETURN_DRIVER_NOT_LOADED, "driver not loaded"},
        {NVML_RETURN_TIMEOUT, "timeout"},
        {NVML_RETURN_FUNCTION_NOT_FOUND, "function not found"},
        {NVML_RETURN_GPU_IS_LOST, "GPU is lost"},
        {NVML_RETURN_RESET_REQUIRED, "GPU requires reset"},
        {NVML_RETURN_LIB_RM_VERSION_MISMATCH,
         "driver/library version mismatch; reboot after a driver update"},
        {NVML_RETURN_ARGUMENT_VERSION_MISMATCH, "argument version mismatch"},
        {NVML_RETURN_GPU_NOT_FOUND, "GPU not found"},
        {NVML_RETURN_UNKNOWN, "unknown error"},
    };
    const char *text = "error";

    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (known[i].code == code)
            text = known[i].text;
    }
    snprintf(out, out_size, "%s (%d)", text, code);
    return out;
}
