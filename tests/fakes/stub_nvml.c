/* The stub of NVML. See stub_nvml.h; the ABI is that of device/nvml.h. */
#include "tests/fakes/stub_nvml.h"

#include "device/nvml.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ORDERS_POLL_MS = 20 };

#define EXPORT __attribute__((visibility("default")))

static struct stub_nvml stub = {
    .lock = PTHREAD_MUTEX_INITIALIZER,
    .changed = PTHREAD_COND_INITIALIZER,
};
static int the_device;

/* Prototypes of what is exported, as the real library has them. */
EXPORT struct stub_nvml *stub_nvml_state(void);
EXPORT int nvmlInit_v2(void);
EXPORT int nvmlShutdown(void);
EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvml_device *device);
EXPORT int nvmlDeviceGetName(nvml_device device, char *name, unsigned int length);
EXPORT int nvmlDeviceGetPciInfo_v3(nvml_device device, struct nvml_pci *pci);
EXPORT int nvmlDeviceGetMemoryInfo(nvml_device device, struct nvml_memory_v1 *memory);
EXPORT int nvmlDeviceGetComputeRunningProcesses(nvml_device device, unsigned int *count, void *out);
EXPORT int nvmlDeviceGetGraphicsRunningProcesses(nvml_device device, unsigned int *count,
                                                 void *out);

struct stub_nvml *stub_nvml_state(void)
{
    return &stub;
}

/* --- orders from a file; see stub_nvml.h --- */

static void take_number(const char *key, unsigned long long n)
{
    const struct {
        const char *key;
        int *code;
        unsigned long long *bytes;
    } known[] = {
        {"init", &stub.init, NULL},
        {"handle", &stub.handle, NULL},
        {"memory_v1", &stub.memory_v1, NULL},
        {"memory_v2", &stub.memory_v2, NULL},
        {"processes_v3", &stub.processes_v3, NULL},
        {"processes_v2", &stub.processes_v2, NULL},
        {"processes_v1", &stub.processes_v1, NULL},
        {"field", &stub.field, NULL},
        {"events_register", &stub.events_register, NULL},
        {"total", NULL, &stub.total},
        {"reserved", NULL, &stub.reserved},
        {"free", NULL, &stub.free},
        {"used", NULL, &stub.used},
        {"used_v1", NULL, &stub.used_v1},
    };

    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (strcmp(known[i].key, key) == 0 && known[i].code != NULL)
            *known[i].code = (int)n;
        else if (strcmp(known[i].key, key) == 0)
            *known[i].bytes = n;
    }
    if (strcmp(key, "recovery") == 0)
        stub.recovery = (unsigned int)n;
    if (strcmp(key, "blocked") == 0)
        stub.blocked = n != 0;
}

static void take_line(const char *line)
{
    static unsigned int xids; /* handed out so far */
    char key[32] = "";
    unsigned long long a = 0, b = 0;

    if (sscanf(line, "name %63[^\n]", stub.name) == 1 ||
        sscanf(line, "bus_id %31s", stub.bus_id) == 1 ||
        sscanf(line, "%31s %llu %llu", key, &a, &b) < 2)
        return;
    if (strcmp(key, "compute") == 0 && stub.n_compute < STUB_PROCESSES)
        stub.compute[stub.n_compute++] = (struct stub_process){(unsigned int)a, b};
    else if (strcmp(key, "graphics") == 0 && stub.n_graphics < STUB_PROCESSES)
        stub.graphics[stub.n_graphics++] = (struct stub_process){(unsigned int)a, b};
    else if (strcmp(key, "xid") == 0 && b > xids) {
        stub.xid = (unsigned int)a;
        xids = (unsigned int)b;
    } else
        take_number(key, a);
}

/* Under the lock. Without the variable the stub does what the test set in its state. */
static void read_orders(void)
{
    const char *path = getenv(STUB_NVML_ORDERS);
    char line[128];
    FILE *f = path != NULL ? fopen(path, "re") : NULL;

    if (f == NULL)
        return;
    stub.n_compute = stub.n_graphics = 0;
    stub.events_wait = NVML_RETURN_TIMEOUT;
    while (fgets(line, sizeof(line), f) != NULL)
        take_line(line);
    fclose(f);
}

static void lock(void)
{
    pthread_mutex_lock(&stub.lock);
    read_orders();
}

static int get(const int *code)
{
    int value;

    lock();
    value = *code;
    pthread_mutex_unlock(&stub.lock);
    return value;
}

