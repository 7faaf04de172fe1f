/* A configured device in the words of telemetry. */
#include "tests/unit/unit.h"

#include "config/device_spec.h"

static char name[] = "gpu0", card[] = "big";

static void kinds(void **state)
{
    static const struct {
        int config; /* enum config_device_kind */
        enum device_kind kind;
    } cases[] = {
        {CONFIG_DEVICE_KIND_NVIDIA, DEVICE_KIND_NVIDIA},
        {CONFIG_DEVICE_KIND_AMD, DEVICE_KIND_AMD},
        {CONFIG_DEVICE_KIND_INTEL, DEVICE_KIND_INTEL},
        {CONFIG_DEVICE_KIND_SIM, DEVICE_KIND_SIM},
    };

    (void)state;
    for (size_t i = 0; i < UNIT_COUNT(cases); i++) {
        struct config_device c = {.name = name, .kind = cases[i].config, .index = 3};
        struct device_spec spec = config_device_spec(&c);

        assert_int_equal(spec.kind, cases[i].kind);
        assert_int_equal(spec.index, 3);
        assert_string_equal(spec.name, "gpu0");
    }
}

static void integrated(void **state)
{
    static const struct {
        int config; /* enum config_switch */
        enum device_integrated integrated;
    } cases[] = {
        {CONFIG_SWITCH_ON, DEVICE_INTEGRATED_YES},
        {CONFIG_SWITCH_OFF, DEVICE_INTEGRATED_NO},
        {CONFIG_SWITCH_AUTO, DEVICE_INTEGRATED_AUTO},
    };

    (void)state;
    for (size_t i = 0; i < UNIT_COUNT(cases); i++) {
        struct config_device c = {.name = name, .integrated = cases[i].config};

        assert_int_equal(config_device_spec(&c).integrated, cases[i].integrated);
    }
}

static void a_card_is_called_like_its_device(void **state)
{
    struct config_device c = {.name = name, .kind = CONFIG_DEVICE_KIND_SIM};

    (void)state;
    assert_string_equal(config_device_spec(&c).card, "gpu0");
    c.card = card;
    assert_string_equal(config_device_spec(&c).card, "big");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kinds),
        cmocka_unit_test(integrated),
        cmocka_unit_test(a_card_is_called_like_its_device),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
