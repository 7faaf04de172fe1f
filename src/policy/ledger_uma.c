/* Integrated devices: one pool under several names (F37, F41). See ledger.h. */
#include "policy/ledger.h"

#include <errno.h>

enum { UMA_ALIKE_SHARE = 8 };

static uint64_t uma_rest(uint64_t total, uint64_t used)
{
    return total > used ? total - used : 0;
}

static uint64_t uma_least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/*
 * Is the carve-out the host's own memory under a second name? Some drivers report all RAM as device
 * memory. A real carve-out is missing from MemTotal, which only physical_total can show.
 */
static bool uma_is_alias(const struct ledger_uma *uma)
{
    uint64_t sum = uma->carve_out_total + uma->host_total;
    if (uma->physical_total > 0)
        return sum > uma->physical_total + uma->physical_total / UMA_ALIKE_SHARE;
    uint64_t slack = uma->host_total / UMA_ALIKE_SHARE;
    return uma->carve_out_total + slack >= uma->host_total &&
           uma->carve_out_total <= uma->host_total + slack;
}

int ledger_uma_sample(const struct ledger_uma *uma, uint64_t taken_ms,
                      struct ledger_sample *ret_sample)
{
    const uint64_t figures[] = {uma->carve_out_total, uma->carve_out_used, uma->gtt_total,
                                uma->gtt_used,        uma->host_total,     uma->physical_total};
    for (size_t i = 0; i < sizeof(figures) / sizeof(figures[0]); i++) {
        if (figures[i] > LEDGER_BYTES_MAX)
            return -ERANGE;
    }
    if (uma->host_total == 0 || uma->host_available > uma->host_total)
        return -ERANGE;
    bool alias = uma_is_alias(uma);
    uint64_t carve_out = alias ? 0 : uma->carve_out_total;
    uint64_t carve_out_free = alias ? 0 : uma_rest(carve_out, uma->carve_out_used);
    /* A driver that reports neither carve-out nor GTT (F37) leaves all of it to the host. */
    uint64_t driver_total = uma->carve_out_total + uma->gtt_total;
    uint64_t driver_free = uma_rest(uma->carve_out_total, uma->carve_out_used) +
                           uma_rest(uma->gtt_total, uma->gtt_used);
    uint64_t host_total = uma->host_total + carve_out;
    uint64_t host_free = uma->host_available + carve_out_free;
    bool no_driver = driver_total == 0;
    uint64_t total = no_driver ? host_total : uma_least(driver_total, host_total);
    uint64_t free_bytes = no_driver ? host_free : uma_least(driver_free, host_free);
    *ret_sample = (struct ledger_sample){
        .taken_ms = taken_ms,
        .total_valid = true,
        .free_valid = true,
        .total_bytes = total,
        .free_bytes = free_bytes,
    };
    return 0;
}
