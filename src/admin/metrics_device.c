/* The part of the metrics page that is about memory, of devices and of the host: ledgers, pressure. */
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

/* After "failsoft_device_" or "failsoft_host_". */
static const struct device_family families[] = {
    {"total_bytes", "Memory there is.", device_total_bytes},
    {"reserve_bytes", "Memory never planned with.", device_reserve_bytes},
    {"foreign_bytes", "Held by others, at its recent peak.", device_foreign_bytes},
    {"settled_bytes", "Held by workers, measured.", device_settled_bytes},
    {"unsettled_bytes", "Claimed by workers that load.", device_unsettled_bytes},
    {"releasing_bytes", "Of ended workers, not seen back.", device_releasing_bytes},
    {"headroom_bytes", "Left for new claims; negative: overcommitted.", device_headroom_bytes},
    {"pressure", "0 normal, 1 elevated, 2 high, 3 critical.", device_pressure},
    {"figures_trusted", "1 while telemetry is fresh and possible.", device_trusted},
};

enum { FAMILY_COUNT = sizeof(families) / sizeof(families[0]) };

static int write_head(struct buf *out, const char *of, const struct device_family *f)
{
    return buf_printf(out, "# HELP failsoft_%s_%s %s\n# TYPE failsoft_%s_%s gauge\n", of, f->name,
                      f->help, of, f->name);
}

static int write_host(const struct gateway_device_snapshot *host, struct buf *out)
{
    int r = 0;
    for (size_t i = 0; r == 0 && host->name && i < FAMILY_COUNT; i++)
        if ((r = write_head(out, "host", &families[i])) == 0)
            r = buf_printf(out, "failsoft_host_%s %" PRId64 "\n", families[i].name,
                           families[i].get(host));
    return r;
}

int metrics_write_devices(const struct gateway_snapshot *s, struct buf *out)
{
    int r = write_host(&s->host, out);
    for (size_t i = 0; r == 0 && s->device_count > 0 && i < FAMILY_COUNT; i++) {
        const struct device_family *f = &families[i];
        r = write_head(out, "device", f);
        for (size_t k = 0; r == 0 && k < s->device_count; k++)
            if ((r = buf_printf(out, "failsoft_device_%s{device=\"", f->name)) == 0 &&
                (r = metrics_append_label(out, s->devices[k].name)) == 0)
                r = buf_printf(out, "\"} %" PRId64 "\n", f->get(&s->devices[k]));
    }
    return r;
}
