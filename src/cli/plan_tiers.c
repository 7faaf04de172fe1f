/* What each tier takes: its estimate, and what was learned of its loads. See plan.h. */
#include "cli/plan.h"

#include "config/state_dir.h"
#include "gateway/learned.h"
#include "policy/learning.h"
#include "worker/dry_run.h"
#include "worker/fingerprint.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int plan_read_entry(struct plan_entry *e)
{
    const char *path = NULL;
    int r = tier_model_open(&e->source, &e->model, &path);

    if (r == -ENOMEM)
        return r;
    if (r < 0) {
        snprintf(e->problem, sizeof(e->problem), "%.200s: %s", path, strerror(-r));
        e->broken = true;
        return 0;
    }
    e->estimate = malloc(sizeof(*e->estimate));
    if (e->estimate == NULL)
        return -ENOMEM;
    tier_model_estimate(e->model, NULL, e->estimate);
    e->broken = tier_model_facts(e->model) != NULL && !tier_model_facts(e->model)->usable;
    return 0;
}

static int read_tier(struct plan *p, const struct config_service *service,
                     const struct config_tier *tier)
{
    struct plan_entry *e = &p->entries[p->count++];
    int r;

    e->service = service;
    e->tier = tier;
    e->path = tier->command.count > 0 ? NULL : tier->model_path;
    r = tier_source_init(p->config, service, tier, &e->source);
    if (r != -ENOENT)
        return r < 0 ? r : plan_read_entry(e);
    snprintf(e->problem, sizeof(e->problem), "%s",
             tier->managed ? "no model file"
                           : "somebody else runs this engine; what it takes can only be observed");
    return 0;
}

int plan_read_tiers(struct plan *p)
{
    const struct config *c = p->config;
    size_t count = 0;
    int r = 0;

    for (size_t i = 0; i < c->service_count; i++)
        count += c->services[i].tier_count;
    p->entries = calloc(count + 1, sizeof(*p->entries));
    if (p->entries == NULL)
        return -ENOMEM;
    for (size_t i = 0; r == 0 && i < c->service_count; i++) {
        for (size_t j = 0; r == 0 && j < c->services[i].tier_count; j++)
            r = read_tier(p, &c->services[i], &c->services[i].tiers[j]);
    }
    return r;
}

void plan_free_entries(struct plan *p)
{
    for (size_t i = 0; i < p->count; i++) {
        tier_model_free(p->entries[i].model);
        tier_source_free(&p->entries[i].source);
        free(p->entries[i].estimate);
    }
    free(p->entries);
    p->entries = NULL;
}

/* --- the need --- */

static uint64_t add(uint64_t a, uint64_t b)
{
    return a <= UINT64_MAX - b ? a + b : UINT64_MAX;
}

/* The simulated card lives in the engine's own memory, an integrated device in the machine's. What the
 * card holds for a program that is not ggml is a number. */
static bool takes_host_memory(const struct plan_entry *e)
{
    return e->device != NULL &&
           (e->device->shared ||
            (e->device->device->kind == CONFIG_DEVICE_KIND_SIM && !e->source.declared));
}

void plan_need(const struct plan_entry *e, const struct tier_estimate *estimate,
               uint64_t *ret_device, uint64_t *ret_host)
{
    uint64_t bytes = estimate->estimate.device_total.upper_bytes;
    uint64_t host = estimate->estimate.host_total.upper_bytes;

    /* No device, nothing on it: a model file without a configuration keeps its figures. */
    *ret_device = bytes > 0 ? add(bytes, e->excess_bytes) : 0;
    *ret_host = add(host, e->source.host_cache_bytes);
    if (takes_host_memory(e))
        *ret_host = add(*ret_host, *ret_device);
}

/* What the engine itself said of its sizes takes the place of a formula that is not sure. */
static uint64_t refine(const struct learning *table, const struct plan_entry *e,
                       struct learning_key key, uint64_t *floor_bytes)
{
    uint64_t figures[LEARNING_SAMPLES];
    uint64_t bound = e->estimate->estimate.device_total.upper_bytes;
    struct dry_run_sizes sizes;
    uint32_t count;

    key.use = LEARNING_USE_SIZES;
    count = learning_kept(table, &key, figures);
    if (dry_run_from_figures(figures, count, &sizes) == 0)
        dry_run_refine(&sizes, &e->estimate->estimate, &bound, floor_bytes);
    return bound;
}

static void learn_entry(const struct learning *table, struct plan_entry *e)
{
    const struct tier_estimate *t = e->estimate;
    uint64_t formula = t->estimate.device_total.upper_bytes;
    uint64_t floor = t->floor_bytes;
    const struct learning_key key = {
        .model = t->model_hash,
        .settings = t->settings_hash,
        .engine = t->engine_hash,
        .device = e->device_hash,
        .use = LEARNING_USE_LOAD,
    };
    uint64_t bound = refine(table, e, key, &floor);
    uint64_t learned = learning_estimate(table, &key, bound, floor);

    e->learned_bytes = learning_seen_bytes(table, &key, &e->learned_count);
    e->unfit = learning_is_unfit(table, &key);
    e->excess_bytes = learned > formula ? learned - formula : 0;
    plan_need(e, t, &e->device_bytes, &e->host_bytes);
    /* Less than the formula: for these settings only, not for those of a hint. */
    if (learned < formula) {
        e->host_bytes -= takes_host_memory(e) ? e->device_bytes - learned : 0;
        e->device_bytes = learned;
    }
}

void plan_add_learned(struct plan *p)
{
    struct learning_entry *room = calloc(LEARNED_CAPACITY, sizeof(*room));
    struct learned_reading reading;
    struct learning table;
    char path[PATH_MAX];
    bool have = false;

    if (room != NULL) {
        learning_init(&table, room, LEARNED_CAPACITY);
        have = p->config != NULL &&
               state_dir_path(p->config, STATE_DIR_LEARNED, path, sizeof(path)) == 0 &&
               learned_read(path, &table, &reading) == 0;
    }
    for (size_t i = 0; i < p->count; i++) {
        struct plan_entry *e = &p->entries[i];

        if (e->estimate == NULL)
            continue;
        plan_need(e, e->estimate, &e->device_bytes, &e->host_bytes);
        if (e->device == NULL || e->device_bytes == 0)
            continue;
        e->device_hash = fingerprint_device(e->device->name, e->device->device->kind,
                                            e->device->shared ? 0 : e->device->total_bytes);
        if (have)
            learn_entry(&table, e);
    }
    free(room);
}
