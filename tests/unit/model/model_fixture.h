/*
 * A model made of a header: written, read, its facts.
 */
#ifndef FAILSOFT_TESTS_MODEL_FIXTURE_H
#define FAILSOFT_TESTS_MODEL_FIXTURE_H

#include "gguf_writer.h"

#include "model/estimate.h"

struct fixture {
    struct gguf_writer w;
    struct gguf_header header;
    struct gguf_file file;
    struct model_facts facts;
};

static inline void fixture_begin(struct fixture *f, const char *architecture)
{
    writer_init(&f->w);
    writer_string(&f->w, "general.architecture", architecture);
}

static inline void fixture_number(struct fixture *f, const char *key, uint32_t value)
{
    writer_number(&f->w, key, value);
}

static inline void fixture_finish(struct fixture *f)
{
    writer_finish(&f->w);
    assert_int_equal(memory_header(f->w.data, f->w.len, f->w.len + f->w.data_bytes, &f->header), 0);
    if (!gguf_header_usable(&f->header))
        fail_msg("fixture: %s", f->header.detail);
    f->file = (struct gguf_file){
        .shards = &f->header, .shard_count = 1, .file_bytes = f->header.file_bytes, .usable = true};
    for (size_t i = 0; i < f->header.tensor_count; i++)
        f->file.tensor_bytes += f->header.tensors[i].bytes;
    model_facts_read(&f->file, &f->facts);
}

static inline void fixture_free(struct fixture *f)
{
    gguf_header_free(&f->header);
    writer_free(&f->w);
}

/* Matrices of one layer, f16. */
static inline void fixture_layer(struct fixture *f, unsigned layer, uint64_t embedding,
                                 uint64_t query, uint64_t key, uint64_t feed)
{
    const struct {
        const char *name;
        uint64_t in, out;
    } parts[] = {{"attn_norm", embedding, 1},       {"attn_q", embedding, query},
                 {"attn_k", embedding, key},        {"attn_v", embedding, key},
                 {"attn_output", query, embedding}, {"ffn_norm", embedding, 1},
                 {"ffn_gate", embedding, feed},     {"ffn_up", embedding, feed},
                 {"ffn_down", feed, embedding}};

    for (size_t i = 0; i < UNIT_COUNT(parts); i++) {
        char name[64];
        uint32_t type = parts[i].out == 1 ? 0 : 1;

        snprintf(name, sizeof(name), "blk.%u.%s.weight", layer, parts[i].name);
        writer_tensor(&f->w, name, type, parts[i].in, parts[i].out,
                      parts[i].in * parts[i].out * (type == 0 ? 4 : 2));
    }
}

/* A whole model: `layers` layers of 8 heads of 64, 2 of them with keys. */
static inline void fixture_plain(struct fixture *f, const char *architecture, unsigned layers,
                                 bool tied)
{
    char key[96];
    static const struct {
        const char *name;
        uint32_t value;
    } numbers[] = {{"embedding_length", 512},
                   {"context_length", 4096},
                   {"attention.head_count", 8},
                   {"attention.head_count_kv", 2},
                   {"feed_forward_length", 1024}};

    fixture_begin(f, architecture);
    for (size_t i = 0; i < UNIT_COUNT(numbers); i++) {
        snprintf(key, sizeof(key), "%s.%s", architecture, numbers[i].name);
        fixture_number(f, key, numbers[i].value);
    }
    snprintf(key, sizeof(key), "%s.block_count", architecture);
    fixture_number(f, key, layers);
    writer_tensor(&f->w, "token_embd.weight", 1, 512, 1000, 512 * 1000 * 2);
    for (unsigned i = 0; i < layers; i++)
        fixture_layer(f, i, 512, 512, 128, 1024);
    writer_tensor(&f->w, "output_norm.weight", 0, 512, 1, 2048);
    if (!tied)
        writer_tensor(&f->w, "output.weight", 1, 512, 1000, 512 * 1000 * 2);
}

#endif
