/* Inside of api/: error objects in parsed JSON. Used by event.c; the public door is api/event.h. */
#ifndef FAILSOFT_API_EVENT_ERROR_H
#define FAILSOFT_API_EVENT_ERROR_H

#include "api/event.h"

#include <stdbool.h>
#include <yyjson.h>

/* Neither absent, null, false, nor empty. */
bool event_error_is_something(yyjson_val *value);

/*
 * Takes the error out of an object. named_error: the event is named `error`, so that the object
 * itself is one whatever its members. False when it is no error; *ret untouched.
 */
bool event_error_take(yyjson_val *root, bool named_error, struct api_event_error *ret);

/* An error that is plain text. */
void event_error_take_text(struct span text, struct api_event_error *ret);

#endif
