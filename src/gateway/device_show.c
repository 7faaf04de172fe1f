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

static void fill_pool(const struct gateway_device *d, const struct gateway_device *pool,
                      struct gateway_claim_snapshot *claims, struct gateway_device_snapshot *out)
{
    uint64_t now_ms = uv_now(d->gateway->loop);
    struct ledger_view v = ledger_view(&pool->ledger, now_ms);
    *out = (struct gateway_device_snapshot){
        .name = d->name,
        .trust = ledger_trust_name(v.trust),
        .pressure = pressure_level_name(pool->pressure.level),
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
        .integrated = d->shared,
        .claims = claims,
        .claim_count = fill_claims(pool, claims),
    };
}

void devices_fill(struct gateway *g, struct gateway_device_snapshot *ret_devices,
                  struct gateway_claim_snapshot *ret_claims)
{
    LIST_FOR_EACH(node, &g->devices)
    {
        struct gateway_device *d = LIST_ENTRY(node, struct gateway_device, node);
        fill_pool(d, device_pool(d), ret_claims, ret_devices);
        ret_devices->kind = config_device_kind_name(d->kind);
        ret_claims += ret_devices->claim_count;
        ret_devices++;
    }
}

void devices_fill_host(struct gateway *g, struct gateway_device_snapshot *ret_host,
                       struct gateway_claim_snapshot *ret_claims)
{
    fill_pool(&g->host.pool, &g->host.pool, ret_claims, ret_host);
    ret_host->kind = "host";
    ret_host->stall_pct = g->host.stall_pct;
    if (g->host.stalled)
        ret_host->pressure = pressure_level_name(PRESSURE_LEVEL_CRITICAL);
}
