/*
 * Headers: what is kept of a good one, and the verdict on each kind of a wrong one (field cases F128,
 * F129, F131, F133).
 */
#include "gguf_writer.h"

#include "alloc_fail.h"

#include <inttypes.h>
#include <time.h>

static void write_small(struct gguf_writer *w)
{
    static const uint32_t heads[] = {4, 0, 4};

    writer_init(w);
    writer_string(w, "general.architecture", "llama");
    writer_number(w, "llama.block_count", 3);
    writer_numbers(w, "llama.attention.head_count_kv", heads, 3);
    writer_tensor(w, "token_embd.weight", 1, 64, 10, 64 * 10 * 2);
    writer_tensor(w, "blk.0.attn_q.weight", 8, 64, 64, 64 * 68);
    writer_tensor(w, "output_norm.weight", 0, 64, 1, 256);
    writer_finish(w);
}

static void read_writer(struct gguf_writer *w, uint64_t file_bytes, struct gguf_header *h)
{
    assert_int_equal(memory_header(w->data, w->len, file_bytes, h), 0);
}

static void check(const struct gguf_header *h, enum gguf_verdict verdict, const char *text)
{
    char said[300];

    gguf_header_describe(h, said, sizeof(said));
    if (h->verdict != verdict || !strstr(said, text))
        fail_msg("verdict %d, `%s`; expected %d, `%s`", (int)h->verdict, said, (int)verdict, text);
}

static void test_good(void **state)
{
    struct gguf_writer w;
    struct gguf_header h = {0};
    const struct gguf_entry *heads;
    int64_t layers = 0;

    (void)state;
    write_small(&w);
    read_writer(&w, w.len + w.data_bytes, &h);
    check(&h, GGUF_OK, "is a GGUF file");
    assert_string_equal(gguf_header_get_text(&h, "general.architecture"), "llama");
    assert_true(gguf_header_get_number(&h, "llama.block_count", &layers));
    assert_int_equal(layers, 3);
    assert_false(gguf_header_get_number(&h, "general.architecture", &layers));
    assert_null(gguf_header_get_text(&h, "llama.block_count"));
    heads = gguf_header_find(&h, "llama.attention.head_count_kv");
    assert_non_null(heads);
    assert_int_equal(heads->count, 3);
    assert_int_equal(h.numbers[heads->at + 1], 0);
    assert_int_equal(h.tensor_count, 3);
    assert_int_equal(h.tensors[1].bytes, 64 * 68);
    assert_int_equal(h.tensors[1].place, TENSOR_PLACE_LAYER);
    assert_true(h.tensors[1].exact && h.tensors[1].matrix);
    assert_false(h.tensors[2].matrix);
    gguf_header_free(&h);
    writer_free(&w);
}

/* F131: each place where a file can be cut, and what may follow it. */
static void test_cut(void **state)
{
    struct gguf_writer w;
    struct gguf_header h;
    uint64_t whole;

    (void)state;
    write_small(&w);
    whole = w.len + w.data_bytes;
    for (uint64_t bytes = 0; bytes < whole; bytes++) {
        h = (struct gguf_header){0};
        assert_int_equal(memory_header(w.data, bytes < w.len ? bytes : w.len, bytes, &h), 0);
        assert_false(gguf_header_usable(&h));
        assert_null(h.tensors);
        gguf_header_free(&h);
    }
    read_writer(&w, w.len + 100, &h);
    check(&h, GGUF_TRUNCATED, "is cut off in its weights: needs ");
    assert_int_equal(h.needed_bytes, whole);
    read_writer(&w, w.len - 130, &h);
    check(&h, GGUF_TRUNCATED, "is cut off in its header: needs ");
    read_writer(&w, whole + 1, &h);
    check(&h, GGUF_TRAILING, "with 1 bytes after its last tensor");
    assert_true(gguf_header_usable(&h));
    gguf_header_free(&h);
    writer_free(&w);
}

static void test_not_gguf(void **state)
{
    static const char html[64] = "<!DOCTYPE html>";
    static const char zeros[64] = {0};
    static const char big[64] = "GGUF\0\0\0\3";
    struct gguf_header h;

    (void)state;
    assert_int_equal(memory_header(html, sizeof(html), 64, &h), 0);
    check(&h, GGUF_NOT_GGUF, "begins with `<!DO`");
    assert_int_equal(memory_header(zeros, sizeof(zeros), 64, &h), 0);
    check(&h, GGUF_NOT_GGUF, "\\x00");
    assert_int_equal(memory_header(big, sizeof(big), 64, &h), 0);
    check(&h, GGUF_NOT_GGUF, "big-endian");
}

