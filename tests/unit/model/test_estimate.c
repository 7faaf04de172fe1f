/*
 * Estimates: weights by place, cache by layer, what settings change, absurd settings, and models of
 * which little is known (field cases F24, F25, F26, F30, F33, F133).
 */
#include "model_fixture.h"

#include "model/gguf_type.h"

#include <inttypes.h>

static void settings(struct estimate_settings *s, uint64_t context, uint32_t slots)
{
    estimate_settings_init(s);
    s->context_tokens = context;
    s->slots = slots;
    s->device_alignment = 64;
}

static void check_upper(const struct estimate *e)
{
    for (int i = 0; i < ESTIMATE_PART_COUNT; i++)
        assert_true(e->device[i].upper_bytes >= e->device[i].bytes &&
                    e->host[i].upper_bytes >= e->host[i].bytes);
    assert_true(e->device_total.upper_bytes >= e->device_total.bytes);
    assert_true(e->host_total.upper_bytes >= e->host_total.bytes);
}

/* A layer of the fixture: 2 norms of 2 KiB, and its f16 matrices. */
enum { LAYER_BYTES = 2 * 2048 + 2 * 512 * (512 + 128 + 128 + 512 + 1024 + 1024 + 1024) };
enum { EMBEDDING_BYTES = 512 * 1000 * 2 };

static void test_placement(void **state)
{
    static const struct {
        bool tied;
        int32_t layers;
        uint64_t device, host;
        uint32_t on_device;
    } cases[] = {
        {false, -1, 4 * LAYER_BYTES + 2048 + EMBEDDING_BYTES, EMBEDDING_BYTES, 5},
        /* Tied embeddings lie on both sides. */
        {true, -1, 4 * LAYER_BYTES + 2048 + EMBEDDING_BYTES, EMBEDDING_BYTES, 5},
        {true, 999, 4 * LAYER_BYTES + 2048 + EMBEDDING_BYTES, EMBEDDING_BYTES, 5},
        /* The output layer is the first that goes to the device. */
        {true, 1, 2048 + EMBEDDING_BYTES, EMBEDDING_BYTES + 4 * LAYER_BYTES, 1},
        {true, 2, LAYER_BYTES + 2048 + EMBEDDING_BYTES, EMBEDDING_BYTES + 3 * LAYER_BYTES, 2},
        {true, 0, 0, EMBEDDING_BYTES + 4 * LAYER_BYTES + 2048, 0},
        {false, 0, 0, 2 * EMBEDDING_BYTES + 4 * LAYER_BYTES + 2048, 0},
    };

    (void)state;
    for (size_t i = 0; i < UNIT_COUNT(cases); i++) {
        struct estimate_settings s;
        struct estimate e;
        struct fixture f;

        fixture_plain(&f, "llama", 4, cases[i].tied);
        fixture_finish(&f);
        settings(&s, 1024, 1);
        s.gpu_layers = cases[i].layers;
        estimate_make(&f.facts, &s, &e);
        if (e.device[ESTIMATE_WEIGHTS].bytes != cases[i].device ||
            e.host[ESTIMATE_WEIGHTS].bytes != cases[i].host ||
            e.device_layers != cases[i].on_device)
            fail_msg("case %zu: %" PRIu64 " and %" PRIu64 ", %u layers", i,
                     e.device[ESTIMATE_WEIGHTS].bytes, e.host[ESTIMATE_WEIGHTS].bytes,
                     e.device_layers);
        assert_int_equal(e.confidence, ESTIMATE_CONFIDENCE_HIGH);
        check_upper(&e);
        fixture_free(&f);
    }
}

static uint64_t cache_bytes(struct fixture *f, const struct estimate_settings *s)
{
    struct estimate e;

    estimate_make(&f->facts, s, &e);
    check_upper(&e);
    return e.device[ESTIMATE_CACHE].bytes + e.host[ESTIMATE_CACHE].bytes;
}

/* Keys and values of 4 layers: 2 heads of 64 each, f16. */
enum { TOKEN_BYTES = 4 * 2 * 128 * 2 };

