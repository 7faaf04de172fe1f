/*
 * A file read once from its beginning through a window of 64 KiB: the only way in which the header
 * reader sees bytes. Nothing is asked for that the file does not have (the rest of the file is
 * compared first), nothing larger than the window is ever held, and every byte that passes goes
 * into a fingerprint. The first failure sticks: later calls do nothing, so a caller may check once.
 * One thread; blocks on the file system.
 */
#ifndef FAILSOFT_MODEL_GGUF_WINDOW_H
#define FAILSOFT_MODEL_GGUF_WINDOW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { GGUF_WINDOW_BYTES = 64 * 1024 };

/* Where bytes come from: a file, or memory in tests. */
struct gguf_source {
    /* Exactly len bytes from offset into out. 0; negative errno (-EIO: fewer than there were). */
    int (*read)(void *ctx, uint64_t offset, void *out, size_t len);
    void *ctx;
    uint64_t bytes; /* size of the file */
};

struct gguf_window {
    const struct gguf_source *source;
    unsigned char *data;
    size_t at, len;      /* data[at..len) is not taken yet */
    uint64_t position;   /* of data[at] in the file */
    uint64_t cap_bytes;  /* no more of the file than this is read */
    uint64_t read_bytes; /* read so far */
    uint64_t hash;
    int error;      /* negative errno of the source */
    bool truncated; /* the file is too short: needed_bytes is how long it should be */
    bool capped;    /* more than cap_bytes were wanted */
    uint64_t needed_bytes;
};

/* 0; -ENOMEM. The source is borrowed. */
int gguf_window_init(struct gguf_window *w, const struct gguf_source *source, uint64_t cap_bytes);
void gguf_window_free(struct gguf_window *w);

bool gguf_window_failed(const struct gguf_window *w);

/* The next n bytes (n ≤ GGUF_WINDOW_BYTES), valid until the next call. NULL: failed. */
const unsigned char *gguf_window_take(struct gguf_window *w, size_t n);

/* Little-endian numbers; 0 after a failure. */
uint32_t gguf_window_u32(struct gguf_window *w);
uint64_t gguf_window_u64(struct gguf_window *w);

/* Passes over n bytes of any number. False: failed. */
bool gguf_window_skip(struct gguf_window *w, uint64_t n);

/* True when at least n more bytes are there; else the failure is noted. */
bool gguf_window_has(struct gguf_window *w, uint64_t n);

#endif
