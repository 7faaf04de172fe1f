/*
 * Facts from headers: layers that differ, windows with and without a pattern, states, and what is
 * doubted when something is missing.
 */
#include "model_fixture.h"

static bool doubts(const struct model_facts *m, const char *text)
{
    for (uint32_t i = 0; i < m->doubt_count; i++) {
        if (strstr(m->doubts[i], text))
            return true;
    }
    return false;
}

static void test_plain(void **state)
{
    struct fixture f;

    (void)state;
    fixture_plain(&f, "llama", 2, false);
    fixture_finish(&f);
    assert_int_equal(f.facts.doubt_count, 0);
    assert_int_equal(f.facts.layers, 2);
    assert_int_equal(f.facts.key_length, 64);
    assert_int_equal(f.facts.layer[1].kv_heads, 2);
    assert_int_equal(f.facts.vocabulary, 1000);
    assert_true(f.facts.has_output && f.facts.has_head && f.facts.causal && f.facts.rms_norm);
    assert_int_equal(f.facts.memory, MODEL_MEMORY_CACHE);
    fixture_free(&f);
}

static void test_per_layer(void **state)
{
    static const uint32_t heads[] = {8, 0, 8};
    static const uint32_t kv_heads[] = {2, 0, 1};
    struct fixture f;

    (void)state;
    fixture_begin(&f, "deci");
    fixture_number(&f, "deci.block_count", 3);
    fixture_number(&f, "deci.embedding_length", 512);
    writer_numbers(&f.w, "deci.attention.head_count", heads, 3);
    writer_numbers(&f.w, "deci.attention.head_count_kv", kv_heads, 3);
    fixture_number(&f, "deci.attention.key_length", 96);
    fixture_number(&f, "deci.attention.value_length", 32);
    writer_tensor(&f.w, "token_embd.weight", 1, 512, 10, 512 * 20);
    fixture_finish(&f);
    assert_int_equal(f.facts.layer[0].kv_heads, 2);
    assert_int_equal(f.facts.layer[1].kv_heads, 0);
    assert_int_equal(f.facts.layer[2].kv_heads, 1);
    assert_int_equal(f.facts.key_length, 96);
    assert_int_equal(f.facts.value_length, 32);
    fixture_free(&f);
}

static void read_windows(struct fixture *f, const char *architecture, uint32_t period,
                         const uint32_t *list)
{
    char key[96];

    fixture_begin(f, architecture);
    snprintf(key, sizeof(key), "%s.block_count", architecture);
    fixture_number(f, key, 12);
    snprintf(key, sizeof(key), "%s.embedding_length", architecture);
    fixture_number(f, key, 512);
    snprintf(key, sizeof(key), "%s.attention.head_count", architecture);
    fixture_number(f, key, 8);
    snprintf(key, sizeof(key), "%s.attention.sliding_window", architecture);
    fixture_number(f, key, 1024);
    snprintf(key, sizeof(key), "%s.attention.sliding_window_pattern", architecture);
    if (list != NULL)
        writer_numbers(&f->w, key, list, 12);
    else if (period > 0)
        fixture_number(f, key, period);
    writer_tensor(&f->w, "token_embd.weight", 1, 512, 10, 512 * 20);
    fixture_finish(f);
}

static unsigned count_windows(const struct model_facts *m)
{
    unsigned n = 0;

    for (uint32_t i = 0; i < m->layers; i++)
        n += m->layer[i].window;
    return n;
}

/* F26: a pattern from the file, from the architecture, or none: then every layer sees all. */
static void test_windows(void **state)
{
    static const uint32_t list[] = {1, 0, 1, 1, 0, 1, 1, 1, 1, 1, 1, 1};
    static const struct {
        const char *architecture;
        uint32_t period;
        const uint32_t *list;
        unsigned windows;
        bool first; /* does layer 0 have one */
        const char *doubt;
    } cases[] = {
        {"gemma3", 6, NULL, 10, true, NULL},
        {"gemma3", 0, NULL, 10, true, NULL},
        {"gemma2", 0, NULL, 6, true, NULL},
        {"smallthinker", 0, NULL, 9, false, NULL},
        {"granite_swa", 0, list, 10, true, NULL},
        {"granite_swa", 0, NULL, 0, false, "without a known pattern"},
        {"llama", 0, NULL, 0, false, NULL}, /* the engine ignores the window there */
        {"nobody", 6, NULL, 0, false, "`nobody` is not known"},
    };

    (void)state;
    for (size_t i = 0; i < UNIT_COUNT(cases); i++) {
        struct fixture f;

        read_windows(&f, cases[i].architecture, cases[i].period, cases[i].list);
        if (count_windows(&f.facts) != cases[i].windows ||
            f.facts.layer[0].window != cases[i].first)
            fail_msg("%s: %u windows", cases[i].architecture, count_windows(&f.facts));
        if (cases[i].doubt ? !doubts(&f.facts, cases[i].doubt) : f.facts.doubt_count > 0)
            fail_msg("%s: %s", cases[i].architecture, f.facts.doubts[0]);
        fixture_free(&f);
    }
}

