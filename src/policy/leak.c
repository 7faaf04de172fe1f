/* The idle baseline. See leak.h. */
#include "policy/leak.h"

#define LEAK_LEAST_BYTES (UINT64_C(256) << 20)
enum { LEAK_SHARE = 16, LEAK_IN_A_ROW = 2, LEAK_STEP_SHARE = 16 };

void leak_init(struct leak *k, uint64_t threshold_bytes)
{
    *k = (struct leak){.threshold_bytes = threshold_bytes};
}

bool leak_note(struct leak *k, uint64_t idle_bytes)
{
    if (!k->started) {
        k->started = true;
        k->first_bytes = idle_bytes;
    }
    k->last_bytes = idle_bytes;
    uint64_t threshold = k->threshold_bytes;
    if (threshold == 0) {
        threshold = k->first_bytes / LEAK_SHARE;
        if (threshold < LEAK_LEAST_BYTES)
            threshold = LEAK_LEAST_BYTES;
    }
    /* One figure may have caught the end of a request. */
    if (leak_grown_bytes(k) <= threshold)
        k->over = 0;
    else if (k->over < LEAK_IN_A_ROW &&
             (k->over == 0 || idle_bytes > k->high_bytes + threshold / LEAK_STEP_SHARE)) {
        k->over++;
        k->high_bytes = idle_bytes;
    }
    return leak_is_suspected(k);
}

bool leak_is_suspected(const struct leak *k)
{
    return k->over >= LEAK_IN_A_ROW;
}

uint64_t leak_grown_bytes(const struct leak *k)
{
    return k->last_bytes > k->first_bytes ? k->last_bytes - k->first_bytes : 0;
}
