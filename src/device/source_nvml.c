/*
 * NVIDIA cards through NVML.
 *
 * What is remembered of a device, and why:
 *   - the memory call that works. v2 may be missing, refuse its version word (13), or be there and
 *     fail (999 on WSL); then v1 is asked from now on, and no failure of v2 says anything about the
 *     GPU (NVIDIA/nvidia-settings#78, jp7677/dxvk-nvapi#198);
 *   - the version of each list of processes that gave entries which can be;
 *   - that a call is not supported.
 *
 * Only *free* is for admission. It is never derived: v1 counts the driver's reserve as used, v2 does
 * not, so total - used is one thing or the other (rust-nvml/nvml-wrapper#57).
 *
 * "Not supported" by both memory calls: on an integrated device memory is the host's. A lost card
 * may answer the same, so the name must say that it is integrated, else nothing is known
 * (kubernetes-sigs/dra-driver-nvidia-gpu#1073).
 */
#include "device/host.h"
#include "device/kernel_log.h"
#include "device/nvml.h"
#include "device/source.h"
#include "device/text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NVML_PROCESSES = 256 };

struct nvml_source {
    struct nvml nvml;
    nvml_device device;
    struct device_roots roots;
    enum device_integrated integrated;
    char name[96];
    char pci[DEVICE_PCI_MAX];
    bool memory_v1_only;
    size_t process_version[3]; /* first version to try, by kind; 3: none works */
    bool no_recovery;
    unsigned char processes[NVML_PROCESSES * NVML_PROCESS_LARGEST];
};

/* Names of devices whose memory is the host's: go-nvlib IsIntegratedGPUName, and GB10. */
static bool is_integrated_name(const char *name)
{
    static const char *const words[] = {"(nvgpu)", "NVIDIA Thor", "GB10"};

    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        const char *at = strstr(name, words[i]);

        /* GB100 is another thing. */
        if (at != NULL && (at[strlen(words[i])] < '0' || at[strlen(words[i])] > '9'))
            return true;
    }
    return false;
}

static enum device_state state_of(int code)
{
    switch (code) {
    case NVML_RETURN_GPU_IS_LOST: return DEVICE_STATE_LOST;
    case NVML_RETURN_RESET_REQUIRED: return DEVICE_STATE_RESET_REQUIRED;
    case NVML_RETURN_DRIVER_NOT_LOADED: return DEVICE_STATE_NO_DRIVER;
    case NVML_RETURN_LIB_RM_VERSION_MISMATCH: return DEVICE_STATE_MISMATCH;
    case NVML_RETURN_GPU_NOT_FOUND:
    case NVML_RETURN_NOT_FOUND:
    case NVML_RETURN_INVALID_ARGUMENT: return DEVICE_STATE_ABSENT; /* of a handle: no such index */
    default: return DEVICE_STATE_UNKNOWN;
    }
}

static void look_at_names(struct nvml_source *s)
{
    struct nvml_pci pci = {.bus_id = ""};

    if (s->nvml.device_name == NULL ||
        s->nvml.device_name(s->device, s->name, sizeof(s->name)) != NVML_RETURN_SUCCESS)
        s->name[0] = '\0';
    s->name[sizeof(s->name) - 1] = '\0';
    if (s->nvml.device_pci != NULL && s->nvml.device_pci(s->device, &pci) == NVML_RETURN_SUCCESS) {
        pci.bus_id[sizeof(pci.bus_id) - 1] = '\0';
        (void)kernel_log_pci(span_from_str(pci.bus_id), s->pci);
    }
}

static void nvml_close(void *state)
{
    struct nvml_source *s = state;

    if (s == NULL)
        return;
    nvml_unload(&s->nvml);
    free(s);
}

static int nvml_open(const struct device_spec *spec, const struct device_roots *roots,
                     void **ret_state, enum device_state *ret_device, char *why)
{
    struct nvml_source *s = calloc(1, sizeof(*s));
    char text[96];
    int code = 0;
    int rc;

    if (s == NULL)
        return -ENOMEM;
    s->roots = *roots;
    s->integrated = spec->integrated;
    rc = nvml_load(roots->nvml_library, &s->nvml, &code, why);
    if (rc < 0) {
        *ret_device = rc == -ENOENT ? DEVICE_STATE_NO_DRIVER : state_of(code);
        goto fail;
    }
    code = s->nvml.device_by_index(spec->index, &s->device);
    if (code != NVML_RETURN_SUCCESS) {
        *ret_device = state_of(code);
        snprintf(why, DEVICE_WHY_MAX, "NVIDIA device %u: %s", spec->index,
                 nvml_return_text(code, text, sizeof(text)));
        rc = -ENODEV;
        goto fail;
    }
    look_at_names(s);
    *ret_state = s;
    return 0;
fail:
    nvml_close(s);
    return rc;
}

