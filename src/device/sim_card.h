/*
 * The simulated accelerator as a device. The card keeps no thread and no process: each question maps
 * it, looks, and lets go.
 */
#ifndef FAILSOFT_DEVICE_SIM_CARD_H
#define FAILSOFT_DEVICE_SIM_CARD_H

#include <stddef.h>

/*
 * The engine's plug-in when none is configured: $FAILSOFT_SIM_PLUGIN, else libggml-failsoft-sim.so
 * beside this program, in sim/ or lib/failsoft/ of its folder or of one of the two above.
 * 0; -ENOENT; -ENAMETOOLONG.
 */
int sim_plugin_find(char *out, size_t out_size);

#endif
