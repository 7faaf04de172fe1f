/*
 * Graphs on the simulated device: the card decides whether and how long, the engine's own CPU
 * backend computes. So tokens equal those of a CPU worker with the same settings.
 *
 * Threads: half the cores this process may use, at most 2; FAILSOFT_SIM_THREADS asks for more, up to
 * all of them. With more threads than free cores the CPU backend spins itself to a crawl (seen: 0.25
 * instead of 50 tokens/s), and beside the card there is a CPU tier to run.
 */
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "sim/plugin.h"

#define SIM_THREADS_DEFAULT_MAX 2

static const char *backend_name(ggml_backend_t backend)
{
    (void)backend;
    return SIM_DEVICE_NAME;
}

static void backend_free(ggml_backend_t backend)
{
    ggml_backend_free(backend->context);
    free(backend);
}

/*
 * Tokens in the batch: the columns of what is multiplied with a weight matrix. Attention multiplies
 * with the cache, which is not in a weights buffer and has other shapes.
 */
static uint64_t graph_tokens(struct ggml_cgraph *graph)
{
    int64_t tokens = 0;

    for (int i = 0; i < ggml_graph_n_nodes(graph); i++) {
        const struct ggml_tensor *node = ggml_graph_node(graph, i);
        const struct ggml_tensor *weight = node->src[0];

        if (node->op != GGML_OP_MUL_MAT || weight->buffer == NULL ||
            weight->buffer->usage != GGML_BACKEND_BUFFER_USAGE_WEIGHTS)
            continue;
        if (node->src[1]->ne[1] > tokens)
            tokens = node->src[1]->ne[1];
    }
    return tokens > 0 ? (uint64_t)tokens : 1;
}

static uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
}

/* The card went away. Either this process dies as one with a CUDA backend does, or the graph fails. */
static enum ggml_status card_lost(struct sim_card *card, const struct sim_loss *loss)
{
    char text[512];

    if (loss->mode != SIM_LOSE_ABORT) {
        sim_plugin_log(SIM_DEVICE_NAME " (simulated): the device is lost, graph failed");
        return GGML_STATUS_FAILED;
    }
    sim_card_loss_text(sim_card_name(card), loss->message, text, sizeof text);
    fputs(text, stderr);
    fflush(stderr);
    abort();
}

static enum ggml_status card_refused(struct sim_card *card, int error, uint64_t tokens,
                                     const struct sim_loss *loss)
{
    if (error == -ENODEV)
        return card_lost(card, loss);
    if (error == -ENOMEM) {
        sim_plugin_log(SIM_DEVICE_NAME
                       " (simulated): out of memory: the workspace for %llu tokens does not fit",
                       (unsigned long long)tokens);
        return GGML_STATUS_ALLOC_FAILED;
    }
    sim_plugin_log(SIM_DEVICE_NAME " (simulated): graph failed: %s", strerror(-error));
    return GGML_STATUS_FAILED;
}

static enum ggml_status backend_compute(ggml_backend_t backend, struct ggml_cgraph *graph)
{
    struct sim_card *card = sim_plugin_card();
    struct sim_loss loss = {0};
    uint64_t tokens;
    uint64_t start_ns;
    enum ggml_status status;
    int r;

    if (card == NULL)
        return GGML_STATUS_FAILED;
    tokens = graph_tokens(graph);
    r = sim_card_graph_begin(card, tokens, &loss);
    if (r < 0)
        return card_refused(card, r, tokens, &loss);
    start_ns = now_ns();
    status = ggml_backend_graph_compute(backend->context, graph);
    r = sim_card_graph_end(card, now_ns() - start_ns, &loss);
    return r < 0 ? card_refused(card, r, tokens, &loss) : status;
}

static const struct ggml_backend_i backend_interface = {
    .get_name = backend_name,
    .free = backend_free,
    .graph_compute = backend_compute,
};

static int threads_wanted(void)
{
    const char *text = getenv(SIM_THREADS_ENV);
    long wanted = text != NULL ? strtol(text, NULL, 10) : 0;
    cpu_set_t cores;
    int count = sched_getaffinity(0, sizeof cores, &cores) == 0 ? CPU_COUNT(&cores) : 1;

    if (wanted >= 1)
        return wanted < count ? (int)wanted : count;
    if (count / 2 > SIM_THREADS_DEFAULT_MAX)
        return SIM_THREADS_DEFAULT_MAX;
    return count / 2 > 1 ? count / 2 : 1;
}

static void threads_set(ggml_backend_t cpu)
{
    ggml_backend_reg_t reg = ggml_backend_dev_backend_reg(ggml_backend_get_device(cpu));
    ggml_backend_set_n_threads_t set = NULL;
    void *address = ggml_backend_reg_get_proc_address(reg, "ggml_backend_set_n_threads");

    if (address == NULL)
        return;
    /* ISO C has no cast from object to function pointer; POSIX says the bytes are the same. */
    memcpy(&set, &address, sizeof set);
    set(cpu, threads_wanted());
}

static ggml_guid_t backend_guid(void)
{
    static ggml_guid guid = {0xfa, 0x11, 0x50, 0xf7, 0x51, 0x3d, 0x4c, 0x0e,
                             0x9b, 0x02, 0x5d, 0x0e, 0x9a, 0x6c, 0x1e, 0x77};

    return &guid;
}

ggml_backend_t sim_plugin_backend_new(void)
{
    ggml_backend_dev_t cpu = sim_plugin_cpu_device();
    ggml_backend_t inner = NULL;
    ggml_backend_t backend = NULL;

    if (sim_plugin_card() == NULL)
        return NULL;
    inner = cpu != NULL ? ggml_backend_dev_init(cpu, NULL) : NULL;
    backend = calloc(1, sizeof *backend);
    if (inner == NULL || backend == NULL) {
        sim_plugin_log("the engine has no CPU backend to compute on");
        ggml_backend_free(inner);
        free(backend);
        return NULL;
    }
    threads_set(inner);
    backend->guid = backend_guid();
    backend->iface = backend_interface;
    backend->device = sim_plugin_device();
    backend->context = inner;
    return backend;
}
