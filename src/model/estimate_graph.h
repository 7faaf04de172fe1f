/*
 * How large do the buffers of a computation get? ggml assigns every operation to the device or the
 * host, cuts the graph where the side changes, copies over what is needed on the other side, and
 * gives each result a place that is free by then. The size follows from the order of things, holes
 * included, and no simple formula hits it; so this does the same on a graph of sizes alone
 * (ggml_backend_sched_split_graph in ggml-backend.cpp, ggml_gallocr in ggml-alloc.c of llama.cpp
 * v0.4.0). Pure; no allocation: the graph has a fixed size, and one that does not fit is said to be
 * full.
 */
#ifndef FAILSOFT_MODEL_ESTIMATE_GRAPH_H
#define FAILSOFT_MODEL_ESTIMATE_GRAPH_H

#include <stdbool.h>
#include <stdint.h>

enum {
    GRAPH_ITEMS_MAX = 2560,
    GRAPH_STEPS_MAX = 4096,
    GRAPH_SOURCES_MAX = 5,
    GRAPH_FREE_MAX = 256, /* MAX_FREE_BLOCKS */
};

enum graph_side {
    GRAPH_SIDE_NONE = -1,
    GRAPH_SIDE_DEVICE = 0,
    GRAPH_SIDE_HOST = 1,
    GRAPH_SIDE_COUNT = 2,
};

enum graph_kind {
    GRAPH_KIND_INPUT = 0, /* filled in by the engine, on the host */
    GRAPH_KIND_WEIGHT,
    GRAPH_KIND_CACHE,
    GRAPH_KIND_VIEW, /* another look at an item */
    GRAPH_KIND_RESULT,
    GRAPH_KIND_STORE, /* writes into the cache */
    GRAPH_KIND_COPY,
};

/* What an operation does to the choice of a side and a place. */
enum {
    GRAPH_IN_PLACE = 1,  /* may be written over its first fitting source */
    GRAPH_NO_WEIGHT = 2, /* its weights do not choose the side (rope, attention) */
    GRAPH_OUTPUT = 4,    /* kept to the end */
};

struct graph_item {
    uint64_t bytes;
    uint64_t offset;
    uint64_t rows; /* of work, for the choice whether the device takes it over */
    int16_t source[GRAPH_SOURCES_MAX];
    int16_t root; /* VIEW: of what */
    int16_t copy; /* of this on the other side */
    int16_t children, views;
    uint8_t kind;
    uint8_t flags;
    int8_t side;
    bool plain; /* WEIGHT on the host in the file's own order: the device can take a copy */
    bool allocated;
};

struct graph_free {
    uint64_t offset, bytes;
};

struct graph_space {
    struct graph_free free[GRAPH_FREE_MAX];
    uint32_t free_count;
    uint64_t alignment;
    uint64_t peak;
};

struct graph {
    struct graph_item items[GRAPH_ITEMS_MAX];
    int16_t steps[GRAPH_STEPS_MAX]; /* items in order; negative: -1 - item, kept until here */
    int32_t item_count, step_count;
    struct graph_space space[GRAPH_SIDE_COUNT];
    uint64_t offload_rows; /* 0: the device takes nothing over */
    bool device;           /* there is one */
    bool full;             /* something did not fit: the result is worth nothing */
};

void graph_init(struct graph *g, bool device, uint64_t offload_rows, uint64_t device_alignment,
                uint64_t host_alignment);

/* Each returns the item; -1 as a source means none. Operations are added in the order of execution. */
int graph_input(struct graph *g, uint64_t bytes);
int graph_weight(struct graph *g, uint64_t bytes, enum graph_side side, bool plain);
int graph_cache(struct graph *g, uint64_t bytes, enum graph_side side);
int graph_view(struct graph *g, int of, uint64_t bytes);
int graph_result(struct graph *g, uint64_t bytes, uint64_t rows, unsigned flags, int a, int b,
                 int c, int d);
int graph_store(struct graph *g, int cache, int what, int where);

/* Sizes of the buffers of both sides. False: the graph was too large. */
bool graph_measure(struct graph *g, uint64_t *ret_device_bytes, uint64_t *ret_host_bytes);

#endif
