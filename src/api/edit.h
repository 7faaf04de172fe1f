/*
 * What is changed in a body before it goes to a worker, as splices: the client's bytes stay where
 * they are, and a gather write sends them with the insertions in between. An 8 MiB body is never
 * copied. The result of every edit of a valid object is a valid object with exactly the members
 * that were asked for; members that are not named keep their bytes.
 */
#ifndef FAILSOFT_API_EDIT_H
#define FAILSOFT_API_EDIT_H

#include "api/request.h"
#include "base/buf.h"
#include "base/span.h"

#include <stdbool.h>
#include <stddef.h>

enum {
    API_EDIT_DEFAULTS_MAX = 32,
    API_EDIT_SPLICES_MAX = 24, /* defaults replaced in place, and the members named below */
    API_EDIT_PARTS_MAX = 2 * API_EDIT_SPLICES_MAX + 1,
};

/* A member that is added when the body has none of that name, or null. */
struct api_default {
    const char *name;    /* e.g. "temperature" */
    const char *literal; /* valid JSON, e.g. "0.8" */
};

struct api_edit_options {
    const char *model;    /* name that this worker knows the model by; NULL: leave it */
    bool stream;          /* set "stream":true */
    bool return_progress; /* set "return_progress":true (llama-server) */
    bool include_usage;   /* set "stream_options":{"include_usage":true}, other options kept */
    /*
     * Sizes, each set only when its flag is: the bound of the answer in every member that bounds it
     * already, else in the dialect's own; Ollama's options.num_ctx and keep_alive (F46
     * open-webui/open-webui#11003). The latter two only in Ollama's dialect.
     */
    bool set_output, set_context, set_keep_alive;
    uint64_t output_tokens, context_tokens, keep_alive_s;
    enum api_dialect dialect;     /* of the request's route; needed for the sizes */
    enum api_operation operation; /* as above */
    const struct api_default *defaults;
    size_t default_count;
};

struct api_edit {
    struct span body;
    struct buf inserted; /* the text of all insertions */
    unsigned count;
    struct {
        size_t offset, remove;            /* in the body, ascending, not overlapping */
        size_t insert_offset, insert_len; /* in `inserted` */
    } splices[API_EDIT_SPLICES_MAX];
};

/*
 * Works out the splices. For a multipart body only `model` is applied. A body of another kind is
 * passed unchanged. The request (its body) must outlive the edit. 0; -ENOMEM; -EMSGSIZE (more
 * than API_EDIT_DEFAULTS_MAX defaults or 64 KiB of text); -EINVAL (a
 * model name that cannot stand in a form field). On failure there is nothing to free.
 */
int api_edit_prepare(const struct api_request *request, const struct api_edit_options *options,
                     struct api_edit *ret);

/* The edited body as parts in order; returns their number (0 for an empty body). Valid until
 * api_edit_free. */
unsigned api_edit_parts(const struct api_edit *e, struct span parts[API_EDIT_PARTS_MAX]);

/* Length of the edited body in bytes. */
size_t api_edit_length(const struct api_edit *e);

/* NULL is fine. */
void api_edit_free(struct api_edit *e);

#endif