/* --- memory --- */

static void take_host_pool(struct nvml_source *s, struct device_sample *sample)
{
    struct host_meminfo host;
    int rc = host_meminfo_read(s->roots.proc, &host);

    sample->flags |= DEVICE_FLAG_SHARED_HOST;
    if (rc < 0) {
        device_sample_say(sample, "%.60s shares the host's memory, which can not be read: %s",
                          s->name, strerror(-rc));
        return;
    }
    sample->has |= DEVICE_HAS_TOTAL | DEVICE_HAS_FREE;
    sample->total_bytes = host.total_bytes;
    sample->free_bytes = host.available_bytes;
    sample->state = DEVICE_STATE_PRESENT;
}

static void memory_unknown(struct nvml_source *s, int code, struct device_sample *sample)
{
    char text[96];
    bool integrated = s->integrated == DEVICE_INTEGRATED_YES ||
                      (s->integrated == DEVICE_INTEGRATED_AUTO && is_integrated_name(s->name));

    if (code == NVML_RETURN_NOT_SUPPORTED && integrated) {
        take_host_pool(s, sample);
        return;
    }
    sample->state = state_of(code);
    if (sample->state == DEVICE_STATE_ABSENT)
        sample->state = DEVICE_STATE_UNKNOWN; /* the handle was good */
    device_sample_say(sample, "nvmlDeviceGetMemoryInfo: %s",
                      nvml_return_text(code, text, sizeof(text)));
}

static int ask_v2(struct nvml_source *s, struct device_sample *sample)
{
    struct nvml_memory_v2 memory = {.version = NVML_MEMORY_V2_VERSION};
    int code;

    if (s->memory_v1_only || s->nvml.memory_v2 == NULL)
        return NVML_RETURN_FUNCTION_NOT_FOUND;
    code = s->nvml.memory_v2(s->device, &memory);
    if (code != NVML_RETURN_SUCCESS)
        return code;
    sample->has |= DEVICE_HAS_TOTAL | DEVICE_HAS_USED | DEVICE_HAS_FREE | DEVICE_HAS_RESERVED;
    sample->total_bytes = memory.total;
    sample->used_bytes = memory.used;
    sample->free_bytes = memory.free;
    sample->reserved_bytes = memory.reserved;
    return code;
}

/* Without "used": it has the driver's share in it, and would be taken for somebody's. */
static int ask_v1(struct nvml_source *s, struct device_sample *sample)
{
    struct nvml_memory_v1 memory = {0};
    int code;

    if (s->nvml.memory_v1 == NULL)
        return NVML_RETURN_FUNCTION_NOT_FOUND;
    code = s->nvml.memory_v1(s->device, &memory);
    if (code != NVML_RETURN_SUCCESS)
        return code;
    sample->has |= DEVICE_HAS_TOTAL | DEVICE_HAS_FREE;
    sample->total_bytes = memory.total;
    sample->free_bytes = memory.free;
    return code;
}

static int take_memory(struct nvml_source *s, struct device_sample *sample)
{
    int code = ask_v2(s, sample);

    if (code != NVML_RETURN_SUCCESS) {
        code = ask_v1(s, sample);
        if (code == NVML_RETURN_SUCCESS)
            s->memory_v1_only = true;
    }
    if (code == NVML_RETURN_SUCCESS)
        sample->state = DEVICE_STATE_PRESENT;
    else
        memory_unknown(s, code, sample);
    return code;
}

/* --- processes --- */

/* Entries of a list; the same process may be in several, with the same figure in each. */
static bool add_processes(struct nvml_source *s, size_t version, unsigned count,
                          struct device_sample *sample)
{
    size_t stride = version == 2 ? sizeof(struct nvml_process_v1) : sizeof(struct nvml_process_v2);
    struct nvml_process_v1 entry; /* the head of both */

