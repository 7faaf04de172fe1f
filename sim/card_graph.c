/*
 * A graph's way through the card: stall, loss, workspace before it; slowdown after it.
 *
 *   begin -> count down to a loss -> usable? --no--> -ENODEV
 *              ^                       | yes
 *              |  woken           stalled? --yes--> wait on the change number
 *              +-----------------------+
 *                                      | no
 *                                 workspace --does not fit--> -ENOMEM
 *                                      | fits
 *                                 (the caller computes)
 *   end   -> usable? -> wait out the slowdown, looking again at every change
 *
 * The workspace is what CUDA's pools are: it grows with the largest batch so far and is kept, so
 * a worker that loaded well can still run out of memory at its first long prompt.
 */
#include <errno.h>
#include <stdio.h>
#include <time.h>

#include "sim/card_shared.h"

#define NS_PER_MS 1000000ull

int sim_usable_locked(const struct sim_card *card, struct sim_loss *ret_loss)
{
    const struct sim_shared *shared = card->shared;

    if (shared->destroyed == 0 && card->generation == shared->generation && !shared->faults.lost)
        return 0;
    if (ret_loss != NULL) {
        ret_loss->mode = shared->faults.lose_mode;
        ret_loss->message = shared->faults.lose_message;
    }
    return -ENODEV;
}

static void loss_count_down(struct sim_shared *shared)
{
    struct sim_faults *faults = &shared->faults;

    if (!faults->lose_armed)
        return;
    if (faults->lose_after_graphs > 0) {
        faults->lose_after_graphs--;
        return;
    }
    faults->lost = true;
    sim_point();
    faults->lose_armed = false;
    sim_event_add(shared, SIM_EVENT_LOST, shared->holder, 0);
}

static int workspace_take(struct sim_card *card, uint64_t tokens)
{
    uint64_t per_token = card->shared->settings.workspace_bytes;
    uint64_t need;
    uint64_t id = 0;
    int r;

    if (per_token == 0 || tokens == 0)
        need = 0;
    else if (per_token > SIM_CAPACITY_MAX / tokens)
        return -ENOMEM;
    else
        need = per_token * tokens;
    if (per_token != 0 && need <= card->workspace_bytes)
        return 0;
    /* Grown by giving back and taking anew; what does not fit leaves the pool empty. */
    if (card->workspace_id != 0)
        sim_free_locked(card, card->workspace_id);
    card->workspace_id = 0;
    card->workspace_bytes = 0;
    if (need == 0)
        return 0;
    sim_reap(card->shared, sim_now_ms());
    r = sim_alloc_locked(card, need, &id);
    if (r < 0)
        return -ENOMEM;
    card->workspace_id = id;
    card->workspace_bytes = need;
    return 0;
}

static int graph_admit(struct sim_card *card, uint64_t tokens, struct sim_loss *ret_loss)
{
    struct sim_shared *shared = card->shared;
    struct sim_attachment *attachment = sim_attachment_find(shared, card->attachment);
    uint64_t before = card->workspace_bytes;
    int r = sim_usable_locked(card, ret_loss);

    if (r == 0 && shared->faults.stalled)
        return -EAGAIN;
    if (r == 0)
        r = workspace_take(card, tokens);
    if (r == 0) {
        shared->counters.graphs++;
        if (attachment != NULL)
            attachment->graphs++;
    } else {
        shared->counters.graphs_failed++;
    }
    return r == 0 && before != card->workspace_bytes ? 1 : r;
}

int sim_card_graph_begin(struct sim_card *card, uint64_t tokens, struct sim_loss *ret_loss)
{
    bool counted = false;

    for (;;) {
        uint32_t seen;
        bool armed;
        int r = sim_lock_only(card);

        if (r < 0)
            return r;
        armed = card->shared->faults.lose_armed;
        if (!counted)
            loss_count_down(card->shared);
        counted = true;
        r = graph_admit(card, tokens, ret_loss);
        seen = card->shared->changes;
        sim_unlock(card, r == 1 || r == -ENOMEM || armed != card->shared->faults.lose_armed);
        if (r != -EAGAIN)
            return r < 0 ? r : 0;
        sim_card_wait(card, seen, UINT64_MAX);
    }
}

