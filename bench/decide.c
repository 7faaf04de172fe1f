/*
 * How long a decision takes: CPU time of admission_decide, of the views of the ledgers it is made
 * from, and of opening and ending the claim that follows. Printed, never judged.
 *
 *   bench-decide [ROUNDS]
 *
 * Two ledgers of 64 claims each and four tiers, of which the first three do not fit, each for another
 * reason: the longest way through, with the longest sentence.
 */
#include "policy/admission.h"

#include "base/units.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { CLAIMS = 64, TIERS = 4, ROUNDS = 200000, PARTS = 20 };

#define GIB (UINT64_C(1) << 30)
#define MIB (UINT64_C(1) << 20)

struct scene {
    struct ledger ledgers[2];
    struct ledger_claim claims[2][CLAIMS];
    struct ledger_view views[2];
    struct admission_tier tiers[TIERS];
    struct admission_facts facts;
};

static void fail(const char *what)
{
    fprintf(stderr, "bench-decide: %s\n", what);
    exit(3);
}

static void start_ledger(struct scene *s, unsigned i, const char *name, uint64_t total)
{
    static const char *const labels[] = {"chat", "stt", "embeddings", "pictures"};
    struct ledger_settings settings = ledger_settings_default();
    struct ledger_sample sample = {.taken_ms = 1000,
                                   .total_valid = true,
                                   .used_valid = true,
                                   .total_bytes = total,
                                   .used_bytes = 2 * GIB};
    ledger_init(&s->ledgers[i], name, &settings, s->claims[i], CLAIMS);
    if (ledger_observe(&s->ledgers[i], &sample, 1000) != 0)
        fail("no sample");
    for (unsigned k = 0; k + 1 < CLAIMS; k++) {
        uint64_t id = 0;
        struct ledger_request request = {.label = labels[k % 4], .bytes = 100 * MIB + k};
        if (ledger_claim_open(&s->ledgers[i], &request, 1000, &id) != 0 ||
            ledger_claim_settle(&s->ledgers[i], id, request.bytes, 1000) != 0)
            fail("no claim");
    }
}

static void start(struct scene *s)
{
    memset(s, 0, sizeof(*s));
    start_ledger(s, 0, "gpu0", 24 * GIB);
    start_ledger(s, 1, "host", 32 * GIB);
    s->tiers[0] = (struct admission_tier){.name = "gpu",
                                          .kind = ADMISSION_TIER_GPU,
                                          .device_bytes = {15 * GIB, 16 * GIB},
                                          .context_tokens = 32768,
                                          .bytes_per_context_token = 128 * 1024};
    s->tiers[1] = (struct admission_tier){.name = "hybrid",
                                          .kind = ADMISSION_TIER_HYBRID,
                                          .device_bytes = {2 * GIB, 2 * GIB},
                                          .host_bytes = {30 * GIB, 31 * GIB}};
    s->tiers[2] = (struct admission_tier){.name = "gpu",
                                          .kind = ADMISSION_TIER_GPU,
                                          .loaded = true,
                                          .kv_request_max = 8192,
                                          .kv_free_tokens = 500};
    s->tiers[3] = (struct admission_tier){
        .name = "cpu", .kind = ADMISSION_TIER_CPU, .host_bytes = {6 * GIB, 7 * GIB}};
    for (unsigned i = 0; i < TIERS; i++) {
        s->tiers[i].device = s->tiers[i].kind == ADMISSION_TIER_CPU ? NULL : &s->views[0];
        s->tiers[i].host = &s->views[1];
    }
    s->facts = (struct admission_facts){
        .tiers = s->tiers, .tier_count = TIERS, .prompt_tokens = 1500, .output_tokens = 500};
}

static uint64_t cpu_ns(void)
{
    struct timespec t;
    if (clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t) != 0)
        fail("no clock");
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static void look(struct scene *s)
{
    s->views[0] = ledger_view(&s->ledgers[0], 1500);
    s->views[1] = ledger_view(&s->ledgers[1], 1500);
}

static void decide(struct scene *s)
{
    static volatile size_t tier; /* so that the decision is made */
    struct admission_decision d = admission_decide(&s->facts);
    tier = d.tier;
    (void)tier;
}

static void claim(struct scene *s)
{
    uint64_t id = 0;
    struct ledger_request request = {.label = "chat", .bytes = GIB};
    if (ledger_claim_open(&s->ledgers[1], &request, 1500, &id) != 0 ||
        ledger_claim_cancel(&s->ledgers[1], id) != 0)
        fail("no claim");
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Of PARTS equal parts the best, the middle and the worst, in nanoseconds a call. */
static void measure(const char *what, void (*call)(struct scene *), struct scene *s,
                    uint64_t rounds)
{
    double parts[PARTS];
    uint64_t calls = rounds / PARTS;
    for (unsigned i = 0; i < PARTS; i++) {
        uint64_t begin = cpu_ns();
        for (uint64_t k = 0; k < calls; k++)
            call(s);
        parts[i] = (double)(cpu_ns() - begin) / (double)calls;
    }
    qsort(parts, PARTS, sizeof(parts[0]), compare);
    printf("%-44s %8.0f %8.0f %8.0f\n", what, parts[0], parts[PARTS / 2], parts[PARTS - 1]);
}

int main(int argc, char **argv)
{
    uint64_t rounds = ROUNDS;
    if (argc > 2 || (argc == 2 && (units_parse_u64(argv[1], &rounds) != 0 || rounds < PARTS))) {
        fprintf(stderr, "usage: bench-decide [ROUNDS]\n");
        return 2;
    }
    static struct scene s;
    start(&s);
    look(&s);
    struct admission_decision d = admission_decide(&s.facts);
    printf("%s on tier %zu: %s\n\n", admission_action_name(d.action), d.tier, d.reason);
    printf("%-44s %8s %8s %8s\n", "CPU time in ns (bar: 5000 a decision)", "best", "median",
           "worst");
    measure("decision over 4 tiers", decide, &s, rounds);
    measure("views of 2 ledgers with 63 claims", look, &s, rounds);
    measure("claim opened and cancelled, 63 others", claim, &s, rounds);
    return 0;
}
