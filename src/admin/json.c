/*
 * JSON by hand: the pages are flat and of known shape, and a snapshot is written without a copy.
 */
#include "admin/json.h"

#include "base/units.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

int json_write_text(struct buf *out, const char *text)
{
    int r = buf_append(out, "\"", 1);

    if (r == 0 && text)
        r = buf_append_json(out, span_from_str(text));
    return r < 0 ? r : buf_append(out, "\"", 1);
}

int json_separate(struct buf *out)
{
    char last = out->len > 0 ? out->data[out->len - 1] : '{';

    return last == '{' || last == '[' ? 0 : buf_append(out, ",", 1);
}

static int add_key(struct buf *out, const char *key)
{
    int r = json_separate(out);

    return r < 0 ? r : buf_printf(out, "\"%s\":", key);
}

int json_add_text(struct buf *out, const char *key, const char *text)
{
    int r = add_key(out, key);

    return r < 0 ? r : json_write_text(out, text);
}

int json_add_number(struct buf *out, const char *key, uint64_t value)
{
    int r = add_key(out, key);

    return r < 0 ? r : buf_printf(out, "%" PRIu64, value);
}

int json_add_bool(struct buf *out, const char *key, bool value)
{
    int r = add_key(out, key);

    return r < 0 ? r : buf_append_str(out, value ? "true" : "false");
}

int json_add_open(struct buf *out, const char *key, char open)
{
    int r = add_key(out, key);

    return r < 0 ? r : buf_append(out, &open, 1);
}

const char *admin_service_state(const struct gateway_snapshot *s, const char *service)
{
    bool first = true;
    bool first_proven = false;
    bool any_promising = false;

    for (size_t i = 0; i < s->tier_count; i++) {
        if (strcmp(s->tiers[i].service, service) != 0)
            continue;
        any_promising |= s->tiers[i].promising;
        first_proven |= first && s->tiers[i].proven;
        first = false;
    }
    if (!any_promising)
        return "unavailable";
    return first_proven ? "ready" : "degraded";
}

const char *admin_overall_state(const struct gateway_snapshot *s)
{
    if (!s->ready)
        return "unavailable";
    return s->degraded ? "degraded" : "ready";
}

char *admin_tier_reason(const struct gateway_tier_snapshot *t, char *out, size_t out_size)
{
    const char *reason = t->reason && *t->reason ? t->reason : NULL;
    char retry[24];
    int n;

    if (strcmp(t->availability, "suspended") == 0)
        n = snprintf(out, out_size, "suspended%s%s", reason ? ": " : "", reason ? reason : "");
    else
        n = snprintf(out, out_size, "%s%s%s", t->state, reason ? ": " : "", reason ? reason : "");
    if (t->retry_in_ms > 0 && n >= 0 && (size_t)n < out_size)
        snprintf(out + n, out_size - (size_t)n, " (next try in %s)",
                 units_format_duration_ms(t->retry_in_ms, retry, sizeof(retry)));
    return out;
}
