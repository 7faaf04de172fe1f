/* KV tokens: what is admitted together can finish together. */
#include "tests/unit/policy/random.h"
#include "tests/unit/unit.h"

#include "policy/kv.h"

#include <errno.h>

enum { CLAIMS = 32 };

struct cache {
    struct kv kv;
    struct kv_claim claims[CLAIMS];
};

static void start(struct cache *c, struct kv_shape shape)
{
    assert_int_equal(kv_init(&c->kv, &shape, c->claims, CLAIMS), 0);
}

static void divided_slots(void **state)
{
    (void)state;
    struct cache c;
    uint64_t ids[4];
    uint64_t more = 9;
    start(&c, (struct kv_shape){.kind = KV_KIND_SLOTS, .tokens = 8192, .slots = 4});
    assert_int_equal(kv_request_max(&c.kv), 2048);
    assert_int_equal(kv_take(&c.kv, 2049, &more), -E2BIG);
    for (unsigned i = 0; i < 4; i++) {
        assert_int_equal(kv_free_tokens(&c.kv), 2048);
        assert_int_equal(kv_take(&c.kv, i == 0 ? 1 : 2048, &ids[i]), 0);
    }
    assert_int_equal(kv_free_tokens(&c.kv), 0);
    assert_int_equal(kv_take(&c.kv, 1, &more), -ENOSPC);
    assert_int_equal(more, 9);
    assert_int_equal(kv_give(&c.kv, ids[2]), 0);
    assert_int_equal(kv_give(&c.kv, ids[2]), -ENOENT);
    assert_int_equal(kv_take(&c.kv, 2048, &more), 0);
    assert_int_equal(kv_give(&c.kv, ids[2]), -ENOENT);
}

static void one_cache_for_all_slots(void **state)
{
    (void)state;
    struct cache c;
    uint64_t id = 0;
    start(&c, (struct kv_shape){.kind = KV_KIND_UNIFIED, .tokens = 8192, .slots = 4});
    assert_int_equal(kv_request_max(&c.kv), 8192);
    assert_int_equal(kv_take(&c.kv, 5000, &id), 0);
    assert_int_equal(kv_free_tokens(&c.kv), 3192);
    /* It fits in the end, but not beside the other one. */
    assert_int_equal(kv_take(&c.kv, 5000, &id), -ENOSPC);
    assert_int_equal(kv_take(&c.kv, 3192, &id), 0);
    assert_int_equal(kv_take(&c.kv, 1, &id), -ENOSPC);
}

static void pages_and_others(void **state)
{
    (void)state;
    struct cache c;
    uint64_t id = 0;
    start(&c, (struct kv_shape){.kind = KV_KIND_PAGED,
                                .tokens = 1600,
                                .page_tokens = 16,
                                .watermark_tokens = 16,
                                .request_tokens = 1000});
    assert_int_equal(kv_request_max(&c.kv), 1000);
    /* 17 tokens are two pages. */
    assert_int_equal(kv_take(&c.kv, 17, &id), 0);
    assert_int_equal(c.kv.taken_tokens, 32);
    kv_observe(&c.kv, 832);
    assert_int_equal(kv_free_tokens(&c.kv), 752);
    assert_int_equal(kv_take(&c.kv, 753, &id), -ENOSPC);
    kv_observe(&c.kv, UINT64_MAX);
    assert_int_equal(kv_free_tokens(&c.kv), 0);
    kv_observe(&c.kv, 0);
    assert_int_equal(kv_free_tokens(&c.kv), 1000);
}

static void refuses_shapes_that_are_none(void **state)
{
    (void)state;
    static const struct kv_shape rows[] = {
        {.kind = KV_KIND_SLOTS, .tokens = 4096},
        {.kind = KV_KIND_SLOTS, .slots = 4},
        {.kind = KV_KIND_SLOTS, .slots = 4, .tokens = 3},
        {.kind = KV_KIND_UNIFIED, .tokens = 4096},
        {.kind = KV_KIND_PAGED, .tokens = 10, .page_tokens = 11},
        {.kind = KV_KIND_PAGED, .tokens = UINT64_MAX},
    };
    struct cache c;
    for (unsigned i = 0; i < UNIT_COUNT(rows); i++)
        assert_int_equal(kv_init(&c.kv, &rows[i], c.claims, CLAIMS), -ERANGE);
}

/* Random requests of every kind: the sum never exceeds the cache, no page is lost. */
static void never_more_than_there_is(void **state)
{
    (void)state;
    for (uint64_t walk = 1; walk < 200; walk++) {
        uint64_t seed = walk;
        struct kv_shape shape = {.kind = (enum kv_kind)random_below(&seed, 3),
                                 .tokens = 64 + random_below(&seed, 10000)};
        shape.slots = shape.kind == KV_KIND_PAGED ? 0 : 1 + (uint32_t)random_below(&seed, 8);
        shape.page_tokens = random_below(&seed, 2) ? 16 : 0;
        struct cache c;
        start(&c, shape);
        uint64_t ids[CLAIMS] = {0};
        uint64_t asked[CLAIMS] = {0};
        for (unsigned step = 0; step < 500; step++) {
            unsigned i = (unsigned)random_below(&seed, CLAIMS);
            if (ids[i]) {
                assert_int_equal(kv_give(&c.kv, ids[i]), 0);
                ids[i] = 0;
            } else {
                asked[i] = random_below(&seed, shape.tokens / 2 + 1);
                uint64_t room = kv_free_tokens(&c.kv);
                int rc = kv_take(&c.kv, asked[i], &ids[i]);
                assert_true(rc == 0 ? asked[i] <= room : asked[i] > room || room == 0);
            }
            uint64_t sum = 0;
            uint32_t count = 0;
            for (unsigned k = 0; k < CLAIMS; k++) {
                sum += ids[k] ? asked[k] : 0;
                count += ids[k] != 0;
            }
            assert_true(sum <= shape.tokens);
            assert_true(shape.slots == 0 || count <= shape.slots);
            assert_int_equal(c.kv.taken_count, count);
        }
        for (unsigned k = 0; k < CLAIMS; k++)
            assert_int_equal(ids[k] ? kv_give(&c.kv, ids[k]) : 0, 0);
        assert_int_equal(c.kv.taken_tokens, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(divided_slots),
        cmocka_unit_test(one_cache_for_all_slots),
        cmocka_unit_test(pages_and_others),
        cmocka_unit_test(refuses_shapes_that_are_none),
        cmocka_unit_test(never_more_than_there_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
