/* The answer of a dry run: read strictly, and weighed against the formula. Pure. See dry_run.h. */
#include "worker/dry_run.h"

#include <errno.h>

#define MIB (UINT64_C(1) << 20)

enum { DRY_RUN_MIB_MAX = 16 * 1024 * 1024, DRY_RUN_DIGITS = 8, DRY_RUN_LEAST_SHARE = 2 };

static int parse_mib(struct span word, uint64_t *ret_bytes)
{
    uint64_t value = 0;
    if (word.len == 0 || word.len > DRY_RUN_DIGITS)
        return -EPROTO;
    for (size_t i = 0; i < word.len; i++) {
        if (word.ptr[i] < '0' || word.ptr[i] > '9')
            return -EPROTO;
        value = value * 10 + (uint64_t)(word.ptr[i] - '0');
    }
    if (value > DRY_RUN_MIB_MAX)
        return -ERANGE;
    *ret_bytes = value * MIB;
    return 0;
}

/* "NAME weights cache compute", single spaces; the program ends each line with one. */
static int parse_line(struct span line, bool *ret_host, uint64_t figures[3])
{
    struct span name, word;
    line = span_trim(line);
    if (!span_split_next(&line, ' ', &name) || name.len == 0)
        return -EPROTO;
    for (unsigned i = 0; i < 3; i++) {
        if (!span_split_next(&line, ' ', &word))
            return -EPROTO;
        int r = parse_mib(word, &figures[i]);
        if (r < 0)
            return r;
    }
    if (line.len > 0)
        return -EPROTO;
    *ret_host = span_equals_str(name, "Host");
    return 0;
}

int dry_run_parse(struct span text, struct dry_run_sizes *ret)
{
    uint64_t device[3] = {0}, host[3] = {0}, figures[3];
    unsigned devices = 0, hosts = 0;
    struct span line;
    while (span_split_next(&text, '\n', &line)) {
        bool is_host;
        if (span_trim(line).len == 0)
            continue;
        int r = parse_line(line, &is_host, figures);
        if (r < 0)
            return r;
        for (unsigned i = 0; i < 3; i++)
            (is_host ? host : device)[i] = figures[i];
        hosts += is_host;
        devices += !is_host;
    }
    if (hosts != 1 || devices > 1)
        return -EPROTO;
    *ret = (struct dry_run_sizes){device[0], device[1], device[2], host[0], host[1], host[2]};
    return 0;
}

void dry_run_to_figures(const struct dry_run_sizes *s, uint64_t ret_figures[DRY_RUN_FIGURES])
{
    const uint64_t figures[DRY_RUN_FIGURES] = {s->device_weights_bytes, s->device_cache_bytes,
                                               s->device_compute_bytes, s->host_weights_bytes,
                                               s->host_cache_bytes,     s->host_compute_bytes};
    for (unsigned i = 0; i < DRY_RUN_FIGURES; i++)
        ret_figures[i] = figures[i];
}

int dry_run_from_figures(const uint64_t *figures, size_t count, struct dry_run_sizes *ret)
{
    if (count != DRY_RUN_FIGURES)
        return -EPROTO;
    for (unsigned i = 0; i < DRY_RUN_FIGURES; i++) {
        if (figures[i] > DRY_RUN_MIB_MAX * MIB)
            return -ERANGE;
    }
    *ret = (struct dry_run_sizes){figures[0], figures[1], figures[2],
                                  figures[3], figures[4], figures[5]};
    return 0;
}

void dry_run_refine(const struct dry_run_sizes *sizes, const struct estimate *e,
                    uint64_t *bound_bytes, uint64_t *floor_bytes)
{
    if (e->confidence == ESTIMATE_CONFIDENCE_HIGH)
        return;
    uint64_t floor = sizes->device_weights_bytes + sizes->device_cache_bytes;
    /* Each of the three was rounded down. */
    uint64_t bound = floor + sizes->device_compute_bytes + 3 * MIB;
    static const enum estimate_part others[] = {ESTIMATE_PROJECTOR, ESTIMATE_DRAFT,
                                                ESTIMATE_RUNTIME};
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        if (__builtin_add_overflow(bound, e->device[others[i]].upper_bytes, &bound))
            bound = UINT64_MAX;
    }
    if (bound < *bound_bytes / DRY_RUN_LEAST_SHARE)
        bound = *bound_bytes / DRY_RUN_LEAST_SHARE;
    *bound_bytes = bound;
    *floor_bytes = floor < bound ? floor : bound;
}
