/*
 * The plan for people, in 100 columns: every tier with what it takes, whether it fits and what would
 * make it fit; then every place with what can live there together.
 */
#include "cli/plan.h"

#include "base/units.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { COLUMNS = 100, LINE_BYTES = 2048, SIZE_BYTES = 24, HOLDERS_SHOWN = 4, REASON_BYTES = 512 };

/* Not between a number and its unit. */
static bool may_fold(const char *p, size_t at)
{
    return p[at] == ' ' &&
           !(at > 0 && isdigit((unsigned char)p[at - 1]) && isupper((unsigned char)p[at + 1]));
}

/* Folds at spaces; what follows the first line is two columns further in. */
__attribute__((format(printf, 3, 4))) static int say(struct buf *out, int indent,
                                                     const char *format, ...)
{
    char text[LINE_BYTES];
    const char *p = text;
    va_list args;
    int r = 0;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    while (r == 0 && *p != '\0') {
        size_t room = (size_t)(COLUMNS - indent);
        size_t len = strlen(p);

        if (len > room) {
            len = room;
            while (len > 0 && !may_fold(p, len))
                len--;
            len = len > 0 ? len : strcspn(p, " ");
        }
        r = buf_printf(out, "%*s%.*s\n", indent, "", (int)len, p);
        indent += p == text ? 2 : 0;
        p += len;
        p += strspn(p, " ");
    }
    return r;
}

static const char *size_of(uint64_t bytes, char out[SIZE_BYTES])
{
    return units_format_bytes(bytes, out, SIZE_BYTES);
}

/* Appends to a sentence; what does not fit is cut. */
__attribute__((format(printf, 2, 3))) static void add(char text[REASON_BYTES], const char *format,
                                                      ...)
{
    size_t len = strlen(text);
    va_list args;

    va_start(args, format);
    vsnprintf(text + len, REASON_BYTES - len, format, args);
    va_end(args);
}

/* --- what a tier takes --- */

static const char *mib(uint64_t bytes, char out[SIZE_BYTES])
{
    snprintf(out, SIZE_BYTES, "%.1f", (double)bytes / (1024.0 * 1024.0));
    return out;
}

static int write_row(struct buf *out, const char *name, const struct estimate_bytes *device,
                     const struct estimate_bytes *host)
{
    char a[SIZE_BYTES], b[SIZE_BYTES], c[SIZE_BYTES], d[SIZE_BYTES];

    if (device->upper_bytes == 0 && host->upper_bytes == 0)
        return 0;
    return buf_printf(out, "    %-12s %12s %12s %12s %12s\n", name, mib(device->bytes, a),
                      mib(device->upper_bytes, b), mib(host->bytes, c), mib(host->upper_bytes, d));
}

static int write_parts(struct buf *out, const struct plan_entry *e)
{
    const struct estimate *t = &e->estimate->estimate;
    const struct estimate_bytes none = {0, 0};
    const struct estimate_bytes cache = {0, e->source.host_cache_bytes};
    int r = buf_printf(out, "    %-12s %12s %12s %12s %12s\n", "MiB", "device", "at most", "host",
                       "at most");

    for (int i = 0; r == 0 && i < ESTIMATE_PART_COUNT; i++)
        r = write_row(out, estimate_part_name((enum estimate_part)i), &t->device[i], &t->host[i]);
    if (r == 0)
        r = write_row(out, "total", &t->device_total, &t->host_total);
    if (r == 0)
        r = write_row(out, "prompt cache", &none, &cache);
    for (uint32_t i = 0; r == 0 && i < t->reason_count; i++)
        r = say(out, 4, "note: %s", t->reasons[i]);
    return r;
}

static int write_sizes(struct buf *out, const struct plan_entry *e)
{
    const struct estimate *t = &e->estimate->estimate;
    char device[SIZE_BYTES], host[SIZE_BYTES], token[SIZE_BYTES];
    int r;

    if (e->estimate->declared)
        return say(out, 2, "%s on the device, %s on the host, as declared",
                   size_of(t->device_total.upper_bytes, device),
                   size_of(t->host_total.upper_bytes, host));
    r = say(out, 2,
            "%s on the device, %s on the host; %u of %u layers on the device; confidence %s",
            size_of(t->device_total.bytes, device), size_of(t->host_total.bytes, host),
            t->device_layers, t->layers, estimate_confidence_name(t->confidence));
    if (r == 0 && t->kv_tokens > 0)
        r = say(out, 2, "cache for %" PRIu64 " tokens (%" PRIu64 " a slot); one more takes %s",
                t->kv_tokens, t->slot_tokens,
                size_of(e->estimate->device_bytes_per_token + e->estimate->host_bytes_per_token,
                        token));
    if (r == 0 && e->learned_count > 0)
        r = say(out, 2, "learned: %s of %u %s; reckoned with: %s",
                size_of(e->learned_bytes, device), e->learned_count,
                e->learned_count == 1 ? "load" : "loads", size_of(e->device_bytes, host));
    return r;
}

