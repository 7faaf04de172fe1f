/*
 * Reads a page of metrics, one sample at a time, without copying it: the text format that
 * Prometheus scrapes (prometheus.io, "Exposition formats", version 0.0.4, and OpenMetrics, which
 * differs in nothing that matters here). A line that is not of the format is passed over. Pure.
 */
#ifndef FAILSOFT_WORKER_METRICS_TEXT_H
#define FAILSOFT_WORKER_METRICS_TEXT_H

#include "base/span.h"

#include <stdbool.h>
#include <stdint.h>

struct metrics_sample {
    struct span name;
    struct span labels; /* between the braces, raw; empty when there are none */
    double value;       /* may be NaN or infinite: the format has words for them */
};

/* The next sample off *rest. False: there is none left. Spans point into the page. */
bool metrics_next(struct span *rest, struct metrics_sample *ret_sample);

/* The raw value of a label, escapes as they stand. False: it has none of that name. */
bool metrics_label(struct span labels, const char *name, struct span *ret_value);

/* As metrics_label, for a whole number without sign, of at most 18 digits. */
bool metrics_label_u64(struct span labels, const char *name, uint64_t *ret_value);

#endif
