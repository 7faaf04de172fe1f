/*
 * Is this file a GGUF model at all? A look at the first 24 bytes, cheap enough for every start and
 * every `failsoft check`: a wrong file is a problem of the configuration, never a fault of a device
 * (field case F131). The layout is that of ggml's docs/gguf.md: magic, version (u32), tensor count
 * (u64), metadata count (u64), little-endian.
 */
#ifndef FAILSOFT_MODEL_GGUF_MAGIC_H
#define FAILSOFT_MODEL_GGUF_MAGIC_H

#include <stddef.h>
#include <stdint.h>

enum { GGUF_MAGIC_HEAD_BYTES = 24 };

enum gguf_magic_verdict {
    GGUF_MAGIC_OK = 0,
    GGUF_MAGIC_FOLDER,
    GGUF_MAGIC_NOT_A_FILE, /* a device, a socket, a pipe: never opened */
    GGUF_MAGIC_EMPTY,
    GGUF_MAGIC_NOT_GGUF,
    GGUF_MAGIC_TRUNCATED, /* the header is cut, or announces more than the file can hold */
    GGUF_MAGIC_BIG_ENDIAN,
    GGUF_MAGIC_BAD_VERSION,
    GGUF_MAGIC_NO_TENSORS,
};

struct gguf_magic {
    enum gguf_magic_verdict verdict;
    unsigned char head[GGUF_MAGIC_HEAD_BYTES];
    size_t head_len;
    uint64_t file_bytes;
    uint32_t version;
    uint64_t tensor_count;
    uint64_t metadata_count;
};

/* Judges the first bytes of a file of file_bytes. Pure. */
void gguf_magic_judge(const unsigned char *head, size_t head_len, uint64_t file_bytes,
                      struct gguf_magic *ret);

/* Looks at a file. Blocks on the file system. 0 (see the verdict); negative errno of open or read. */
int gguf_magic_read_file(const char *path, struct gguf_magic *ret);

/* The verdict as the second half of a sentence about the file, e.g. "is a folder". Returns out. */
char *gguf_magic_describe(const struct gguf_magic *m, char *out, size_t out_size);

#endif
