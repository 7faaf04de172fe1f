/*
 * Reads the facts. A number that is missing where the engine needs one is a doubt, and its place is
 * taken by what costs more.
 */
#include "model/facts.h"

#include "model/architecture.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum {
    NUMBER_MAX = 1 << 24, /* of heads, lengths, widths: beyond is damage */
    INTERVAL_DEFAULT = 4, /* full_attention_interval */
};

/* What the tensors say, for where the metadata is silent. */
struct facts_seen {
    uint32_t layers, width, keys, values; /* keys, values: of a token in one layer, all heads */
};

struct facts_reader {
    const struct gguf_header *h;
    struct model_facts *m;
    struct facts_seen seen;
};

void model_facts_doubt(struct model_facts *m, const char *format, ...)
{
    va_list args;

    if (m->doubt_count >= MODEL_DOUBTS_MAX)
        return;
    va_start(args, format);
    vsnprintf(m->doubts[m->doubt_count], sizeof(m->doubts[0]), format, args);
    va_end(args);
    m->doubt_count++;
}

static const struct gguf_entry *find(const struct facts_reader *r, const char *name)
{
    char key[160];

    snprintf(key, sizeof(key), "%s.%s", r->m->architecture, name);
    return gguf_header_find(r->h, key);
}

static uint32_t clamp(int64_t number)
{
    if (number < 0)
        return 0;
    return number > NUMBER_MAX ? (uint32_t)NUMBER_MAX : (uint32_t)number;
}

/* A name is printed later, and a file may say anything. */
static void keep_name(const char *text, char *out, size_t out_size)
{
    size_t n = 0;

    for (; text != NULL && text[n] != '\0' && n + 1 < out_size; n++)
        out[n] = (char)(text[n] > ' ' && text[n] < 0x7f ? text[n] : '?');
    out[n] = '\0';
}

/* A number, or `otherwise` when it is not there. */
static uint32_t number_or(const struct facts_reader *r, const char *name, uint32_t otherwise)
{
    const struct gguf_entry *e = find(r, name);

    return e != NULL && e->kind == GGUF_ENTRY_NUMBER ? clamp(e->number) : otherwise;
}

/* A number of one layer: the file has one for all, or one each. */
static uint32_t layer_number(const struct facts_reader *r, const struct gguf_entry *e, uint32_t i,
                             uint32_t otherwise)
{
    if (e == NULL)
        return otherwise;
    if (e->kind == GGUF_ENTRY_NUMBER)
        return clamp(e->number);
    if (e->kind == GGUF_ENTRY_NUMBERS && i < e->count)
        return clamp(r->h->numbers[e->at + i]);
    return otherwise;
}

static uint32_t larger(uint32_t a, uint64_t b)
{
    return b > a ? clamp(b > INT64_MAX ? INT64_MAX : (int64_t)b) : a;
}

static void see_tensors(struct facts_reader *r)
{
    struct facts_seen *seen = &r->seen;

    for (size_t s = 0; s < r->m->file->shard_count; s++) {
        const struct gguf_header *h = &r->m->file->shards[s];

        for (size_t i = 0; i < h->tensor_count; i++) {
            const struct gguf_tensor *t = &h->tensors[i];

            if (t->place == TENSOR_PLACE_LAYER)
                seen->layers = larger(seen->layers, (uint64_t)t->layer + 1);
            if (t->part == TENSOR_PART_TOKEN_EMBEDDING)
                seen->width = larger(seen->width, t->shape[0]);
            if (t->part == TENSOR_PART_K && !t->bias)
                seen->keys = larger(seen->keys, t->shape[1]);
            if (t->part == TENSOR_PART_V && !t->bias)
                seen->values = larger(seen->values, t->shape[1]);
        }
    }
}

