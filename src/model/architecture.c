/*
 * One row an architecture, from src/models/ of llama.cpp v0.4.0. An architecture that is in no row
 * is counted with full attention in every layer, and said to be uncertain.
 */
#include "model/architecture.h"

#include <stddef.h>
#include <string.h>

#define PLAIN(name)                                                                                \
    {                                                                                              \
        name, MODEL_MEMORY_CACHE, ARCHITECTURE_RECURRENT_NONE, false, true, false, 0, 0, false, 0  \
    }
#define NO_MEMORY(name)                                                                            \
    {                                                                                              \
        name, MODEL_MEMORY_NONE, ARCHITECTURE_RECURRENT_NONE, false, true, false, 0, 0, false, 0   \
    }
#define ENCODER(name)                                                                              \
    {                                                                                              \
        name, MODEL_MEMORY_NONE, ARCHITECTURE_RECURRENT_NONE, true, true, false, 0, 0, false, 0    \
    }
#define WINDOWS(name, window, period, full_first, from)                                            \
    {                                                                                              \
        name, MODEL_MEMORY_CACHE, ARCHITECTURE_RECURRENT_NONE, false, true, true, window, period,  \
            full_first, from                                                                       \
    }
#define RECURRENT(name)                                                                            \
    {                                                                                              \
        name, MODEL_MEMORY_RECURRENT, ARCHITECTURE_RECURRENT_ALL, false, true, false, 0, 0, false, \
            0                                                                                      \
    }
#define HYBRID(name, which, exact)                                                                 \
    {                                                                                              \
        name, MODEL_MEMORY_HYBRID, ARCHITECTURE_RECURRENT_##which, false, exact, false, 0, 0,      \
            false, 0                                                                               \
    }

static const struct architecture table[] = {
    /* Keys and values everywhere. */
    PLAIN("llama"),
    PLAIN("deci"),
    PLAIN("falcon"),
    PLAIN("grok"),
    PLAIN("gpt2"),
    PLAIN("gptj"),
    PLAIN("gptneox"),
    PLAIN("mpt"),
    PLAIN("baichuan"),
    PLAIN("starcoder"),
    PLAIN("refact"),
    PLAIN("bloom"),
    PLAIN("stablelm"),
    PLAIN("qwen"),
    PLAIN("qwen2"),
    PLAIN("qwen2moe"),
    PLAIN("qwen2vl"),
    PLAIN("qwen3"),
    PLAIN("qwen3moe"),
    PLAIN("qwen3vl"),
    PLAIN("qwen3vlmoe"),
    PLAIN("phi2"),
    PLAIN("phi3"),
    PLAIN("phimoe"),
    PLAIN("plamo"),
    PLAIN("codeshell"),
    PLAIN("orion"),
    PLAIN("internlm2"),
    PLAIN("minicpm"),
    PLAIN("minicpm3"),
    PLAIN("gemma"),
    PLAIN("starcoder2"),
    PLAIN("xverse"),
    PLAIN("command-r"),
    PLAIN("dbrx"),
    PLAIN("olmo"),
    PLAIN("olmoe"),
    PLAIN("openelm"),
    PLAIN("arctic"),
    PLAIN("deepseek"),
    PLAIN("deepseek2"),
    PLAIN("deepseek2-ocr"),
    PLAIN("chatglm"),
    PLAIN("glm4"),
    PLAIN("glm4moe"),
    PLAIN("bitnet"),
    PLAIN("jais"),
    PLAIN("jais2"),
    PLAIN("nemotron"),
    PLAIN("exaone"),
    PLAIN("granite"),
    PLAIN("granitemoe"),
    PLAIN("chameleon"),
    PLAIN("plm"),
    PLAIN("bailingmoe"),
    PLAIN("bailingmoe2"),
    PLAIN("dots1"),
    PLAIN("arcee"),
    PLAIN("ernie4_5"),
    PLAIN("ernie4_5-moe"),
    PLAIN("hunyuan-moe"),
    PLAIN("hunyuan-dense"),
    PLAIN("hunyuan_vl"),
    PLAIN("smollm3"),
    PLAIN("seed_oss"),
    PLAIN("grovemoe"),
    PLAIN("apertus"),
    PLAIN("minimax-m2"),
    PLAIN("cogvlm"),
    PLAIN("pangu-embedded"),
    PLAIN("mistral3"),
    PLAIN("mistral4"),
    PLAIN("paddleocr"),
    PLAIN("maincoder"),
    PLAIN("talkie"),
    /* Nothing between batches. */
    ENCODER("bert"),
    ENCODER("jina-bert-v2"),
    ENCODER("jina-bert-v3"),
    ENCODER("nomic-bert"),
    ENCODER("nomic-bert-moe"),
    ENCODER("neo-bert"),
    ENCODER("eurobert"),
    ENCODER("modern-bert"),
    ENCODER("gemma-embedding"),
    ENCODER("wavtokenizer-dec"),
    NO_MEMORY("dream"),
    NO_MEMORY("llada"),
    NO_MEMORY("llada-moe"),
    NO_MEMORY("rnd1"),
    /* Sliding windows: the pattern that holds where the file has none. */
    WINDOWS("afmoe", 0, 4, false, 0),
    WINDOWS("cohere2", 0, 4, false, 0),
    WINDOWS("cohere2moe", 0, 4, true, 0),
    WINDOWS("exaone4", 0, 4, false, 0),
    WINDOWS("exaone-moe", 128, 4, false, 0),
    WINDOWS("gemma2", 4096, 2, false, 0),
    WINDOWS("gemma3", 0, 6, false, 0),
    WINDOWS("gemma3n", 0, 5, false, 20),
    WINDOWS("gemma4", 0, 0, false, 0),
    WINDOWS("gpt-oss", 0, 2, false, 0),
    WINDOWS("granite_swa", 0, 0, false, 0),
    WINDOWS("laguna", 0, 4, true, 0),
    WINDOWS("llama4", 8192, 4, false, 0),
    WINDOWS("mellum", 0, 4, false, 0),
    WINDOWS("mimo2", 0, 0, false, 0),
    WINDOWS("muse-glimmer", 0, 4, false, 0),
    WINDOWS("olmo2", 0, 4, false, 0),
    WINDOWS("plamo3", 0, 8, false, 0),
    WINDOWS("smallthinker", 0, 4, true, 0),
    WINDOWS("step35", 0, 0, false, 0),
    /* A state. */
    RECURRENT("mamba"),
    RECURRENT("mamba2"),
    RECURRENT("rwkv6"),
    RECURRENT("rwkv6qwen2"),
    RECURRENT("rwkv7"),
    RECURRENT("arwkv7"),
    /* Both. */
    HYBRID("jamba", NO_HEADS, true),
    HYBRID("granitehybrid", NO_HEADS, true),
    HYBRID("lfm2", NO_HEADS, true),
    HYBRID("lfm2moe", NO_HEADS, true),
    HYBRID("plamo2", NO_HEADS, true),
    HYBRID("falcon-h1", ALL, true),
    HYBRID("qwen3next", INTERVAL, true),
    HYBRID("qwen35", INTERVAL, true),
    HYBRID("qwen35moe", INTERVAL, true),
    HYBRID("nemotron_h", NO_HEADS, false),
    HYBRID("nemotron_h_moe", NO_HEADS, false),
    HYBRID("kimi-linear", NO_HEADS, true),
    HYBRID("minimax-01", INTERVAL, false),
};

const struct architecture *architecture_find(const char *name)
{
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        if (strcmp(table[i].name, name) == 0)
            return &table[i];
    }
    return NULL;
}
