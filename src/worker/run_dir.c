/*
 * The private folder of the workers' sockets. Few and short file system calls, made on the loop
 * thread when a worker is created: the folder is on a tmpfs or /tmp.
 */
#include "worker/run_dir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool fits(int written, size_t size)
{
    return written >= 0 && (size_t)written < size;
}

/* Everything of a default folder's path but the pid. */
static int default_prefix(char *out, size_t out_size)
{
    const char *xdg = getenv("XDG_RUNTIME_DIR");
    int n;

    if (xdg != NULL && xdg[0] == '/' && access(xdg, W_OK | X_OK) == 0)
        n = snprintf(out, out_size, "%s/failsoft-", xdg);
    else
        n = snprintf(out, out_size, "/tmp/failsoft-%u-", (unsigned)getuid());
    return fits(n, out_size) ? 0 : -ENAMETOOLONG;
}

int run_dir_default(char *out, size_t out_size)
{
    char prefix[RUN_DIR_SOCKET_PATH_MAX + 1];
    int n;

    if (default_prefix(prefix, sizeof(prefix)) < 0)
        return -ENAMETOOLONG;
    n = snprintf(out, out_size, "%s%ld", prefix, (long)getpid());
    return fits(n, out_size) ? 0 : -ENAMETOOLONG;
}

/* Removes the sockets in a folder and the folder; anything else in it keeps both. */
static void remove_folder(const char *path)
{
    DIR *dir = opendir(path);
    struct dirent *entry;

    if (dir == NULL)
        return;
    while ((entry = readdir(dir)) != NULL) {
        struct stat st;

        if (fstatat(dirfd(dir), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
            S_ISSOCK(st.st_mode))
            unlinkat(dirfd(dir), entry->d_name, 0);
    }
    closedir(dir);
    rmdir(path);
}

/* A gateway that was killed could not remove its folder; the next one of the same user does. */
static void sweep_abandoned(void)
{
    char prefix[RUN_DIR_SOCKET_PATH_MAX + 1];
    char *base;
    DIR *dir;
    struct dirent *entry;

    if (default_prefix(prefix, sizeof(prefix)) < 0)
        return;
    base = strrchr(prefix, '/') + 1;
    char name_prefix[RUN_DIR_SOCKET_PATH_MAX + 1];
    snprintf(name_prefix, sizeof(name_prefix), "%s", base);
    *base = '\0';
    dir = opendir(prefix);
    if (dir == NULL)
        return;
    while ((entry = readdir(dir)) != NULL) {
        char path[RUN_DIR_SOCKET_PATH_MAX + 1];
        size_t skip = strlen(name_prefix);
        char *end;
        struct stat st;
        long pid;

        if (strncmp(entry->d_name, name_prefix, skip) != 0)
            continue;
        pid = strtol(entry->d_name + skip, &end, 10);
        if (*end != '\0' || pid <= 1 || kill((pid_t)pid, 0) == 0 || errno != ESRCH)
            continue;
        if (!fits(snprintf(path, sizeof(path), "%s%s", prefix, entry->d_name), sizeof(path)))
            continue;
        if (lstat(path, &st) == 0 && S_ISDIR(st.st_mode) && st.st_uid == getuid())
            remove_folder(path);
    }
    closedir(dir);
}

int run_dir_prepare(const char *path, bool *ret_made)
{
    struct stat st;

    if (mkdir(path, 0700) == 0) {
        sweep_abandoned();
        *ret_made = true;
        return 0;
    }
    if (errno != EEXIST)
        return -errno;
    if (lstat(path, &st) < 0)
        return -errno;
    if (!S_ISDIR(st.st_mode))
        return -ENOTDIR;
    if (st.st_uid != getuid() || (st.st_mode & 077) != 0)
        return -EACCES;
    *ret_made = false;
    return 0;
}

/* Names come from a configuration: letters, digits, '-', '_' and '.' stay, the rest becomes '_'. */
static void clean_name(const char *name, char *out, size_t out_size)
{
    size_t n = 0;

    for (; name[n] != '\0' && n + 1 < out_size; n++) {
        char c = name[n];
        bool keep = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                    c == '-' || c == '_' || (c == '.' && n > 0);

        out[n] = keep ? c : '_';
    }
    out[n] = '\0';
}

int run_dir_socket_path(const char *dir, const char *service, const char *tier, char *out,
                        size_t out_size)
{
    /* The old and the new worker of a tier live side by side during a reload. Loop thread only. */
    static unsigned counter;
    char s[25], t[13];
    int n;

    clean_name(service ? service : "service", s, sizeof(s));
    clean_name(tier ? tier : "tier", t, sizeof(t));
    n = snprintf(out, out_size, "%s/%s-%s-%u.sock", dir, s, t, ++counter);
    if (!fits(n, out_size) || n > RUN_DIR_SOCKET_PATH_MAX)
        return -ENAMETOOLONG;
    return 0;
}

int run_dir_unlink_socket(const char *path)
{
    struct stat st;

    if (lstat(path, &st) < 0)
        return errno == ENOENT ? 0 : -errno;
    if (!S_ISSOCK(st.st_mode))
        return -EEXIST;
    return unlink(path) < 0 && errno != ENOENT ? -errno : 0;
}
