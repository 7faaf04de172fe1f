/*
 * What the engine itself says that a worker will take, without taking it: llama-fit-params, the
 * program beside llama-server, builds model, cache and graph without allocating and prints a line for
 * each device, in whole MiB rounded down (llama.cpp v0.4.0, common/fit.cpp, common_fit_print):
 *
 *   device weights cache compute          SIM0 92 90 97
 *                                         Host 28 0 6
 *
 * Measured with v0.4.0: 0.2 s for a small model; on the simulated card it allocates nothing. A real
 * device gives every process that opens it a context, so it is asked only where the formula is not
 * sure of itself, and its owner holds memory for that context while it runs.
 *
 * How far its word goes (dry_run_refine): weights and cache are exact to the MiB, as it is the engine's
 * own code that places them. Compute is counted for the outputs of a whole micro-batch, while
 * the server reserves those of one row a sequence: an upper bound, up to eight times too much. So
 * where the formula has high confidence nothing of it is used. Where it has not, the engine's own
 * bound takes the place of the formula's, be it larger (the formula may be under: this is the graph
 * that will be run) or smaller (then the formula counted what it did not know).
 * Projector, draft model and runtime are not in its figures: those of the formula stay. Never below
 * half the formula's bound: these figures also come from a file that anything may have happened to.
 *
 * Loop thread; dry_run_parse and dry_run_refine are pure.
 */
#ifndef FAILSOFT_WORKER_DRY_RUN_H
#define FAILSOFT_WORKER_DRY_RUN_H

#include "base/span.h"
#include "model/estimate.h"
#include "worker/options.h"

#include <uv.h>

enum {
    DRY_RUN_DEADLINE_MS = 30000,
    DRY_RUN_OUTPUT_BYTES = 4096, /* of stdout; more is no answer */
    DRY_RUN_FIGURES = 6,
};

struct dry_run_sizes {
    uint64_t device_weights_bytes, device_cache_bytes, device_compute_bytes;
    uint64_t host_weights_bytes, host_cache_bytes, host_compute_bytes;
};

/*
 * The whole output. 0; -EPROTO: anything but such lines, no line of the host, or more than one device
 * beside it; -ERANGE: figures that cannot be.
 */
int dry_run_parse(struct span text, struct dry_run_sizes *ret);

/* The six figures in the order of the struct, for a state file. */
void dry_run_to_figures(const struct dry_run_sizes *sizes, uint64_t ret_figures[DRY_RUN_FIGURES]);
int dry_run_from_figures(const uint64_t *figures, size_t count, struct dry_run_sizes *ret);

/* *bound_bytes and *floor_bytes (weights and cache) of the device: in, of the formula; out, with
 * what the engine says. See above. */
void dry_run_refine(const struct dry_run_sizes *sizes, const struct estimate *estimate,
                    uint64_t *bound_bytes, uint64_t *floor_bytes);

struct dry_run;

struct dry_run_events {
    /* The process runs, nice and last in line: whoever counts memory knows it by its pid. */
    void (*on_pid)(int pid, void *ctx);
    /* Once, never from inside dry_run_start(), and not after dry_run_cancel(). result: 0 and sizes;
     * -ENOENT: the engine has no such program; -ETIMEDOUT; -EIO: it refused, `why` in its words;
     * errors of dry_run_parse() and process_spawn(). The dry run is gone afterwards. */
    void (*on_done)(int result, const struct dry_run_sizes *sizes, const char *why, void *ctx);
};

/* Of a managed llama-server on a device; options are copied, events borrowed. 0; -EINVAL: no such
 * worker; -ENOMEM; errors of uv_queue_work. */
int dry_run_start(uv_loop_t *loop, const struct worker_options *options, uint64_t deadline_ms,
                  const struct dry_run_events *events, void *ctx, struct dry_run **ret_run);

/* No callback any more; the process is killed. NULL is fine. */
void dry_run_cancel(struct dry_run *run);

#endif