/* F25: the same number of context tokens, divided by the slots or given to each. */
static void test_slots(void **state)
{
    struct estimate_settings s;
    struct fixture f;

    (void)state;
    fixture_plain(&f, "llama", 4, true);
    fixture_finish(&f);
    settings(&s, 4096, 4);
    s.context_means = ESTIMATE_CONTEXT_PER_SLOT;
    assert_true(cache_bytes(&f, &s) == 4ull * 4096 * TOKEN_BYTES);
    s.context_means = ESTIMATE_CONTEXT_SHARED;
    assert_true(cache_bytes(&f, &s) == 4096ull * TOKEN_BYTES);
    /* Rounded up to 256 tokens, slot by slot. */
    s.context_tokens = 1001;
    assert_true(cache_bytes(&f, &s) == 1024ull * TOKEN_BYTES);
    s.slots = 3;
    assert_true(cache_bytes(&f, &s) == 3 * 512ull * TOKEN_BYTES);
    s.unified = true;
    assert_true(cache_bytes(&f, &s) == 1024ull * TOKEN_BYTES);
    /* Nothing said: what the model was trained for, shared. */
    settings(&s, 0, 4);
    assert_true(cache_bytes(&f, &s) == 4096ull * TOKEN_BYTES);
    fixture_free(&f);
}

static void test_cache_types(void **state)
{
    struct estimate_settings s;
    struct fixture f;

    (void)state;
    fixture_plain(&f, "llama", 4, true);
    fixture_finish(&f);
    settings(&s, 4096, 1);
    s.cache_type_k = GGUF_TYPE_Q8_0;
    /* 34 bytes for 32 numbers. */
    assert_true(cache_bytes(&f, &s) == 4096ull * 4 * (128 / 32 * 34 + 256));
    s.cache_type_v = GGUF_TYPE_Q8_0;
    assert_true(cache_bytes(&f, &s) == 4096ull * 4 * 2 * (128 / 32 * 34));
    /* A type that nobody knows is counted as the widest. */
    s.cache_type_k = s.cache_type_v = 250;
    assert_true(cache_bytes(&f, &s) == 4096ull * 4 * 2 * 512);
    fixture_free(&f);
}

/* F26: window layers keep the window and a batch, rounded up; unknown patterns keep everything. */
static void test_windows(void **state)
{
    static const struct {
        uint64_t context, cells;
    } cases[] = {{1024, 1024}, {4096, 1280}, {32768, 1280}, {131072, 1280}};

    (void)state;
    for (size_t i = 0; i < UNIT_COUNT(cases) * 2; i++) {
        bool known = i < UNIT_COUNT(cases);
        uint64_t context = cases[i % UNIT_COUNT(cases)].context;
        uint64_t cells = known ? cases[i].cells : context;
        struct estimate_settings s;
        struct estimate e;
        struct fixture f;

        fixture_begin(&f, known ? "gemma3" : "granite_swa");
        fixture_number(&f, known ? "gemma3.block_count" : "granite_swa.block_count", 12);
        fixture_number(&f, known ? "gemma3.embedding_length" : "granite_swa.embedding_length", 512);
        fixture_number(
            &f, known ? "gemma3.attention.head_count" : "granite_swa.attention.head_count", 8);
        fixture_number(
            &f, known ? "gemma3.attention.sliding_window" : "granite_swa.attention.sliding_window",
            1024);
        writer_tensor(&f.w, "token_embd.weight", 1, 512, 10, 512 * 20);
        fixture_finish(&f);
        settings(&s, context, 1);
        estimate_make(&f.facts, &s, &e);
        /* 12 layers, 10 of them with a window; 8 heads of 64, keys and values, f16. */
        if (e.device[ESTIMATE_CACHE].bytes != (10 * cells + 2 * context) * 2048)
            fail_msg("context %" PRIu64 ": %" PRIu64, context, e.device[ESTIMATE_CACHE].bytes);
        assert_int_equal(e.confidence == ESTIMATE_CONFIDENCE_LOW, !known);
        fixture_free(&f);
    }
}

