/*
 * `failsoft sim show` and `wait`: what a card looks like, for people and as JSON.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <yyjson.h>

#include "base/units.h"
#include "cli/sim_parts.h"

#define SHOW_CARDS_MAX  64
#define SHOW_EVENTS     8
#define WAIT_DEFAULT_MS 10000
/* Death of a process moves no futex: somebody has to look. */
#define WAIT_LOOK_MS 20

static const char *size_text(uint64_t bytes, char *out, size_t out_size)
{
    return units_format_bytes(bytes, out, out_size);
}

static void faults_print(const struct sim_faults *faults)
{
    const char *before = " ";
    char size[24];

    printf("  faults     ");
    if (faults->lost) {
        printf("%slost (%s)", before,
               faults->lose_mode == SIM_LOSE_ABORT ? "processes abort" : "graphs fail");
        before = ", ";
    }
    if (faults->lose_armed) {
        printf("%slost after %" PRIu64 " graphs", before, faults->lose_after_graphs);
        before = ", ";
    }
    if (faults->stalled) {
        printf("%sstalled", before);
        before = ", ";
    }
    if (faults->fail_next != 0) {
        printf("%snext %" PRIu64 " allocations fail", before, faults->fail_next);
        before = ", ";
    }
    if (faults->fail_above_bytes != 0) {
        printf("%sallocations above %s fail", before,
               size_text(faults->fail_above_bytes, size, sizeof size));
        before = ", ";
    }
    printf("%s\n", before[0] == ' ' ? " none" : "");
}

static void settings_print(const struct sim_settings *settings)
{
    char size[24];

    printf("  settings    release-delay %" PRIu64 "ms, slowdown %u.%02ux, spill %s",
           settings->release_delay_ms, settings->slowdown_pct / 100, settings->slowdown_pct % 100,
           settings->spill ? "on" : "off");
    if (settings->spill)
        printf(" (%u.%02ux)", settings->spill_slowdown_pct / 100,
               settings->spill_slowdown_pct % 100);
    if (settings->max_alloc_bytes != 0)
        printf(", max-alloc %s", size_text(settings->max_alloc_bytes, size, sizeof size));
    if (settings->context_bytes != 0)
        printf(", context %s", size_text(settings->context_bytes, size, sizeof size));
    if (settings->workspace_bytes != 0)
        printf(", workspace %s per token", size_text(settings->workspace_bytes, size, sizeof size));
    printf("%s\n", settings->hidden ? ", hidden" : "");
}

static void card_print(const struct sim_snapshot *snapshot)
{
    char a[24];
    char b[24];
    char c[24];
    size_t first = snapshot->n_events > SHOW_EVENTS ? snapshot->n_events - SHOW_EVENTS : 0;

    printf("card %s (simulated), generation %u\n", snapshot->name, snapshot->generation);
    printf("  capacity    %s, reserve %s, used %s\n",
           size_text(snapshot->settings.capacity_bytes, a, sizeof a),
           size_text(snapshot->settings.reserve_bytes, b, sizeof b),
           size_text(snapshot->used_bytes, c, sizeof c));
    printf("  free        %s, largest block %s\n", size_text(snapshot->free_bytes, a, sizeof a),
           size_text(snapshot->largest_free_bytes, b, sizeof b));
    if (snapshot->releasing_bytes != 0)
        printf("  releasing   %s of dead processes, back in %" PRIu64 " ms\n",
               size_text(snapshot->releasing_bytes, a, sizeof a), snapshot->release_in_ms);
    if (snapshot->overcommitted_bytes != 0)
        printf("  over        %s more in use than there is\n",
               size_text(snapshot->overcommitted_bytes, a, sizeof a));
    if (snapshot->spilled_bytes != 0)
        printf("  spilled     %s in host memory\n",
               size_text(snapshot->spilled_bytes, a, sizeof a));
    faults_print(&snapshot->faults);
    settings_print(&snapshot->settings);
    for (size_t i = 0; i < snapshot->n_processes; i++) {
        const struct sim_process *process = &snapshot->processes[i];

        printf("  pid %-8d%s %s, %s, %" PRIu64 " graphs%s\n", process->pid,
               sim_role_name(process->role), process->program,
               size_text(process->used_bytes, a, sizeof a), process->graphs,
               process->stale ? ", lost by a reset" : "");
    }
    for (size_t i = first; i < snapshot->n_events; i++) {
        const struct sim_event *event = &snapshot->events[i];

        printf("  %6" PRIu64 " s ago  %s", (snapshot->now_ms - event->time_ms) / 1000,
               sim_event_name((enum sim_event_kind)event->kind));
        if (event->pid != 0)
            printf(", pid %d", event->pid);
        if (event->bytes != 0)
            printf(", %s", size_text(event->bytes, a, sizeof a));
        printf("\n");
    }
}