/* Percent of the real time a graph of this process has to take. */
static uint64_t slowdown_pct(const struct sim_card *card)
{
    const struct sim_shared *shared = card->shared;
    uint64_t on_card = 0;
    uint64_t spilled = 0;
    uint64_t spill_pct = 100;

    for (size_t i = 0; i < SIM_BLOCKS_MAX; i++) {
        const struct sim_block *block = &shared->blocks[i];

        if (block->state != SIM_SLOT_HELD || block->owner != card->attachment)
            continue;
        if (block->offset >= SIM_SPILL_BASE)
            spilled += block->size_bytes / SIM_PAGE_BYTES;
        else
            on_card += block->size_bytes / SIM_PAGE_BYTES;
    }
    if (spilled != 0 && shared->settings.spill_slowdown_pct > 100)
        spill_pct += (shared->settings.spill_slowdown_pct - 100) * spilled / (on_card + spilled);
    return shared->settings.slowdown_pct * spill_pct / 100;
}

static uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000u * NS_PER_MS + (uint64_t)now.tv_nsec;
}

/* a * pct / 100 without wrapping: a graph never takes longer than a day here. */
static uint64_t scale_ns(uint64_t ns, uint64_t pct)
{
    const uint64_t day_ns = 86400ull * 1000u * NS_PER_MS;

    if (pct != 0 && ns > day_ns * 100 / pct)
        return day_ns;
    return ns * pct / 100;
}

int sim_card_graph_end(struct sim_card *card, uint64_t elapsed_ns, struct sim_loss *ret_loss)
{
    uint64_t start_ns = now_ns();

    for (;;) {
        uint64_t target_ns;
        uint64_t spent_ns;
        uint32_t seen;
        int r = sim_lock_only(card);

        if (r < 0)
            return r;
        r = sim_usable_locked(card, ret_loss);
        if (r < 0)
            card->shared->counters.graphs_failed++;
        target_ns = scale_ns(elapsed_ns, slowdown_pct(card));
        seen = card->shared->changes;
        sim_unlock(card, false);
        spent_ns = elapsed_ns + (now_ns() - start_ns);
        if (r < 0 || spent_ns >= target_ns)
            return r;
        sim_card_wait(card, seen, (target_ns - spent_ns + NS_PER_MS - 1) / NS_PER_MS);
    }
}

int sim_card_check(struct sim_card *card, struct sim_loss *ret_loss)
{
    int r = sim_lock_only(card);

    if (r < 0)
        return r;
    r = sim_usable_locked(card, ret_loss);
    sim_unlock(card, false);
    return r;
}

/*
 * Wording as the stock engine's backends print it when their device goes away: ggml_cuda_error()
 * in ggml-cuda.cu, and what the C++ runtime prints for the exception that ggml-vulkan.cpp lets
 * pass ("ggml-org/llama.cpp#17334").
 */
void sim_card_loss_text(const char *card_name, enum sim_message message, char *out, size_t out_size)
{
    static const char *const lines[] = {
        [SIM_MESSAGE_CUDA] = "CUDA error: unspecified launch failure\n"
                             "  current device: 0, in function ggml_backend_cuda_synchronize at "
                             "ggml-cuda.cu\n"
                             "  cudaStreamSynchronize(cuda_ctx->stream())\n"
                             "ggml-cuda.cu: CUDA error\n",
        [SIM_MESSAGE_VULKAN] = "terminate called after throwing an instance of "
                               "'vk::DeviceLostError'\n"
                               "  what():  vk::Queue::submit: ErrorDeviceLost\n",
    };

    snprintf(out, out_size,
             "failsoft-sim: card %s (simulated) is lost; the driver's words follow\n%s", card_name,
             lines[message == SIM_MESSAGE_VULKAN ? SIM_MESSAGE_VULKAN : SIM_MESSAGE_CUDA]);
}
