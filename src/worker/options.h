/*
 * What a worker needs to know: a plain struct, filled from the configuration or by hand, whose
 * strings are borrowed until worker_create() copies them. Nothing in it points into a
 * configuration afterwards, so a reload may free the old one while its workers go on.
 */
#ifndef FAILSOFT_WORKER_OPTIONS_H
#define FAILSOFT_WORKER_OPTIONS_H

#include "config/config.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum worker_engine {
    WORKER_ENGINE_UNKNOWN = 0, /* external, not found yet */
    WORKER_ENGINE_LLAMA_SERVER,
    WORKER_ENGINE_OLLAMA,
    WORKER_ENGINE_OPENAI, /* speaks the OpenAI API, nothing more is known */
    WORKER_ENGINE_GENERIC,
};

/* What a managed worker computes on, and so what it may see. */
enum worker_device {
    WORKER_DEVICE_NONE = 0, /* CPU: every GPU is hidden */
    WORKER_DEVICE_SIM,      /* the simulated accelerator: real GPUs are hidden */
    WORKER_DEVICE_NVIDIA,
    WORKER_DEVICE_AMD,
    WORKER_DEVICE_INTEL,
};

struct worker_pair {
    const char *name;
    const char *value;
};

struct worker_options {
    const char *service; /* names for messages and the socket's file name */
    const char *tier;

    /* External: base URL `http://host[:port][/prefix]`, NULL when managed. */
    const char *url;
    enum worker_engine engine; /* UNKNOWN: find out (external); without a command, managed is always
                                  llama-server */
    uint64_t connect_timeout_ms;

    /* Managed. */
    const char *engine_path; /* a path, or a bare name that is looked up on PATH */
    const char *model_path;
    /*
     * A program that is not llama-server, looked up as engine_path, and its arguments. It is told in
     * an argument or in `env` where to listen: {port} of 127.0.0.1, or {socket}. Count 0: the
     * engine is llama-server, which engine_path and model_path name.
     */
    const char *const *command;
    size_t command_count;
    const char *health;       /* of the program: the path that answers 2xx when it is ready */
    uint64_t device_bytes;    /* declared use of the device; on a simulated card held for it */
    uint64_t host_bytes;      /* declared use of the machine */
    const char *run_dir;      /* for the socket; NULL: chosen, see run_dir.h */
    bool embeddings;          /* an embeddings service */
    uint32_t context_tokens;  /* for one slot; 0: the model's own, shared by the slots */
    uint32_t slots;           /* 0 is 1 */
    uint32_t threads;         /* 0: by affinity and cgroup quota; never more than those */
    int32_t gpu_layers;       /* -1: all */
    int flash_attention;      /* enum config_switch */
    const char *cache_type_k; /* NULL: f16 */
    const char *cache_type_v;
    uint32_t cache_ram_mib; /* cap of the host prompt cache, counted in MiB; 0: none */
    enum worker_device device;
    uint32_t device_index;
    const char *device_name; /* as configured, for messages */
    const char *sim_card;    /* device sim */
    const char *sim_plugin;
    bool require_device; /* an engine that loads on the CPU although layers were to be offloaded has
                            failed: a second CPU worker that calls itself GPU helps nobody */
    int oom_score_above; /* added to the gateway's own oom_score_adj */
    const struct worker_pair *sampling; /* JSON name → literal; the known ones become flags */
    size_t sampling_count;
    const char *const *args; /* further arguments, last, so that they win */
    size_t arg_count;
    const struct worker_pair *env; /* further environment; an empty value is an empty value */
    size_t env_count;

    uint64_t load_timeout_ms; /* spawn to ready; 0: by size, see supervise.c */
    uint64_t stop_grace_ms;
    uint64_t backoff_ms; /* first pause before a restart; doubled each time */
    uint64_t backoff_max_ms;
    uint64_t settled_ms;      /* ready for this long: the next pause is the first again */
    uint64_t failed_pause_ms; /* pause in state failed */
    uint32_t failed_starts;   /* this many starts in a row without ready: failed */
    uint64_t
        memory_wait_ms; /* at most, for memory of the last process that is seen not to be back */
    uint64_t memory_settle_ms; /* after the exit, where nobody can see whether it is back */
    uint64_t memory_poll_ms;
};

/* Every default: one slot, CPU, restart pauses of 0.5 s doubling to 30 s, 5 s of grace. */
void worker_options_init(struct worker_options *o);

/*
 * From one tier of one service. Strings and arrays are borrowed from `config`, except arrays that
 * have to be made: free with worker_options_release() once worker_create() has copied them.
 * 0; -ENOMEM.
 */
int worker_options_from_config(const struct config *config, const struct config_service *service,
                               const struct config_tier *tier, struct worker_options *ret_options);
void worker_options_release(struct worker_options *o);

/* True when a worker made with `a` need not be replaced by one made with `b` (reload). */
bool worker_options_equal(const struct worker_options *a, const struct worker_options *b);

/* A deep copy that owns everything, in one allocation, freed with worker_options_free(). 0; -ENOMEM. */
int worker_options_copy(const struct worker_options *o, struct worker_options **ret_copy);
void worker_options_free(struct worker_options *copy);

/* Managed, and not llama-server. */
bool worker_options_is_program(const struct worker_options *o);
/* The program is told a unix socket, not a port. */
bool worker_options_uses_socket(const struct worker_options *o);

const char *worker_engine_name(enum worker_engine engine); /* "llama-server", … */

#endif
