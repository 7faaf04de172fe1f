/*
 * The running gateway's ledger, where there is one with this configuration: it knows what is its own,
 * what it holds back, and what others were seen to take a moment ago. Its figures take the place of
 * those that were looked at.
 */
#include "cli/plan.h"

#include "cli/fetch.h"
#include "policy/ledger.h"

#include <stdio.h>
#include <string.h>
#include <yyjson.h>

enum { GATEWAY_BODY_BYTES = 4 * 1024 * 1024, GATEWAY_TIMEOUT_MS = 1000 };

static const char *text_of(yyjson_val *object, const char *key)
{
    const char *text = yyjson_get_str(yyjson_obj_get(object, key));

    return text != NULL ? text : "";
}

static uint64_t number_of(yyjson_val *object, const char *key)
{
    return yyjson_get_uint(yyjson_obj_get(object, key));
}

static yyjson_val *find_named(yyjson_val *list, const char *name)
{
    yyjson_arr_iter items;
    yyjson_val *item;

    yyjson_arr_iter_init(list, &items);
    while ((item = yyjson_arr_iter_next(&items)) != NULL) {
        if (strcmp(text_of(item, "name"), name) == 0)
            return item;
    }
    return NULL;
}

/* --- is it this configuration's? --- */

static bool has_services(const struct config *c, yyjson_val *services)
{
    for (size_t i = 0; i < c->service_count; i++) {
        yyjson_val *service = find_named(services, c->services[i].name);
        yyjson_val *tiers = yyjson_obj_get(service, "tiers");

        if (service == NULL || yyjson_arr_size(tiers) != c->services[i].tier_count)
            return false;
        for (size_t j = 0; j < c->services[i].tier_count; j++) {
            if (find_named(tiers, c->services[i].tiers[j].name) == NULL)
                return false;
        }
    }
    return yyjson_arr_size(services) == c->service_count;
}

static bool has_devices(const struct config *c, yyjson_val *devices)
{
    for (size_t i = 0; i < c->device_count; i++) {
        yyjson_val *device = find_named(devices, c->devices[i].name);

        if (device == NULL ||
            strcmp(text_of(device, "kind"), config_device_kind_name(c->devices[i].kind)) != 0)
            return false;
    }
    return yyjson_arr_size(devices) == c->device_count;
}

/* --- its figures --- */

/* As the gateway labels its claims. */
static void label_of(const struct plan_entry *e, char out[LEDGER_NAME_MAX])
{
    snprintf(out, LEDGER_NAME_MAX, "%.20s/%.10s", e->service->name, e->tier->name);
}

static void add_claim(struct plan_place *place, const char *owner, uint64_t bytes)
{
    struct plan_holder *h;

    if (place->holder_count == PLAN_HOLDERS_MAX || bytes == 0)
        return;
    h = &place->holders[place->holder_count++];
    *h = (struct plan_holder){.own = true, .bytes = bytes};
    snprintf(h->name, sizeof(h->name), "%s", owner);
}

/* Processes that were looked at and are workers of the gateway's are in its claims already. */
static void drop_own_processes(struct plan_place *place, yyjson_val *services)
{
    size_t kept = 0;

    for (size_t i = 0; i < place->holder_count; i++) {
        bool own = false;
        yyjson_arr_iter each_service, each_tier;
        yyjson_val *service, *tier;

        yyjson_arr_iter_init(services, &each_service);
        while ((service = yyjson_arr_iter_next(&each_service)) != NULL) {
            yyjson_arr_iter_init(yyjson_obj_get(service, "tiers"), &each_tier);
            while ((tier = yyjson_arr_iter_next(&each_tier)) != NULL)
                own |=
                    place->holders[i].pid > 0 && number_of(yyjson_obj_get(tier, "worker"), "pid") ==
                                                     (uint64_t)place->holders[i].pid;
        }
        if (!own)
            place->holders[kept++] = place->holders[i];
    }
    place->holder_count = kept;
}

