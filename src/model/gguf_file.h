/*
 * A model on disk: one GGUF file, or the shards `NAME-00001-of-0000N.gguf` of one (split.count).
 * Headers only; one file is open at a time. Blocks on the file system; any thread.
 */
#ifndef FAILSOFT_MODEL_GGUF_FILE_H
#define FAILSOFT_MODEL_GGUF_FILE_H

#include "model/gguf_header.h"

enum { GGUF_SHARDS_MAX = 512 };

struct gguf_file {
    struct gguf_header *shards; /* the first has the metadata */
    size_t shard_count;
    uint64_t file_bytes;   /* of all shards */
    uint64_t tensor_bytes; /* of all tensors */
    uint64_t fingerprint;  /* of all headers */
    uint64_t memory_bytes; /* the most that was held while reading */
    uint64_t read_bytes;
    bool usable;       /* else problem says why; shards has what was read */
    char problem[320]; /* one sentence, with the file's name where it is not the one named */
};

/*
 * Reads the header of a model, of each shard where there are several. 0: see usable; -ENOMEM; -EIO
 * and the like; what open() of the named file returned. Free with gguf_file_free().
 */
int gguf_file_read(const char *path, struct gguf_file *ret);
void gguf_file_free(struct gguf_file *f);

/*
 * The path of shard `number` (from 1) of `count`, from the path of the first. False: the path does
 * not end like a first shard, or there is no room.
 */
bool gguf_file_shard_path(const char *first, unsigned number, unsigned count, char *out,
                          size_t out_size);

#endif
