/*
 * First sides, then cuts and copies, then places; each step as ggml does it, because a hole more or
 * less in the allocator's list is a copy of a layer's cache more or less in the buffer.
 */
#include "model/estimate_graph.h"

#include <stddef.h>
#include <string.h>

void graph_init(struct graph *g, bool device, uint64_t offload_rows, uint64_t device_alignment,
                uint64_t host_alignment)
{
    g->item_count = g->step_count = 0;
    g->device = device;
    g->offload_rows = device ? offload_rows : 0;
    g->full = false;
    for (int i = 0; i < GRAPH_SIDE_COUNT; i++) {
        g->space[i].free[0] = (struct graph_free){0, UINT64_MAX / 2};
        g->space[i].free_count = 1;
        g->space[i].peak = 0;
    }
    g->space[GRAPH_SIDE_DEVICE].alignment = device_alignment;
    g->space[GRAPH_SIDE_HOST].alignment = host_alignment;
}

static int add_item(struct graph *g, enum graph_kind kind, uint64_t bytes)
{
    struct graph_item *i;

    if (g->item_count >= GRAPH_ITEMS_MAX) {
        g->full = true;
        return 0;
    }
    i = &g->items[g->item_count];
    *i = (struct graph_item){
        .bytes = bytes, .root = -1, .copy = -1, .kind = (uint8_t)kind, .side = GRAPH_SIDE_NONE};
    for (int s = 0; s < GRAPH_SOURCES_MAX; s++)
        i->source[s] = -1;
    return g->item_count++;
}

static void add_step(struct graph *g, int step)
{
    if (g->step_count >= GRAPH_STEPS_MAX) {
        g->full = true;
        return;
    }
    g->steps[g->step_count++] = (int16_t)step;
}

int graph_input(struct graph *g, uint64_t bytes)
{
    int item = add_item(g, GRAPH_KIND_INPUT, bytes);

    g->items[item].side = GRAPH_SIDE_HOST;
    return item;
}

int graph_weight(struct graph *g, uint64_t bytes, enum graph_side side, bool plain)
{
    int item = add_item(g, GRAPH_KIND_WEIGHT, bytes);

    g->items[item].side = (int8_t)side;
    g->items[item].plain = plain;
    return item;
}

int graph_cache(struct graph *g, uint64_t bytes, enum graph_side side)
{
    int item = add_item(g, GRAPH_KIND_CACHE, bytes);

    g->items[item].side = (int8_t)side;
    return item;
}

int graph_view(struct graph *g, int of, uint64_t bytes)
{
    int item = add_item(g, GRAPH_KIND_VIEW, bytes);
    struct graph_item *i = &g->items[item];

    i->source[0] = (int16_t)of;
    i->root = g->items[of].kind == GRAPH_KIND_VIEW ? g->items[of].root : (int16_t)of;
    return item;
}

int graph_result(struct graph *g, uint64_t bytes, uint64_t rows, unsigned flags, int a, int b,
                 int c, int d)
{
    int item = add_item(g, GRAPH_KIND_RESULT, bytes);
    struct graph_item *i = &g->items[item];
    const int sources[] = {a, b, c, d};
    int count = 0;

    i->rows = rows;
    i->flags = (uint8_t)flags;
    for (size_t s = 0; s < sizeof(sources) / sizeof(sources[0]); s++) {
        if (sources[s] >= 0)
            i->source[count++] = (int16_t)sources[s];
    }
    return item;
}

int graph_store(struct graph *g, int cache, int what, int where)
{
    int item = add_item(g, GRAPH_KIND_STORE, 0);
    struct graph_item *i = &g->items[item];

    i->source[0] = (int16_t)what;
    i->source[1] = (int16_t)where;
    /* Where the cache lies, whatever view of it is meant: it cannot be moved. */
    if (g->items[cache].kind == GRAPH_KIND_VIEW)
        cache = g->items[cache].root;
    i->side = g->items[cache].side;
    return item;
}

/* --- sides --- */

static bool is_operation(const struct graph_item *i)
{
    return i->kind == GRAPH_KIND_RESULT || i->kind == GRAPH_KIND_STORE;
}

/* ggml_backend_sched_backend_id_from_cur: by the first weight, unless the device takes it over. */
static void choose_by_weight(struct graph *g, struct graph_item *i)
{
    if (i->kind != GRAPH_KIND_RESULT || (i->flags & GRAPH_NO_WEIGHT))
        return;
    for (int s = 0; s < GRAPH_SOURCES_MAX && i->source[s] >= 0; s++) {
        const struct graph_item *w = &g->items[i->source[s]];

        if (w->kind != GRAPH_KIND_WEIGHT)
            continue;
        i->side = w->side;
        if (w->side == GRAPH_SIDE_HOST && w->plain && g->offload_rows > 0 &&
            i->rows >= g->offload_rows)
            i->side = GRAPH_SIDE_DEVICE;
        return;
    }
}

