/*
 * Every field is compared with the size of the file before anything is concluded from it.
 */
#include "model/gguf_magic.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    /* The versions whose header has the layout read here; llama.cpp refuses version 1, too. */
    VERSION_MIN = 2,
    VERSION_MAX = 3,
    /* The least that one entry takes: key length, key, type, value. */
    METADATA_MIN_BYTES = 8 + 1 + 4 + 1,
    /* Name length, name, dimensions, one dimension, type, offset. */
    TENSOR_MIN_BYTES = 8 + 1 + 4 + 8 + 4 + 8,
};

static uint64_t read_le(const unsigned char *p, unsigned n)
{
    uint64_t v = 0;

    for (unsigned i = n; i-- > 0;)
        v = v << 8 | p[i];
    return v;
}

/* Can a file of this size hold that many entries at all? */
static bool counts_fit(const struct gguf_magic *m)
{
    uint64_t metadata;
    uint64_t tensors;
    uint64_t all;

    if (__builtin_mul_overflow(m->metadata_count, (uint64_t)METADATA_MIN_BYTES, &metadata) ||
        __builtin_mul_overflow(m->tensor_count, (uint64_t)TENSOR_MIN_BYTES, &tensors) ||
        __builtin_add_overflow(metadata, tensors, &all))
        return false;
    return all <= m->file_bytes - GGUF_MAGIC_HEAD_BYTES;
}

static enum gguf_magic_verdict judge(struct gguf_magic *m)
{
    size_t magic_len = m->head_len < 4 ? m->head_len : 4;

    if (m->file_bytes == 0 || m->head_len == 0)
        return GGUF_MAGIC_EMPTY;
    if (memcmp(m->head, "FUGG", magic_len) == 0)
        return GGUF_MAGIC_BIG_ENDIAN;
    if (memcmp(m->head, "GGUF", magic_len) != 0)
        return GGUF_MAGIC_NOT_GGUF;
    if (m->head_len < 8)
        return GGUF_MAGIC_TRUNCATED;
    m->version = (uint32_t)read_le(m->head + 4, 4);
    /* A small number with its bytes swapped: the low half is empty (llama.cpp tells it so, too). */
    if (m->version != 0 && (m->version & 0xFFFF) == 0)
        return GGUF_MAGIC_BIG_ENDIAN;
    if (m->version < VERSION_MIN || m->version > VERSION_MAX)
        return GGUF_MAGIC_BAD_VERSION;
    if (m->head_len < GGUF_MAGIC_HEAD_BYTES)
        return GGUF_MAGIC_TRUNCATED;
    m->tensor_count = read_le(m->head + 8, 8);
    m->metadata_count = read_le(m->head + 16, 8);
    if (!counts_fit(m))
        return GGUF_MAGIC_TRUNCATED;
    return m->tensor_count == 0 ? GGUF_MAGIC_NO_TENSORS : GGUF_MAGIC_OK;
}

void gguf_magic_judge(const unsigned char *head, size_t head_len, uint64_t file_bytes,
                      struct gguf_magic *ret)
{
    struct gguf_magic m = {.file_bytes = file_bytes};

    m.head_len = head_len < sizeof(m.head) ? head_len : sizeof(m.head);
    if (m.head_len > 0)
        memcpy(m.head, head, m.head_len);
    m.verdict = judge(&m);
    *ret = m;
}

static int read_head(int fd, unsigned char *head, size_t *ret_len)
{
    size_t len = 0;

    while (len < GGUF_MAGIC_HEAD_BYTES) {
        ssize_t n = read(fd, head + len, GGUF_MAGIC_HEAD_BYTES - len);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        if (n == 0)
            break;
        len += (size_t)n;
    }
    *ret_len = len;
    return 0;
}

int gguf_magic_read_file(const char *path, struct gguf_magic *ret)
{
    unsigned char head[GGUF_MAGIC_HEAD_BYTES];
    size_t len = 0;
    struct stat st;
    int fd;
    int r;

    if (stat(path, &st) < 0)
        return -errno;
    if (!S_ISREG(st.st_mode)) {
        *ret = (struct gguf_magic){.verdict = S_ISDIR(st.st_mode) ? GGUF_MAGIC_FOLDER
                                                                  : GGUF_MAGIC_NOT_A_FILE};
        return 0;
    }
    /* O_NONBLOCK: should it have become a pipe since, nobody waits for a writer. */
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return -errno;
    r = read_head(fd, head, &len);
    close(fd);
    if (r == 0)
        gguf_magic_judge(head, len, (uint64_t)st.st_size, ret);
    return r;
}