static void processes_json(yyjson_mut_doc *doc, yyjson_mut_val *card,
                           const struct sim_snapshot *snapshot)
{
    yyjson_mut_val *list = yyjson_mut_obj_add_arr(doc, card, "processes");

    for (size_t i = 0; i < snapshot->n_processes; i++) {
        const struct sim_process *process = &snapshot->processes[i];
        yyjson_mut_val *item = yyjson_mut_arr_add_obj(doc, list);

        yyjson_mut_obj_add_int(doc, item, "pid", process->pid);
        yyjson_mut_obj_add_str(doc, item, "role", sim_role_name(process->role));
        yyjson_mut_obj_add_strcpy(doc, item, "program", process->program);
        yyjson_mut_obj_add_uint(doc, item, "used_bytes", process->used_bytes);
        yyjson_mut_obj_add_uint(doc, item, "spilled_bytes", process->spilled_bytes);
        yyjson_mut_obj_add_uint(doc, item, "graphs", process->graphs);
        yyjson_mut_obj_add_bool(doc, item, "stale", process->stale);
    }
}

static void events_json(yyjson_mut_doc *doc, yyjson_mut_val *card,
                        const struct sim_snapshot *snapshot)
{
    yyjson_mut_val *list = yyjson_mut_obj_add_arr(doc, card, "events");

    for (size_t i = 0; i < snapshot->n_events; i++) {
        const struct sim_event *event = &snapshot->events[i];
        yyjson_mut_val *item = yyjson_mut_arr_add_obj(doc, list);

        yyjson_mut_obj_add_uint(doc, item, "seq", event->seq);
        yyjson_mut_obj_add_uint(doc, item, "age_ms", snapshot->now_ms - event->time_ms);
        yyjson_mut_obj_add_str(doc, item, "kind", sim_event_name((enum sim_event_kind)event->kind));
        yyjson_mut_obj_add_int(doc, item, "pid", event->pid);
        yyjson_mut_obj_add_uint(doc, item, "bytes", event->bytes);
    }
}

static void settings_json(yyjson_mut_doc *doc, yyjson_mut_val *card,
                          const struct sim_settings *settings)
{
    yyjson_mut_val *item = yyjson_mut_obj_add_obj(doc, card, "settings");

    yyjson_mut_obj_add_uint(doc, item, "capacity_bytes", settings->capacity_bytes);
    yyjson_mut_obj_add_uint(doc, item, "reserve_bytes", settings->reserve_bytes);
    yyjson_mut_obj_add_uint(doc, item, "max_alloc_bytes", settings->max_alloc_bytes);
    yyjson_mut_obj_add_uint(doc, item, "context_bytes", settings->context_bytes);
    yyjson_mut_obj_add_uint(doc, item, "workspace_bytes", settings->workspace_bytes);
    yyjson_mut_obj_add_uint(doc, item, "release_delay_ms", settings->release_delay_ms);
    yyjson_mut_obj_add_uint(doc, item, "slowdown_pct", settings->slowdown_pct);
    yyjson_mut_obj_add_bool(doc, item, "spill", settings->spill);
    yyjson_mut_obj_add_uint(doc, item, "spill_slowdown_pct", settings->spill_slowdown_pct);
    yyjson_mut_obj_add_bool(doc, item, "hidden", settings->hidden);
}

static void faults_json(yyjson_mut_doc *doc, yyjson_mut_val *card, const struct sim_faults *faults)
{
    yyjson_mut_val *item = yyjson_mut_obj_add_obj(doc, card, "faults");

    yyjson_mut_obj_add_uint(doc, item, "fail_next", faults->fail_next);
    yyjson_mut_obj_add_uint(doc, item, "fail_above_bytes", faults->fail_above_bytes);
    yyjson_mut_obj_add_bool(doc, item, "stalled", faults->stalled);
    yyjson_mut_obj_add_bool(doc, item, "lost", faults->lost);
    yyjson_mut_obj_add_bool(doc, item, "lose_armed", faults->lose_armed);
    yyjson_mut_obj_add_uint(doc, item, "lose_after_graphs", faults->lose_after_graphs);
    yyjson_mut_obj_add_str(doc, item, "lose_mode",
                           faults->lose_mode == SIM_LOSE_ABORT ? "abort" : "graph");
    yyjson_mut_obj_add_str(doc, item, "lose_message",
                           faults->lose_message == SIM_MESSAGE_VULKAN ? "vulkan" : "cuda");
}

