/* The recent peak of foreign memory: held, let down, monotone. */
#include "tests/unit/policy/random.h"
#include "tests/unit/unit.h"

#include "policy/foreign.h"

static void holds_a_peak_then_lets_it_down(void **state)
{
    (void)state;
    struct foreign f;
    foreign_init(&f, 10000);
    assert_int_equal(foreign_held_bytes(&f, 0), 0);
    foreign_note(&f, 1000000, 5000);
    foreign_note(&f, 0, 5500);
    for (uint64_t now = 5500; now <= 15000; now += 100)
        assert_int_equal(foreign_held_bytes(&f, now), 1000000);
    uint64_t last = 1000000;
    for (uint64_t now = 15000; now <= 27000; now += 100) {
        uint64_t held = foreign_held_bytes(&f, now);
        assert_true(held <= last);
        /* A straight line: a step of 100 ms is a hundredth. */
        assert_true(last - held <= 1000000 / 50);
        last = held;
    }
    assert_int_equal(last, 0);
}

static void rises_at_once_and_never_shows_less_than_is_there(void **state)
{
    (void)state;
    uint64_t seed = 1;
    struct foreign f;
    foreign_init(&f, 10000);
    for (uint64_t now = 0; now < 200000; now += random_below(&seed, 3000)) {
        uint64_t bytes = random_below(&seed, UINT64_C(1) << 46);
        foreign_note(&f, bytes, now);
        assert_true(foreign_held_bytes(&f, now) >= bytes);
        assert_true(foreign_held_bytes(&f, now + 100000) >= bytes);
    }
}

/* More at any moment: never less held, then or later. */
static void is_monotone(void **state)
{
    (void)state;
    for (uint64_t walk = 1; walk < 200; walk++) {
        uint64_t seed = walk;
        struct foreign less;
        struct foreign more;
        foreign_init(&less, 10000);
        foreign_init(&more, 10000);
        for (uint64_t now = 0; now < 60000; now += 1 + random_below(&seed, 900)) {
            uint64_t bytes = random_below(&seed, 1 << random_below(&seed, 30));
            uint64_t extra = random_below(&seed, 3) ? 0 : random_below(&seed, 1 << 20);
            foreign_note(&less, bytes, now);
            foreign_note(&more, bytes + extra, now);
            uint64_t then = now + random_below(&seed, 25000);
            assert_true(foreign_held_bytes(&more, now) >= foreign_held_bytes(&less, now));
            assert_true(foreign_held_bytes(&more, then) >= foreign_held_bytes(&less, then));
        }
    }
}

static void without_a_hold_only_the_last_figure_counts(void **state)
{
    (void)state;
    struct foreign f;
    foreign_init(&f, 0);
    foreign_note(&f, 500, 10);
    foreign_note(&f, 20, 11);
    assert_int_equal(foreign_held_bytes(&f, 13), 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(holds_a_peak_then_lets_it_down),
        cmocka_unit_test(rises_at_once_and_never_shows_less_than_is_there),
        cmocka_unit_test(is_monotone),
        cmocka_unit_test(without_a_hold_only_the_last_figure_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