static void read_layers(struct facts_reader *r)
{
    struct model_facts *m = r->m;
    const struct gguf_entry *heads = find(r, "attention.head_count");
    const struct gguf_entry *kv_heads = find(r, "attention.head_count_kv");
    const struct gguf_entry *feed_forward = find(r, "feed_forward_length");

    m->layers = number_or(r, "block_count", 0);
    if (m->layers == 0) {
        model_facts_doubt(m, "the file does not say how many layers it has");
        m->layers = r->seen.layers;
    }
    if (m->layers > MODEL_LAYERS_MAX) {
        model_facts_doubt(m, "%u layers; at most %d are counted", m->layers, MODEL_LAYERS_MAX);
        m->layers = MODEL_LAYERS_MAX;
    }
    m->own_layers = m->layers - number_or(r, "nextn_predict_layers", 0);
    if (m->own_layers > m->layers)
        m->own_layers = m->layers;
    if (heads == NULL && m->memory != MODEL_MEMORY_RECURRENT)
        model_facts_doubt(m, "the file does not say how many attention heads it has");
    for (uint32_t i = 0; i < m->layers; i++) {
        struct model_layer *l = &m->layer[i];

        /* Not said: one head that is as wide as all of them can be. */
        l->heads = layer_number(r, heads, i, m->memory != MODEL_MEMORY_RECURRENT);
        l->kv_heads = layer_number(r, kv_heads, i, l->heads);
        l->feed_forward = layer_number(r, feed_forward, i, 4 * m->embedding);
    }
}

static void read_lengths(struct facts_reader *r)
{
    struct model_facts *m = r->m;
    uint32_t most_heads = 0;
    uint32_t head;

    for (uint32_t i = 0; i < m->layers; i++)
        most_heads = m->layer[i].heads > most_heads ? m->layer[i].heads : most_heads;
    /* The engine divides by the first layer's heads; where those are none, by whatever there is. */
    head = m->layers > 0 && m->layer[0].heads > 0 ? m->layer[0].heads : most_heads;
    head = head > 0 ? m->embedding / head : m->embedding;
    m->key_length = number_or(r, "attention.key_length", head);
    m->value_length = number_or(r, "attention.value_length", head);
    if (m->memory != MODEL_MEMORY_RECURRENT && find(r, "attention.head_count") == NULL) {
        m->key_length = larger(larger(m->key_length, m->embedding), r->seen.keys);
        m->value_length = larger(larger(m->value_length, m->embedding), r->seen.values);
    }
    m->key_length_window = number_or(r, "attention.key_length_swa", m->key_length);
    m->value_length_window = number_or(r, "attention.value_length_swa", m->value_length);
    m->latent = number_or(r, "attention.key_length_mla", 0) > 0 &&
                number_or(r, "attention.value_length_mla", 0) > 0;
}

/* Which layers have a window. Without a pattern that anybody knows every layer sees everything. */
static void read_windows(struct facts_reader *r, const struct architecture *a)
{
    struct model_facts *m = r->m;
    const struct gguf_entry *pattern = find(r, "attention.sliding_window_pattern");
    uint32_t period = a != NULL ? a->period : 0;

    m->window = number_or(r, "attention.sliding_window", a != NULL ? a->window : 0);
    if (m->window == 0 || a == NULL || !a->windows) {
        /* phi3, mistral: the engine ignores it and keeps everything; unknown: it might. */
        m->window = 0;
        return;
    }
    /* Architectures with a period of their own do not look at a list. */
    if (pattern != NULL && pattern->kind == GGUF_ENTRY_NUMBERS && a->period == 0) {
        for (uint32_t i = 0; i < m->layers; i++)
            m->layer[i].window = layer_number(r, pattern, i, 0) != 0;
        return;
    }
    if (pattern != NULL && pattern->kind == GGUF_ENTRY_NUMBER)
        period = clamp(pattern->number);
    else if (period == 0) {
        model_facts_doubt(m,
                          "a sliding window of %u tokens without a known pattern: every layer is "
                          "counted with the full context",
                          m->window);
        m->window = 0;
        return;
    }
    for (uint32_t i = 0; i < m->own_layers; i++) {
        if (a->full_first)
            m->layer[i].window = period == 0 || i % period != 0;
        else
            m->layer[i].window = period == 0 || i % period < period - 1;
    }
}

