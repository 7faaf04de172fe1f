/*
 * The part of NVIDIA's management library that telemetry calls, found at run time: no header and no
 * link dependency. Declarations after the documented ABI (NVML API reference; nvml.h as published in
 * NVIDIA/go-nvml); sizes and offsets are asserted, because nothing else would notice.
 *
 * Every call may hang in the driver. One `struct nvml` belongs to one thread; a second thread may
 * load its own, the library counts its users.
 */
#ifndef FAILSOFT_DEVICE_NVML_H
#define FAILSOFT_DEVICE_NVML_H

#include <stddef.h>
#include <stdint.h>

/* nvmlReturn_t */
enum nvml_return {
    NVML_RETURN_SUCCESS = 0,
    NVML_RETURN_UNINITIALIZED = 1,
    NVML_RETURN_INVALID_ARGUMENT = 2,
    NVML_RETURN_NOT_SUPPORTED = 3,
    NVML_RETURN_NO_PERMISSION = 4,
    NVML_RETURN_NOT_FOUND = 6,
    NVML_RETURN_INSUFFICIENT_SIZE = 7,
    NVML_RETURN_DRIVER_NOT_LOADED = 9,
    NVML_RETURN_TIMEOUT = 10,
    NVML_RETURN_LIBRARY_NOT_FOUND = 12,
    NVML_RETURN_FUNCTION_NOT_FOUND = 13,
    NVML_RETURN_GPU_IS_LOST = 15,
    NVML_RETURN_RESET_REQUIRED = 16,
    NVML_RETURN_LIB_RM_VERSION_MISMATCH = 18,
    NVML_RETURN_ARGUMENT_VERSION_MISMATCH = 25,
    NVML_RETURN_GPU_NOT_FOUND = 28,
    NVML_RETURN_UNKNOWN = 999,
};

typedef struct nvml_device_handle *nvml_device; /* nvmlDevice_t: opaque */
typedef struct nvml_event_handle *nvml_events;  /* nvmlEventSet_t: opaque */

/* nvmlMemory_t */
struct nvml_memory_v1 {
    unsigned long long total, free, used;
};

/* nvmlMemory_v2_t; `version` is the size and the number, never the bare 2 (nvidia-settings#78). */
struct nvml_memory_v2 {
    unsigned int version;
    unsigned long long total, reserved, free, used;
};
#define NVML_MEMORY_V2_VERSION 0x02000028u
_Static_assert(sizeof(struct nvml_memory_v2) == 0x28, "nvmlMemory_v2_t is 40 bytes");
_Static_assert(offsetof(struct nvml_memory_v2, total) == 8, "after the padded version");

/* nvmlProcessInfo_v1_t, and nvmlProcessInfo_v2_t, which the _v3 functions take as well. */
struct nvml_process_v1 {
    unsigned int pid;
    unsigned long long used;
};
struct nvml_process_v2 {
    unsigned int pid;
    unsigned long long used;
    unsigned int gpu_instance, compute_instance;
};
_Static_assert(sizeof(struct nvml_process_v1) == 16, "nvmlProcessInfo_v1_t");
_Static_assert(sizeof(struct nvml_process_v2) == 24, "nvmlProcessInfo_v2_t");
/* Some 535 drivers wrote a field more into each entry of _v3: room, so that nothing is overrun. */
#define NVML_PROCESS_LARGEST    32u
#define NVML_USED_NOT_AVAILABLE (~0ull) /* NVML_VALUE_NOT_AVAILABLE, as unsigned */

/* nvmlPciInfo_t of nvmlDeviceGetPciInfo_v3 */
struct nvml_pci {
    char bus_id_legacy[16];
    unsigned int domain, bus, device, device_id, subsystem_id;
    char bus_id[32];
};
_Static_assert(sizeof(struct nvml_pci) == 68, "nvmlPciInfo_t");

/* nvmlFieldValue_t */
struct nvml_field {
    unsigned int id, scope;
    long long timestamp, latency_us;
    int value_type; /* 1: unsigned int */
    int result;     /* nvmlReturn_t of this field */
    union {
        double d;
        unsigned int u;
        unsigned long long ull;
    } value;
};
_Static_assert(sizeof(struct nvml_field) == 40, "nvmlFieldValue_t");
#define NVML_FIELD_RECOVERY_ACTION                                                                 \
    230u /* NVML_FI_DEV_GET_GPU_RECOVERY_ACTION, driver 570 and later */
#define NVML_FIELD_TYPE_UINT 1

/* nvmlEventData_t */
struct nvml_event {
    nvml_device device;
    unsigned long long type, data;
    unsigned int gpu_instance, compute_instance;
};
_Static_assert(sizeof(struct nvml_event) == 32, "nvmlEventData_t");
#define NVML_EVENT_XID 0x8ull /* nvmlEventTypeXidCriticalError */

/* Any of these may be NULL: an older library does not have it. */
struct nvml {
    void *handle;
    int (*init)(void);
    int (*shutdown)(void);
    int (*device_by_index)(unsigned int, nvml_device *);
    int (*device_name)(nvml_device, char *, unsigned int);
    int (*device_pci)(nvml_device, struct nvml_pci *);
    int (*memory_v1)(nvml_device, struct nvml_memory_v1 *);
    int (*memory_v2)(nvml_device, struct nvml_memory_v2 *);
    /* Compute, graphics, and compute through MPS; _v3, _v2, without a suffix. */
    int (*processes[3][3])(nvml_device, unsigned int *, void *);
    int (*fields)(nvml_device, int, struct nvml_field *);
    int (*events_create)(nvml_events *);
    int (*events_register)(nvml_device, unsigned long long, nvml_events);
    int (*events_wait)(nvml_events, struct nvml_event *, unsigned int);
    int (*events_free)(nvml_events);
};

/*
 * Loads the library and starts it. 0; -ENOENT: no such library, or not NVML; -EIO: it did not start,
 * with its code in *ret_code. `why` (DEVICE_WHY_MAX) says it in words.
 */
int nvml_load(const char *path, struct nvml *ret, int *ret_code, char *why);

/* Stops and unloads it. A zeroed struct is fine. */
void nvml_unload(struct nvml *nvml);

/* "GPU is lost (15)" */
const char *nvml_return_text(int code, char *out, size_t out_size);

#endif
