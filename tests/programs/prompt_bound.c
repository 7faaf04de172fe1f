/*
 * Prints the upper bound of a prompt's tokens that the gateway works with, so that a test can hold it
 * against a real tokenizer: prompt-bound PATH TEMPLATE_BYTES, the body on stdin.
 * Exit: 0, 1 the body was refused (why on stderr), 2 usage, 3 input or memory.
 */
#include "api/demand.h"

#include "base/buf.h"
#include "base/units.h"

#include <inttypes.h>
#include <stdio.h>

enum { CHUNK = 64 * 1024, BODY_MAX = 64 * 1024 * 1024 };

static bool read_all(struct buf *b)
{
    static char chunk[CHUNK];
    size_t n;
    while ((n = fread(chunk, 1, sizeof(chunk), stdin)) > 0)
        if (buf_append(b, chunk, n) < 0)
            return false;
    return !ferror(stdin);
}

int main(int argc, char **argv)
{
    struct api_route route;
    struct api_request request;
    struct api_demand demand;
    struct api_error error;
    struct buf body;
    uint64_t template_bytes;
    int status = 0;
    if (argc != 3 || units_parse_u64(argv[2], &template_bytes) != 0 ||
        !api_route_find(SPAN_LIT("POST"), span_from_str(argv[1]), &route)) {
        fprintf(stderr, "usage: prompt-bound PATH TEMPLATE_BYTES <BODY\n");
        return 2;
    }
    buf_init(&body, BODY_MAX);
    if (!read_all(&body)) {
        status = 3;
    } else if (api_request_parse(&route, SPAN_NONE, buf_span(&body), &request, &error) < 0 ||
               api_demand_read(&route, &request, &demand, &error) < 0) {
        fprintf(stderr, "prompt-bound: %s\n", error.message);
        status = 1;
    } else {
        printf("%" PRIu64 "\n", api_demand_prompt_tokens_upper(&demand, template_bytes));
    }
    buf_free(&body);
    return status;
}
