/* Fixed-bound duration histogram. Loop thread only. */
#include "gateway/histogram.h"

static const double histogram_bounds_s[HISTOGRAM_BOUNDS] = {
    0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10, 30, 120, 600,
};

void histogram_add_ms(struct histogram *h, uint64_t ms)
{
    double s = (double)ms / 1000.0;
    unsigned i = 0;
    while (i < HISTOGRAM_BOUNDS && s > histogram_bounds_s[i])
        i++;
    h->counts[i]++;
    h->count++;
    h->sum_s += s;
}

struct gateway_histogram histogram_view(const struct histogram *h)
{
    return (struct gateway_histogram){
        .bounds_s = histogram_bounds_s,
        .counts = h->counts,
        .bound_count = HISTOGRAM_BOUNDS,
        .count = h->count,
        .sum_s = h->sum_s,
    };
}
