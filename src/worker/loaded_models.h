/*
 * Which models an external engine holds in memory, by its own list. For who wants to unload them.
 *
 *   Ollama               GET /api/ps: models[].model
 *   llama-server, router GET /models: data[].id where data[].status.value is loaded, loading or
 *                        sleeping (tools/server/README.md of llama.cpp, "GET /models"). One that runs
 *                        a single model has the same page, without any `status`.
 *
 * Pure.
 */
#ifndef FAILSOFT_WORKER_LOADED_MODELS_H
#define FAILSOFT_WORKER_LOADED_MODELS_H

#include "base/buf.h"
#include "base/span.h"

enum { LOADED_MODELS_PAGE_BYTES = 256 * 1024, LOADED_MODELS_NAMES_BYTES = 16 * 1024 };

/*
 * Each appends the names, each with a NUL, to ret_names. Their number; -EBADMSG: not such a page;
 * -EMSGSIZE, -ENOMEM as buf_append() (some names may have been appended).
 */
int loaded_models_ollama(struct span body, struct buf *ret_names);
/* `only`: just this one, if it is loaded; NULL: all. -ENOTSUP: it is no router. */
int loaded_models_router(struct span body, const char *only, struct buf *ret_names);

#endif
