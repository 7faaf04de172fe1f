/*
 * libggml-failsoft-sim.so: the simulated accelerator as a backend of the stock engine.
 *
 * Loaded by GGML_BACKEND_PATH. The engine sees a GPU named SIM0 whose memory is the card named by
 * FAILSOFT_SIM_CARD (default gpu0), shared with every other process that opened it. Interface:
 * ggml-backend-impl.h, GGML_BACKEND_API_VERSION 2; the engine refuses another version in words.
 *
 * No card, or one that is hidden: a line on stderr and no device. An engine told to use it by
 * name (`--device SIM0`) then refuses to start; one that is not falls silently to the CPU, as it
 * does with a real driver that is broken.
 */
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/plugin.h"

/* From this batch on an operation is taken over from the host: CUDA's default. */
#define SIM_OFFLOAD_BATCH 32

static struct ggml_backend_reg plugin_reg;
static struct ggml_backend_device plugin_device;
static struct sim_card *plugin_view;
static struct sim_card *plugin_card;
static pthread_mutex_t plugin_lock = PTHREAD_MUTEX_INITIALIZER;
static char plugin_description[96];

void sim_plugin_log(const char *format, ...)
{
    char line[512];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    fprintf(stderr, "failsoft-sim: %s\n", line);
}

static const char *card_name_wanted(void)
{
    const char *name = getenv(SIM_CARD_ENV);

    return name != NULL && name[0] != '\0' ? name : SIM_CARD_DEFAULT;
}

struct sim_card *sim_plugin_view(void)
{
    return plugin_view;
}

struct sim_card *sim_plugin_card(void)
{
    char why[SIM_WHY_MAX] = "";

    pthread_mutex_lock(&plugin_lock);
    if (plugin_card == NULL &&
        sim_card_open(card_name_wanted(), SIM_ROLE_ENGINE, &plugin_card, why, sizeof why) < 0)
        sim_plugin_log(SIM_DEVICE_NAME " (simulated): %s", why);
    pthread_mutex_unlock(&plugin_lock);
    return plugin_card;
}

/* An orderly exit gives the memory back at once; a killed process leaves that to the card. */
__attribute__((destructor)) static void plugin_leave(void)
{
    if (plugin_card != NULL)
        sim_card_leave(plugin_card);
}

ggml_backend_dev_t sim_plugin_device(void)
{
    return &plugin_device;
}

ggml_backend_dev_t sim_plugin_cpu_device(void)
{
    return ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
}

static const char *device_name(ggml_backend_dev_t dev)
{
    (void)dev;
    return SIM_DEVICE_NAME;
}

static const char *device_description(ggml_backend_dev_t dev)
{
    (void)dev;
    return plugin_description;
}

static void device_memory(ggml_backend_dev_t dev, size_t *free_bytes, size_t *total_bytes)
{
    uint64_t total = 0;
    uint64_t available = 0;
    int r = sim_card_memory(plugin_view, &total, &available);

    (void)dev;
    if (r < 0)
        sim_plugin_log("cannot read the card: %s", strerror(-r));
    *free_bytes = (size_t)available;
    *total_bytes = (size_t)total;
}

static enum ggml_backend_dev_type device_type(ggml_backend_dev_t dev)
{
    (void)dev;
    return GGML_BACKEND_DEVICE_TYPE_GPU;
}

static void device_props(ggml_backend_dev_t dev, struct ggml_backend_dev_props *props)
{
    memset(props, 0, sizeof *props);
    props->name = device_name(dev);
    props->description = device_description(dev);
    props->type = device_type(dev);
    device_memory(dev, &props->memory_free, &props->memory_total);
    /* Weights are read from a mapped file and copied over, as a discrete GPU does. */
    props->caps.mmap_support = true;
}

static ggml_backend_t device_backend_new(ggml_backend_dev_t dev, const char *params)
{
    (void)dev;
    (void)params;
    return sim_plugin_backend_new();
}

static ggml_backend_buffer_type_t device_buffer_type(ggml_backend_dev_t dev)
{
    (void)dev;
    return sim_plugin_buffer_type();
}

