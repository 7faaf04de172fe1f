/* Devices for the status pages: the ledger and who holds what. Loop thread only. */
#include "gateway/devices.h"

#include <stdio.h>

size_t devices_count(const struct gateway *g)
{
    size_t n = 0;
    LIST_FOR_EACH(node, &g->devices)
    n++;
    return n;
}

static size_t fill_claims(const struct gateway_device *d, struct gateway_claim_snapshot *out)
{
    size_t n = 0;
    for (uint32_t i = 0; i < GATEWAY_DEVICE_CLAIMS; i++) {
        const struct ledger_claim *c = &d->claims[i];
        if (c->state == LEDGER_STATE_NONE)
            continue;
        out[n++] = (struct gateway_claim_snapshot){
            .label = c->label,
            .state = ledger_state_name(c->state),
            .bytes = c->held_bytes,
            .predicted_bytes = c->predicted_bytes,
        };
    }
    return n;
}

void devices_fill(struct gateway *g, struct gateway_device_snapshot *ret_devices,
                  struct gateway_claim_snapshot *ret_claims)
{
    uint64_t now_ms = uv_now(g->loop);
    LIST_FOR_EACH(node, &g->devices)
    {
        const struct gateway_device *d = LIST_ENTRY(node, struct gateway_device, node);
        struct ledger_view v = ledger_view(&d->ledger, now_ms);
        size_t count = fill_claims(d, ret_claims);
        *ret_devices++ = (struct gateway_device_snapshot){
            .name = d->name,
            .kind = config_device_kind_name(d->kind),
            .trust = ledger_trust_name(v.trust),
            .pressure = pressure_level_name(d->pressure.level),
            .reason = d->why,
            .age_ms = v.age_ms,
            .total_bytes = v.total_bytes,
            .reserve_bytes = v.reserve_bytes,
            .foreign_bytes = v.foreign_bytes,
            .settled_bytes = v.settled_bytes,
            .unsettled_bytes = v.unsettled_bytes,
            .releasing_bytes = v.releasing_bytes,
            .headroom_bytes = v.headroom_bytes,
            .yield_left_ms = d->yield_until_ms > now_ms ? d->yield_until_ms - now_ms : 0,
            .claims = ret_claims,
            .claim_count = count,
        };
        ret_claims += count;
    }
}
