/*
 * Fuzzes the way of a hostile model file: header, facts, estimate. The first byte chooses how the
 * file goes on behind the input (holes) and the settings. Nothing may crash or hang, memory stays
 * below the cap, and what comes out keeps its promises.
 */
#include "model/estimate.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#undef NDEBUG
#include <assert.h>

enum { MEMORY_MAX = 3 * 1024 * 1024 };

struct input {
    const uint8_t *data;
    size_t len;
};

static int read_input(void *ctx, uint64_t offset, void *out, size_t len)
{
    const struct input *in = ctx;

    memset(out, 0, len);
    if (offset < in->len)
        memcpy(out, in->data + offset, in->len - offset < len ? in->len - (size_t)offset : len);
    return 0;
}

static void check_estimate(const struct model_facts *m, uint8_t choice)
{
    static struct estimate e; /* large */
    struct estimate_settings s;

    estimate_settings_init(&s);
    s.context_tokens = (uint64_t)1 << (choice & 63);
    s.slots = choice & 1 ? 4 : 1;
    s.gpu_layers = choice & 2 ? -1 : 3;
    s.flash_attention = choice & 4 ? ESTIMATE_SWITCH_ON : ESTIMATE_SWITCH_OFF;
    s.unified = choice & 8;
    s.repack = choice & 16;
    s.device = !(choice & 32);
    if (choice & 64)
        estimate_settings_embeddings(&s);
    estimate_make(m, &s, &e);
    for (int i = 0; i < ESTIMATE_PART_COUNT; i++) {
        assert(e.device[i].upper_bytes >= e.device[i].bytes);
        assert(e.host[i].upper_bytes >= e.host[i].bytes);
    }
    assert(e.device_total.upper_bytes >= e.device_total.bytes);
    assert(e.confidence != ESTIMATE_CONFIDENCE_HIGH || e.reason_count == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct model_facts facts; /* large */
    struct gguf_header h;
    char said[300];

    if (size < 1)
        return 0;
    struct input in = {data + 1, size - 1};
    /* Behind the input: nothing, or holes for the weights. */
    struct gguf_source source = {read_input, &in, in.len + (data[0] & 128 ? 1u << 20 : 0)};
    int r = gguf_header_read(&source, &h);

    assert(r == 0);
    assert(h.memory_bytes <= MEMORY_MAX && h.read_bytes <= source.bytes);
    gguf_header_describe(&h, said, sizeof(said));
    struct gguf_file file = {.shards = &h, .shard_count = 1, .file_bytes = source.bytes};
    file.usable = gguf_header_usable(&h);
    if (!file.usable)
        assert(h.tensor_count == 0 && h.tensors == NULL && said[0]);
    for (size_t i = 0; i < h.tensor_count; i++) {
        assert(h.tensors[i].offset + h.tensors[i].bytes <= source.bytes);
        file.tensor_bytes += h.tensors[i].bytes;
    }
    model_facts_read(&file, &facts);
    check_estimate(&facts, data[0]);
    gguf_header_free(&h);
    return 0;
}