static void counters_json(yyjson_mut_doc *doc, yyjson_mut_val *card,
                          const struct sim_counters *counters)
{
    yyjson_mut_val *item = yyjson_mut_obj_add_obj(doc, card, "counters");

    yyjson_mut_obj_add_uint(doc, item, "allocations", counters->allocations);
    yyjson_mut_obj_add_uint(doc, item, "allocations_failed", counters->allocations_failed);
    yyjson_mut_obj_add_uint(doc, item, "frees", counters->frees);
    yyjson_mut_obj_add_uint(doc, item, "graphs", counters->graphs);
    yyjson_mut_obj_add_uint(doc, item, "graphs_failed", counters->graphs_failed);
    yyjson_mut_obj_add_uint(doc, item, "processes_died", counters->processes_died);
    yyjson_mut_obj_add_uint(doc, item, "lock_recoveries", counters->lock_recoveries);
    yyjson_mut_obj_add_uint(doc, item, "blocks_repaired", counters->blocks_repaired);
    yyjson_mut_obj_add_uint(doc, item, "peak_used_bytes", counters->peak_used_bytes);
}

static void card_json(yyjson_mut_doc *doc, yyjson_mut_val *card,
                      const struct sim_snapshot *snapshot)
{
    yyjson_mut_obj_add_strcpy(doc, card, "name", snapshot->name);
    yyjson_mut_obj_add_bool(doc, card, "simulated", true);
    yyjson_mut_obj_add_uint(doc, card, "generation", snapshot->generation);
    yyjson_mut_obj_add_uint(doc, card, "capacity_bytes", snapshot->settings.capacity_bytes);
    yyjson_mut_obj_add_uint(doc, card, "used_bytes", snapshot->used_bytes);
    yyjson_mut_obj_add_uint(doc, card, "free_bytes", snapshot->free_bytes);
    yyjson_mut_obj_add_uint(doc, card, "largest_free_bytes", snapshot->largest_free_bytes);
    yyjson_mut_obj_add_uint(doc, card, "overcommitted_bytes", snapshot->overcommitted_bytes);
    yyjson_mut_obj_add_uint(doc, card, "spilled_bytes", snapshot->spilled_bytes);
    yyjson_mut_obj_add_uint(doc, card, "releasing_bytes", snapshot->releasing_bytes);
    yyjson_mut_obj_add_uint(doc, card, "release_in_ms", snapshot->release_in_ms);
    yyjson_mut_obj_add_uint(doc, card, "blocks", snapshot->n_blocks);
    settings_json(doc, card, &snapshot->settings);
    faults_json(doc, card, &snapshot->faults);
    counters_json(doc, card, &snapshot->counters);
    processes_json(doc, card, snapshot);
    events_json(doc, card, snapshot);
}

static int snapshot_take(const char *name, struct sim_snapshot *ret_snapshot)
{
    struct sim_card *card = NULL;
    int r = sim_open(name, SIM_ROLE_OBSERVER, &card);

    if (r != 0)
        return r;
    r = sim_card_snapshot(card, ret_snapshot);
    sim_card_close(card);
    return r < 0 ? sim_complain_card(name, r) : 0;
}

static int json_write(yyjson_mut_doc *doc)
{
    char *text = yyjson_mut_write(doc, YYJSON_WRITE_PRETTY, NULL);

    if (text == NULL)
        return sim_complain(SIM_EXIT_ENVIRONMENT, "out of memory");
    puts(text);
    free(text);
    return SIM_EXIT_GOOD;
}

/* One card is one object; without a name it is {"cards": [...]}. */
static int show_json(char (*names)[SIM_NAME_MAX], int count, bool all,
                     struct sim_snapshot *snapshot)
{
    yyjson_mut_doc *doc = yyjson_mut_doc_new(NULL);
    yyjson_mut_val *root = yyjson_mut_obj(doc);
    yyjson_mut_val *list = all ? yyjson_mut_obj_add_arr(doc, root, "cards") : NULL;
    int status = SIM_EXIT_GOOD;
    int r;

