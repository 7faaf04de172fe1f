/* A snapshot with everything in it that could go wrong in a page, for the tests of admin/. */
#ifndef FAILSOFT_TESTS_ADMIN_SAMPLE_H
#define FAILSOFT_TESTS_ADMIN_SAMPLE_H

#include "gateway/snapshot.h"

static const double sample_bounds[] = {0.005, 0.1, 2.5};
static const uint64_t sample_counts[] = {1, 0, 4, 2};

#define SAMPLE_HISTOGRAM                                                                           \
    {                                                                                              \
        .bounds_s = sample_bounds, .counts = sample_counts, .bound_count = 3, .count = 7,          \
        .sum_s = 12.25                                                                             \
    }

static struct gateway_tier_snapshot sample_tiers[] = {
    {.service = "chat",
     .kind = "chat",
     .tier = "gpu",
     .engine = "llama-server",
     .address = "unix:/run/a.sock",
     .device = "gpu0",
     .managed = true,
     .pid = 4711,
     .state = "backoff",
     .availability = "suspended",
     .reason = "device lost: \"vk::DeviceLostError\"\n\\x",
     .state_age_ms = 1200,
     .retry_in_ms = 4000,
     .consecutive_failures = 3,
     .waiting = 2,
     .slots = 4,
     .restarts = 5,
     .attempts_total = 100,
     .attempts_failed = 3,
     .first_event = SAMPLE_HISTOGRAM},
    {.service = "chat",
     .kind = "chat",
     .tier = "cpu",
     .engine = "llama-server",
     .address = "http://127.0.0.1:8081",
     .device = "",
     .state = "external",
     .usable = true,
     .proven = true,
     .promising = true,
     .availability = "available",
     .reason = "",
     .running = 1,
     .attempts_total = 18446744073709551615u,
     .kv = {.kind = "paged",
            .tokens = 81280,
            .page_tokens = 16,
            .taken_tokens = 4096,
            .used_tokens = 20320,
            .free_tokens = 32768},
     .first_event = {.bound_count = 0, .count = 0}},
    {.service = "we\"ird\\na\nme\xff",
     .kind = "generic",
     .tier = "cpu",
     .engine = "generic",
     .address = "http://h",
     .device = "",
     .state = "ready",
     .usable = true,
     .proven = true,
     .promising = true,
     .availability = "probing",
     .reason = "",
     .first_event = SAMPLE_HISTOGRAM},
};

static struct gateway_service_counters sample_services[] = {
    {.service = "chat",
     .requests_total = 90,
     .done = 80,
     .failed = 4,
     .cancelled = 5,
     .failovers = 7,
     .retries = 2,
     .cut_after_commit = 1,
     .duration = SAMPLE_HISTOGRAM},
    {.service = "we\"ird\\na\nme\xff", .duration = SAMPLE_HISTOGRAM},
};

static struct gateway_request_snapshot sample_requests[] = {
    {.id = "req-1",
     .service = "chat",
     .operation = "chat",
     .state = "relaying",
     .tier = "cpu",
     .degraded = "tier gpu: device lost",
     .streamed = true,
     .committed = true,
     .age_ms = 1500,
     .events_sent = 12,
     .attempts = 2},
};

static struct gateway_snapshot sample_snapshot(void)
{
    return (struct gateway_snapshot){.version = "1.2.3",
                                     .uptime_ms = 61500,
                                     .ready = true,
                                     .degraded = true,
                                     .connections = 3,
                                     .connections_refused = 9,
                                     .config_generation = 2,
                                     .config_error = "a.yaml:1:1: no",
                                     .tiers = sample_tiers,
                                     .tier_count = 3,
                                     .requests = sample_requests,
                                     .request_count = 1,
                                     .services = sample_services,
                                     .service_count = 2};
}

#endif