static void test_layers_that_differ(void **state)
{
    static const uint32_t kv_heads[] = {2, 0, 1, 4};
    struct estimate_settings s;
    struct fixture f;

    (void)state;
    fixture_begin(&f, "deci");
    fixture_number(&f, "deci.block_count", 4);
    fixture_number(&f, "deci.embedding_length", 512);
    fixture_number(&f, "deci.attention.head_count", 8);
    writer_numbers(&f.w, "deci.attention.head_count_kv", kv_heads, 4);
    fixture_number(&f, "deci.attention.key_length", 96);
    fixture_number(&f, "deci.attention.value_length", 32);
    writer_tensor(&f.w, "token_embd.weight", 1, 512, 10, 512 * 20);
    fixture_finish(&f);
    settings(&s, 1024, 1);
    assert_true(cache_bytes(&f, &s) == 1024ull * 2 * (2 + 0 + 1 + 4) * (96 + 32));
    /* Without flash attention values are as wide as the widest layer's. */
    s.flash_attention = ESTIMATE_SWITCH_OFF;
    assert_true(cache_bytes(&f, &s) == 1024ull * 2 * (7 * 96 + 4 * 4 * 32));
    fixture_free(&f);
}

static void test_experts(void **state)
{
    struct estimate_settings s;
    struct estimate e, kept;
    struct fixture f;

    (void)state;
    fixture_plain(&f, "qwen3moe", 2, false);
    writer_tensor(&f.w, "blk.0.ffn_up_exps.weight", 1, 512, 4096, 512 * 4096 * 2);
    writer_tensor(&f.w, "blk.0.ffn_down_exps.weight", 1, 4096, 512, 512 * 4096 * 2);
    fixture_finish(&f);
    settings(&s, 1024, 1);
    estimate_make(&f.facts, &s, &e);
    /* Its graph was never compared with an engine. */
    assert_int_equal(e.confidence, ESTIMATE_CONFIDENCE_MEDIUM);
    assert_true(e.device[ESTIMATE_COMPUTE].upper_bytes >= 2 * e.device[ESTIMATE_COMPUTE].bytes);
    s.experts_on_host = true;
    estimate_make(&f.facts, &s, &kept);
    assert_true(e.device[ESTIMATE_WEIGHTS].bytes - kept.device[ESTIMATE_WEIGHTS].bytes ==
                2 * 512 * 4096 * 2);
    assert_true(kept.host[ESTIMATE_WEIGHTS].bytes - e.host[ESTIMATE_WEIGHTS].bytes ==
                2 * 512 * 4096 * 2);
    fixture_free(&f);
}

/* F24, and the ends of it: flash attention does without the scores of all cells. */
static void test_compute(void **state)
{
    struct estimate_settings s;
    struct estimate with, without, large, embeddings;
    struct fixture f;

    (void)state;
    fixture_plain(&f, "llama", 4, false);
    fixture_finish(&f);
    settings(&s, 32768, 1);
    estimate_make(&f.facts, &s, &with);
    s.flash_attention = ESTIMATE_SWITCH_AUTO;
    estimate_make(&f.facts, &s, &large);
    assert_true(large.device[ESTIMATE_COMPUTE].bytes == with.device[ESTIMATE_COMPUTE].bytes);
    s.flash_attention = ESTIMATE_SWITCH_OFF;
    estimate_make(&f.facts, &s, &without);
    /* 64 tokens, 32768 cells, 8 heads, f32: and the mask twice as wide. */
    assert_true(without.device[ESTIMATE_COMPUTE].bytes - with.device[ESTIMATE_COMPUTE].bytes >=
                64ull * 32768 * 8 * 4);
    s.flash_attention = ESTIMATE_SWITCH_ON;
    s.batch = 2048;
    s.micro_batch = 512;
    estimate_make(&f.facts, &s, &large);
    assert_true(large.device[ESTIMATE_COMPUTE].bytes > 4 * with.device[ESTIMATE_COMPUTE].bytes);
    /* Logits of one row a slot, unless every token is an output. */
    assert_true(with.host[ESTIMATE_OUTPUT].bytes == 1000 * 4);
    settings(&s, 512, 1);
    estimate_settings_embeddings(&s);
    assert_int_equal(s.micro_batch, 512);
    estimate_make(&f.facts, &s, &embeddings);
    assert_true(embeddings.device[ESTIMATE_COMPUTE].bytes > 512 * 1000 * 4);
    /* A model that predicts tokens makes logits for all of them, even then. */
    f.facts.vocabulary = 100000;
    estimate_make(&f.facts, &s, &embeddings);
    s.embeddings = false;
    estimate_make(&f.facts, &s, &with);
    assert_true(embeddings.device[ESTIMATE_COMPUTE].bytes >= 512ull * 100000 * 4);
    assert_true(with.device[ESTIMATE_COMPUTE].bytes < 512ull * 100000 * 4 / 2);
    fixture_free(&f);
}

