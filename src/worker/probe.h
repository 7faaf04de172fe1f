/*
 * Questions to an engine over HTTP: is it ready, and what is it. Answers are judged by the shape of
 * the body: a status of 200 alone proves nothing (a stranger's server answers 200 and HTML on every
 * path), and a list of models is no sign of readiness (mostlygeek/llama-swap#146).
 *
 * Pure; worker_ask() does the asking.
 */
#ifndef FAILSOFT_WORKER_PROBE_H
#define FAILSOFT_WORKER_PROBE_H

#include "base/span.h"
#include "worker/options.h"

#include <stddef.h>

enum probe_health {
    PROBE_HEALTH_READY,   /* 200 {"status":"ok"} */
    PROBE_HEALTH_LOADING, /* says that it loads, in either form that llama-server has had */
    PROBE_HEALTH_NOT_YET, /* anything else that may pass */
    PROBE_HEALTH_STRANGER /* some other server: it will never be ready */
};

/* `why` gets a sentence for all but READY. */
enum probe_health probe_judge_health(int status, struct span body, char *why, size_t why_size);

/*
 * The same for a program of which only a path is known: 2xx is ready, whatever it says; nothing proves
 * a stranger.
 */
enum probe_health probe_judge_path(const char *path, int status, struct span body, char *why,
                                   size_t why_size);

enum { PROBE_ENGINE_STEPS = 3 };

/* The path asked in a step of finding out the engine, in this order; NULL after the last. */
const char *probe_engine_path(unsigned step);
/* What an answer to that step proves; UNKNOWN: nothing, go on. */
enum worker_engine probe_judge_engine(unsigned step, int status, struct span body);

/* Nobody has more to say to these questions. */
enum { PROBE_BODY_BYTES = 64 * 1024 };

#endif
