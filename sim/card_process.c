/*
 * Who holds memory on the card, and who of them is dead.
 *
 * A process is its pid and its start time: a pid that was used again is another process. Death is
 * noticed by whoever looks next, and then the memory comes back after the release delay, as
 * a driver takes a while to tear a context down.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sim/card_shared.h"

/*
 * /proc/PID/stat: "pid (comm) state ppid ..."; comm may hold spaces and brackets, so fields are
 * counted from the last ')'. State is field 3, start time field 22 (proc(5)).
 */
static int stat_parse(const char *text, char *ret_state, uint64_t *ret_ticks)
{
    const char *at = strrchr(text, ')');
    char *end;
    unsigned long long ticks;

    if (at == NULL || at[1] != ' ' || at[2] == '\0')
        return -EIO;
    *ret_state = at[2];
    at += 2;
    for (int field = 3; field < 22; field++) {
        at = strchr(at, ' ');
        if (at == NULL)
            return -EIO;
        at++;
    }
    errno = 0;
    ticks = strtoull(at, &end, 10);
    if (end == at || errno != 0)
        return -EIO;
    *ret_ticks = ticks;
    return 0;
}

int sim_process_start(int32_t pid, uint64_t *ret_ticks)
{
    char path[32];
    char text[1024];
    char state = '?';
    uint64_t ticks = 0;
    ssize_t n;
    int fd;
    int r;

    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT || errno == ESRCH ? -ESRCH : -errno;
    n = read(fd, text, sizeof text - 1);
    r = n < 0 ? -errno : 0;
    close(fd);
    if (r < 0)
        return r;
    text[n] = '\0';
    r = stat_parse(text, &state, &ticks);
    if (r < 0)
        return r;
    /* A zombie has given its memory back already; only its exit status is left. */
    if (state == 'Z' || state == 'X')
        return -ESRCH;
    *ret_ticks = ticks;
    return 0;
}

struct sim_attachment *sim_attachment_find(struct sim_shared *shared, uint64_t id)
{
    for (size_t i = 0; i < SIM_PROCESSES_MAX; i++) {
        struct sim_attachment *attachment = &shared->attachments[i];

        if (attachment->state == SIM_SLOT_HELD && attachment->id == id)
            return attachment;
    }
    return NULL;
}

/* Unknown is not dead: only a process that is provably gone loses its memory. */
static bool attachment_is_dead(const struct sim_attachment *attachment)
{
    uint64_t ticks = 0;
    int r = sim_process_start(attachment->pid, &ticks);

    return r == -ESRCH || (r == 0 && ticks != attachment->start_ticks);
}

static uint64_t owner_release(struct sim_shared *shared, uint64_t owner, uint64_t release_at_ms)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < SIM_BLOCKS_MAX; i++) {
        struct sim_block *block = &shared->blocks[i];

        if (block->state != SIM_SLOT_HELD || block->owner != owner)
            continue;
        bytes += block->size_bytes;
        block->release_at_ms = release_at_ms;
        sim_point();
        block->state = SIM_SLOT_RELEASING;
        sim_point();
    }
    return bytes;
}

bool sim_reap(struct sim_shared *shared, uint64_t now_ms)
{
    uint64_t returned_bytes = 0;
    bool changed = false;

    for (size_t i = 0; i < SIM_PROCESSES_MAX; i++) {
        struct sim_attachment *attachment = &shared->attachments[i];
        uint64_t bytes;

        if (attachment->state != SIM_SLOT_HELD || !attachment_is_dead(attachment))
            continue;
        bytes = owner_release(shared, attachment->id, now_ms + shared->settings.release_delay_ms);
        sim_event_add(shared, SIM_EVENT_PROCESS_DIED, attachment->pid, bytes);
        shared->counters.processes_died++;
        attachment->state = SIM_SLOT_FREE;
        sim_point();
        changed = true;
    }
    for (size_t i = 0; i < SIM_BLOCKS_MAX; i++) {
        struct sim_block *block = &shared->blocks[i];

        if (block->state != SIM_SLOT_RELEASING || block->release_at_ms > now_ms)
            continue;
        returned_bytes += block->size_bytes;
        block->state = SIM_SLOT_FREE;
        sim_point();
    }
    if (returned_bytes != 0)
        sim_event_add(shared, SIM_EVENT_RELEASED, 0, returned_bytes);
    return changed || returned_bytes != 0;
}

static void program_name(char *out, size_t out_size)
{
    int fd = open("/proc/self/comm", O_RDONLY | O_CLOEXEC);
    ssize_t n = 0;

    memset(out, 0, out_size);
    if (fd < 0)
        return;
    n = read(fd, out, out_size - 1);
    close(fd);
    if (n > 0 && out[n - 1] == '\n')
        out[n - 1] = '\0';
}

int sim_attach(struct sim_card *card, enum sim_role role)
{
    struct sim_shared *shared = card->shared;
    uint64_t ticks = 0;
    int r = sim_process_start((int32_t)getpid(), &ticks);

    if (r < 0)
        return r;
    for (size_t i = 0; i < SIM_PROCESSES_MAX; i++) {
        struct sim_attachment *attachment = &shared->attachments[i];

        if (attachment->state != SIM_SLOT_FREE)
            continue;
        attachment->pid = (int32_t)getpid();
        attachment->start_ticks = ticks;
        attachment->graphs = 0;
        attachment->generation = shared->generation;
        attachment->role = (uint32_t)role;
        program_name(attachment->program, sizeof attachment->program);
        attachment->id = shared->next_id++;
        sim_point();
        attachment->state = SIM_SLOT_HELD;
        sim_point();
        card->attachment = attachment->id;
        sim_event_add(shared, SIM_EVENT_ATTACHED, attachment->pid, 0);
        return 0;
    }
    return -EUSERS;
}

void sim_detach(struct sim_card *card)
{
    struct sim_shared *shared = card->shared;
    struct sim_attachment *attachment = sim_attachment_find(shared, card->attachment);
    uint64_t bytes = 0;

    if (card->attachment == 0)
        return;
    for (size_t i = 0; i < SIM_BLOCKS_MAX; i++) {
        struct sim_block *block = &shared->blocks[i];

        if (block->state != SIM_SLOT_HELD || block->owner != card->attachment)
            continue;
        bytes += block->size_bytes;
        block->state = SIM_SLOT_FREE;
        sim_point();
    }
    if (attachment != NULL) {
        sim_event_add(shared, SIM_EVENT_DETACHED, attachment->pid, bytes);
        attachment->state = SIM_SLOT_FREE;
    }
    sim_point();
    card->attachment = 0;
}
