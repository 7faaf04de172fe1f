/*
 * The table itself: every row can do what it says.
 */
#include "unit.h"

#include "config/arena.h"
#include "config/config.h"
#include "config/options.h"
#include "config/values.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Larger than any object of a scope. */
static union {
    struct config config;
    struct config_device device;
    struct config_service service;
    struct config_tier tier;
} object;

static void test_rows(void **state)
{
    struct arena arena = {NULL};
    struct value_place place = {&arena, "/"};

    (void)state;
    for (size_t i = 0; i < config_option_count; i++) {
        const struct config_option *o = &config_options[i];
        char why[VALUE_WHY_SIZE] = "";

        assert_true(strlen(o->help) > 10 && o->help[strlen(o->help) - 1] == '.');
        assert_ptr_equal(option_find(o->scope, o->key), o);
        assert_int_equal(option_index(o), i);
        assert_true(o->min <= o->max);
        assert_true(o->offset < sizeof(object));
        if (o->fallback && value_parse(&place, o, o->fallback, &object, why) != 0)
            fail_msg("the default of %s: %s %s", o->key, o->fallback, why);
        if (o->type == OPTION_TYPE_WORD || o->type == OPTION_TYPE_WORD_TEXT)
            assert_non_null(o->words);
        /* Nothing is without a default by oversight. */
        if (!o->fallback && !o->shown && o->type != OPTION_TYPE_BLOCK &&
            o->type != OPTION_TYPE_NAMED && o->type != OPTION_TYPE_TEXTS &&
            o->type != OPTION_TYPE_PAIRS && !(o->flags & OPTION_REQUIRED))
            assert_string_equal(o->key, "model");
    }
    arena_free(&arena);
}

static void test_sampling_rows(void **state)
{
    (void)state;
    for (const struct option_sampling *s = option_samplings; s->name; s++) {
        char why[VALUE_WHY_SIZE];

        assert_true(s->min < s->max);
        if (s->fallback && value_check_sampling(s, s->fallback, why) != 0)
            fail_msg("%s: %s %s", s->name, s->fallback, why);
    }
}

static void test_written(void **state)
{
    struct buf text;
    struct buf markdown;

    (void)state;
    buf_init(&text, 1 << 20);
    buf_init(&markdown, 1 << 20);
    assert_int_equal(options_write_text(&text), 0);
    assert_int_equal(options_write_markdown(&markdown), 0);
    for (size_t i = 0; i < config_option_count; i++) {
        char cell[64];

        snprintf(cell, sizeof(cell), "| `%s` |", config_options[i].key);
        assert_true(span_find(buf_span(&markdown), span_from_str(cell)) >= 0);
        assert_true(span_find(buf_span(&text), span_from_str(config_options[i].help)) >= 0);
    }
    buf_free(&text);
    buf_free(&markdown);
    buf_init(&text, 100);
    assert_int_equal(options_write_text(&text), -EMSGSIZE);
    buf_free(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rows),
                                       cmocka_unit_test(test_sampling_rows),
                                       cmocka_unit_test(test_written)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