static void test_host_only(void **state)
{
    struct estimate_settings s;
    struct estimate e;
    struct fixture f;

    (void)state;
    fixture_plain(&f, "llama", 4, true);
    fixture_finish(&f);
    settings(&s, 1024, 1);
    s.device = false;
    s.device_fixed_bytes = 1000;
    s.host_fixed_bytes = 77;
    s.host_token_bytes = 3;
    estimate_make(&f.facts, &s, &e);
    assert_true(e.device_total.upper_bytes == 0);
    assert_int_equal(e.device_layers, 0);
    assert_true(e.host[ESTIMATE_RUNTIME].bytes == 77 + 3 * 1000);
    assert_true(e.mapped_bytes == f.file.tensor_bytes);
    s.mapped = false;
    estimate_make(&f.facts, &s, &e);
    assert_true(e.mapped_bytes == 0);
    fixture_free(&f);
}

/* Matrices that the CPU reorders lie in memory of their own. */
static void test_repacked(void **state)
{
    struct estimate_settings s;
    struct estimate e;
    struct fixture f;

    (void)state;
    fixture_begin(&f, "llama");
    fixture_number(&f, "llama.block_count", 1);
    fixture_number(&f, "llama.embedding_length", 256);
    fixture_number(&f, "llama.attention.head_count", 4);
    writer_tensor(&f.w, "token_embd.weight", 12, 256, 64, 64 * 144);
    writer_tensor(&f.w, "blk.0.attn_q.weight", 12, 256, 256, 256 * 144);
    writer_tensor(&f.w, "blk.0.attn_k.weight", 12, 256, 12, 12 * 144); /* not a multiple of 8 */
    writer_tensor(&f.w, "blk.0.attn_v.weight", 14, 256, 256, 256 * 210);
    fixture_finish(&f);
    settings(&s, 256, 1);
    s.device = false;
    s.repack = true;
    estimate_make(&f.facts, &s, &e);
    /* The query matrix, and the embeddings once more as output matrix. */
    assert_true(e.repacked_bytes == 256 * 144 + 64 * 144);
    s.repack = false;
    estimate_make(&f.facts, &s, &e);
    assert_true(e.repacked_bytes == 0);
    fixture_free(&f);
}

/* F33: sizes without sense give the largest number, never a small one. */
static void test_absurd(void **state)
{
    static const uint64_t contexts[] = {INT32_MAX, 1ull << 40, 1ull << 62, 1ull << 63, UINT64_MAX};
    uint64_t before = 0;

    (void)state;
    for (size_t i = 0; i < UNIT_COUNT(contexts); i++) {
        struct estimate_settings s;
        struct estimate e;
        struct fixture f;

        fixture_plain(&f, "llama", 4, true);
        fixture_finish(&f);
        settings(&s, contexts[i], UINT32_MAX);
        s.batch = s.micro_batch = UINT32_MAX;
        s.gpu_layers = INT32_MAX;
        estimate_make(&f.facts, &s, &e);
        assert_true(e.device_total.bytes >= before);
        assert_true(e.device_total.bytes >= 4096ull * TOKEN_BYTES);
        before = e.device_total.bytes;
        check_upper(&e);
        fixture_free(&f);
    }
    assert_true(before == UINT64_MAX);
}

