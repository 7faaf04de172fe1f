/*
 * Measured times and what is said of them.
 */
#ifndef FAILSOFT_BENCH_SAMPLES_H
#define FAILSOFT_BENCH_SAMPLES_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct samples {
    uint64_t *ns;
    size_t len;
    size_t cap;
};

void samples_add(struct samples *s, uint64_t ns);

/* Writes `"name":{"count":…,"mean":…,"p50":…,"p99":…,"p999":…,"max":…}` in µs; sorts the samples.
 */
void samples_print(FILE *out, const char *name, struct samples *s);

void samples_free(struct samples *s);

#endif