static void read_shared(struct facts_reader *r, const struct architecture *a)
{
    struct model_facts *m = r->m;
    uint32_t shared = number_or(r, "attention.shared_kv_layers", 0);
    uint32_t own = m->layers;

    if (a != NULL && a->kv_from_start > 0)
        own = a->kv_from_start;
    else if (a != NULL && a->windows && shared < m->layers)
        own = m->layers - shared;
    for (uint32_t i = own; i < m->layers; i++)
        m->layer[i].shared = true;
}

/* llama_hparams::n_embd_r and n_embd_s. */
static void read_state(struct facts_reader *r)
{
    struct model_facts *m = r->m;
    uint64_t conv = number_or(r, "ssm.conv_kernel", 0);
    uint64_t inner = number_or(r, "ssm.inner_size", 0);
    uint64_t state = number_or(r, "ssm.state_size", 0);
    uint64_t groups = number_or(r, "ssm.group_count", 0);
    uint64_t wkv = number_or(r, "wkv.head_size", 0);
    uint64_t short_conv = number_or(r, "shortconv.l_cache", 0);
    uint64_t kda = number_or(r, "kda.head_dim", 0);
    uint64_t heads = m->layers > 0 ? m->layer[0].heads : 0;

    if (wkv > 0) {
        m->conv_state = number_or(r, "token_shift_count", 2) * (uint64_t)m->embedding;
        m->scan_state = m->embedding * wkv;
    } else if (short_conv > 0) {
        m->conv_state = m->embedding * (short_conv - 1);
        m->scan_state = state * inner;
    } else if (kda > 0) {
        m->conv_state = 3 * (conv > 0 ? conv - 1 : 3) * heads * kda;
        m->scan_state = kda * kda * heads;
    } else {
        m->conv_state = (conv > 0 ? conv - 1 : 0) * (inner + 2 * groups * state);
        m->scan_state = state * inner;
    }
    if (m->conv_state == 0 && m->scan_state == 0)
        model_facts_doubt(m, "the size of the recurrent state is not in the file");
}

static void read_recurrent(struct facts_reader *r, const struct architecture *a)
{
    struct model_facts *m = r->m;
    const struct gguf_entry *list = find(r, "attention.recurrent_layers");
    uint32_t interval = number_or(r, "full_attention_interval", INTERVAL_DEFAULT);

    if (a == NULL && (find(r, "ssm.state_size") != NULL || find(r, "wkv.head_size") != NULL)) {
        /* A state, and nobody knows in which layers: in all of them, beside the keys. */
        for (uint32_t i = 0; i < m->layers; i++)
            m->layer[i].recurrent = true;
        read_state(r);
    }
    if (a == NULL || a->recurrent == ARCHITECTURE_RECURRENT_NONE)
        return;
    for (uint32_t i = 0; i < m->layers; i++) {
        struct model_layer *l = &m->layer[i];

        switch (a->recurrent) {
        case ARCHITECTURE_RECURRENT_NO_HEADS: l->recurrent = l->kv_heads == 0; break;
        case ARCHITECTURE_RECURRENT_INTERVAL:
            l->recurrent = i < m->own_layers && (interval == 0 || (i + 1) % interval != 0);
            if (list != NULL && list->kind != GGUF_ENTRY_PASSED)
                l->recurrent = i < m->own_layers && layer_number(r, list, i, 0) != 0;
            break;
        default: l->recurrent = true; break;
        }
        /* A recurrent layer keeps no keys, unless every layer does both. */
        if (l->recurrent && a->recurrent != ARCHITECTURE_RECURRENT_ALL)
            l->kv_heads = 0;
        if (a->memory == MODEL_MEMORY_RECURRENT)
            l->kv_heads = 0;
    }
    read_state(r);
}