/* The first four bytes, safe for a terminal. */
static void show_first(const struct gguf_magic *m, char *out, size_t out_size)
{
    size_t used = 0;

    out[0] = '\0';
    for (size_t i = 0; i < m->head_len && i < 4; i++) {
        unsigned char c = m->head[i];
        bool plain = c >= 0x20 && c < 0x7f && c != '`' && c != '\\';

        used += (size_t)snprintf(out + used, out_size - used, plain ? "%c" : "\\x%02x", c);
    }
}

/* What people have instead of a model, by its first bytes. */
static const char *guess(const struct gguf_magic *m)
{
    static const struct {
        const char *bytes;
        size_t len;
        const char *what;
    } known[] = {
        {"<!", 2, "; a web page, not a download of the file?"},
        {"<ht", 3, "; a web page, not a download of the file?"},
        {"vers", 4, "; a Git LFS pointer? fetch the file itself"},
        {"\0\0\0\0", 4, "; an unfinished download?"},
        {"PK\x03\x04", 4, "; a zip or PyTorch file? llama-server needs GGUF"},
        {"ggml", 4, "; an old ggml file? convert it to GGUF"},
        {"lmgg", 4, "; an old ggml file? convert it to GGUF"},
        {"fmgg", 4, "; an old ggml file? convert it to GGUF"},
        {"tjgg", 4, "; an old ggml file? convert it to GGUF"},
        {"\x1f\x8b", 2, "; a gzip file? unpack it"},
    };

    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (m->head_len >= known[i].len && memcmp(m->head, known[i].bytes, known[i].len) == 0)
            return known[i].what;
    }
    /* safetensors: the length of a JSON header, then the header. */
    if (m->head_len > 8 && m->head[8] == '{')
        return "; a safetensors file? convert it to GGUF";
    return "";
}

char *gguf_magic_describe(const struct gguf_magic *m, char *out, size_t out_size)
{
    char first[24];

    switch (m->verdict) {
    case GGUF_MAGIC_OK: snprintf(out, out_size, "is a GGUF file"); break;
    case GGUF_MAGIC_FOLDER: snprintf(out, out_size, "is a folder, not a GGUF file"); break;
    case GGUF_MAGIC_NOT_A_FILE: snprintf(out, out_size, "is not a regular file"); break;
    case GGUF_MAGIC_EMPTY: snprintf(out, out_size, "is empty"); break;
    case GGUF_MAGIC_NOT_GGUF:
        show_first(m, first, sizeof(first));
        snprintf(out, out_size, "is not a GGUF file: it begins with `%s`%s", first, guess(m));
        break;
    case GGUF_MAGIC_TRUNCATED:
        if (m->head_len < GGUF_MAGIC_HEAD_BYTES)
            snprintf(out, out_size, "is cut off: the header needs %d bytes, the file has %" PRIu64,
                     GGUF_MAGIC_HEAD_BYTES, m->file_bytes);
        else
            snprintf(out, out_size,
                     "is cut off or damaged: the header announces %" PRIu64 " tensors and %" PRIu64
                     " metadata entries, more than its %" PRIu64 " bytes can hold",
                     m->tensor_count, m->metadata_count, m->file_bytes);
        break;
    case GGUF_MAGIC_BIG_ENDIAN:
        snprintf(out, out_size,
                 "is a big-endian GGUF file; this machine needs a little-endian one");
        break;
    case GGUF_MAGIC_BAD_VERSION:
        snprintf(out, out_size, "has GGUF version %" PRIu32 "; known are %d to %d", m->version,
                 VERSION_MIN, VERSION_MAX);
        break;
    case GGUF_MAGIC_NO_TENSORS: snprintf(out, out_size, "has no weights in it"); break;
    }
    return out;
}
