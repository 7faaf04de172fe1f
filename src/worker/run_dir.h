/*
 * The private folder that the sockets of managed workers live in: mode 0700, owned by this user, so
 * that nobody else can connect to an engine or put a socket of his own in its place.
 */
#ifndef FAILSOFT_WORKER_RUN_DIR_H
#define FAILSOFT_WORKER_RUN_DIR_H

#include <stdbool.h>
#include <stddef.h>

/* sizeof(sun_path) - 1 on Linux (unix(7)). */
enum { RUN_DIR_SOCKET_PATH_MAX = 107 };

/*
 * Where sockets go when nothing is configured: $XDG_RUNTIME_DIR/failsoft-PID when that is an
 * absolute path, else /tmp/failsoft-UID-PID. 0; -ENAMETOOLONG.
 */
int run_dir_default(char *out, size_t out_size);

/*
 * Makes the folder when missing, else checks that it is one, ours and closed to others. On the way
 * removes the default folders that gateways which are gone left behind. *ret_made: it was not there.
 * 0; -EACCES (belongs to somebody else, or open to others); -ENOTDIR; errors of mkdir(2).
 */
int run_dir_prepare(const char *path, bool *ret_made);

/*
 * `DIR/SERVICE-TIER-N.sock`, odd characters of the names replaced, long names cut; N makes it unique
 * within this process. 0; -ENAMETOOLONG when the folder leaves no room.
 */
int run_dir_socket_path(const char *dir, const char *service, const char *tier, char *out,
                        size_t out_size);

/* Removes a socket, and nothing that is not one. 0 (also when absent); -EEXIST: something else. */
int run_dir_unlink_socket(const char *path);

#endif