/* F133 and the rule behind it: less known is never less memory. */
static void test_unknown(void **state)
{
    struct estimate_settings s;
    struct estimate known, unknown;
    struct fixture f;

    (void)state;
    settings(&s, 4096, 2);
    fixture_plain(&f, "llama", 4, false);
    fixture_finish(&f);
    estimate_make(&f.facts, &s, &known);
    fixture_free(&f);
    fixture_plain(&f, "brandnew", 4, false);
    fixture_finish(&f);
    estimate_make(&f.facts, &s, &unknown);
    assert_int_equal(unknown.confidence, ESTIMATE_CONFIDENCE_LOW);
    assert_non_null(strstr(unknown.reasons[0], "`brandnew` is not known"));
    assert_true(unknown.device_total.bytes >= known.device_total.bytes);
    assert_true(unknown.device_total.upper_bytes > known.device_total.upper_bytes);
    fixture_free(&f);
    /* Tensors of unknown use may lie on either side. */
    fixture_plain(&f, "llama", 4, false);
    writer_tensor(&f.w, "mystery.weight", 1, 512, 1000, 512 * 1000 * 2);
    fixture_finish(&f);
    estimate_make(&f.facts, &s, &unknown);
    assert_int_equal(unknown.confidence, ESTIMATE_CONFIDENCE_LOW);
    assert_true(unknown.device_total.bytes > known.device_total.bytes);
    assert_true(unknown.host_total.upper_bytes > known.host_total.upper_bytes);
    fixture_free(&f);
}

static void test_unreadable(void **state)
{
    struct gguf_file file = {.file_bytes = 5000, .problem = "is cut off"};
    struct model_facts m;
    struct estimate_settings s;
    struct estimate e;

    (void)state;
    model_facts_read(&file, &m);
    settings(&s, 4096, 1);
    estimate_make(&m, &s, &e);
    assert_int_equal(e.confidence, ESTIMATE_CONFIDENCE_LOW);
    assert_non_null(strstr(e.reasons[0], "is cut off"));
    assert_true(e.device_total.bytes == 5000 && e.device_total.upper_bytes == 10000);
    assert_true(e.host_total.upper_bytes == 5000);
}

/* F30: what pictures need is counted before the first one comes. */
static void test_projector_and_draft(void **state)
{
    struct estimate_settings s;
    struct estimate alone, both;
    struct fixture f, p;

    (void)state;
    fixture_plain(&f, "llama", 4, false);
    fixture_finish(&f);
    fixture_begin(&p, "clip");
    writer_tensor(&p.w, "v.blk.0.attn_q.weight", 1, 1024, 1024, 2048 * 1024);
    fixture_finish(&p);
    assert_true(p.facts.projector);
    settings(&s, 4096, 1);
    estimate_make(&f.facts, &s, &alone);
    s.projector = &p.facts;
    s.draft = &f.facts;
    estimate_make(&f.facts, &s, &both);
    assert_true(both.device[ESTIMATE_PROJECTOR].bytes > 2048 * 1024);
    assert_true(both.device[ESTIMATE_PROJECTOR].upper_bytes == 2 * 2048 * 1024);
    assert_true(both.device[ESTIMATE_DRAFT].bytes == alone.device_total.bytes);
    assert_int_equal(both.confidence, ESTIMATE_CONFIDENCE_MEDIUM);
    check_upper(&both);
    fixture_free(&f);
    fixture_free(&p);
}

static void test_state(void **state)
{
    struct estimate_settings s;
    struct estimate e;
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
    settings(&s, 4096, 3);
    estimate_make(&f.facts, &s, &e);
    /* Fixed, whatever the context: numbers of 4 bytes, one state a slot. */
    assert_true(e.device[ESTIMATE_STATE].bytes == 4ull * 3 * 4 * (3 * 1536 + 16 * 1536));
    assert_true(e.device[ESTIMATE_CACHE].bytes == 0);
    fixture_free(&f);
}