/* --- does it fit --- */

static void add_hint(const struct plan *p, const struct plan_hint *h, bool name_it,
                     char text[REASON_BYTES])
{
    const struct plan_entry *e = &p->entries[h->entry];
    char size[SIZE_BYTES];

    if (name_it)
        add(text, "%s/%s: ", e->service->name, e->tier->name);
    switch (h->kind) {
    case PLAN_HINT_CONTEXT: add(text, "context up to %" PRIu64, h->value); break;
    case PLAN_HINT_SLOTS: add(text, "slots up to %" PRIu64, h->value); break;
    case PLAN_HINT_GPU_LAYERS: add(text, "gpu_layers up to %" PRIu64, h->value); break;
    case PLAN_HINT_CACHE_TYPE: add(text, "cache type q8_0"); break;
    case PLAN_HINT_RESERVE:
        add(text, "only the reserve of %s prevents it", size_of(h->value, size));
        return;
    }
    size_of(h->device_bytes > 0 ? h->device_bytes : h->host_bytes, size);
    add(text, " (%s)", size);
}

static int write_hints(struct buf *out, const struct plan *p, const struct plan_entry *e)
{
    char text[REASON_BYTES] = "";
    bool reserve = false;
    int r = 0;

    for (size_t i = 0; i < e->hint_count; i++) {
        if (e->hints[i].kind == PLAN_HINT_RESERVE) {
            reserve = true;
            continue;
        }
        add(text, "%s", text[0] != '\0' ? "; or " : "");
        add_hint(p, &e->hints[i], false, text);
    }
    if (text[0] != '\0')
        r = say(out, 4, "would fit: %s", text);
    else if (!reserve)
        r = say(out, 4, "no change of context, slots, gpu_layers or cache type alone makes it fit");
    if (r == 0 && reserve) {
        text[0] = '\0';
        add_hint(p, &e->hints[e->hint_count - 1], false, text);
        r = say(out, 4, "%s", text);
    }
    return r;
}

static int write_holders(struct buf *out, const struct plan_place *place)
{
    char text[REASON_BYTES] = "";
    char size[SIZE_BYTES];

    for (size_t i = 0; i < place->holder_count && i < HOLDERS_SHOWN; i++) {
        const struct plan_holder *h = &place->holders[i];

        add(text, "%s%s %s", i > 0 ? ", " : "", h->name, size_of(h->bytes, size));
        if (h->pid > 0)
            add(text, " (pid %d)", h->pid);
    }
    if (place->holder_count > HOLDERS_SHOWN)
        add(text, ", …");
    return text[0] != '\0' ? say(out, 4, "held there: %s", text) : 0;
}

static int write_misfit(struct buf *out, const struct plan *p, const struct plan_entry *e)
{
    const struct plan_place *place = e->short_of;
    char need[SIZE_BYTES], missing[SIZE_BYTES], total[SIZE_BYTES], reserve[SIZE_BYTES],
        foreign[SIZE_BYTES], own[SIZE_BYTES];
    int r;

    if (e->unfit && e->short_bytes == 0)
        return say(out, 2, "does not fit on %s: loading it failed though there was memory enough",
                   place->name);
    r = say(out, 2, "does not fit now: %s missing of %s on %s", size_of(e->short_bytes, missing),
            size_of(place->device != NULL ? e->device_bytes : e->host_bytes, need), place->name);
    if (r == 0)
        r = say(out, 4, "of %s there: reserve %s, others hold %s, failsoft %s",
                size_of(place->total_bytes, total), size_of(place->reserve_bytes, reserve),
                size_of(place->foreign_bytes, foreign), size_of(place->claimed_bytes, own));
    if (r == 0)
        r = write_holders(out, place);
    return r < 0 ? r : write_hints(out, p, e);
}

static int write_fit(struct buf *out, const struct plan *p, const struct plan_entry *e)
{
    char device[SIZE_BYTES], host[SIZE_BYTES];

    switch (e->fit) {
    case PLAN_FIT_NOT_ASKED: return 0;
    case PLAN_FIT_NO: return write_misfit(out, p, e);
    case PLAN_FIT_UNKNOWN:
        return say(out, 2, "fits: unknown: %s: %s", e->short_of->name, e->short_of->why);
    case PLAN_FIT_YES:
    case PLAN_FIT_LOADED: break;
    }
    size_of(e->device_bytes, device);
    size_of(e->host_bytes, host);
    if (e->device == NULL)
        return say(out, 2, "%s %s on the host",
                   e->fit == PLAN_FIT_YES ? "fits now:" : "loaded:", host);
    return say(out, 2, "%s %s on %s, %s on the host",
               e->fit == PLAN_FIT_YES ? "fits now:" : "loaded:", device, e->device->name, host);
}

