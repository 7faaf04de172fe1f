/*
 * Xid events of one device, as NVML hands them out: a GPU may die while nobody asks it anything
 * (ollama/ollama#18144). Runs on a thread of its own, because the wait holds it.
 */
#include "device/kernel_log.h"
#include "device/nvml.h"
#include "device/source.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct nvml_watcher {
    struct nvml nvml;
    nvml_device device;
    nvml_events events;
    char pci[DEVICE_PCI_MAX];
    bool lost; /* said once; then it has to be opened anew */
};

static void watcher_close(void *state)
{
    struct nvml_watcher *w = state;

    if (w == NULL)
        return;
    if (w->events != NULL && w->nvml.events_free != NULL)
        w->nvml.events_free(w->events);
    nvml_unload(&w->nvml);
    free(w);
}

/* Registers for Xid events. nvml_return */
static int register_events(struct nvml_watcher *w, uint32_t index)
{
    struct nvml_pci pci = {.bus_id = ""};
    int code = w->nvml.device_by_index(index, &w->device);

    if (code != NVML_RETURN_SUCCESS)
        return code;
    if (w->nvml.device_pci != NULL && w->nvml.device_pci(w->device, &pci) == NVML_RETURN_SUCCESS) {
        pci.bus_id[sizeof(pci.bus_id) - 1] = '\0';
        (void)kernel_log_pci(span_from_str(pci.bus_id), w->pci);
    }
    code = w->nvml.events_create(&w->events);
    if (code != NVML_RETURN_SUCCESS) {
        w->events = NULL;
        return code;
    }
    return w->nvml.events_register(w->device, NVML_EVENT_XID, w->events);
}

static int watcher_open(const struct device_spec *spec, const struct device_roots *roots,
                        void **ret_state)
{
    struct nvml_watcher *w = calloc(1, sizeof(*w));
    char why[DEVICE_WHY_MAX];
    int code = 0, rc;

    if (w == NULL)
        return -ENOMEM;
    rc = nvml_load(roots->nvml_library, &w->nvml, &code, why);
    if (rc < 0)
        goto fail;
    rc = -ENOTSUP;
    if (w->nvml.events_create == NULL || w->nvml.events_register == NULL ||
        w->nvml.events_wait == NULL)
        goto fail;
    code = register_events(w, spec->index);
    if (code != NVML_RETURN_SUCCESS) {
        rc = code == NVML_RETURN_NOT_SUPPORTED ? -ENOTSUP : -EIO;
        goto fail;
    }
    *ret_state = w;
    return 0;
fail:
    watcher_close(w);
    return rc;
}

/*
 * Xid 154 says that the recovery action changed, and the event not to what. A driver that can not
 * say it now is taken at its worst.
 */
static enum device_fault recovery_fault(struct nvml_watcher *w)
{
    struct nvml_field field = {.id = NVML_FIELD_RECOVERY_ACTION};

    if (w->nvml.fields != NULL && w->nvml.fields(w->device, 1, &field) == NVML_RETURN_SUCCESS &&
        field.result == NVML_RETURN_SUCCESS && field.value_type == NVML_FIELD_TYPE_UINT &&
        field.value.u == DEVICE_RECOVERY_NONE)
        return DEVICE_FAULT_NONE;
    return DEVICE_FAULT_RESET;
}

static int watcher_wait(void *state, unsigned timeout_ms, struct device_event *ret_event)
{
    struct nvml_watcher *w = state;
    struct nvml_event data = {0};
    int code;

    if (w->lost)
        return -ENODEV;
    code = w->nvml.events_wait(w->events, &data, timeout_ms);
    if (code == NVML_RETURN_TIMEOUT)
        return 0;
    memset(ret_event, 0, sizeof(*ret_event));
    memcpy(ret_event->pci, w->pci, sizeof(ret_event->pci));
    if (code == NVML_RETURN_GPU_IS_LOST) {
        w->lost = true;
        ret_event->kind = DEVICE_EVENT_FAULT;
        ret_event->fault = DEVICE_FAULT_LOST;
        snprintf(ret_event->text, sizeof(ret_event->text), "NVML: GPU is lost");
        return 1;
    }
    if (code != NVML_RETURN_SUCCESS)
        return -EIO;
    if (data.type != NVML_EVENT_XID)
        return 0;
    ret_event->kind = DEVICE_EVENT_XID;
    ret_event->code = (uint32_t)data.data;
    ret_event->fault = kernel_log_xid_fault(ret_event->code);
    if (ret_event->code == 154)
        ret_event->fault = recovery_fault(w);
    snprintf(ret_event->text, sizeof(ret_event->text), "NVML: Xid %u", ret_event->code);
    return 1;
}

const struct device_events_ops device_events_nvml = {"nvml", watcher_open, watcher_wait,
                                                     watcher_close};
