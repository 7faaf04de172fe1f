/*
 * Counts the text in a JSON value that is known to be valid, and finds the payloads in it that are
 * not text (pictures, sound). One loop, a fixed number of keys remembered; what is nested deeper is
 * counted as text. Private to api/.
 */
#ifndef FAILSOFT_API_DEMAND_WALK_H
#define FAILSOFT_API_DEMAND_WALK_H

#include "base/span.h"

#include <stdbool.h>
#include <stdint.h>

enum { DEMAND_WALK_KEYS = 12 };

enum demand_walk_mode {
    DEMAND_WALK_MESSAGES = 0, /* texts are rendered as they are; tool calls perhaps as JSON */
    DEMAND_WALK_JSON,         /* written as JSON again: tools, schemas */
    DEMAND_WALK_PROMPT,       /* texts and token ids, nothing else */
};

struct demand_walk {
    enum demand_walk_mode mode;
    bool ollama;
    uint64_t bytes;
    uint32_t elements; /* values directly in a top-level array; 1 for a text, 0 for null */
    uint32_t images, audio_parts;
    uint32_t texts; /* PROMPT: texts and arrays of ids; an array of only ids is one */
    uint64_t longest_bytes;

    /* Inside demand_walk only. */
    bool loose_ids; /* PROMPT: ids directly in the top-level array */
    unsigned depth;
    unsigned calls_depth; /* in a tool call, from its key at this depth on; 0: not */
    uint64_t text_start;  /* `bytes` when the text began */
    /* An Anthropic `source` object: its data is text or a payload, known at its end. */
    unsigned source_depth; /* 0: not in one */
    unsigned source_types; /* how often it says its type; more than once: it may be text */
    bool source_is_payload;
    uint64_t source_bytes;
    unsigned char keys[DEMAND_WALK_KEYS]; /* enum key of the open objects and arrays */
};

/* `walk` zeroed but for mode and ollama; `value` is one valid JSON value. Counters saturate. */
void demand_walk(struct demand_walk *walk, struct span value);

#endif