static int count_call(unsigned int *counter, const int *code)
{
    int value;

    lock();
    (*counter)++;
    value = *code;
    pthread_mutex_unlock(&stub.lock);
    return value;
}

/* A moment from now, for pthread_cond_timedwait(). */
static struct timespec in_ms(unsigned int ms)
{
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    t.tv_nsec += (long)(ms % 1000) * 1000000L;
    t.tv_sec += (time_t)(ms / 1000) + t.tv_nsec / 1000000000L;
    t.tv_nsec %= 1000000000L;
    return t;
}

static void wait_while_blocked(void)
{
    lock();
    if (stub.blocked) {
        stub.in_blocked++;
        pthread_cond_broadcast(&stub.changed);
        while (stub.blocked) {
            struct timespec until = in_ms(ORDERS_POLL_MS);

            (void)pthread_cond_timedwait(&stub.changed, &stub.lock, &until);
            read_orders();
        }
        stub.in_blocked--;
        pthread_cond_broadcast(&stub.changed);
    }
    pthread_mutex_unlock(&stub.lock);
}

int nvmlInit_v2(void)
{
    return count_call(&stub.n_init, &stub.init);
}

int nvmlShutdown(void)
{
    static const int success = 0;

    return count_call(&stub.n_shutdown, &success);
}

int nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvml_device *device)
{
    if (index != 0)
        return NVML_RETURN_INVALID_ARGUMENT;
    *device = (nvml_device)(void *)&the_device;
    return get(&stub.handle);
}

int nvmlDeviceGetName(nvml_device device, char *name, unsigned int length)
{
    (void)device;
    pthread_mutex_lock(&stub.lock);
    snprintf(name, length, "%s", stub.name);
    pthread_mutex_unlock(&stub.lock);
    return 0;
}

int nvmlDeviceGetPciInfo_v3(nvml_device device, struct nvml_pci *pci)
{
    (void)device;
    pthread_mutex_lock(&stub.lock);
    memcpy(pci->bus_id, stub.bus_id, sizeof(pci->bus_id));
    pthread_mutex_unlock(&stub.lock);
    return 0;
}

int nvmlDeviceGetMemoryInfo(nvml_device device, struct nvml_memory_v1 *memory)
{
    int code;

    (void)device;
    wait_while_blocked();
    code = count_call(&stub.n_memory_v1, &stub.memory_v1);
    pthread_mutex_lock(&stub.lock);
    if (code == 0)
        *memory = (struct nvml_memory_v1){stub.total, stub.free, stub.used_v1};
    pthread_mutex_unlock(&stub.lock);
    return code;
}

/* Entries of `stride` bytes: pid, used, and zeros. */
static int put_processes(bool graphics, size_t stride, int code, unsigned int *count, void *out)
{
    unsigned int room = *count, n;

    if (code != 0)
        return code;
    pthread_mutex_lock(&stub.lock);
    n = graphics ? stub.n_graphics : stub.n_compute;
    *count = n;
    for (unsigned int i = 0; i < n && n <= room; i++) {
        const struct stub_process *p = graphics ? &stub.graphics[i] : &stub.compute[i];
        struct nvml_process_v1 head = {.pid = p->pid, .used = p->used};
        char *at = (char *)out + i * stride;

        memset(at, 0, stride);
        memcpy(at, &head, sizeof(head));
    }
    pthread_mutex_unlock(&stub.lock);
    return n > room ? NVML_RETURN_INSUFFICIENT_SIZE : 0;
}

int nvmlDeviceGetComputeRunningProcesses(nvml_device device, unsigned int *count, void *out)
{
    (void)device;
    return put_processes(false, sizeof(struct nvml_process_v1), get(&stub.processes_v1), count,
                         out);
}

int nvmlDeviceGetGraphicsRunningProcesses(nvml_device device, unsigned int *count, void *out)
{
    (void)device;
    return put_processes(true, sizeof(struct nvml_process_v1), get(&stub.processes_v1), count, out);
}

#ifndef STUB_NVML_OLD

EXPORT int nvmlDeviceGetMemoryInfo_v2(nvml_device device, struct nvml_memory_v2 *memory);
EXPORT int nvmlDeviceGetComputeRunningProcesses_v2(nvml_device device, unsigned int *count,
                                                   void *out);
EXPORT int nvmlDeviceGetComputeRunningProcesses_v3(nvml_device device, unsigned int *count,
                                                   void *out);
EXPORT int nvmlDeviceGetGraphicsRunningProcesses_v3(nvml_device device, unsigned int *count,
                                                    void *out);
