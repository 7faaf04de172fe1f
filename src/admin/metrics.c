/*
 * The metrics page: one table row a family, because the format wants all samples of a family
 * together (Prometheus text exposition format 0.0.4). Counters end in _total, times are seconds.
 */
#include "admin/json.h"
#include "admin/metrics_internal.h"
#include "admin/pages.h"

#include "base/utf8.h"

#include <inttypes.h>
#include <string.h>

struct tier_family {
    const char *name;
    const char *type;
    const char *help;
    uint64_t (*get)(const struct gateway_tier_snapshot *t);
};

struct service_family {
    const char *name;
    const char *help;
    uint64_t (*get)(const struct gateway_service_counters *c);
};

static uint64_t tier_usable(const struct gateway_tier_snapshot *t)
{
    return t->usable;
}

#define TIER_GETTER(field)                                                                         \
    static uint64_t tier_##field(const struct gateway_tier_snapshot *t)                            \
    {                                                                                              \
        return t->field;                                                                           \
    }

TIER_GETTER(running)
TIER_GETTER(waiting)
TIER_GETTER(slots)
TIER_GETTER(consecutive_failures)
TIER_GETTER(restarts)
TIER_GETTER(recycles)
TIER_GETTER(attempts_total)
TIER_GETTER(attempts_failed)

#define TIER_MEMORY_GETTER(field)                                                                  \
    static uint64_t tier_##field(const struct gateway_tier_snapshot *t)                            \
    {                                                                                              \
        return t->memory.field;                                                                    \
    }

TIER_MEMORY_GETTER(predicted_bytes)
TIER_MEMORY_GETTER(learned_bytes)
TIER_MEMORY_GETTER(measured_bytes)

#define SERVICE_GETTER(field)                                                                      \
    static uint64_t service_##field(const struct gateway_service_counters *c)                      \
    {                                                                                              \
        return c->field;                                                                           \
    }

SERVICE_GETTER(requests_total)
SERVICE_GETTER(failovers)
SERVICE_GETTER(retries)
SERVICE_GETTER(cut_after_commit)

static const struct tier_family tier_families[] = {
    {"failsoft_tier_usable", "gauge", "1 when the tier can take a request now.", tier_usable},
    {"failsoft_tier_running", "gauge", "Attempts dispatched to the worker and not ended.",
     tier_running},
    {"failsoft_tier_waiting", "gauge", "Requests that wait for the worker.", tier_waiting},
    {"failsoft_tier_slots", "gauge", "Attempts the worker takes at a time; 0: no limit.",
     tier_slots},
    {"failsoft_tier_consecutive_failures", "gauge", "Faults of the worker in a row.",
     tier_consecutive_failures},
    {"failsoft_worker_restarts_total", "counter", "Starts of the worker after the first.",
     tier_restarts},
    {"failsoft_worker_recycles_total", "counter",
     "Restarts of the worker because its memory crept up.", tier_recycles},
    {"failsoft_worker_predicted_bytes", "gauge",
     "Memory of its device that is claimed for the next load of the worker.", tier_predicted_bytes},
    {"failsoft_worker_learned_bytes", "gauge",
     "The most that a load of the worker was measured to take.", tier_learned_bytes},
    {"failsoft_worker_measured_bytes", "gauge", "What the worker holds of its device now.",
     tier_measured_bytes},
    {"failsoft_attempts_total", "counter", "Attempts dispatched to the worker.",
     tier_attempts_total},
    {"failsoft_attempts_failed_total", "counter",
     "Attempts that ended in a fault of the worker; mistakes of clients are not counted.",
     tier_attempts_failed},
};

static const struct service_family service_families[] = {
    {"failsoft_requests_total", "Requests accepted.", service_requests_total},
    {"failsoft_failovers_total", "Attempts that moved to another tier before the commit point.",
     service_failovers},
    {"failsoft_retries_total", "Second tries on the same worker.", service_retries},
    {"failsoft_cut_after_commit_total", "Answers that ended in an error after their first output.",
     service_cut_after_commit},
};

/* The inside of a label value: backslash, quote and line feed escaped; invalid UTF-8 replaced. */
int metrics_append_label(struct buf *out, const char *text)
{
    size_t len = text ? strlen(text) : 0;
    int r = 0;

    for (size_t i = 0; r == 0 && i < len;) {
        size_t n = utf8_sequence_length(text + i, len - i);

        if (n == 0)
            r = buf_append_str(out, "\xEF\xBF\xBD");
        else if (text[i] == '\\' || text[i] == '"')
            r = buf_printf(out, "\\%c", text[i]);
        else if (text[i] == '\n')
            r = buf_append_str(out, "\\n");
        else
            r = buf_append(out, text + i, n);
        i += n ? n : 1;
    }
    return r;
}