static int write_entry(struct buf *out, const struct plan *p, const struct plan_entry *e)
{
    const char *on = e->tier != NULL && e->device != NULL ? e->device->name : NULL;
    int r;

    if (e->service != NULL && e->tier != NULL)
        r = say(out, 0, "%s/%s%s%s", e->service->name, e->tier->name, on != NULL ? " on " : "",
                on != NULL ? on : "");
    else
        r = buf_printf(out, "%s\n", e->path);
    if (r == 0 && e->problem[0] != '\0')
        return say(out, 2, "%s", e->problem);
    if (r == 0)
        r = write_sizes(out, e);
    if (r == 0)
        r = write_fit(out, p, e);
    return r < 0 || e->estimate->declared ? r : write_parts(out, e);
}

/* --- places --- */

static int write_set(struct buf *out, const struct plan *p, const struct plan_place *place,
                     uint32_t set)
{
    char text[REASON_BYTES] = "";
    char size[SIZE_BYTES];

    for (size_t i = 0; i < place->load_count; i++) {
        const struct plan_entry *e = &p->entries[place->loads[i]];

        if (set & (UINT32_C(1) << i))
            add(text, "%s%s/%s %s", text[0] != '\0' ? " + " : "", e->service->name, e->tier->name,
                size_of(place->load_bytes[i], size));
    }
    return say(out, 4, "%s", text[0] != '\0' ? text : "nothing");
}

static int write_conflict(struct buf *out, const struct plan *p, const struct plan_place *place)
{
    char text[REASON_BYTES];
    char sum[SIZE_BYTES], room[SIZE_BYTES];
    int r = say(out, 2, "not all together: %s for %s of room. What can live there together:",
                size_of(place->sum_bytes, sum), size_of(place->room_bytes, room));

    for (size_t i = 0; r == 0 && i < place->set_count && i < PLAN_SETS_MAX; i++)
        r = write_set(out, p, place, place->sets[i]);
    if (r == 0 && place->set_count > PLAN_SETS_MAX)
        r = say(out, 4, "and %zu more sets", place->set_count - PLAN_SETS_MAX);
    if (r == 0)
        r = say(out, 2, "the least to leave out:");
    if (r == 0)
        r = write_set(out, p, place, place->leave_out);
    for (size_t i = 0; r == 0 && i < place->hint_count; i++) {
        text[0] = '\0';
        add_hint(p, &place->hints[i], true, text);
        r = say(out, 2, "all would fit with %s", text);
    }
    if (r == 0 && place->hint_count == 0)
        r = say(out, 2, "no change of one setting of one tier alone makes all of them fit");
    if (r == 0 && place->foreign_bytes > 0)
        r = write_holders(out, place);
    return r;
}

static int write_place(struct buf *out, const struct plan *p, const struct plan_place *place)
{
    char total[SIZE_BYTES], reserve[SIZE_BYTES], foreign[SIZE_BYTES], room[SIZE_BYTES];
    char sum[SIZE_BYTES];
    int r;

    if (place->shared && place->device != NULL)
        return say(out, 0, "%s: its memory is the machine's, see host", place->name);
    if (!place->known)
        return say(out, 0, "%s: unknown: %s", place->name, place->why);
    r = say(out, 0, "%s: %s, of which reserve %s, others %s, for failsoft %s", place->name,
            size_of(place->total_bytes, total), size_of(place->reserve_bytes, reserve),
            size_of(place->foreign_bytes, foreign), size_of(place->room_bytes, room));
    if (r < 0 || place->load_count == 0)
        return r;
    if (place->load_count > TOGETHER_LOADS_MAX)
        return say(out, 2, "%zu tiers, %s in all: too many to look at every set", place->load_count,
                   size_of(place->sum_bytes, sum));
    if (place->leave_out != 0)
        return write_conflict(out, p, place);
    return say(out, 2, "all that is planned there fits together: %s",
               size_of(place->sum_bytes, sum));
}

int plan_write_text(struct buf *out, const struct plan *p)
{
    int r = 0;

    for (size_t i = 0; r == 0 && i < p->count; i++)
        r = write_entry(out, p, &p->entries[i]);
    for (size_t i = 0; r == 0 && i < p->place_count; i++)
        r = write_place(out, p, &p->places[i]);
    if (r == 0 && p->gateway_url[0] != '\0')
        r = say(out, 0, "the gateway at %s is running: these are the figures of its ledger",
                p->gateway_url);
    if (r == 0 && p->gateway_why[0] != '\0')
        r = say(out, 0, "%s", p->gateway_why);
    return r;
}
