/*
 * Hashes of what a worker is. See fingerprint.h. FNV-1a (64 bits), with its bits mixed at the end.
 */
#include "worker/fingerprint.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const uint64_t hash_start = 0xcbf29ce484222325u;
static const uint64_t hash_prime = 0x100000001b3u;

static uint64_t add_bytes(uint64_t hash, const void *bytes, size_t len)
{
    const unsigned char *p = bytes;

    for (size_t i = 0; i < len; i++)
        hash = (hash ^ p[i]) * hash_prime;
    return hash;
}

/* Little-endian, so that a state file can move to another machine. */
static uint64_t add_number(uint64_t hash, uint64_t number)
{
    unsigned char bytes[8];

    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (unsigned char)(number >> (8 * i));
    return add_bytes(hash, bytes, sizeof(bytes));
}

/* With its length: "ab", "c" is not "a", "bc"; nothing is not "". */
static uint64_t add_text(uint64_t hash, const char *text)
{
    if (text == NULL)
        return add_number(hash, UINT64_MAX);
    hash = add_number(hash, strlen(text));
    return add_bytes(hash, text, strlen(text));
}

static uint64_t add_strings(uint64_t hash, const struct config_strings *strings)
{
    hash = add_number(hash, strings->count);
    for (size_t i = 0; i < strings->count; i++)
        hash = add_text(hash, strings->items[i]);
    return hash;
}

/* The last step of splitmix64: similar inputs end far apart. */
static uint64_t finish(uint64_t hash)
{
    hash = (hash ^ (hash >> 30)) * 0xbf58476d1ce4e5b9u;
    hash = (hash ^ (hash >> 27)) * 0x94d049bb133111ebu;
    hash ^= hash >> 31;
    return hash != 0 ? hash : 1;
}

uint64_t fingerprint_model(const struct gguf_file *const *files, size_t count)
{
    uint64_t hash = hash_start;

    for (size_t i = 0; i < count; i++) {
        hash = add_number(hash, files[i] != NULL);
        if (files[i] == NULL)
            continue;
        hash = add_number(hash, files[i]->fingerprint);
        hash = add_number(hash, files[i]->file_bytes);
    }
    return finish(hash);
}

uint64_t fingerprint_settings(const struct estimate_settings *s, const struct config_tier *tier)
{
    /* Not the structure's bytes: there are holes between its fields. */
    const uint64_t numbers[] = {s->context_means,
                                s->context_tokens,
                                s->slots,
                                s->unified,
                                s->cache_type_k,
                                s->cache_type_v,
                                s->flash_attention,
                                s->device,
                                (uint64_t)(int64_t)s->gpu_layers,
                                s->experts_on_host,
                                s->cache_on_host,
                                s->batch,
                                s->micro_batch,
                                s->embeddings,
                                s->mapped,
                                s->repack,
                                s->avx512,
                                s->offload_rows,
                                tier->memory_bytes,
                                tier->host_memory_bytes};
    uint64_t hash = hash_start;

    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        hash = add_number(hash, numbers[i]);
    hash = add_strings(hash, &tier->args);
    hash = add_strings(hash, &tier->command);
    hash = add_number(hash, tier->env.count);
    for (size_t i = 0; i < tier->env.count; i++) {
        hash = add_text(hash, tier->env.items[i].name);
        hash = add_text(hash, tier->env.items[i].value);
    }
    return finish(hash);
}

/* As execvp() finds a bare name: the first regular file of that name in a folder of PATH. */
static bool find_program(const char *name, char *out, size_t out_size, struct stat *ret)
{
    const char *path = getenv("PATH");

    if (strchr(name, '/') != NULL) {
        int n = snprintf(out, out_size, "%s", name);
        return n > 0 && (size_t)n < out_size && stat(out, ret) == 0;
    }
    if (path == NULL)
        path = "/usr/local/bin:/usr/bin:/bin";
    while (*path != '\0') {
        size_t len = strcspn(path, ":");
        int n = snprintf(out, out_size, "%.*s/%s", (int)len, path, name);

        if (len > 0 && n > 0 && (size_t)n < out_size && stat(out, ret) == 0 &&
            S_ISREG(ret->st_mode))
            return true;
        path += len;
        path += *path == ':';
    }
    return false;
}

uint64_t fingerprint_engine(const char *path)
{
    uint64_t hash = hash_start;
    char found[PATH_MAX];
    struct stat st;

    if (path == NULL)
        return finish(hash);
    if (!find_program(path, found, sizeof(found), &st))
        return finish(add_text(hash, path));
    hash = add_text(hash, found);
    hash = add_number(hash, (uint64_t)st.st_size);
    hash = add_number(hash, (uint64_t)st.st_mtim.tv_sec);
    hash = add_number(hash, (uint64_t)st.st_mtim.tv_nsec);
    return finish(hash);
}

uint64_t fingerprint_device(const char *name, int kind, uint64_t total_bytes)
{
    uint64_t hash = add_text(hash_start, name);

    hash = add_number(hash, (uint64_t)(int64_t)kind);
    return finish(add_number(hash, total_bytes));
}