/* Layers that use the keys of others keep none; compressed keys keep no values. */
static void test_fewer_caches(void **state)
{
    struct estimate_settings s;
    struct fixture f;

    (void)state;
    fixture_begin(&f, "gemma4");
    fixture_number(&f, "gemma4.block_count", 10);
    fixture_number(&f, "gemma4.embedding_length", 512);
    fixture_number(&f, "gemma4.attention.head_count", 8);
    fixture_number(&f, "gemma4.attention.shared_kv_layers", 4);
    writer_tensor(&f.w, "token_embd.weight", 1, 512, 10, 512 * 20);
    fixture_finish(&f);
    settings(&s, 1024, 1);
    assert_true(cache_bytes(&f, &s) == 6ull * 1024 * 2048);
    fixture_free(&f);

    fixture_begin(&f, "deepseek2");
    fixture_number(&f, "deepseek2.block_count", 2);
    fixture_number(&f, "deepseek2.embedding_length", 512);
    fixture_number(&f, "deepseek2.attention.head_count", 8);
    fixture_number(&f, "deepseek2.attention.head_count_kv", 1);
    fixture_number(&f, "deepseek2.attention.key_length", 576);
    fixture_number(&f, "deepseek2.attention.value_length", 512);
    fixture_number(&f, "deepseek2.attention.key_length_mla", 192);
    fixture_number(&f, "deepseek2.attention.value_length_mla", 128);
    writer_tensor(&f.w, "token_embd.weight", 1, 512, 10, 512 * 20);
    fixture_finish(&f);
    assert_true(cache_bytes(&f, &s) == 2ull * 1024 * 576 * 2);
    fixture_free(&f);
}

/* An encoder makes room for every token's results when a text comes, not when it loads. */
static void test_encoder(void **state)
{
    struct estimate_settings s;
    struct estimate e;
    struct fixture f;

    (void)state;
    fixture_plain(&f, "bert", 2, true);
    fixture_finish(&f);
    settings(&s, 512, 2);
    estimate_settings_embeddings(&s);
    estimate_make(&f.facts, &s, &e);
    assert_true(e.kv_tokens == 0 && e.device[ESTIMATE_CACHE].upper_bytes == 0);
    assert_true(e.host[ESTIMATE_OUTPUT].bytes == 2 * (1000 + 512) * 4);
    assert_true(e.host[ESTIMATE_OUTPUT].upper_bytes == 512 * (1000 + 512) * 4);
    fixture_free(&f);
}

/* Matrices that nobody knows by name: a doubt, and a bound of twice what they may make. */
static void test_unknown_matrices(void **state)
{
    struct estimate_settings s;
    struct estimate known, unknown;
    struct fixture f;

    (void)state;
    settings(&s, 1024, 1);
    fixture_plain(&f, "llama", 2, false);
    fixture_finish(&f);
    estimate_make(&f.facts, &s, &known);
    fixture_free(&f);
    fixture_plain(&f, "llama", 2, false);
    writer_tensor(&f.w, "blk.0.novelty.weight", 1, 512, 8192, 512 * 8192 * 2);
    fixture_finish(&f);
    estimate_make(&f.facts, &s, &unknown);
    assert_int_equal(unknown.confidence, ESTIMATE_CONFIDENCE_LOW);
    assert_true(unknown.device[ESTIMATE_COMPUTE].bytes >=
                known.device[ESTIMATE_COMPUTE].bytes + 64 * (8192 - 3 * 1024) * 4);
    assert_true(unknown.device[ESTIMATE_COMPUTE].upper_bytes >=
                2 * unknown.device[ESTIMATE_COMPUTE].bytes);
    fixture_free(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_placement),
        cmocka_unit_test(test_slots),
        cmocka_unit_test(test_cache_types),
        cmocka_unit_test(test_windows),
        cmocka_unit_test(test_layers_that_differ),
        cmocka_unit_test(test_experts),
        cmocka_unit_test(test_compute),
        cmocka_unit_test(test_host_only),
        cmocka_unit_test(test_repacked),
        cmocka_unit_test(test_absurd),
        cmocka_unit_test(test_unknown),
        cmocka_unit_test(test_unreadable),
        cmocka_unit_test(test_projector_and_draft),
        cmocka_unit_test(test_state),
        cmocka_unit_test(test_fewer_caches),
        cmocka_unit_test(test_encoder),
        cmocka_unit_test(test_unknown_matrices),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
