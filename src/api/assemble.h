/*
 * Puts a streamed answer of llama-server together into the answer that it would have sent without
 * streaming, member by member: content, reasoning, tool calls, log probabilities, several choices,
 * usage, timings. Non-streamed requests are fetched this way, so that a client that leaves cancels
 * the worker and a cut is seen. An answer that is not complete is never given out.
 *
 *   create → add(event)… → finish → destroy
 *
 * Sources: llama-server v0.4.0, server-task.cpp: to_json_oaicompat_chat and its streamed twin, and
 * the same pairs for completions and responses.
 */
#ifndef FAILSOFT_API_ASSEMBLE_H
#define FAILSOFT_API_ASSEMBLE_H

#include "api/event.h"
#include "api/request.h"
#include "api/route.h"
#include "base/buf.h"
#include "http/framer.h"

#include <stdbool.h>
#include <stddef.h>

struct api_assembly;

/*
 * True when a non-streamed request of this route can be fetched as a stream from llama-server and
 * put together without loss. False: fetch it as it is. Anthropic messages are not among them: when
 * the first token is half a character, the engine leaves message_start out, and with it the counts.
 */
bool api_assembly_can(const struct api_route *route, const struct api_request *request);

/* For chat, completions and responses. max_bytes caps what is held. 0; -EINVAL (other
 * operation); -ENOMEM. */
int api_assembly_create(enum api_operation operation, size_t max_bytes, struct api_assembly **ret);
void api_assembly_destroy(struct api_assembly *a);

/*
 * Takes one event. >0: the stream is complete, finish may be called; 0: go on; -EREMOTEIO: it was
 * an in-band error; -EBADMSG: not an event of this operation (broken JSON, wrong shape); -EMSGSIZE:
 * over the cap; -ENOMEM. After an error nothing more may be added.
 */
int api_assembly_add(struct api_assembly *a, const struct framer_event *ev);

/* The same for a caller that has inspected the event itself: one parse less. */
int api_assembly_add_inspected(struct api_assembly *a, const struct framer_event *ev,
                               const struct api_event_facts *facts);

/* True once a fragment of a tool call was seen. */
bool api_assembly_has_tool_call(const struct api_assembly *a);

/*
 * Appends the JSON of the whole answer. 0; -ENODATA when the stream was not complete (no finish
 * reason for a choice, or no end mark): nothing is appended; -EMSGSIZE, -ENOMEM.
 */
int api_assembly_finish(struct api_assembly *a, struct buf *out);

#endif
