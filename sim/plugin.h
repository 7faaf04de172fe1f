/*
 * The engine plug-in's parts. Private to the plug-in.
 *
 *   plugin.c          registration and the device: names, memory, what it can do
 *   plugin_buffer.c   buffers: host memory, accounted on the card
 *   plugin_compute.c  graphs: through the card, on the CPU backend
 *
 * One engine process has one device, SIM0, on one card. The plug-in attaches to the card when the
 * engine first takes memory or starts computing; before that it only looks.
 */
#ifndef FAILSOFT_SIM_PLUGIN_H
#define FAILSOFT_SIM_PLUGIN_H

#include "ggml-backend-impl.h"

#include "sim/card.h"

#define SIM_DEVICE_NAME "SIM0"
#define SIM_THREADS_ENV "FAILSOFT_SIM_THREADS"
#define SIM_ALIGNMENT   64u

/* One line to the engine's stderr, with the prefix that says who speaks and that it is pretended. */
void sim_plugin_log(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The card as an observer sees it; never NULL once the device is registered. */
struct sim_card *sim_plugin_view(void);
/* The attached card, attaching on first use; NULL (and a line on stderr) when that fails. */
struct sim_card *sim_plugin_card(void);
ggml_backend_dev_t sim_plugin_device(void);

ggml_backend_buffer_type_t sim_plugin_buffer_type(void);
ggml_backend_t sim_plugin_backend_new(void);
/* The engine's own CPU device, which computes for us. NULL when it has none. */
ggml_backend_dev_t sim_plugin_cpu_device(void);

#endif
