/* See device_spec.h. */
#include "config/device_spec.h"

#include <stdio.h>

static enum device_kind kind_of(int config_kind)
{
    switch (config_kind) {
    case CONFIG_DEVICE_KIND_AMD: return DEVICE_KIND_AMD;
    case CONFIG_DEVICE_KIND_INTEL: return DEVICE_KIND_INTEL;
    case CONFIG_DEVICE_KIND_SIM: return DEVICE_KIND_SIM;
    default: return DEVICE_KIND_NVIDIA;
    }
}

struct device_spec config_device_spec(const struct config_device *c)
{
    struct device_spec spec = {
        .kind = kind_of(c->kind),
        .index = c->index,
        .integrated = c->integrated == CONFIG_SWITCH_ON    ? DEVICE_INTEGRATED_YES
                      : c->integrated == CONFIG_SWITCH_OFF ? DEVICE_INTEGRATED_NO
                                                           : DEVICE_INTEGRATED_AUTO,
    };

    snprintf(spec.name, sizeof(spec.name), "%s", c->name);
    snprintf(spec.card, sizeof(spec.card), "%s", c->card != NULL ? c->card : c->name);
    return spec;
}