/* F128: 32 and 160 bytes that announce more than there is. Nothing is allocated for what they say. */
static void test_huge_lengths(void **state)
{
    struct gguf_writer w;
    struct gguf_header h;

    (void)state;
    writer_init(&w);
    writer_u64(&w, 0xFFFFFFFFFFFFu);
    w.metadata = 1;
    memcpy(w.data + 16, &w.metadata, 8);
    read_writer(&w, 32, &h);
    assert_false(gguf_header_usable(&h));
    assert_true(h.memory_bytes < 1024 * 1024);
    writer_free(&w);

    static const struct {
        uint32_t type, element;
        uint64_t count;
    } values[] = {
        {8, 0, UINT64_MAX}, {8, 0, 1u << 30}, {9, 4, UINT64_MAX / 4 + 2}, {9, 4, 1u << 30},
        {9, 8, UINT64_MAX}, {9, 8, 1u << 28}, {9, 10, UINT64_MAX},        {9, 9, 1},
        {9, 99, 1},         {77, 0, 0},
    };
    for (size_t i = 0; i < UNIT_COUNT(values); i++) {
        writer_init(&w);
        writer_key(&w, "a", values[i].type);
        if (values[i].type == 9)
            writer_u32(&w, values[i].element);
        writer_u64(&w, values[i].count);
        writer_finish(&w);
        read_writer(&w, w.len + 64, &h);
        if (gguf_header_usable(&h) || h.memory_bytes >= 1024 * 1024 || h.read_bytes > 256)
            fail_msg("value %zu: verdict %d, %" PRIu64 " bytes of memory", i, (int)h.verdict,
                     h.memory_bytes);
        writer_free(&w);
    }
}

/* F128, F129: alignments that are none, and those that are larger than the file. */
static void test_alignment(void **state)
{
    static const struct {
        uint32_t alignment;
        enum gguf_verdict verdict;
    } cases[] = {{0, GGUF_DAMAGED},
                 {3, GGUF_DAMAGED},
                 {4, GGUF_DAMAGED},
                 {48, GGUF_DAMAGED},
                 {1u << 30, GGUF_DAMAGED},
                 {1u << 31, GGUF_DAMAGED},
                 {UINT32_MAX, GGUF_DAMAGED},
                 {8, GGUF_OK},
                 {64, GGUF_OK},
                 {1u << 20, GGUF_TRUNCATED}};

    (void)state;
    for (size_t i = 0; i < UNIT_COUNT(cases); i++) {
        struct gguf_writer w;
        struct gguf_header h;

        writer_init(&w);
        writer_number(&w, "general.alignment", cases[i].alignment);
        w.alignment = cases[i].alignment == 64 ? 64 : 8;
        writer_tensor(&w, "a", 0, 64, 1, 256);
        writer_finish(&w);
        read_writer(&w, w.len + w.data_bytes, &h);
        if (h.verdict != cases[i].verdict)
            fail_msg("alignment %u: %d %s", cases[i].alignment, (int)h.verdict, h.detail);
        gguf_header_free(&h);
        writer_free(&w);
    }
}

static void write_shaped(struct gguf_writer *w, uint32_t dimensions, const uint64_t *shape,
                         uint32_t type)
{
    writer_init(w);
    writer_text(w, "a");
    writer_u32(w, dimensions);
    for (uint32_t i = 0; i < dimensions && i < 16; i++)
        writer_u64(w, shape[i]);
    writer_u32(w, type);
    writer_u64(w, 0);
    w->tensors = 1;
    writer_finish(w);
}

/* F129: dimensions that no tensor has, and shapes whose product wraps to something small. */
static void test_shapes(void **state)
{
    static const struct {
        uint32_t dimensions;
        uint64_t shape[16];
        enum gguf_verdict verdict;
        uint32_t type;
    } cases[] = {
        {0, {1}, GGUF_DAMAGED, 0},
        {5, {1, 1, 1, 1, 1}, GGUF_DAMAGED, 0},
        {9, {1, 1, 1, 1, 1, 1, 1, 1, 1}, GGUF_DAMAGED, 0},
        {0xFFFFFFFF, {1}, GGUF_DAMAGED, 0},
        {4, {UINT64_MAX, 2, 1, 1}, GGUF_DAMAGED, 0},
        {4, {1ull << 32, 1ull << 32, 1, 1}, GGUF_DAMAGED, 0},
        {4, {1ull << 31, 1ull << 31, 4, 1}, GGUF_DAMAGED, 0},
        {2, {1ull << 61, 1}, GGUF_TRUNCATED, 0}, /* its bytes are 2^63 */
        {1, {UINT64_MAX}, GGUF_DAMAGED, 0},
        {4, {2, 2, 2, 2}, GGUF_OK, 0},
        /* Sized by what follows, its shape is still none. */
        {1, {UINT64_MAX}, GGUF_DAMAGED, 200},
    };

    (void)state;
    for (size_t i = 0; i < UNIT_COUNT(cases); i++) {
        struct gguf_writer w;
        struct gguf_header h;

        write_shaped(&w, cases[i].dimensions, cases[i].shape, cases[i].type);
        read_writer(&w, w.len + 64, &h);
        if (h.verdict != cases[i].verdict)
            fail_msg("shape %zu: %d %s", i, (int)h.verdict, h.detail);
        gguf_header_free(&h);
        writer_free(&w);
    }
}

