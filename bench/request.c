/*
 * Reads HTTP/1.1 requests for the fake upstream: enough of the protocol for what the four ways to
 * it (direct, nginx, HAProxy, failsoft) send. It is no example of a strict parser.
 */
#include "request.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/types.h>

#define BODY_MAX (64u * 1024 * 1024)
#define HEAD_MAX (64u * 1024)

/* Takes a chunked body apart in place. >0: its bytes on the wire; 0: not all there; <0: broken. */
static ssize_t body_dechunk(char *at, size_t len, size_t *ret_body_len)
{
    size_t in = 0, out = 0;

    for (;;) {
        char *line_end = memmem(at + in, len - in, "\r\n", 2);
        if (!line_end) {
            return 0;
        }
        char *digits_end;
        unsigned long size = strtoul(at + in, &digits_end, 16);
        if (digits_end == at + in || size > BODY_MAX) {
            return -EBADMSG;
        }
        in = (size_t)(line_end - at) + 2;
        if (len - in < size + 2) {
            return 0;
        }
        if (size == 0) {
            *ret_body_len = out;
            return (ssize_t)(in + 2);
        }
        memmove(at + out, at + in, size);
        out += size;
        in += size + 2;
    }
}

/* Finds the value of a header line in a head; NULL when it is not there. */
static const char *head_field(const char *head, const char *head_end, const char *name)
{
    size_t len = strlen(name);

    for (const char *line = head; line < head_end;) {
        const char *next = memchr(line, '\n', (size_t)(head_end - line));
        if ((size_t)(head_end - line) > len && strncasecmp(line, name, len) == 0 &&
            line[len] == ':') {
            line += len + 1;
            return line + strspn(line, " ");
        }
        if (!next) {
            break;
        }
        line = next + 1;
    }
    return NULL;
}

int request_read(struct net_buf *in, struct request *ret_request)
{
    if (!in->data) {
        return 0; /* nothing has come yet */
    }
    char *head = in->data + in->off;
    size_t len = in->len - in->off;
    char *end = memmem(head, len < HEAD_MAX ? len : HEAD_MAX, "\r\n\r\n", 4);
    struct request request = {.method = head};

    if (!end) {
        return len >= HEAD_MAX ? -EMSGSIZE : 0;
    }
    char *body = end + 4;
    char *space = memchr(head, ' ', (size_t)(end - head));
    char *second = space ? memchr(space + 1, ' ', (size_t)(end - space - 1)) : NULL;
    if (!second) {
        return -EBADMSG;
    }
    request.method_len = (size_t)(space - head);
    request.path = space + 1;
    request.path_len = (size_t)(second - space - 1);
    const char *connection = head_field(head, end, "connection");
    const char *length = head_field(head, end, "content-length");
    const char *coding = head_field(head, end, "transfer-encoding");
    request.close_after = connection && strncasecmp(connection, "close", 5) == 0;
    request.body = body;
    size_t there = len - (size_t)(body - head);
    if (coding) {
        /* The body is taken apart in a copy of itself only once: when its end is there. */
        if (there < 5 || memcmp(head + len - 5, "0\r\n\r\n", 5) != 0) {
            return there > BODY_MAX ? -EMSGSIZE : 0;
        }
        ssize_t wire = body_dechunk(body, there, &request.body_len);
        if (wire <= 0) {
            return wire < 0 ? (int)wire : -EBADMSG;
        }
        request.total = (size_t)(body - head) + (size_t)wire;
    } else {
        request.body_len = length ? strtoul(length, NULL, 10) : 0;
        if (request.body_len > BODY_MAX) {
            return -EMSGSIZE;
        }
        if (there < request.body_len) {
            net_buf_reserve(in, request.body_len - there);
            return 0;
        }
        request.total = (size_t)(body - head) + request.body_len;
    }
    *ret_request = request;
    return 1;
}
