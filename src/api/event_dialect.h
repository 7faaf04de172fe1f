/* Inside of api/: what the members of an event mean in each dialect. Used by event.c. */
#ifndef FAILSOFT_API_EVENT_DIALECT_H
#define FAILSOFT_API_EVENT_DIALECT_H

#include "api/event.h"

#include <stdbool.h>
#include <yyjson.h>

struct event_reading {
    struct api_event_facts *facts; /* flags are set, kind is left to the caller */
    bool opening;                  /* begins the answer or a part of it, without content */
    bool ping;                     /* says only that the worker is there */
};

/* Reads an event that is an object and no error. */
void event_dialect_read(enum api_operation operation, yyjson_val *root,
                        struct event_reading *reading);

/* Parses into the thread's fixed buffer: free the document before the next call. NULL: not JSON. */
yyjson_doc *event_read_json(struct span text, yyjson_read_flag flags);

#endif
