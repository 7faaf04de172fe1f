/*
 * Buffers of the simulated device: host memory that is accounted on the card.
 *
 * They say they are not host memory, so that the engine copies in and out as it does with a real
 * device, and never maps the model file into them.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "sim/plugin.h"

struct device_buffer {
    void *base;
    uint64_t id; /* of the block on the card */
};

static void buffer_free(ggml_backend_buffer_t buffer)
{
    struct device_buffer *memory = buffer->context;
    struct sim_card *card = sim_plugin_card();

    /* -ENOENT after a reset: the card took the block back itself. */
    if (card != NULL)
        sim_card_free(card, memory->id);
    free(memory->base);
    free(memory);
}

static void *buffer_base(ggml_backend_buffer_t buffer)
{
    struct device_buffer *memory = buffer->context;

    return memory->base;
}

static void buffer_memset(ggml_backend_buffer_t buffer, struct ggml_tensor *tensor, uint8_t value,
                          size_t offset, size_t size)
{
    (void)buffer;
    memset((char *)tensor->data + offset, value, size);
}

static void buffer_set(ggml_backend_buffer_t buffer, struct ggml_tensor *tensor, const void *data,
                       size_t offset, size_t size)
{
    (void)buffer;
    memcpy((char *)tensor->data + offset, data, size);
}

static void buffer_get(ggml_backend_buffer_t buffer, const struct ggml_tensor *tensor, void *data,
                       size_t offset, size_t size)
{
    (void)buffer;
    memcpy(data, (const char *)tensor->data + offset, size);
}

static bool buffer_copy(ggml_backend_buffer_t buffer, const struct ggml_tensor *src,
                        struct ggml_tensor *dst)
{
    if (src->buffer->buft != buffer->buft && !ggml_backend_buffer_is_host(src->buffer))
        return false;
    memcpy(dst->data, src->data, ggml_nbytes(src));
    return true;
}

static void buffer_clear(ggml_backend_buffer_t buffer, uint8_t value)
{
    struct device_buffer *memory = buffer->context;

    memset(memory->base, value, buffer->size);
}

static const struct ggml_backend_buffer_i buffer_interface = {
    .free_buffer = buffer_free,
    .get_base = buffer_base,
    .memset_tensor = buffer_memset,
    .set_tensor = buffer_set,
    .get_tensor = buffer_get,
    .cpy_tensor = buffer_copy,
    .clear = buffer_clear,
};

static double mib(uint64_t bytes)
{
    return (double)bytes / (1024.0 * 1024.0);
}

static void refusal_log(struct sim_card *card, size_t size, int error)
{
    struct sim_snapshot *snapshot = malloc(sizeof *snapshot);
    const char *reason = error == -ENODEV      ? "the device is lost"
                         : error == -EOVERFLOW ? "larger than a single allocation may be"
                         : error == -ENOSPC    ? "the card's block table is full"
                         : error == -ETIMEDOUT ? "the card is locked by a process that is stopped"
                                               : "out of memory";

    if (snapshot != NULL && sim_card_snapshot(card, snapshot) == 0)
        sim_plugin_log(SIM_DEVICE_NAME " (simulated): allocating %.2f MiB failed: %s "
                                       "(free %.2f MiB, largest block %.2f MiB, total %.2f MiB)",
                       mib(size), reason, mib(snapshot->free_bytes),
                       mib(snapshot->largest_free_bytes), mib(snapshot->settings.capacity_bytes));
    else
        sim_plugin_log(SIM_DEVICE_NAME " (simulated): allocating %.2f MiB failed: %s", mib(size),
                       reason);
    free(snapshot);
}

static ggml_backend_buffer_t type_alloc(ggml_backend_buffer_type_t type, size_t size)
{
    struct sim_card *card = sim_plugin_card();
    struct device_buffer *memory = calloc(1, sizeof *memory);
    size_t padded = (size + SIM_ALIGNMENT - 1) / SIM_ALIGNMENT * SIM_ALIGNMENT;
    int r;

    if (card == NULL || memory == NULL || padded < size)
        goto fail;
    r = sim_card_alloc(card, padded, &memory->id);
    if (r < 0) {
        refusal_log(card, size, r);
        goto fail;
    }
    memory->base = aligned_alloc(SIM_ALIGNMENT, padded);
    if (memory->base == NULL) {
        sim_plugin_log("the host has no %.2f MiB to pretend with", mib(size));
        sim_card_free(card, memory->id);
        goto fail;
    }
    return ggml_backend_buffer_init(type, buffer_interface, memory, size);
fail:
    free(memory);
    return NULL;
}

static const char *type_name(ggml_backend_buffer_type_t type)
{
    (void)type;
    return SIM_DEVICE_NAME;
}

static size_t type_alignment(ggml_backend_buffer_type_t type)
{
    (void)type;
    return SIM_ALIGNMENT;
}

static size_t type_max_size(ggml_backend_buffer_type_t type)
{
    uint64_t limit = sim_card_max_alloc(sim_plugin_view());

    (void)type;
    return limit < SIZE_MAX ? (size_t)limit : SIZE_MAX;
}

ggml_backend_buffer_type_t sim_plugin_buffer_type(void)
{
    static struct ggml_backend_buffer_type type = {
        .iface =
            {
                .get_name = type_name,
                .alloc_buffer = type_alloc,
                .get_alignment = type_alignment,
                .get_max_size = type_max_size,
            },
    };

    type.device = sim_plugin_device();
    return &type;
}
