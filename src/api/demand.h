/*
 * What a request asks of memory: how much text a model must read, how long the answer may become,
 * how large a context and for how long a model is to stay. Sizes that are no sizes (2^63, "131072",
 * -7) end here with a 400 that names the member: an engine computes with them and asks its device
 * for terabytes (F33 ollama/ollama#8964).
 *
 * Everything is an upper bound: what is not known widens it. Pure, allocates nothing; any thread.
 */
#ifndef FAILSOFT_API_DEMAND_H
#define FAILSOFT_API_DEMAND_H

#include "api/error.h"
#include "api/request.h"
#include "api/route.h"

#include <stdbool.h>
#include <stdint.h>

/* The largest size in tokens that is one; the same figure as ADMISSION_TOKENS_MAX. Whether a
 * context of 2^31-1 exists is for the tier to say, not for the parser. */
#define API_DEMAND_TOKENS_MAX (UINT64_C(1) << 31)

enum {
    API_DEMAND_EDGE_TOKENS = 8, /* BOS, EOS, [CLS], [SEP], a leading space, of either side */
};

struct api_demand {
    /*
     * Bytes of text that a template could render: contents, roles, names, tools, schemas. A token
     * id counts as one byte. Not counted: image and audio payloads, and files in base64.
     */
    uint64_t prompt_bytes;
    uint32_t messages;
    uint32_t images; /* pictures, and files that are not plain text */
    uint32_t audio_parts;
    bool output_given; /* false: absent, or "until the end": then output_tokens is 0 */
    bool context_given;
    bool keep_alive_given;
    bool keep_alive_forever;
    uint64_t output_tokens;       /* of the members that bound the answer, the largest */
    uint64_t context_tokens;      /* Ollama's options.num_ctx */
    uint64_t keep_alive_ms;       /* 0 when it is not given, or forever */
    uint32_t inputs;              /* embeddings: texts */
    uint64_t longest_input_bytes; /* embeddings: of one text */
    uint64_t audio_bytes;         /* multipart: the file */
    uint64_t audio_ms;            /* upper bound; 0: not known */
};

/*
 * Reads a request that api_request_parse accepted. Routes that neither generate nor embed nor
 * transcribe, and paths that are not known, give zeros: their members have other meanings.
 * 0; -EBADMSG with *ret_error filled (400, member, value, limit).
 *
 * A size is a whole number from 0 to API_DEMAND_TOKENS_MAX ("8192.0" is one, "1e9" is not); null is
 * absent. -1 means "until the end" for a bound of the answer in OpenAI's, llama-server's and
 * Ollama's dialect, -2 ("until the context is full") in n_predict and options.num_predict only.
 */
int api_demand_read(const struct api_route *route, const struct api_request *request,
                    struct api_demand *ret, struct api_error *ret_error);

/*
 * An upper bound of the tokens of the prompt, without those of images and audio.
 * `template_bytes`: what the chat template adds at most for one message; counted once more for what
 * surrounds them (a default system text, the generation prompt). Saturates.
 *
 * Proof. Let s be the rendered text. Byte-level BPE begins with one token per byte of s and only
 * merges. SentencePiece (BPE, unigram) with byte fallback cuts s into pieces, each at least one
 * character or one byte of it. WordPiece cuts words into pieces of at least one character, or puts
 * one [UNK] for a word. So each token stands for at least one byte of s, no byte for two tokens,
 * and tokens(s) ≤ bytes(s). What is added around s is API_DEMAND_EDGE_TOKENS at most.
 * s is made of texts of the request and of the template. Unescaping never lengthens a JSON string;
 * what a template writes as JSON again (tools, schemas, tool calls) is counted with a space or a
 * line break and an indentation of four at every mark, <, > and & as \u003c (Go), non-ASCII as
 * \uXXXX, \b and \f likewise, numbers with 25 characters. A template that the client brings along
 * counts once for every message and once more.
 * Hence bytes(s) ≤ prompt_bytes + template_bytes × (m + 1).
 *
 * Not covered: a template that writes one text twice, or loops over anything but messages; JSON
 * inside a string with an indentation; a tokenizer that normalises first and has no shorter piece
 * (NFC lengthens up to 3 times, NFKC up to 11: U+FDFA; llama.cpp does neither for BPE); text that
 * the engine fetches or extracts itself.
 */
uint64_t api_demand_prompt_tokens_upper(const struct api_demand *demand, uint64_t template_bytes);

#endif