/* Passes the side on to neighbours that have none. */
static void expand(struct graph *g, bool down, bool device_only)
{
    int8_t side = GRAPH_SIDE_NONE;

    for (int n = 0; n < g->item_count; n++) {
        struct graph_item *i = &g->items[down ? n : g->item_count - 1 - n];

        if (!is_operation(i))
            continue;
        if (i->side != GRAPH_SIDE_NONE)
            side = device_only && i->side == GRAPH_SIDE_HOST ? (int8_t)GRAPH_SIDE_NONE : i->side;
        else if (side != GRAPH_SIDE_NONE)
            i->side = side;
    }
}

static void choose_sides(struct graph *g)
{
    for (int n = 0; n < g->item_count; n++)
        choose_by_weight(g, &g->items[n]);
    expand(g, true, true);
    expand(g, false, true);
    expand(g, true, false);
    expand(g, false, false);
    for (int n = 0; n < g->item_count; n++) {
        struct graph_item *i = &g->items[n];

        if (i->kind == GRAPH_KIND_VIEW)
            i->side = g->items[i->root].side;
        if (i->side == GRAPH_SIDE_NONE)
            i->side = GRAPH_SIDE_HOST;
    }
}

/* --- cuts and copies --- */

struct cut {
    int first; /* operation that begins the split */
    bool has_inputs;
};

static bool brings_weight(const struct graph *g, const struct graph_item *i)
{
    for (int s = 0; s < GRAPH_SOURCES_MAX && i->source[s] >= 0; s++) {
        const struct graph_item *w = &g->items[i->source[s]];

        if (w->kind == GRAPH_KIND_WEIGHT && w->side != i->side)
            return true;
    }
    return false;
}

/* Copies of the sources of an operation that lie on the other side; steps for the new ones. */
static void copy_sources(struct graph *g, int item, bool *ret_inputs)
{
    for (int s = 0; s < GRAPH_SOURCES_MAX && g->items[item].source[s] >= 0; s++) {
        int source = g->items[item].source[s];

        if (g->items[source].side == g->items[item].side)
            continue;
        if (g->items[source].copy < 0) {
            int copy = add_item(g, GRAPH_KIND_COPY, g->items[source].bytes);

            if (g->full)
                return;
            g->items[copy].side = g->items[item].side;
            g->items[source].copy = (int16_t)copy;
            add_step(g, -1 - source);
            add_step(g, copy);
            *ret_inputs = true;
        }
        g->items[item].source[s] = g->items[source].copy;
    }
}

/*
 * The steps in the order of the split graph. Copies come at the beginning of their split, so a split
 * is first searched for its end: where the side changes, or where a weight has to be brought over
 * while the split already has inputs.
 */
static void cut(struct graph *g, int count)
{
    int start = 0;

    while (start < count && !g->full) {
        int8_t side = GRAPH_SIDE_NONE;
        bool inputs = false;
        int end = start;

        for (; end < count; end++) {
            struct graph_item *i = &g->items[end];

            if (!is_operation(i))
                continue;
            if (side == GRAPH_SIDE_NONE)
                side = i->side;
            if (i->side != side || (inputs && brings_weight(g, i)))
                break;
            copy_sources(g, end, &inputs);
        }
        for (int n = start; n < end; n++) {
            if (is_operation(&g->items[n]) || g->items[n].kind == GRAPH_KIND_VIEW)
                add_step(g, n);
        }
        start = end;
    }
}

/* --- places --- */

static uint64_t pad(uint64_t n, uint64_t to)
{
    return (n + to - 1) / to * to;
}

static void drop_free(struct graph_space *s, uint32_t at)
{
    for (uint32_t i = at; i + 1 < s->free_count; i++)
        s->free[i] = s->free[i + 1];
    s->free_count--;
}

static uint64_t place(struct graph_space *s, uint64_t bytes)
{
    uint32_t best = s->free_count - 1;
    uint64_t best_bytes = UINT64_MAX;
    uint64_t offset;

    bytes = pad(bytes, s->alignment);
    for (uint32_t i = 0; i + 1 < s->free_count; i++) {
        if (s->free[i].bytes >= bytes && s->free[i].bytes <= best_bytes) {
            best = i;
            best_bytes = s->free[i].bytes;
        }
    }
    offset = s->free[best].offset;
    s->free[best].offset += bytes;
    s->free[best].bytes -= bytes;
    if (s->free[best].bytes == 0)
        drop_free(s, best);
    if (offset + bytes > s->peak)
        s->peak = offset + bytes;
    return offset;
}