static void look_at_tensors(struct model_facts *m)
{
    size_t unknown_places = 0;
    size_t inexact = 0;

    for (size_t s = 0; s < m->file->shard_count; s++) {
        const struct gguf_header *h = &m->file->shards[s];

        for (size_t i = 0; i < h->tensor_count; i++) {
            const struct gguf_tensor *t = &h->tensors[i];

            inexact += !t->exact;
            unknown_places += t->place == TENSOR_PLACE_UNKNOWN;
            if (t->part == TENSOR_PART_TOKEN_EMBEDDING && m->vocabulary == 0)
                m->vocabulary = clamp((int64_t)t->shape[1]);
            if (t->part == TENSOR_PART_OUTPUT && !t->bias)
                m->has_output = true;
        }
    }
    if (inexact > 0)
        model_facts_doubt(
            m, "%zu tensors of a type unknown here, sized by where the next one begins", inexact);
    if (unknown_places > 0 && !m->projector)
        model_facts_doubt(m, "%zu tensors of unknown use, counted on the device and on the host",
                          unknown_places);
}

static void read_language_model(struct facts_reader *r)
{
    struct model_facts *m = r->m;
    const struct architecture *a = architecture_find(m->architecture);
    const struct gguf_entry *tokens = gguf_header_find(r->h, "tokenizer.ggml.tokens");

    if (a == NULL)
        model_facts_doubt(m, "the architecture `%.40s` is not known here", m->architecture);
    else if (!a->exact)
        model_facts_doubt(m, "the memory of `%.40s` is only bounded here, not counted exactly",
                          m->architecture);
    m->memory = a != NULL ? a->memory : MODEL_MEMORY_CACHE;
    m->has_head = a == NULL || !a->no_head;
    see_tensors(r);
    m->embedding = number_or(r, "embedding_length", 0);
    m->embedding_out = number_or(r, "embedding_length_out", m->embedding);
    m->context = number_or(r, "context_length", 0);
    m->causal = number_or(r, "attention.causal", 1) != 0;
    m->experts = number_or(r, "expert_count", 0);
    m->experts_used = number_or(r, "expert_used_count", 0);
    m->rms_norm = find(r, "attention.layer_norm_epsilon") == NULL;
    m->pooled = number_or(r, "pooling_type", 0) == 1;
    m->scaled_input = strncmp(m->architecture, "gemma", 5) == 0;
    m->vocabulary = tokens != NULL ? clamp((int64_t)tokens->count) : 0;
    if (m->embedding == 0) {
        model_facts_doubt(m, "the file does not say how wide its embeddings are");
        m->embedding = m->embedding_out = r->seen.width;
    }
    read_layers(r);
    read_lengths(r);
    read_windows(r, a);
    read_shared(r, a);
    read_recurrent(r, a);
}

void model_facts_read(const struct gguf_file *file, struct model_facts *ret)
{
    struct model_facts *m = ret;
    struct facts_reader r = {.h = file->shard_count > 0 ? &file->shards[0] : NULL, .m = m};
    const char *architecture;

    memset(m, 0, sizeof(*m));
    m->file = file;
    m->file_bytes = file->file_bytes;
    m->usable = file->usable && file->shard_count > 0;
    if (!m->usable) {
        model_facts_doubt(m, "the header cannot be read: the file %.120s", file->problem);
        return;
    }
    architecture = gguf_header_get_text(r.h, "general.architecture");
    keep_name(architecture, m->architecture, sizeof(m->architecture));
    m->projector = strcmp(m->architecture, "clip") == 0;
    if (architecture == NULL)
        model_facts_doubt(m, "the file does not name its architecture");
    if (r.h->incomplete)
        model_facts_doubt(m, "not all of the metadata could be kept");
    if (!m->projector)
        read_language_model(&r);
    look_at_tensors(m);
}