static void test_shared(void **state)
{
    struct fixture f;

    (void)state;
    fixture_begin(&f, "gemma4");
    fixture_number(&f, "gemma4.block_count", 10);
    fixture_number(&f, "gemma4.embedding_length", 512);
    fixture_number(&f, "gemma4.attention.head_count", 8);
    fixture_number(&f, "gemma4.attention.shared_kv_layers", 4);
    writer_tensor(&f.w, "token_embd.weight", 1, 512, 10, 512 * 20);
    fixture_finish(&f);
    assert_false(f.facts.layer[5].shared);
    assert_true(f.facts.layer[6].shared && f.facts.layer[9].shared);
    fixture_free(&f);
}

static void test_states(void **state)
{
    struct fixture f;

    (void)state;
    fixture_begin(&f, "mamba");
    fixture_number(&f, "mamba.block_count", 4);
    fixture_number(&f, "mamba.embedding_length", 768);
    fixture_number(&f, "mamba.ssm.conv_kernel", 4);
    fixture_number(&f, "mamba.ssm.inner_size", 1536);
    fixture_number(&f, "mamba.ssm.state_size", 16);
    writer_tensor(&f.w, "token_embd.weight", 1, 768, 10, 768 * 20);
    fixture_finish(&f);
    assert_int_equal(f.facts.memory, MODEL_MEMORY_RECURRENT);
    assert_true(f.facts.conv_state == 3 * 1536 && f.facts.scan_state == 16 * 1536);
    assert_int_equal(f.facts.layer[3].kv_heads, 0);
    fixture_free(&f);

    fixture_begin(&f, "qwen3next");
    fixture_number(&f, "qwen3next.block_count", 8);
    fixture_number(&f, "qwen3next.embedding_length", 512);
    fixture_number(&f, "qwen3next.attention.head_count", 8);
    fixture_number(&f, "qwen3next.ssm.inner_size", 64);
    fixture_number(&f, "qwen3next.ssm.state_size", 16);
    writer_tensor(&f.w, "token_embd.weight", 1, 512, 10, 512 * 20);
    fixture_finish(&f);
    assert_true(f.facts.layer[0].recurrent && !f.facts.layer[3].recurrent);
    assert_int_equal(f.facts.layer[0].kv_heads, 0);
    assert_int_equal(f.facts.layer[3].kv_heads, 8);
    fixture_free(&f);
}

/* A doubt for everything that is missing; never a crash. */
static void test_missing(void **state)
{
    struct fixture f;

    (void)state;
    writer_init(&f.w);
    writer_tensor(&f.w, "what.is.this", 200, 64, 1, 256);
    fixture_finish(&f);
    assert_true(doubts(&f.facts, "does not name its architecture"));
    assert_true(doubts(&f.facts, "how many layers"));
    assert_true(doubts(&f.facts, "attention heads"));
    assert_true(doubts(&f.facts, "1 tensors of a type unknown"));
    assert_true(doubts(&f.facts, "1 tensors of unknown use"));
    fixture_free(&f);

    fixture_begin(&f, "llama");
    fixture_number(&f, "llama.block_count", 4000000000u);
    fixture_number(&f, "llama.embedding_length", 4000000000u);
    fixture_number(&f, "llama.attention.head_count", 4000000000u);
    writer_tensor(&f.w, "token_embd.weight", 1, 64, 1, 128);
    fixture_finish(&f);
    assert_int_equal(f.facts.layers, MODEL_LAYERS_MAX);
    assert_true(doubts(&f.facts, "at most 512 are counted"));
    fixture_free(&f);
}

/* Numbers that are not said are taken from the tensors, and never small. */
static void test_numbers_from_tensors(void **state)
{
    struct fixture f;

    (void)state;
    fixture_begin(&f, "other");
    writer_tensor(&f.w, "token_embd.weight", 1, 64, 10, 64 * 10 * 2);
    writer_tensor(&f.w, "blk.0.attn_k.weight", 1, 64, 32, 64 * 32 * 2);
    writer_tensor(&f.w, "blk.4.attn_v.weight", 1, 64, 96, 64 * 96 * 2);
    fixture_finish(&f);
    assert_int_equal(f.facts.layers, 5);
    assert_int_equal(f.facts.embedding, 64);
    assert_int_equal(f.facts.layer[4].kv_heads, 1);
    assert_int_equal(f.facts.key_length, 64);
    assert_int_equal(f.facts.value_length, 96);
    fixture_free(&f);
}

/* What a file calls itself may be printed. */
static void test_unprintable_name(void **state)
{
    struct fixture f;

    (void)state;
    fixture_begin(&f, "\x1b[2J\xff ok");
    writer_tensor(&f.w, "token_embd.weight", 1, 64, 1, 128);
    fixture_finish(&f);
    assert_string_equal(f.facts.architecture, "?[2J??ok");
    assert_true(doubts(&f.facts, "`?[2J??ok` is not known"));
    fixture_free(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain),
        cmocka_unit_test(test_per_layer),
        cmocka_unit_test(test_windows),
        cmocka_unit_test(test_shared),
        cmocka_unit_test(test_states),
        cmocka_unit_test(test_missing),
        cmocka_unit_test(test_unprintable_name),
        cmocka_unit_test(test_numbers_from_tensors),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
