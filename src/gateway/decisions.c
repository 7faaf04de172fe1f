/* The ring of the last decisions. See decisions.h. */
#include "gateway/decisions.h"

#include "gateway/internal.h"

#include <stdio.h>
#include <string.h>

void decisions_note(const struct gateway_request *r, const struct admission_decision *d)
{
    struct decisions *all = &r->gateway->decisions;
    struct decision *kept = &all->kept[all->count++ % DECISIONS_KEPT];
    bool refused = d->action == ADMISSION_ACTION_REFUSE;
    snprintf(kept->id, sizeof(kept->id), "%s", r->id);
    snprintf(kept->service, sizeof(kept->service), "%s", r->service->config->name);
    snprintf(kept->tier, sizeof(kept->tier), "%s",
             refused ? "" : r->service->tiers[d->tier].config->name);
    kept->action = d->action;
    kept->at_ms = uv_now(r->gateway->loop);
    memcpy(kept->reason, d->reason, sizeof(kept->reason));
    r->service->counters->decided[d->action]++;
}

const struct decision *decisions_get(const struct decisions *all, uint64_t back)
{
    if (back >= all->count || back >= DECISIONS_KEPT)
        return NULL;
    return &all->kept[(all->count - 1 - back) % DECISIONS_KEPT];
}