    /* First all of them: a list in another layout than this library's is not half believed. */
    for (unsigned i = 0; i < count; i++) {
        memcpy(&entry, s->processes + i * stride, sizeof(entry));
        if (entry.pid == 0 || entry.pid > INT32_MAX ||
            (entry.used != NVML_USED_NOT_AVAILABLE && (sample->has & DEVICE_HAS_TOTAL) != 0 &&
             entry.used > sample->total_bytes))
            return false;
    }
    for (unsigned i = 0; i < count; i++) {
        struct device_process *p;

        memcpy(&entry, s->processes + i * stride, sizeof(entry));
        p = device_sample_add_process(sample, (int32_t)entry.pid);
        if (p == NULL)
            return true;
        if (p->program[0] == '\0')
            device_text_program(s->roots.proc, p->pid, p->program);
        if (entry.used == NVML_USED_NOT_AVAILABLE)
            continue;
        p->has_bytes = true;
        if (entry.used > p->bytes)
            p->bytes = entry.used;
    }
    return true;
}

/* One list, by the newest version that works. False: this device does not say. */
static bool take_list(struct nvml_source *s, size_t kind, struct device_sample *sample)
{
    for (size_t version = s->process_version[kind]; version < 3; version++) {
        unsigned count = NVML_PROCESSES;
        int code;

        if (s->nvml.processes[kind][version] == NULL)
            continue;
        memset(s->processes, 0, sizeof(s->processes));
        code = s->nvml.processes[kind][version](s->device, &count, s->processes);
        if (code == NVML_RETURN_INSUFFICIENT_SIZE) {
            sample->flags |= DEVICE_FLAG_PROCESSES_PARTIAL;
            return true;
        }
        if (code == NVML_RETURN_SUCCESS && count <= NVML_PROCESSES &&
            add_processes(s, version, count, sample)) {
            s->process_version[kind] = version;
            return true;
        }
        if (code == NVML_RETURN_GPU_IS_LOST || code == NVML_RETURN_RESET_REQUIRED)
            return false;
    }
    return false;
}

static void take_processes(struct nvml_source *s, struct device_sample *sample)
{
    bool compute = take_list(s, 0, sample);
    bool graphics = take_list(s, 1, sample);

    if (compute || graphics)
        sample->has |= DEVICE_HAS_PROCESSES;
    if (!compute || !graphics)
        sample->flags |= DEVICE_FLAG_PROCESSES_PARTIAL;
    (void)take_list(s, 2, sample); /* mostly not there, and then nobody misses it */
}

static void take_recovery(struct nvml_source *s, struct device_sample *sample)
{
    struct nvml_field field = {.id = NVML_FIELD_RECOVERY_ACTION};

    if (s->no_recovery || s->nvml.fields == NULL)
        return;
    if (s->nvml.fields(s->device, 1, &field) != NVML_RETURN_SUCCESS)
        return;
    if (field.result != NVML_RETURN_SUCCESS || field.value_type != NVML_FIELD_TYPE_UINT) {
        s->no_recovery = field.result == NVML_RETURN_NOT_SUPPORTED ||
                         field.result == NVML_RETURN_INVALID_ARGUMENT;
        return;
    }
    sample->has |= DEVICE_HAS_RECOVERY;
    sample->recovery = field.value.u < DEVICE_RECOVERY_OTHER ? (enum device_recovery)field.value.u
                                                             : DEVICE_RECOVERY_OTHER;
    if (sample->recovery == DEVICE_RECOVERY_NONE || sample->state == DEVICE_STATE_LOST)
        return;
    /* Drained first, then reset: what runs may go on, nothing new is to start. */
    sample->state = DEVICE_STATE_RESET_REQUIRED;
    device_sample_say(sample, "the driver asks for %s",
                      sample->recovery == DEVICE_RECOVERY_REBOOT ? "a reboot" : "a reset");
}

static int nvml_sample(void *state, struct device_sample *sample)
{
    struct nvml_source *s = state;
    int code;

    memcpy(sample->pci, s->pci, sizeof(sample->pci));
    code = take_memory(s, sample);
    if (sample->state == DEVICE_STATE_LOST || code == NVML_RETURN_RESET_REQUIRED ||
        code == NVML_RETURN_UNINITIALIZED)
        return -ENODEV; /* the handle is of no use any more */
    take_processes(s, sample);
    take_recovery(s, sample);
    return 0;
}

const struct device_source_ops device_source_nvml = {"nvml", nvml_open, nvml_sample, nvml_close};
