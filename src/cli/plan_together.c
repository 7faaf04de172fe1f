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

/* The rest as it is, and this one smaller, so that all fit. */
static void add_hints(const struct plan *p, struct plan_place *place, size_t load)
{
    static const enum plan_hint_kind kinds[] = {PLAN_HINT_CONTEXT, PLAN_HINT_CACHE_TYPE};
    const struct plan_entry *e = &p->entries[place->loads[load]];
    uint64_t room = less(place->room_bytes, place->sum_bytes - place->load_bytes[load]);
    bool host = place->device == NULL;

    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        if (place->hint_count < PLAN_HINTS_MAX &&
            plan_find_hint(p, e, kinds[i], host ? UINT64_MAX : room, host ? room : UINT64_MAX,
                           &place->hints[place->hint_count]))
            place->hint_count++;
    }
}

void plan_put_together(struct plan *p)
{
    for (size_t i = 0; i < p->place_count; i++) {
        struct plan_place *place = &p->places[i];
        uint32_t all;

        if (place->shared && place->device != NULL)
            continue; /* its tiers are in the host's */
        gather(p, place);
        place->room_bytes =
            less(less(place->total_bytes, place->reserve_bytes), place->foreign_bytes);
        if (!place->known || place->load_count == 0 || place->load_count > TOGETHER_LOADS_MAX)
            continue;
        all = (UINT32_C(1) << place->load_count) - 1;
        place->set_count = together_maximal(place->load_bytes, place->load_count, place->room_bytes,
                                            place->sets, PLAN_SETS_MAX);
        place->leave_out =
            together_leave_out(place->load_bytes, place->load_count, all, place->room_bytes);
        for (size_t j = 0; place->leave_out != 0 && j < place->load_count; j++)
            add_hints(p, place, j);
    }
}