/* What the CPU computes we compute: it does the work. */
static bool device_supports_op(ggml_backend_dev_t dev, const struct ggml_tensor *op)
{
    ggml_backend_dev_t cpu = sim_plugin_cpu_device();

    (void)dev;
    return cpu != NULL && ggml_backend_dev_supports_op(cpu, op);
}

static bool device_supports_buft(ggml_backend_dev_t dev, ggml_backend_buffer_type_t type)
{
    return type->device == dev;
}

/* Rows of work in an operation, as ggml-cuda.cu counts them (get_op_batch_size). */
static int64_t op_batch(const struct ggml_tensor *op)
{
    switch (op->op) {
    case GGML_OP_GET_ROWS: return 0;
    case GGML_OP_MUL_MAT: return op->ne[1];
    case GGML_OP_MUL_MAT_ID:
    case GGML_OP_ROPE:
    case GGML_OP_ROPE_BACK: return op->ne[2];
    default: return ggml_nrows(op);
    }
}

/* Large batches of layers that stay on the host are worth copying their weights over for. */
static bool device_offload_op(ggml_backend_dev_t dev, const struct ggml_tensor *op)
{
    (void)dev;
    return op_batch(op) >= SIM_OFFLOAD_BATCH;
}

static const char *reg_name(ggml_backend_reg_t reg)
{
    (void)reg;
    return "FAILSOFT-SIM";
}

static size_t reg_device_count(ggml_backend_reg_t reg)
{
    (void)reg;
    return plugin_view != NULL ? 1 : 0;
}

static ggml_backend_dev_t reg_device(ggml_backend_reg_t reg, size_t index)
{
    (void)reg;
    return index == 0 && plugin_view != NULL ? &plugin_device : NULL;
}

static struct ggml_backend_reg plugin_reg = {
    .api_version = GGML_BACKEND_API_VERSION,
    .iface =
        {
            .get_name = reg_name,
            .get_device_count = reg_device_count,
            .get_device = reg_device,
        },
};

static struct ggml_backend_device plugin_device = {
    .iface =
        {
            .get_name = device_name,
            .get_description = device_description,
            .get_memory = device_memory,
            .get_type = device_type,
            .get_props = device_props,
            .init_backend = device_backend_new,
            .get_buffer_type = device_buffer_type,
            .supports_op = device_supports_op,
            .supports_buft = device_supports_buft,
            .offload_op = device_offload_op,
        },
    .reg = &plugin_reg,
};

static void card_find(void)
{
    struct sim_snapshot *snapshot = malloc(sizeof *snapshot);
    char why[SIM_WHY_MAX] = "";

    if (snapshot == NULL)
        return;
    if (sim_card_open(card_name_wanted(), SIM_ROLE_OBSERVER, &plugin_view, why, sizeof why) < 0) {
        sim_plugin_log("no device: %s", why);
    } else if (sim_card_snapshot(plugin_view, snapshot) < 0 || snapshot->settings.hidden) {
        sim_plugin_log("no device: card %s is %s", card_name_wanted(),
                       snapshot->settings.hidden ? "hidden" : "not readable");
        sim_card_close(plugin_view);
        plugin_view = NULL;
    } else if (snapshot->faults.lost) {
        /* As a real driver does: the device is listed and gives nothing. Said here, because the
         * engine's own words for it are those of an exception. */
        sim_plugin_log("device lost: card %s gives no memory until it is reset",
                       card_name_wanted());
    }
    free(snapshot);
}

GGML_BACKEND_API ggml_backend_reg_t ggml_backend_init(void);

/* Called once, by the engine's registry, before any thread of it runs. */
__attribute__((visibility("default"))) ggml_backend_reg_t ggml_backend_init(void)
{
    if (plugin_view == NULL)
        card_find();
    snprintf(plugin_description, sizeof plugin_description,
             "failsoft simulated accelerator, card %s (computes on the CPU)", card_name_wanted());
    return &plugin_reg;
}
