/* A histogram of durations with fixed bounds, from 1 ms to 10 min, for the metrics page. */
#ifndef FAILSOFT_GATEWAY_HISTOGRAM_H
#define FAILSOFT_GATEWAY_HISTOGRAM_H

#include "gateway/snapshot.h"

#include <stdint.h>

enum { HISTOGRAM_BOUNDS = 14 };

struct histogram {
    uint64_t counts[HISTOGRAM_BOUNDS + 1];
    uint64_t count;
    double sum_s;
};

void histogram_add_ms(struct histogram *h, uint64_t ms);
struct gateway_histogram histogram_view(const struct histogram *h);

#endif
