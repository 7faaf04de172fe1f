/*
 * The simulated accelerator as a source. The card keeps no thread and no process: each pass maps it,
 * looks, and lets go, so a card that was destroyed and made anew is found again. May block for 5 s
 * on the card's lock when an engine was stopped inside it.
 */
#include "device/source.h"

#include "sim/card.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct sim_source {
    char card[SIM_NAME_MAX];
    struct sim_snapshot snapshot; /* too large for a thread's stack */
};

static int sim_open(const struct device_spec *spec, const struct device_roots *roots,
                    void **ret_state, enum device_state *ret_device, char *why)
{
    const char *card = spec->card[0] != '\0' ? spec->card : spec->name;
    struct sim_source *source;

    (void)roots;
    if (!sim_card_name_valid(card)) {
        *ret_device = DEVICE_STATE_ABSENT;
        snprintf(why, DEVICE_WHY_MAX, "`%.40s` is no name of a card", card);
        return -EINVAL;
    }
    source = calloc(1, sizeof(*source));
    if (source == NULL)
        return -ENOMEM;
    memcpy(source->card, card, strlen(card) + 1); /* a valid name fits */
    *ret_state = source;
    return 0;
}

static void take_processes(const struct sim_snapshot *from, struct device_sample *sample)
{
    for (size_t i = 0; i < from->n_processes; i++) {
        const struct sim_process *p = &from->processes[i];
        struct device_process *to = device_sample_add_process(sample, p->pid);

        if (to == NULL)
            return;
        /* A process may be attached more than once. */
        to->has_bytes = true;
        to->bytes += p->used_bytes;
        to->spilled_bytes += p->spilled_bytes;
        to->lost = to->lost || p->stale;
        memcpy(to->program, p->program, sizeof(to->program));
        to->program[sizeof(to->program) - 1] = '\0';
    }
}

static void take_snapshot(const struct sim_snapshot *from, struct device_sample *sample)
{
    sample->has |= DEVICE_HAS_TOTAL | DEVICE_HAS_USED | DEVICE_HAS_FREE | DEVICE_HAS_RESERVED |
                   DEVICE_HAS_LARGEST_FREE | DEVICE_HAS_RELEASING | DEVICE_HAS_OVERCOMMITTED |
                   DEVICE_HAS_PROCESSES;
    sample->total_bytes = from->settings.capacity_bytes;
    sample->used_bytes = from->used_bytes;
    sample->reserved_bytes = from->settings.reserve_bytes;
    sample->releasing_bytes = from->releasing_bytes;
    sample->overcommitted_bytes = from->overcommitted_bytes;
    sample->free_bytes = from->free_bytes;
    sample->largest_free_bytes = from->largest_free_bytes;
    if (from->settings.max_alloc_bytes != 0) {
        sample->has |= DEVICE_HAS_MAX_ALLOC;
        sample->max_alloc_bytes = from->settings.max_alloc_bytes;
    }
    take_processes(from, sample);
    sample->state = DEVICE_STATE_PRESENT;
    if (from->settings.hidden) {
        sample->state = DEVICE_STATE_HIDDEN;
        device_sample_say(sample, "engines that start now do not find the card");
    }
    if (from->faults.lost) {
        sample->state = DEVICE_STATE_LOST;
        device_sample_say(sample, "the card is lost until a reset");
        /* What a lost card says of its memory is of no use to anybody. */
        sample->has &= ~(DEVICE_HAS_FREE | DEVICE_HAS_LARGEST_FREE);
        sample->free_bytes = sample->largest_free_bytes = 0;
    }
}

static int sim_sample(void *state, struct device_sample *sample)
{
    struct sim_source *source = state;
    struct sim_card *card = NULL;
    char why[SIM_WHY_MAX] = "";
    int rc;

    sample->flags |= DEVICE_FLAG_SIMULATED;
    rc = sim_card_open(source->card, SIM_ROLE_OBSERVER, &card, why, sizeof(why));
    if (rc == 0)
        rc = sim_card_snapshot(card, &source->snapshot);
    sim_card_close(card);
    if (rc == 0)
        take_snapshot(&source->snapshot, sample);
    else {
        sample->state = rc == -ENOENT   ? DEVICE_STATE_ABSENT
                        : rc == -ENODEV ? DEVICE_STATE_LOST
                                        : DEVICE_STATE_UNKNOWN;
        device_sample_say(sample, "%.*s", DEVICE_WHY_MAX - 1, why[0] ? why : strerror(-rc));
    }
    return 0;
}

const struct device_source_ops device_source_sim = {"sim", sim_open, sim_sample, free};