    yyjson_mut_doc_set_root(doc, root);
    for (int i = 0; i < count; i++) {
        r = snapshot_take(names[i], snapshot);
        if (r == 0)
            card_json(doc, all ? yyjson_mut_arr_add_obj(doc, list) : root, snapshot);
        else
            status = r;
    }
    r = all || status == SIM_EXIT_GOOD ? json_write(doc) : SIM_EXIT_GOOD;
    yyjson_mut_doc_free(doc);
    return status != SIM_EXIT_GOOD ? status : r;
}

static int show_text(char (*names)[SIM_NAME_MAX], int count, struct sim_snapshot *snapshot)
{
    int status = SIM_EXIT_GOOD;

    for (int i = 0; i < count; i++) {
        int r = snapshot_take(names[i], snapshot);

        if (r == 0)
            card_print(snapshot);
        else
            status = r;
    }
    if (count == 0)
        printf("no simulated card; make one with: failsoft sim create gpu0 --capacity 2GiB\n");
    return status;
}

int sim_show(int argc, char **argv)
{
    struct sim_option options[] = {{.name = "--json"}, {0}};
    char names[SHOW_CARDS_MAX][SIM_NAME_MAX] = {{0}};
    struct sim_snapshot *snapshot;
    const char *name = NULL;
    int count = 1;
    int r = sim_args_read(argc, argv, options, &name, NULL);

    if (r != 0)
        return r;
    if (name == NULL)
        count = sim_card_list(names, SHOW_CARDS_MAX);
    else if (sim_card_name_valid(name))
        snprintf(names[0], SIM_NAME_MAX, "%s", name);
    else
        return sim_complain(SIM_EXIT_USAGE, "\"%s\" is no card name", name);
    if (count < 0)
        return sim_complain(SIM_EXIT_ENVIRONMENT, "cannot list cards: %s", strerror(-count));
    if (count > SHOW_CARDS_MAX)
        count = SHOW_CARDS_MAX;
    snapshot = malloc(sizeof *snapshot);
    if (snapshot == NULL)
        return sim_complain(SIM_EXIT_ENVIRONMENT, "out of memory");
    r = options[0].seen ? show_json(names, count, name == NULL, snapshot)
                        : show_text(names, count, snapshot);
    free(snapshot);
    return r;
}

static uint64_t monotonic_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000u + (uint64_t)now.tv_nsec / 1000000u;
}

static int wait_free(struct sim_card *card, const char *name, uint64_t wanted, uint64_t timeout_ms)
{
    uint64_t start_ms = monotonic_ms();
    char a[24];
    char b[24];

    for (;;) {
        uint32_t seen = sim_card_changes(card);
        uint64_t total = 0;
        uint64_t available = 0;
        uint64_t spent_ms;
        int r = sim_card_memory(card, &total, &available);

        if (r < 0)
            return sim_complain_card(name, r);
        if (available >= wanted)
            return SIM_EXIT_GOOD;
        spent_ms = monotonic_ms() - start_ms;
        if (spent_ms >= timeout_ms)
            return sim_complain(SIM_EXIT_FINDING, "card %s: %s free of the %s wanted", name,
                                size_text(available, a, sizeof a), size_text(wanted, b, sizeof b));
        sim_card_wait(card, seen, WAIT_LOOK_MS);
    }
}

int sim_wait(int argc, char **argv)
{
    struct sim_option options[] = {
        {.name = "--free", .takes_value = true},
        {.name = "--timeout", .takes_value = true},
        {0},
    };
    struct sim_card *card = NULL;
    const char *name = NULL;
    uint64_t wanted = 0;
    uint64_t timeout_ms = WAIT_DEFAULT_MS;
    int r = sim_args_read(argc, argv, options, &name, NULL);

    if (r != 0)
        return r;
    if (!options[0].seen)
        return sim_complain(SIM_EXIT_USAGE, "wait: --free SIZE is missing");
    r = sim_value_bytes("--free", options[0].value, &wanted);
    if (r == 0 && options[1].seen)
        r = sim_value_duration("--timeout", options[1].value, &timeout_ms);
    if (r == 0)
        r = sim_open(name, SIM_ROLE_OBSERVER, &card);
    if (r != 0)
        return r;
    r = wait_free(card, name, wanted, timeout_ms);
    sim_card_close(card);
    return r;
}
