/*
 * The measured graph on small ones whose buffers can be worked out by hand.
 */
#include "unit.h"

#include "model/estimate_graph.h"

static struct graph g;

static void measure(uint64_t device, uint64_t host)
{
    uint64_t d = 0;
    uint64_t h = 0;

    assert_true(graph_measure(&g, &d, &h));
    if (d != device || h != host)
        fail_msg("device %llu, host %llu; expected %llu, %llu", (unsigned long long)d,
                 (unsigned long long)h, (unsigned long long)device, (unsigned long long)host);
}

/* One side only: two results live at a time, a third takes the place of the first. */
static void test_reuse(void **state)
{
    int x, y, w;

    (void)state;
    graph_init(&g, false, 0, 64, 32);
    x = graph_input(&g, 320);
    w = graph_weight(&g, 1 << 20, GRAPH_SIDE_HOST, true);
    y = graph_result(&g, 640, 1, 0, w, x, -1, -1);
    y = graph_result(&g, 320, 1, 0, w, y, -1, -1);
    (void)graph_result(&g, 320, 1, 0, w, y, -1, -1);
    measure(0, 320 + 640);
}

static void test_in_place(void **state)
{
    int x, y, v;

    (void)state;
    graph_init(&g, false, 0, 64, 32);
    x = graph_input(&g, 320);
    y = graph_result(&g, 320, 1, GRAPH_IN_PLACE, x, -1, -1, -1);
    (void)graph_result(&g, 320, 1, GRAPH_IN_PLACE, y, -1, -1, -1);
    measure(0, 320);
    /* Never what lies behind a view. */
    graph_init(&g, false, 0, 64, 32);
    x = graph_input(&g, 320);
    v = graph_view(&g, x, 320);
    (void)graph_result(&g, 320, 1, GRAPH_IN_PLACE, v, -1, -1, -1);
    measure(0, 640);
    /* Nor what is read once more. */
    graph_init(&g, false, 0, 64, 32);
    x = graph_input(&g, 320);
    y = graph_result(&g, 320, 1, GRAPH_IN_PLACE, x, -1, -1, -1);
    (void)graph_result(&g, 320, 1, 0, x, y, -1, -1);
    measure(0, 960);
    /* Nor an output. */
    graph_init(&g, false, 0, 64, 32);
    x = graph_input(&g, 320);
    y = graph_result(&g, 640, 1, GRAPH_OUTPUT, x, -1, -1, -1);
    (void)graph_result(&g, 640, 1, GRAPH_IN_PLACE, y, -1, -1, -1);
    measure(0, 320 + 640 + 640);
}

/* A weight on the device draws the operation there, and its input is copied. */
static void test_device(void **state)
{
    int x, w;

    (void)state;
    graph_init(&g, true, 32, 64, 32);
    x = graph_input(&g, 100);
    w = graph_weight(&g, 1 << 20, GRAPH_SIDE_DEVICE, false);
    (void)graph_result(&g, 1000, 1, 0, w, x, -1, -1);
    measure(128 + 1024, 128);
}

/* A weight on the host is brought over for large batches only, and never a reordered one. */
static void test_offload(void **state)
{
    static const struct {
        uint64_t rows, offload_rows;
        bool plain;
        uint64_t device, host;
    } cases[] = {
        {32, 32, true, 64 + 4096 + 128, 64},
        {31, 32, true, 0, 64 + 128},
        {32, 32, false, 0, 64 + 128},
        {32, 0, true, 0, 64 + 128},
    };

    (void)state;
    for (size_t i = 0; i < UNIT_COUNT(cases); i++) {
        int x, w;

        graph_init(&g, true, cases[i].offload_rows, 64, 32);
        x = graph_input(&g, 64);
        w = graph_weight(&g, 4096, GRAPH_SIDE_HOST, cases[i].plain);
        (void)graph_result(&g, 128, cases[i].rows, 0, w, x, -1, -1);
        measure(cases[i].device, cases[i].host);
    }
}

/* Two weights that are brought over do not lie on the device at the same time. */
static void test_splits(void **state)
{
    int x, a, b;

    (void)state;
    graph_init(&g, true, 32, 64, 32);
    x = graph_input(&g, 64);
    a = graph_weight(&g, 4096, GRAPH_SIDE_HOST, true);
    b = graph_weight(&g, 4096, GRAPH_SIDE_HOST, true);
    x = graph_result(&g, 64, 32, 0, a, x, -1, -1);
    (void)graph_result(&g, 64, 32, 0, b, x, -1, -1);
    /* Beside the weight: the input's hole takes the second weight's neighbour. */
    measure(4096 + 64 + 64, 64);
}

/* What is stored lies where the cache lies, whatever computes it; attention follows the cache. */
static void test_cache(void **state)
{
    int x, w, k, view, cache;

    (void)state;
    graph_init(&g, true, 0, 64, 32);
    x = graph_input(&g, 64);
    w = graph_weight(&g, 4096, GRAPH_SIDE_DEVICE, false);
    k = graph_result(&g, 256, 8, 0, w, x, -1, -1);
    cache = graph_cache(&g, 8192, GRAPH_SIDE_HOST);
    view = graph_view(&g, cache, 8192);
    (void)graph_store(&g, view, graph_view(&g, k, 256), x);
    measure(64 + 256, 64 + 256);
}

static void test_full(void **state)
{
    uint64_t d = 7, h = 7;
    int x;

    (void)state;
    graph_init(&g, false, 0, 64, 32);
    x = graph_input(&g, 64);
    for (int i = 0; i < GRAPH_ITEMS_MAX; i++)
        x = graph_result(&g, 64, 1, 0, x, -1, -1, -1);
    assert_false(graph_measure(&g, &d, &h));
    assert_true(d == 7 && h == 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reuse),  cmocka_unit_test(test_in_place),
        cmocka_unit_test(test_device), cmocka_unit_test(test_offload),
        cmocka_unit_test(test_splits), cmocka_unit_test(test_cache),
        cmocka_unit_test(test_full),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
