/*
 * What a request head must look like before anybody acts on it, beyond what the parser checks:
 * the shapes that two HTTP implementations could read differently (request smuggling) are refused.
 */
#ifndef FAILSOFT_HTTP_REQUEST_RULES_H
#define FAILSOFT_HTTP_REQUEST_RULES_H

#include "base/span.h"
#include "http/fields.h"

#include <stdbool.h>
#include <stdint.h>

struct http_request_facts {
    bool http_1_0;
    bool connect; /* method CONNECT */
    struct span target;
    const struct http_fields *fields;
};

struct http_request_verdict {
    int status;            /* 0: fine; else the status to answer with */
    const char *message;   /* static text */
    bool expects_continue; /* the client waits for 100 before it sends the body */
    bool chunked;
    bool has_length;
    uint64_t content_length; /* when has_length */
    struct span target;      /* origin form: an absolute form is cut to its path */
};

/*
 * RFC 9112 §3.2 (Host exactly once, target forms), §6.1 to §6.3 (Transfer-Encoding is `chunked`
 * once and alone, never with Content-Length or in HTTP/1.0; one Content-Length, digits only),
 * RFC 9110 §10.1.1 (Expect). Pure.
 */
struct http_request_verdict http_request_check(const struct http_request_facts *facts);

#endif