/* F133: types that are unknown here are sized by the next tensor, never refused. */
static void test_unknown_types(void **state)
{
    struct gguf_writer w;
    struct gguf_header h;

    (void)state;
    writer_init(&w);
    writer_tensor(&w, "blk.0.ffn_up_exps.weight", 39, 64, 2, 68); /* 17 bytes for 32 numbers */
    writer_tensor(&w, "blk.0.a", 200, 64, 1, 96); /* already aligned: no block is added */
    writer_tensor(&w, "blk.0.b", 139, 64, 1, 40);
    writer_tensor(&w, "blk.0.c", 40, 64, 2, 72);
    writer_tensor(&w, "blk.0.d", 201, 64, 1, 64);
    writer_finish(&w);
    read_writer(&w, w.len + w.data_bytes, &h);
    check(&h, GGUF_OK, "is a GGUF file");
    assert_int_equal(h.tensors[0].bytes, 68);
    assert_true(h.tensors[0].exact);
    assert_int_equal(h.tensors[1].bytes, 96);
    assert_false(h.tensors[1].exact);
    assert_int_equal(h.tensors[2].bytes, 64); /* its padding is counted in */
    assert_int_equal(h.tensors[3].bytes, 72);
    assert_int_equal(h.tensors[4].bytes, 64); /* the last: up to the end of the file */
    assert_false(h.tensors[4].exact);
    gguf_header_free(&h);
    writer_free(&w);
}

static void test_offsets(void **state)
{
    struct gguf_writer w;
    struct gguf_header h;

    (void)state;
    writer_init(&w);
    writer_tensor_at(&w, "a", 0, 64, 1, 0);
    writer_tensor_at(&w, "b", 0, 64, 1, 128);
    writer_finish(&w);
    read_writer(&w, w.len + 1024, &h);
    check(&h, GGUF_DAMAGED, "lie over each other");
    writer_free(&w);
    writer_init(&w);
    writer_tensor_at(&w, "a", 0, 64, 1, 16);
    writer_finish(&w);
    read_writer(&w, w.len + 1024, &h);
    check(&h, GGUF_DAMAGED, "not at a multiple of 32");
    writer_free(&w);
    writer_init(&w);
    writer_tensor_at(&w, "a", 0, 64, 1, UINT64_MAX - 31);
    writer_finish(&w);
    read_writer(&w, w.len + 1024, &h);
    assert_false(gguf_header_usable(&h));
    writer_free(&w);
    /* Not in the order of the file: sizes follow the places, not the list. */
    writer_init(&w);
    writer_tensor_at(&w, "b", 222, 64, 1, 256);
    writer_tensor_at(&w, "a", 0, 64, 1, 0);
    writer_finish(&w);
    read_writer(&w, w.len + 512, &h);
    check(&h, GGUF_OK, "");
    assert_int_equal(h.tensors[1].bytes, 256);
    gguf_header_free(&h);
    writer_free(&w);
}

static void test_caps(void **state)
{
    struct gguf_writer w;
    struct gguf_header h;
    uint64_t many = GGUF_TENSORS_MAX + 1;

    (void)state;
    writer_init(&w);
    w.tensors = many;
    writer_finish(&w);
    read_writer(&w, 1ull << 40, &h);
    check(&h, GGUF_TOO_LARGE, "16385 tensors");
    w.tensors = 1;
    w.metadata = GGUF_METADATA_MAX + 1;
    writer_finish(&w);
    read_writer(&w, 1ull << 40, &h);
    check(&h, GGUF_TOO_LARGE, "65537 metadata entries");
    writer_free(&w);
    /* Holes are zeros, and zeros are texts without a byte: the walk ends at the cap. */
    writer_init(&w);
    writer_key(&w, "tokens", 9);
    writer_u32(&w, 8);
    writer_u64(&w, 1ull << 34);
    w.tensors = 1;
    writer_finish(&w);
    read_writer(&w, 1ull << 40, &h);
    check(&h, GGUF_TOO_LARGE, "a header of more than 64 MiB");
    assert_true(h.read_bytes <= GGUF_HEADER_MAX_BYTES);
    writer_free(&w);
    /* More metadata than is kept: passed over, and said so. */
    writer_init(&w);
    for (unsigned i = 0; i < GGUF_KEPT_ENTRIES_MAX + 5; i++) {
        char key[32];

        snprintf(key, sizeof(key), "key.%u", i);
        writer_number(&w, key, i);
    }
    writer_tensor(&w, "a", 0, 64, 1, 256);
    writer_finish(&w);
    read_writer(&w, w.len + w.data_bytes, &h);
    check(&h, GGUF_OK, "");
    assert_true(h.incomplete);
    assert_int_equal(h.entry_count, GGUF_KEPT_ENTRIES_MAX);
    gguf_header_free(&h);
    writer_free(&w);
}

