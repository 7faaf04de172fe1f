/* Small files that are replaced whole. See state_file.h. */
#include "config/state_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { READ_BYTES = 64 * 1024, DIR_MODE = 0700, FILE_MODE = 0600 };

static int read_all(int fd, struct buf *out, bool *ret_cut)
{
    bool cut = false;

    for (;;) {
        size_t want = out->max - out->len < READ_BYTES ? out->max - out->len : READ_BYTES;
        char one;
        ssize_t n;

        if (want == 0) {
            cut = read(fd, &one, 1) > 0;
            break;
        }
        int r = buf_reserve(out, want);
        if (r < 0)
            return r;
        n = read(fd, out->data + out->len, want);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        if (n == 0)
            break;
        out->len += (size_t)n;
    }
    *ret_cut = cut;
    return 0;
}

int state_file_read(const char *path, struct buf *out, bool *ret_cut)
{
    struct stat st;
    int r;
    /* Without O_NONBLOCK, somebody's FIFO of that name would stop the start. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);

    if (fd < 0)
        return -errno;
    if (fstat(fd, &st) < 0)
        r = -errno;
    else if (!S_ISREG(st.st_mode))
        r = -EINVAL;
    else
        r = read_all(fd, out, ret_cut);
    close(fd);
    return r;
}

/* The folders above the path, from the top. */
static int make_folders(const char *path)
{
    char dir[PATH_MAX];
    int n = snprintf(dir, sizeof(dir), "%s", path);

    if (n < 0 || (size_t)n >= sizeof(dir))
        return -ENAMETOOLONG;
    for (char *slash = strchr(dir + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        /* A folder that is there but may not be written to says EROFS or EACCES here: go on. */
        if (mkdir(dir, DIR_MODE) < 0 && errno != EEXIST && access(dir, F_OK) < 0)
            return -errno;
        *slash = '/';
    }
    return 0;
}

static int write_all(int fd, struct span text)
{
    while (text.len > 0) {
        ssize_t n = write(fd, text.ptr, text.len);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        text.ptr += n;
        text.len -= (size_t)n;
    }
    return fsync(fd) < 0 ? -errno : 0;
}

/* A name in a folder lasts when the folder is on the disk; not every file system can do that. */
static void sync_folder(const char *path)
{
    char dir[PATH_MAX];

    snprintf(dir, sizeof(dir), "%s", path);
    char *slash = strrchr(dir, '/');
    if (!slash)
        return;
    slash[slash == dir ? 1 : 0] = '\0';
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) {
        (void)fsync(fd);
        close(fd);
    }
}

int state_file_write(const char *path, struct span text)
{
    char fresh[PATH_MAX];
    int n = snprintf(fresh, sizeof(fresh), "%s.new-%ld", path, (long)getpid());
    int r = n < 0 || (size_t)n >= sizeof(fresh) ? -ENAMETOOLONG : make_folders(path);

    if (r < 0)
        return r;
    (void)unlink(fresh); /* of a process with our number that did not get to its end */
    int fd = open(fresh, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, FILE_MODE);
    if (fd < 0)
        return -errno;
    r = write_all(fd, text);
    if (close(fd) < 0 && r == 0)
        r = -errno;
    if (r == 0 && rename(fresh, path) < 0)
        r = -errno;
    if (r < 0)
        (void)unlink(fresh);
    else
        sync_folder(path);
    return r;
}

int state_file_keep_aside(const char *path)
{
    char aside[PATH_MAX];
    int n = snprintf(aside, sizeof(aside), "%s.damaged", path);

    if (n < 0 || (size_t)n >= sizeof(aside))
        return -ENAMETOOLONG;
    return link(path, aside) < 0 ? -errno : 0;
}
