/*
 * Files and shards. The engine finds the other shards by the name of the first, and so does this.
 */
#include "model/gguf_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int read_at(void *ctx, uint64_t offset, void *out, size_t len)
{
    int fd = *(int *)ctx;
    unsigned char *p = out;

    while (len > 0) {
        ssize_t n = pread(fd, p, len, (off_t)offset);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : -EIO;
        p += n;
        len -= (size_t)n;
        offset += (uint64_t)n;
    }
    return 0;
}

/* One file. -EISDIR and -EINVAL: a folder, something else that is no file. */
static int read_one(const char *path, struct gguf_header *ret)
{
    struct gguf_source source = {.read = read_at};
    struct stat st;
    int rc = 0;
    int fd;

    if (stat(path, &st) < 0)
        return -errno;
    if (!S_ISREG(st.st_mode))
        return S_ISDIR(st.st_mode) ? -EISDIR : -EINVAL;
    /* O_NONBLOCK: should it have become a pipe since, nobody waits for a writer. */
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return -errno;
    if (fstat(fd, &st) < 0)
        rc = -errno;
    else if (!S_ISREG(st.st_mode))
        rc = -EINVAL;
    source.ctx = &fd;
    source.bytes = rc == 0 ? (uint64_t)st.st_size : 0;
    if (rc == 0)
        rc = gguf_header_read(&source, ret);
    close(fd);
    return rc;
}

bool gguf_file_shard_path(const char *first, unsigned number, unsigned count, char *out,
                          size_t out_size)
{
    char end[40];
    size_t len = strlen(first);
    size_t end_len = (size_t)snprintf(end, sizeof(end), "-%05d-of-%05u.gguf", 1, count);
    int n;

    if (len < end_len || strcmp(first + len - end_len, end) != 0 || len - end_len > INT_MAX)
        return false;
    n = snprintf(out, out_size, "%.*s-%05u-of-%05u.gguf", (int)(len - end_len), first, number,
                 count);
    return n > 0 && (size_t)n < out_size;
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

static void add_shard(struct gguf_file *f, const struct gguf_header *h)
{
    f->shards[f->shard_count++] = *h;
    f->file_bytes += h->file_bytes;
    f->read_bytes += h->read_bytes;
    f->fingerprint = (f->fingerprint ^ h->fingerprint) * 0x100000001b3u;
    for (size_t i = 0; i < h->tensor_count; i++)
        f->tensor_bytes += h->tensors[i].bytes;
}

/* The shards after the first. Their absence is a sentence, not an error. */
static int read_rest(struct gguf_file *f, const char *path, unsigned count)
{
    char other[PATH_MAX];
    char what[200];

    for (unsigned i = 2; i <= count; i++) {
        struct gguf_header h = {0};
        int rc;

        if (!gguf_file_shard_path(path, i, count, other, sizeof(other))) {
            snprintf(f->problem, sizeof(f->problem),
                     "is one of %u shards; name the first, which ends in -00001-of-%05u.gguf",
                     count, count);
            return 0;
        }
        rc = read_one(other, &h);
        if (rc == -ENOMEM)
            return rc;
        if (rc < 0) {
            snprintf(f->problem, sizeof(f->problem), "needs its shard %.200s: %s", base_name(other),
                     strerror(-rc));
            return 0;
        }
        if (!gguf_header_usable(&h)) {
            snprintf(f->problem, sizeof(f->problem), "has a shard %.100s that %.200s",
                     base_name(other), gguf_header_describe(&h, what, sizeof(what)));
            gguf_header_free(&h);
            return 0;
        }
        add_shard(f, &h);
    }
    return 0;
}

static int64_t shards_wanted(const struct gguf_header *h)
{
    int64_t count = 1;

    (void)gguf_header_get_number(h, "split.count", &count);
    return count < 1 ? 1 : count;
}

static void sum_memory(struct gguf_file *f)
{
    uint64_t largest = 0;

    for (size_t i = 0; i < f->shard_count; i++) {
        const struct gguf_header *h = &f->shards[i];
        uint64_t kept =
            h->memory_bytes > GGUF_WINDOW_BYTES ? h->memory_bytes - GGUF_WINDOW_BYTES : 0;

        f->memory_bytes += kept;
        largest = h->memory_bytes - kept > largest ? h->memory_bytes - kept : largest;
    }
    f->memory_bytes += largest + f->shard_count * sizeof(*f->shards);
}

int gguf_file_read(const char *path, struct gguf_file *ret)
{
    struct gguf_file f = {0};
    struct gguf_header first = {0};
    int64_t count = 1;
    int rc = read_one(path, &first);

    if (rc < 0)
        return rc;
    if (gguf_header_usable(&first))
        count = shards_wanted(&first);
    if (count > GGUF_SHARDS_MAX) {
        snprintf(f.problem, sizeof(f.problem),
                 "says that it is one of %" PRId64 " shards; at most %d are read", count,
                 GGUF_SHARDS_MAX);
        count = 1;
    } else if (!gguf_header_usable(&first)) {
        gguf_header_describe(&first, f.problem, sizeof(f.problem));
    } else if (count == 1 && first.tensor_count == 0) {
        snprintf(f.problem, sizeof(f.problem), "has no weights in it");
    }
    f.shards = calloc((size_t)count, sizeof(*f.shards));
    if (f.shards == NULL) {
        gguf_header_free(&first);
        return -ENOMEM;
    }
    add_shard(&f, &first);
    if (count > 1)
        rc = read_rest(&f, path, (unsigned)count);
    if (rc < 0) {
        gguf_file_free(&f);
        return rc;
    }
    f.usable = f.problem[0] == '\0';
    sum_memory(&f);
    *ret = f;
    return 0;
}

void gguf_file_free(struct gguf_file *f)
{
    if (f == NULL)
        return;
    for (size_t i = 0; i < f->shard_count; i++)
        gguf_header_free(&f->shards[i]);
    free(f->shards);
    f->shards = NULL;
    f->shard_count = 0;
}