static void take_place(struct plan_place *place, yyjson_val *o, yyjson_val *services)
{
    const char *trust = text_of(o, "trust");
    yyjson_arr_iter claims;
    yyjson_val *claim;

    if (o == NULL)
        return;
    place->known = strcmp(trust, ledger_trust_name(LEDGER_TRUST_FRESH)) == 0 ||
                   strcmp(trust, ledger_trust_name(LEDGER_TRUST_NONE)) == 0;
    place->shared = yyjson_get_bool(yyjson_obj_get(o, "integrated"));
    place->total_bytes = number_of(o, "total_bytes");
    place->reserve_bytes = number_of(o, "reserve_bytes");
    place->foreign_bytes = number_of(o, "foreign_bytes");
    place->claimed_bytes = number_of(o, "settled_bytes") + number_of(o, "unsettled_bytes") +
                           number_of(o, "releasing_bytes");
    place->headroom_bytes = yyjson_get_sint(yyjson_obj_get(o, "headroom_bytes"));
    if (!place->known)
        snprintf(place->why, sizeof(place->why), "the gateway's figures are %.20s%s%.200s", trust,
                 text_of(o, "reason")[0] != '\0' ? ": " : "", text_of(o, "reason"));
    drop_own_processes(place, services);
    yyjson_arr_iter_init(yyjson_obj_get(o, "claims"), &claims);
    while ((claim = yyjson_arr_iter_next(&claims)) != NULL)
        add_claim(place, text_of(claim, "owner"), number_of(claim, "bytes"));
}

static uint64_t claim_bytes(yyjson_val *place, const char *label)
{
    yyjson_arr_iter claims;
    yyjson_val *claim;

    yyjson_arr_iter_init(yyjson_obj_get(place, "claims"), &claims);
    while ((claim = yyjson_arr_iter_next(&claims)) != NULL) {
        if (strcmp(text_of(claim, "owner"), label) == 0 &&
            strcmp(text_of(claim, "state"), "releasing") != 0)
            return number_of(claim, "bytes");
    }
    return 0;
}

static void take_tier(struct plan_entry *e, yyjson_val *root)
{
    yyjson_val *service = find_named(yyjson_obj_get(root, "services"), e->service->name);
    yyjson_val *tier = find_named(yyjson_obj_get(service, "tiers"), e->tier->name);
    const char *state = text_of(yyjson_obj_get(tier, "worker"), "state");
    char label[LEDGER_NAME_MAX];
    uint64_t bytes;

    if (e->estimate == NULL || (strcmp(state, "ready") != 0 && strcmp(state, "loading") != 0))
        return;
    e->fit = PLAN_FIT_LOADED;
    label_of(e, label);
    /* What it holds, not what it was thought to take. */
    bytes = e->device != NULL
                ? claim_bytes(find_named(yyjson_obj_get(root, "devices"), e->device->name), label)
                : 0;
    if (bytes > 0 && !e->device->shared)
        e->device_bytes = bytes;
    bytes = claim_bytes(yyjson_obj_get(root, "host"), label);
    if (bytes > 0)
        e->host_bytes = bytes;
}

static void take_status(struct plan *p, yyjson_val *root, const char *url)
{
    yyjson_val *devices = yyjson_obj_get(root, "devices");
    yyjson_val *services = yyjson_obj_get(root, "services");

    if (!has_services(p->config, services) || !has_devices(p->config, devices)) {
        snprintf(
            p->gateway_why, sizeof(p->gateway_why),
            "%.150s: a gateway runs there with another configuration; its figures are not used",
            url);
        return;
    }
    snprintf(p->gateway_url, sizeof(p->gateway_url), "%s", url);
    for (size_t i = 0; i < p->place_count; i++) {
        struct plan_place *place = &p->places[i];

        take_place(place,
                   place->device != NULL ? find_named(devices, place->name)
                                         : yyjson_obj_get(root, "host"),
                   services);
    }
    for (size_t i = 0; i < p->count; i++)
        take_tier(&p->entries[i], root);
}

void plan_ask_gateway(struct plan *p)
{
    char url[CLI_URL_SIZE];
    int http_status = 0;
    struct buf body;
    yyjson_doc *doc = NULL;

    if (p->config->port == 0)
        return;
    cli_url_of_config(p->config, url, sizeof(url));
    buf_init(&body, GATEWAY_BODY_BYTES);
    if (cli_fetch("GET", url, "/failsoft/v1/status", GATEWAY_TIMEOUT_MS, &body, &http_status) ==
            0 &&
        http_status == 200)
        doc = yyjson_read(body.data, body.len, 0);
    if (yyjson_obj_get(yyjson_doc_get_root(doc), "services") != NULL)
        take_status(p, yyjson_doc_get_root(doc), url);
    yyjson_doc_free(doc);
    buf_free(&body);
}
