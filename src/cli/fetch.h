/*
 * One small call with blocking sockets and one deadline for all of it: what a command needs to ask a
 * running gateway, without a loop.
 */
#ifndef FAILSOFT_CLI_FETCH_H
#define FAILSOFT_CLI_FETCH_H

#include "base/buf.h"

#include <stdint.h>

/*
 * A call (GET, POST, …, without a body) of `path` below `base_url` (`http://host[:port][/prefix]`); the body goes to `body` (its cap
 * holds). *ret_status is the HTTP status.
 * 0; -EINVAL (no such URL), -EHOSTUNREACH (the name is not known), -ECONNREFUSED and other errors
 * of connect(2), -ETIMEDOUT, -EPROTO (not HTTP), -ECONNABORTED (cut), -EMSGSIZE, -ENOMEM.
 */
int cli_fetch(const char *method, const char *base_url, const char *path, uint64_t timeout_ms,
              struct buf *body, int *ret_status);

#endif