/* As large as they come: 40 GB of weights, a vocabulary of 256 k tokens, 1200 tensors. */
static void write_large(struct gguf_writer *w)
{
    writer_init(w);
    writer_string(w, "general.architecture", "llama");
    writer_key(w, "tokenizer.ggml.tokens", 9);
    writer_u32(w, 8);
    writer_u64(w, 256 * 1024);
    for (unsigned i = 0; i < 256 * 1024; i++)
        writer_text(w, "token##");
    for (unsigned i = 0; i < 1200; i++) {
        char name[64];

        snprintf(name, sizeof(name), "blk.%u.ffn_up_%u.weight", i / 10, i % 10);
        writer_tensor(w, name, 1, 8192, 2048, 8192ull * 2048 * 2);
    }
    writer_finish(w);
}

static void test_large(void **state)
{
    struct gguf_writer w;
    struct gguf_header h;
    struct memory_source m = {0};
    struct gguf_source source = {memory_read, &m, 0};
    struct timespec before, after;

    (void)state;
    write_large(&w);
    m.data = w.data;
    m.len = w.len;
    source.bytes = w.len + w.data_bytes;
    assert_true(source.bytes > 40ull * 1000 * 1000 * 1000);
    clock_gettime(CLOCK_MONOTONIC, &before);
    assert_int_equal(gguf_header_read(&source, &h), 0);
    clock_gettime(CLOCK_MONOTONIC, &after);
    check(&h, GGUF_OK, "");
    print_message("header of a file of %" PRIu64 " bytes: %" PRIu64 " bytes read, %" PRIu64
                  " bytes of memory, %.1f ms\n",
                  source.bytes, h.read_bytes, h.memory_bytes,
                  (double)(after.tv_sec - before.tv_sec) * 1e3 +
                      (double)(after.tv_nsec - before.tv_nsec) / 1e6);
    assert_true(h.memory_bytes <= 2 * 1024 * 1024);
    assert_true(h.read_bytes <= w.len + GGUF_WINDOW_BYTES && m.asked <= w.len + GGUF_WINDOW_BYTES);
    gguf_header_free(&h);
    writer_free(&w);
}

static void test_fingerprint(void **state)
{
    struct gguf_writer w;
    struct gguf_header a, b;

    (void)state;
    write_small(&w);
    read_writer(&w, w.len + w.data_bytes, &a);
    read_writer(&w, w.len + w.data_bytes, &b);
    assert_true(a.fingerprint == b.fingerprint);
    gguf_header_free(&b);
    w.data[60] ^= 1;
    read_writer(&w, w.len + w.data_bytes, &b);
    assert_true(a.fingerprint != b.fingerprint);
    gguf_header_free(&a);
    gguf_header_free(&b);
    writer_free(&w);
}

static void test_failures(void **state)
{
    struct gguf_writer w;
    struct gguf_header h;

    (void)state;
    write_small(&w);
    for (unsigned n = 1;; n++) {
        int r;

        alloc_fail_arm(n);
        r = memory_header(w.data, w.len, w.len + w.data_bytes, &h);
        if (!alloc_fail_disarm()) {
            assert_int_equal(r, 0);
            gguf_header_free(&h);
            break;
        }
        assert_int_equal(r, -ENOMEM);
    }
    for (unsigned n = 1;; n++) {
        struct memory_source m = {.data = w.data, .len = w.len, .error = -EIO, .error_at = n};
        struct gguf_source source = {memory_read, &m, w.len + w.data_bytes};
        int r = gguf_header_read(&source, &h);

        if (m.reads < n) {
            assert_int_equal(r, 0);
            gguf_header_free(&h);
            break;
        }
        assert_int_equal(r, -EIO);
    }
    gguf_header_free(NULL);
    writer_free(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good),          cmocka_unit_test(test_cut),
        cmocka_unit_test(test_not_gguf),      cmocka_unit_test(test_huge_lengths),
        cmocka_unit_test(test_alignment),     cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_unknown_types), cmocka_unit_test(test_offsets),
        cmocka_unit_test(test_caps),          cmocka_unit_test(test_large),
        cmocka_unit_test(test_fingerprint),   cmocka_unit_test(test_failures),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
