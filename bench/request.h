/*
 * One HTTP/1.1 request as the fake upstream reads it.
 */
#ifndef FAILSOFT_BENCH_REQUEST_H
#define FAILSOFT_BENCH_REQUEST_H

#include "net.h"

#include <stdbool.h>
#include <stddef.h>

/* Points into the buffer it was read from; valid until that is consumed or grows. */
struct request {
    const char *method;
    const char *path;
    size_t method_len, path_len;
    const char *body;
    size_t body_len;
    size_t total; /* bytes on the wire, head included */
    bool close_after;
};

/*
 * Looks for a whole request at the front of `in` and consumes nothing; a chunked body is taken
 * apart in place. >0: it is there; 0: not yet; <0: not one that is understood.
 */
int request_read(struct net_buf *in, struct request *ret_request);

#endif