/* `name{service="…",tier="…"` without the closing brace; tier may be NULL. */
static int begin_sample(struct buf *out, const char *name, const char *suffix, const char *service,
                        const char *tier)
{
    int r;

    if ((r = buf_printf(out, "%s%s{service=\"", name, suffix)) < 0 ||
        (r = metrics_append_label(out, service)) < 0)
        return r;
    if (tier &&
        ((r = buf_append_str(out, "\",tier=\"")) < 0 || (r = metrics_append_label(out, tier)) < 0))
        return r;
    return buf_append(out, "\"", 1);
}

static int write_head(struct buf *out, const char *name, const char *type, const char *help)
{
    return buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static int write_single(struct buf *out, const char *name, const char *type, const char *help,
                        uint64_t value)
{
    int r = write_head(out, name, type, help);

    return r < 0 ? r : buf_printf(out, "%s %" PRIu64 "\n", name, value);
}

static int write_histogram(struct buf *out, const char *name, const char *service, const char *tier,
                           const struct gateway_histogram *h)
{
    uint64_t cumulative = 0;
    int r;

    for (size_t i = 0; i < h->bound_count; i++) {
        cumulative += h->counts[i];
        if ((r = begin_sample(out, name, "_bucket", service, tier)) < 0 ||
            (r = buf_printf(out, ",le=\"%.9g\"} %" PRIu64 "\n", h->bounds_s[i], cumulative)) < 0)
            return r;
    }
    if ((r = begin_sample(out, name, "_bucket", service, tier)) < 0 ||
        (r = buf_printf(out, ",le=\"+Inf\"} %" PRIu64 "\n", h->count)) < 0 ||
        (r = begin_sample(out, name, "_sum", service, tier)) < 0 ||
        (r = buf_printf(out, "} %.9g\n", h->sum_s)) < 0 ||
        (r = begin_sample(out, name, "_count", service, tier)) < 0)
        return r;
    return buf_printf(out, "} %" PRIu64 "\n", h->count);
}

static int write_gateway(struct buf *out, const struct gateway_snapshot *s)
{
    int r;

    if ((r = write_head(out, "failsoft_build_info", "gauge", "The version that runs.")) < 0 ||
        (r = buf_append_str(out, "failsoft_build_info{version=\"")) < 0 ||
        (r = metrics_append_label(out, s->version)) < 0 ||
        (r = buf_append_str(out, "\"} 1\n")) < 0 ||
        (r = write_head(out, "failsoft_uptime_seconds", "gauge", "Since the start.")) < 0 ||
        (r = buf_printf(out, "failsoft_uptime_seconds %.3f\n", (double)s->uptime_ms / 1e3)) < 0 ||
        (r = write_single(out, "failsoft_ready", "gauge", "1 when every service can be served.",
                          s->ready)) < 0 ||
        (r = write_single(out, "failsoft_degraded", "gauge", "1 when a first tier can not serve.",
                          s->degraded)) < 0 ||
        (r = write_single(out, "failsoft_connections", "gauge", "Open client connections.",
                          s->connections)) < 0 ||
        (r = write_single(out, "failsoft_connections_refused_total", "counter",
                          "Client connections refused for lack of room.", s->connections_refused)) <
            0 ||
        (r = write_single(out, "failsoft_config_generation", "gauge",
                          "1 at the start, one more for each reload taken.",
                          s->config_generation)) < 0)
        return r;
    return write_single(out, "failsoft_config_reload_failed", "gauge",
                        "1 when the last reload was not taken.",
                        s->config_error && *s->config_error);
}

static int write_outcomes(struct buf *out, const struct gateway_snapshot *s)
{
    const char *name = "failsoft_requests_ended_total";
    int r = write_head(out, name, "counter", "Requests that ended, by outcome.");

    for (size_t i = 0; r == 0 && i < s->service_count; i++) {
        const struct gateway_service_counters *c = &s->services[i];

        if ((r = begin_sample(out, name, "", c->service, NULL)) < 0 ||
            (r = buf_printf(out, ",outcome=\"done\"} %" PRIu64 "\n", c->done)) < 0 ||
            (r = begin_sample(out, name, "", c->service, NULL)) < 0 ||
            (r = buf_printf(out, ",outcome=\"failed\"} %" PRIu64 "\n", c->failed)) < 0 ||
            (r = begin_sample(out, name, "", c->service, NULL)) < 0)
            return r;
        r = buf_printf(out, ",outcome=\"cancelled\"} %" PRIu64 "\n", c->cancelled);
    }
    return r;
}

static int write_decisions(struct buf *out, const struct gateway_snapshot *s)
{
    const char *name = "failsoft_admission_decisions_total";
    int r = write_head(out, name, "counter", "Decisions of admission, by action.");

    for (size_t i = 0; i < s->service_count; i++) {
        for (unsigned a = 0; r == 0 && a < GATEWAY_ACTIONS; a++) {
            if ((r = begin_sample(out, name, "", s->services[i].service, NULL)) == 0)
                r = buf_printf(out, ",action=\"%s\"} %" PRIu64 "\n", gateway_action_name(a),
                               s->services[i].decided[a]);
        }
    }
    return r;
}

static int write_services(struct buf *out, const struct gateway_snapshot *s)
{
    const char *name = "failsoft_request_duration_seconds";
    int r = 0;

    for (size_t f = 0; f < sizeof(service_families) / sizeof(service_families[0]); f++) {
        const struct service_family *family = &service_families[f];

        if ((r = write_head(out, family->name, "counter", family->help)) < 0)
            return r;
        for (size_t i = 0; i < s->service_count; i++) {
            if ((r = begin_sample(out, family->name, "", s->services[i].service, NULL)) < 0 ||
                (r = buf_printf(out, "} %" PRIu64 "\n", family->get(&s->services[i]))) < 0)
                return r;
        }
    }
    if ((r = write_outcomes(out, s)) < 0 || (r = write_decisions(out, s)) < 0 ||
        (r = write_head(out, name, "histogram", "From acceptance to the end of a request.")) < 0)
        return r;
    for (size_t i = 0; r == 0 && i < s->service_count; i++)
        r = write_histogram(out, name, s->services[i].service, NULL, &s->services[i].duration);
    return r;
}

/* No sample where nothing is known: 0 would be a figure. */
static int write_kv(struct buf *out, const struct gateway_snapshot *s)
{
    static const char *const names[] = {"failsoft_worker_kv_tokens",
                                        "failsoft_worker_kv_taken_tokens"};
    static const char *const helps[] = {"Tokens that the worker's KV cache holds.",
                                        "Tokens of it claimed by requests that run on the worker."};
    int r = 0;

    for (size_t f = 0; f < 2; f++) {
        if ((r = write_head(out, names[f], "gauge", helps[f])) < 0)
            return r;
        for (size_t i = 0; i < s->tier_count; i++) {
            const struct gateway_tier_snapshot *t = &s->tiers[i];

            if (!t->kv.kind)
                continue;
            if ((r = begin_sample(out, names[f], "", t->service, t->tier)) < 0 ||
                (r = buf_printf(out, "} %" PRIu64 "\n",
                                f == 0 ? t->kv.tokens : t->kv.taken_tokens)) < 0)
                return r;
        }
    }
    return 0;
}

static int write_tiers(struct buf *out, const struct gateway_snapshot *s)
{
    const char *name = "failsoft_first_event_seconds";
    int r = 0;

    for (size_t f = 0; f < sizeof(tier_families) / sizeof(tier_families[0]); f++) {
        const struct tier_family *family = &tier_families[f];

        if ((r = write_head(out, family->name, family->type, family->help)) < 0)
            return r;
        for (size_t i = 0; i < s->tier_count; i++) {
            const struct gateway_tier_snapshot *t = &s->tiers[i];

            if ((r = begin_sample(out, family->name, "", t->service, t->tier)) < 0 ||
                (r = buf_printf(out, "} %" PRIu64 "\n", family->get(t))) < 0)
                return r;
        }
    }
    if ((r = write_head(out, name, "histogram", "From dispatch to the first output.")) < 0)
        return r;
    for (size_t i = 0; r == 0 && i < s->tier_count; i++)
        r = write_histogram(out, name, s->tiers[i].service, s->tiers[i].tier,
                            &s->tiers[i].first_event);
    return r;
}

int admin_write_metrics(const struct gateway_snapshot *s, struct buf *out)
{
    int r;

    if ((r = write_gateway(out, s)) < 0 || (r = write_services(out, s)) < 0)
        return r;
    if ((r = write_tiers(out, s)) < 0 || (r = write_kv(out, s)) < 0)
        return r;
    return metrics_write_devices(s, out);
}
