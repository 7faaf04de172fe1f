/*
 * The running form of one configuration. Requests hold the generation that they began under, so a
 * reload never pulls a setting from under them; the last one to leave an old generation frees it.
 * Loop thread only.
 */
#include "gateway/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct gateway_counters *counters_get(struct gateway *g, const char *service)
{
    LIST_FOR_EACH(node, &g->counters)
    {
        struct gateway_counters *c = LIST_ENTRY(node, struct gateway_counters, node);
        if (strcmp(c->service, service) == 0)
            return c;
    }
    struct gateway_counters *c = calloc(1, sizeof(*c));
    if (!c)
        return NULL;
    c->service = strdup(service);
    if (!c->service) {
        free(c);
        return NULL;
    }
    list_push_back(&g->counters, &c->node);
    return c;
}

/* A worker of the same service and tier whose settings are those of this tier. */
static struct gateway_worker *find_same_worker(struct gateway *g, const struct config *config,
                                               const struct config_service *service,
                                               const struct config_tier *tier)
{
    struct worker_options wanted;
    if (worker_options_from_config(config, service, tier, &wanted) < 0)
        return NULL;
    struct gateway_worker *found = NULL;
    LIST_FOR_EACH(node, &g->workers)
    {
        struct gateway_worker *w = LIST_ENTRY(node, struct gateway_worker, node);
        if (!w->stopping && w->worker && strcmp(w->service, service->name) == 0 &&
            strcmp(w->tier, tier->name) == 0 &&
            worker_options_equal(worker_get_options(w->worker), &wanted))
            found = w;
    }
    worker_options_release(&wanted);
    return found;
}

static int tier_create(struct gateway *g, const struct config *config,
                       const struct config_service *service, const struct config_tier *config_tier,
                       struct gateway_tier *ret)
{
    struct gateway_worker *w = find_same_worker(g, config, service, config_tier);
    if (w) {
        gateway_worker_ref(w);
        struct availability_settings settings = gateway_worker_settings(config_tier);
        availability_configure(&w->availability, &settings);
        w->slots = config_tier->slots;
    } else {
        int r = gateway_worker_create(g, config, service, config_tier, &w);
        if (r < 0)
            return r;
    }
    *ret = (struct gateway_tier){.config = config_tier, .worker = w};
    return 0;
}

static int service_create(struct gateway *g, const struct config *config,
                          const struct config_service *config_service, struct gateway_service *s)
{
    s->config = config_service;
    s->counters = counters_get(g, config_service->name);
    s->tiers = calloc(config_service->tier_count + 1, sizeof(*s->tiers));
    s->sampling = calloc(config_service->sampling.count + 1, sizeof(*s->sampling));
    if (!s->counters || !s->tiers || !s->sampling)
        return -ENOMEM;
    for (size_t i = 0; i < config_service->sampling.count; i++)
        s->sampling[i] = (struct api_default){
            .name = config_service->sampling.items[i].name,
            .literal = config_service->sampling.items[i].value,
        };
    s->sampling_count = config_service->sampling.count;
    if (config_service->tier_count > GATEWAY_MAX_TIERS)
        return -E2BIG;
    for (size_t i = 0; i < config_service->tier_count; i++) {
        int r = tier_create(g, config, config_service, &config_service->tiers[i], &s->tiers[i]);
        if (r < 0)
            return r;
        s->tier_count = i + 1;
    }
    return 0;
}

static void generation_free(struct generation *gen)
{
    for (size_t i = 0; i < gen->service_count; i++) {
        struct gateway_service *s = &gen->services[i];
        for (size_t t = 0; t < s->tier_count; t++)
            gateway_worker_unref(s->tiers[t].worker);
        free(s->tiers);
        free(s->sampling);
    }
    list_remove(&gen->node);
    free(gen->services);
    config_free(gen->config);
    free(gen);
}

void generation_unref(struct generation *gen)
{
    if (gen && --gen->references == 0)
        generation_free(gen);
}

int generation_create(struct gateway *g, struct config *config, struct generation **ret)
{
    struct generation *gen = calloc(1, sizeof(*gen));
    if (!gen) {
        config_free(config);
        return -ENOMEM;
    }
    gen->gateway = g;
    gen->config = config;
    gen->references = 1;
    list_push_back(&g->generations, &gen->node);
    gen->services = calloc(config->service_count + 1, sizeof(*gen->services));
    int r = gen->services ? 0 : -ENOMEM;
    for (size_t i = 0; r == 0 && i < config->service_count; i++) {
        gen->service_count = i + 1;
        r = service_create(g, config, &config->services[i], &gen->services[i]);
    }
    if (r < 0) {
        generation_unref(gen);
        return r;
    }
    *ret = gen;
    return 0;
}

struct gateway_service *generation_find_service(struct generation *gen, struct span name)
{
    const struct config_service *found = config_find_service(gen->config, name.ptr, name.len);
    return found ? &gen->services[found - gen->config->services] : NULL;
}

const struct config_tier *generation_tier_of(const struct gateway_worker *w)
{
    const struct generation *gen = w->gateway->current;
    for (size_t i = 0; gen && i < gen->service_count; i++)
        for (size_t k = 0; k < gen->services[i].tier_count; k++)
            if (gen->services[i].tiers[k].worker == w)
                return gen->services[i].tiers[k].config;
    return NULL;
}
