/*
 * Keeps every sample: some 100,000 a run at most, and a quantile of all is exact.
 */
#include "samples.h"

#include "net.h"

#include <stdlib.h>

void samples_add(struct samples *s, uint64_t ns)
{
    if (s->len == s->cap) {
        s->cap = s->cap ? 2 * s->cap : 4096;
        s->ns = realloc(s->ns, s->cap * sizeof(*s->ns));
        if (!s->ns) {
            net_die("samples");
        }
    }
    s->ns[s->len++] = ns;
}

static int compare_ns(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
}

static double quantile_us(const struct samples *s, double q)
{
    size_t at = (size_t)(q * (double)s->len);

    return (double)s->ns[at < s->len ? at : s->len - 1] / 1000.0;
}

void samples_print(FILE *out, const char *name, struct samples *s)
{
    double sum = 0;

    if (s->len == 0) {
        fprintf(out, "\"%s\":{\"count\":0}", name);
        return;
    }
    qsort(s->ns, s->len, sizeof(*s->ns), compare_ns);
    for (size_t i = 0; i < s->len; i++) {
        sum += (double)s->ns[i];
    }
    fprintf(out,
            "\"%s\":{\"count\":%zu,\"mean\":%.2f,\"p50\":%.2f,\"p99\":%.2f,\"p999\":%.2f,"
            "\"max\":%.2f}",
            name, s->len, sum / (double)s->len / 1000.0, quantile_us(s, 0.5), quantile_us(s, 0.99),
            quantile_us(s, 0.999), quantile_us(s, 1.0));
}

void samples_free(struct samples *s)
{
    free(s->ns);
    *s = (struct samples){0};
}
