/*
 * Which tiers can live together in one place: all that the configuration puts there, against what is
 * left for failsoft there, whatever of it is loaded now. Where they do not all fit: which sets do, the
 * least to leave out, and the change of one setting with which all of them fit (F45).
 */
#include "cli/plan.h"

static uint64_t bytes_in(const struct plan_entry *e, const struct plan_place *place)
{
    if (e->estimate == NULL)
        return 0;
    return place->device == NULL ? e->host_bytes : e->device == place ? e->device_bytes : 0;
}

static void gather(const struct plan *p, struct plan_place *place)
{
    for (size_t i = 0; i < p->count; i++) {
        uint64_t bytes = bytes_in(&p->entries[i], place);

        if (bytes == 0)
            continue;
        if (place->load_count < TOGETHER_LOADS_MAX) {
            place->loads[place->load_count] = i;
            place->load_bytes[place->load_count] = bytes;
        }
        place->load_count++;
        place->sum_bytes =
            place->sum_bytes <= UINT64_MAX - bytes ? place->sum_bytes + bytes : UINT64_MAX;
    }
}

static uint64_t less(uint64_t bytes, uint64_t by)
{
    return bytes > by ? bytes - by : 0;
}

static uint64_t room_beside(const struct plan_place *place, uint64_t bytes)
{
    return less(place->room_bytes, less(place->sum_bytes, bytes));
}

/* In the other place that it takes memory of, it may take what it takes now, and grow into room. */
static uint64_t allowed(const struct plan_place *place, uint64_t bytes)
{
    uint64_t room;

    if (place == NULL || !place->known || place->shared)
        return UINT64_MAX;
    room = room_beside(place, bytes);
    return room > bytes ? room : bytes;
}

/* The rest as it is, and this one smaller, so that all fit. */
static void add_hints(const struct plan *p, struct plan_place *place, size_t load)
{
    static const enum plan_hint_kind kinds[] = {PLAN_HINT_CONTEXT, PLAN_HINT_SLOTS,
                                                PLAN_HINT_CACHE_TYPE, PLAN_HINT_GPU_LAYERS};
    const struct plan_entry *e = &p->entries[place->loads[load]];
    uint64_t device = allowed(e->device, e->device_bytes);
    uint64_t host = allowed(plan_host(p), e->host_bytes);

    *(place->device == NULL ? &host : &device) = room_beside(place, place->load_bytes[load]);
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        if (place->hint_count < PLAN_HINTS_MAX &&
            plan_find_hint(p, e, kinds[i], device, host, &place->hints[place->hint_count]))
            place->hint_count++;
    }
}

static void find_sets(const struct plan *p, struct plan_place *place)
{
    uint32_t all;

    if (!place->known || place->load_count == 0 || place->load_count > TOGETHER_LOADS_MAX)
        return;
    all = (UINT32_C(1) << place->load_count) - 1;
    place->set_count = together_maximal(place->load_bytes, place->load_count, place->room_bytes,
                                        place->sets, PLAN_SETS_MAX);
    place->leave_out =
        together_leave_out(place->load_bytes, place->load_count, all, place->room_bytes);
    for (size_t i = 0; place->leave_out != 0 && i < place->load_count; i++)
        add_hints(p, place, i);
}

void plan_put_together(struct plan *p)
{
    for (size_t i = 0; i < p->place_count; i++) {
        struct plan_place *place = &p->places[i];

        place->room_bytes =
            less(less(place->total_bytes, place->reserve_bytes), place->foreign_bytes);
        /* The tiers of an integrated device are in the host's. */
        if (place->device == NULL || !place->shared)
            gather(p, place);
    }
    for (size_t i = 0; i < p->place_count; i++)
        find_sets(p, &p->places[i]);
}