EXPORT int nvmlDeviceGetFieldValues(nvml_device device, int count, struct nvml_field *fields);
EXPORT int nvmlEventSetCreate(nvml_events *events);
EXPORT int nvmlDeviceRegisterEvents(nvml_device device, unsigned long long types,
                                    nvml_events events);
EXPORT int nvmlEventSetWait_v2(nvml_events events, struct nvml_event *data,
                               unsigned int timeout_ms);
EXPORT int nvmlEventSetFree(nvml_events events);

int nvmlDeviceGetMemoryInfo_v2(nvml_device device, struct nvml_memory_v2 *memory)
{
    int code;

    (void)device;
    wait_while_blocked();
    code = count_call(&stub.n_memory_v2, &stub.memory_v2);
    pthread_mutex_lock(&stub.lock);
    stub.last_version = memory->version;
    /* The real one refuses a bare 2 with the same words as a missing function. */
    if (memory->version != (sizeof(*memory) | 2u << 24))
        code = NVML_RETURN_FUNCTION_NOT_FOUND;
    if (code == 0)
        *memory = (struct nvml_memory_v2){memory->version, stub.total, stub.reserved, stub.free,
                                          stub.used};
    pthread_mutex_unlock(&stub.lock);
    return code;
}

int nvmlDeviceGetComputeRunningProcesses_v2(nvml_device device, unsigned int *count, void *out)
{
    (void)device;
    return put_processes(false, sizeof(struct nvml_process_v2), get(&stub.processes_v2), count,
                         out);
}

static int processes_v3(bool graphics, unsigned int *count, void *out)
{
    int code = count_call(&stub.n_processes_v3, &stub.processes_v3);
    bool wide;

    pthread_mutex_lock(&stub.lock);
    wide = stub.wide_entries;
    pthread_mutex_unlock(&stub.lock);
    return put_processes(graphics, wide ? 32 : sizeof(struct nvml_process_v2), code, count, out);
}

int nvmlDeviceGetComputeRunningProcesses_v3(nvml_device device, unsigned int *count, void *out)
{
    (void)device;
    return processes_v3(false, count, out);
}

int nvmlDeviceGetGraphicsRunningProcesses_v3(nvml_device device, unsigned int *count, void *out)
{
    (void)device;
    return processes_v3(true, count, out);
}

int nvmlDeviceGetFieldValues(nvml_device device, int count, struct nvml_field *fields)
{
    int code = count_call(&stub.n_fields, &stub.field);

    (void)device;
    for (int i = 0; i < count; i++) {
        fields[i].result =
            fields[i].id == NVML_FIELD_RECOVERY_ACTION ? code : NVML_RETURN_NOT_SUPPORTED;
        fields[i].value_type = NVML_FIELD_TYPE_UINT;
        pthread_mutex_lock(&stub.lock);
        fields[i].value.u = stub.recovery;
        pthread_mutex_unlock(&stub.lock);
    }
    return 0;
}

int nvmlEventSetCreate(nvml_events *events)
{
    *events = (nvml_events)(void *)&the_device;
    return 0;
}

int nvmlDeviceRegisterEvents(nvml_device device, unsigned long long types, nvml_events events)
{
    (void)device;
    (void)events;
    if (types != NVML_EVENT_XID)
        return NVML_RETURN_INVALID_ARGUMENT;
    return get(&stub.events_register);
}

/* Until an Xid is set, or the time is over. */
int nvmlEventSetWait_v2(nvml_events events, struct nvml_event *data, unsigned int timeout_ms)
{
    struct timespec end = in_ms(timeout_ms);
    bool over = false;
    int code = 0;

    (void)events;
    lock();
    while (stub.xid == 0 && !over && stub.events_wait == NVML_RETURN_TIMEOUT) {
        struct timespec until = in_ms(ORDERS_POLL_MS), now;

        (void)pthread_cond_timedwait(&stub.changed, &stub.lock, &until);
        clock_gettime(CLOCK_REALTIME, &now);
        over = now.tv_sec > end.tv_sec || (now.tv_sec == end.tv_sec && now.tv_nsec >= end.tv_nsec);
        read_orders();
    }
    if (stub.xid != 0) {
        *data = (struct nvml_event){
            .device = (nvml_device)(void *)&the_device, .type = NVML_EVENT_XID, .data = stub.xid};
        stub.xid = 0;
    } else {
        code = stub.events_wait;
    }
    pthread_mutex_unlock(&stub.lock);
    return code;
}

int nvmlEventSetFree(nvml_events events)
{
    (void)events;
    return 0;
}

#endif
