/*
 * The two pages that supervisors ask: does it live, can it serve.
 */
#include "admin/json.h"
#include "admin/pages.h"

#include <stdio.h>
#include <string.h>

enum { REASON_MAX_BYTES = 1024 };

int admin_write_health(const struct gateway_snapshot *s, struct buf *out)
{
    int r;

    if ((r = buf_append(out, "{", 1)) < 0 || (r = json_add_text(out, "status", "ok")) < 0 ||
        (r = json_add_text(out, "version", s->version)) < 0 ||
        (r = json_add_number(out, "uptime_ms", s->uptime_ms)) < 0)
        return r;
    return buf_append_str(out, "}\n");
}

static int write_reason(struct buf *out, const struct gateway_tier_snapshot *t)
{
    char reason[REASON_MAX_BYTES];
    int r;

    admin_tier_reason(t, reason, sizeof(reason));
    if ((r = json_separate(out)) < 0 || (r = buf_append(out, "{", 1)) < 0 ||
        (r = json_add_text(out, "service", t->service)) < 0 ||
        (r = json_add_text(out, "tier", t->tier)) < 0 ||
        (r = json_add_text(out, "reason", reason)) < 0)
        return r;
    return buf_append(out, "}", 1);
}

int admin_write_ready(const struct gateway_snapshot *s, struct buf *out, int *ret_status)
{
    int r;

    if ((r = buf_append(out, "{", 1)) < 0 ||
        (r = json_add_text(out, "status", admin_overall_state(s))) < 0 ||
        (r = json_add_open(out, "services", '{')) < 0)
        return r;
    for (size_t i = 0; i < s->service_count; i++) {
        const char *name = s->services[i].service;

        if ((r = json_separate(out)) < 0 || (r = json_write_text(out, name)) < 0 ||
            (r = buf_append(out, ":", 1)) < 0 ||
            (r = json_write_text(out, admin_service_state(s, name))) < 0)
            return r;
    }
    if ((r = buf_append(out, "}", 1)) < 0 || (r = json_add_open(out, "reasons", '[')) < 0)
        return r;
    for (size_t i = 0; i < s->tier_count; i++) {
        if (!s->tiers[i].proven && (r = write_reason(out, &s->tiers[i])) < 0)
            return r;
    }
    if ((r = buf_append_str(out, "]}\n")) < 0)
        return r;
    *ret_status = s->ready ? 200 : 503;
    return 0;
}