static void give_back(struct graph *g, struct graph_space *s, uint64_t offset, uint64_t bytes)
{
    uint32_t i;

    bytes = pad(bytes, s->alignment);
    if (bytes == 0)
        return;
    for (i = 0; i < s->free_count && s->free[i].offset + s->free[i].bytes < offset; i++)
        ;
    if (i < s->free_count && s->free[i].offset + s->free[i].bytes == offset) {
        s->free[i].bytes += bytes;
        if (i + 1 < s->free_count &&
            s->free[i].offset + s->free[i].bytes == s->free[i + 1].offset) {
            s->free[i].bytes += s->free[i + 1].bytes;
            drop_free(s, i + 1);
        }
        return;
    }
    if (i < s->free_count && offset + bytes == s->free[i].offset) {
        s->free[i].offset = offset;
        s->free[i].bytes += bytes;
        return;
    }
    if (s->free_count >= GRAPH_FREE_MAX) {
        g->full = true;
        return;
    }
    for (uint32_t k = s->free_count; k > i; k--)
        s->free[k] = s->free[k - 1];
    s->free[i] = (struct graph_free){offset, bytes};
    s->free_count++;
}

static bool has_place(const struct graph_item *i)
{
    return i->allocated || i->kind == GRAPH_KIND_WEIGHT || i->kind == GRAPH_KIND_CACHE ||
           i->kind == GRAPH_KIND_VIEW || i->kind == GRAPH_KIND_STORE;
}

/*
 * Takes over the place of a source that nobody else will read. Never that of a view: the allocator
 * does not count a view as its own (ggml_gallocr_is_own), so what is behind one is not reused.
 */
static bool reuse_source(struct graph *g, struct graph_item *i)
{
    for (int s = 0; s < GRAPH_SOURCES_MAX && i->source[s] >= 0; s++) {
        struct graph_item *source = &g->items[i->source[s]];

        if (source->children != 1 || source->views != 0 || source->bytes != i->bytes)
            continue;
        if (!source->allocated || (source->flags & GRAPH_OUTPUT))
            continue;
        i->side = source->side;
        i->offset = source->offset;
        source->allocated = false;
        i->allocated = true;
        return true;
    }
    return false;
}

static void find_place(struct graph *g, struct graph_item *i)
{
    if (has_place(i))
        return;
    if ((i->flags & GRAPH_IN_PLACE) && reuse_source(g, i))
        return;
    i->offset = place(&g->space[i->side], i->bytes);
    i->allocated = true;
}

static void release(struct graph *g, struct graph_item *i)
{
    if (!i->allocated || (i->flags & GRAPH_OUTPUT))
        return;
    give_back(g, &g->space[i->side], i->offset, i->bytes);
    i->allocated = false;
}

static void leave_source(struct graph *g, struct graph_item *source)
{
    source->children--;
    if (source->children != 0 || source->views != 0)
        return;
    if (source->kind == GRAPH_KIND_VIEW) {
        struct graph_item *root = &g->items[source->root];

        root->views--;
        if (root->views == 0 && root->children == 0)
            release(g, root);
    } else {
        release(g, source);
    }
}

static void count_users(struct graph *g)
{
    for (int n = 0; n < g->step_count; n++) {
        const struct graph_item *i;

        if (g->steps[n] < 0) {
            g->items[-1 - g->steps[n]].children++;
            continue;
        }
        i = &g->items[g->steps[n]];
        if (i->kind == GRAPH_KIND_VIEW)
            g->items[i->root].views++;
        for (int s = 0; s < GRAPH_SOURCES_MAX && i->source[s] >= 0; s++)
            g->items[i->source[s]].children++;
    }
}

static void run(struct graph *g)
{
    for (int n = 0; n < g->item_count; n++) {
        if (g->items[n].kind == GRAPH_KIND_INPUT)
            find_place(g, &g->items[n]);
    }
    count_users(g);
    for (int n = 0; n < g->step_count && !g->full; n++) {
        struct graph_item *i;

        if (g->steps[n] < 0) {
            leave_source(g, &g->items[-1 - g->steps[n]]);
            continue;
        }
        i = &g->items[g->steps[n]];
        find_place(g, i);
        for (int s = 0; s < GRAPH_SOURCES_MAX && i->source[s] >= 0; s++)
            leave_source(g, &g->items[i->source[s]]);
    }
}

bool graph_measure(struct graph *g, uint64_t *ret_device_bytes, uint64_t *ret_host_bytes)
{
    if (g->full)
        return false;
    choose_sides(g);
    cut(g, g->item_count);
    if (!g->full)
        run(g);
    if (g->full)
        return false;
    *ret_device_bytes = g->space[GRAPH_SIDE_DEVICE].peak;
    *ret_host_bytes = g->space[GRAPH_SIDE_HOST].peak;
    return true;
}
