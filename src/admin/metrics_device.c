/* The part of the metrics page that is about devices: their ledgers and their pressure. */
#include "admin/metrics_internal.h"

#include <inttypes.h>
#include <string.h>

struct device_family {
    const char *name;
    const char *help;
    int64_t (*get)(const struct gateway_device_snapshot *d);
};

#define DEVICE_GETTER(field)                                                                       \
    static int64_t device_##field(const struct gateway_device_snapshot *d)                         \
    {                                                                                              \
        return (int64_t)d->field;                                                                  \
    }

DEVICE_GETTER(total_bytes)
DEVICE_GETTER(reserve_bytes)
DEVICE_GETTER(foreign_bytes)
DEVICE_GETTER(settled_bytes)
DEVICE_GETTER(unsettled_bytes)
DEVICE_GETTER(releasing_bytes)
DEVICE_GETTER(headroom_bytes)

static int64_t device_pressure(const struct gateway_device_snapshot *d)
{
    static const char *const levels[] = {"normal", "elevated", "high", "critical"};
    for (int i = 0; i < 4; i++)
        if (strcmp(d->pressure, levels[i]) == 0)
            return i;
    return -1;
}

static int64_t device_trusted(const struct gateway_device_snapshot *d)
{
    return strcmp(d->trust, "fresh") == 0;
}

static const struct device_family families[] = {
    {"failsoft_device_total_bytes", "Memory of the device.", device_total_bytes},
    {"failsoft_device_reserve_bytes", "Never planned with.", device_reserve_bytes},
    {"failsoft_device_foreign_bytes", "Held by others, at its recent peak.", device_foreign_bytes},
    {"failsoft_device_settled_bytes", "Held by workers, measured.", device_settled_bytes},
    {"failsoft_device_unsettled_bytes", "Claimed by workers that load.", device_unsettled_bytes},
    {"failsoft_device_releasing_bytes", "Of ended workers, not seen back.", device_releasing_bytes},
    {"failsoft_device_headroom_bytes", "Left for new claims; negative: overcommitted.",
     device_headroom_bytes},
    {"failsoft_device_pressure", "0 normal, 1 elevated, 2 high, 3 critical.", device_pressure},
    {"failsoft_device_figures_trusted", "1 while telemetry is fresh and possible.", device_trusted},
};

int metrics_write_devices(const struct gateway_snapshot *s, struct buf *out)
{
    int r = 0;
    for (size_t i = 0; s->device_count > 0 && i < sizeof(families) / sizeof(families[0]); i++) {
        const struct device_family *f = &families[i];
        r = buf_printf(out, "# HELP %s %s\n# TYPE %s gauge\n", f->name, f->help, f->name);
        for (size_t k = 0; r == 0 && k < s->device_count; k++)
            if ((r = buf_printf(out, "%s{device=\"", f->name)) == 0 &&
                (r = metrics_append_label(out, s->devices[k].name)) == 0)
                r = buf_printf(out, "\"} %" PRId64 "\n", f->get(&s->devices[k]));
        if (r < 0)
            return r;
    }
    return r;
}
