/*
 * The header of one GGUF file: metadata that the estimator can use (numbers, short arrays of
 * numbers, short texts) and every tensor's type, shape and place. Never the tensors' data, never a
 * token list: those are passed over and only counted.
 *
 * Made for hostile files (field cases F128, F129, F131, F133): a length is compared with what is
 * left of the file before anything else, everything kept has a cap, nothing recurses, all arithmetic
 * is checked, and a file that is wrong is a verdict in words, not an error code. Layout: ggml's
 * docs/gguf.md, versions 2 and 3, little-endian.
 *
 * One thread; blocks on the source. The header owns what it points to.
 */
#ifndef FAILSOFT_MODEL_GGUF_HEADER_H
#define FAILSOFT_MODEL_GGUF_HEADER_H

#include "model/gguf_magic.h"
#include "model/gguf_window.h"
#include "model/tensor_name.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    GGUF_METADATA_MAX = 65536,
    GGUF_TENSORS_MAX = 16384,
    GGUF_DIMENSIONS_MAX = 4,
    GGUF_KEY_MAX_BYTES = 65535,    /* of the specification */
    GGUF_KEPT_ENTRIES_MAX = 1024,  /* metadata beyond this is passed over */
    GGUF_KEPT_NUMBERS_MAX = 32768, /* of all arrays together */
    GGUF_KEPT_ARRAY_MAX = 1024,    /* elements of one array; models have at most 512 layers */
    GGUF_KEPT_KEY_MAX = 96,
    GGUF_KEPT_TEXT_MAX = 128,
    GGUF_HEADER_MAX_BYTES = 64 * 1024 * 1024, /* token lists of today take up to 20 MB */
    GGUF_ALIGNMENT_MIN = 8,
    GGUF_ALIGNMENT_MAX = 1024 * 1024,
};

enum gguf_verdict {
    GGUF_OK = 0,
    GGUF_TRAILING,  /* good; bytes follow the last tensor */
    GGUF_TRUNCATED, /* needs needed_bytes, has file_bytes */
    GGUF_DAMAGED,   /* contradicts itself; detail says where */
    GGUF_TOO_LARGE, /* beyond a cap of this reader; detail says which */
    GGUF_NOT_GGUF,  /* magic says what it is instead */
};

enum gguf_entry_kind {
    GGUF_ENTRY_NUMBER = 0, /* an integer or a bool */
    GGUF_ENTRY_NUMBERS,    /* a short array of them, kept */
    GGUF_ENTRY_TEXT,
    GGUF_ENTRY_PASSED, /* a float, a long text, a long array or one of texts: only its count */
};

struct gguf_entry {
    uint32_t key_at; /* into texts, ends with a NUL */
    uint8_t kind;    /* enum gguf_entry_kind */
    uint32_t at;     /* TEXT: into texts; NUMBERS: into numbers */
    uint64_t count;  /* elements of an array, bytes of a text */
    int64_t number;  /* NUMBER; values above the largest are the largest */
};

struct gguf_tensor {
    uint32_t type;
    bool exact;    /* the size follows from type and shape; else from the next tensor's place */
    uint8_t place; /* enum tensor_place */
    uint8_t part;  /* enum tensor_part */
    bool bias, matrix;
    uint32_t layer;
    uint64_t shape[GGUF_DIMENSIONS_MAX]; /* missing dimensions are 1 */
    uint64_t offset;                     /* in the data section */
    uint64_t bytes;
};

struct gguf_header {
    enum gguf_verdict verdict;
    struct gguf_magic magic;
    char detail[120];
    uint64_t file_bytes;
    uint64_t needed_bytes;
    uint64_t data_offset; /* of the data section in the file */
    uint64_t alignment;
    uint64_t fingerprint;  /* of the bytes read: equal headers, equal fingerprints */
    uint64_t read_bytes;   /* read from the file */
    uint64_t memory_bytes; /* the most that was held at a time */
    bool incomplete;       /* metadata was passed over for want of room */
    struct gguf_entry *entries;
    size_t entry_count, entry_capacity;
    char *texts;
    size_t text_len, text_capacity;
    int64_t *numbers;
    size_t number_count, number_capacity;
    struct gguf_tensor *tensors;
    size_t tensor_count, tensor_capacity;
};

/* True for the verdicts with which the header can be used. */
bool gguf_header_usable(const struct gguf_header *h);

/*
 * Reads a header. 0: see the verdict (on any but OK and TRAILING nothing is kept but the words);
 * -ENOMEM; what the source returned. Free with gguf_header_free(), which is fine on a zeroed one.
 */
int gguf_header_read(const struct gguf_source *source, struct gguf_header *ret);
void gguf_header_free(struct gguf_header *h);

/* The verdict as the second half of a sentence about the file. Returns out. */
char *gguf_header_describe(const struct gguf_header *h, char *out, size_t out_size);

/* NULL: not there. */
const struct gguf_entry *gguf_header_find(const struct gguf_header *h, const char *key);
const char *gguf_header_key(const struct gguf_header *h, const struct gguf_entry *entry);
bool gguf_header_get_number(const struct gguf_header *h, const char *key, int64_t *ret);
/* NULL: not there, or not a short text. */
const char *gguf_header_get_text(const struct gguf_header *h, const char *key);

#endif
