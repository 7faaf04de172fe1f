/*
 * The configuration as plain data: what a YAML file says, checked, with every default filled in.
 *
 * One `struct config` owns every string and array below it. It does not change after loading, so
 * any thread may read it; the gateway swaps whole configurations and frees the old one when its
 * last user is gone (config_free). Nothing here keeps a global: loading may run on any thread.
 *
 * Where an option comes from: one row in config/options.c makes its parser, its bounds, its default,
 * its help and its line in docs/configuration.md.
 */
#ifndef FAILSOFT_CONFIG_CONFIG_H
#define FAILSOFT_CONFIG_CONFIG_H

#include "base/log.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum config_service_kind {
    CONFIG_SERVICE_KIND_CHAT = 0,
    CONFIG_SERVICE_KIND_EMBEDDINGS,
    CONFIG_SERVICE_KIND_TRANSCRIPTION,
    CONFIG_SERVICE_KIND_GENERIC,
};

enum config_tier_kind {
    CONFIG_TIER_KIND_GPU = 0,
    CONFIG_TIER_KIND_HYBRID,
    CONFIG_TIER_KIND_CPU,
    CONFIG_TIER_KIND_SUBSTITUTE,
    CONFIG_TIER_KIND_REMOTE,
};

enum config_engine {
    CONFIG_ENGINE_AUTO = 0,     /* external only: found by probing */
    CONFIG_ENGINE_LLAMA_SERVER, /* always so for managed tiers without a command */
    CONFIG_ENGINE_OLLAMA,
    CONFIG_ENGINE_OPENAI, /* anything that speaks the OpenAI API */
    CONFIG_ENGINE_GENERIC,
};

enum config_device_kind {
    CONFIG_DEVICE_KIND_NVIDIA = 0,
    CONFIG_DEVICE_KIND_AMD,
    CONFIG_DEVICE_KIND_INTEL,
    CONFIG_DEVICE_KIND_SIM,
};

enum config_switch {
    CONFIG_SWITCH_OFF = 0,
    CONFIG_SWITCH_ON,
    CONFIG_SWITCH_AUTO,
};

/* What may be given short where all of it does not fit. */
enum config_shrink {
    CONFIG_SHRINK_NO = 0,
    CONFIG_SHRINK_OUTPUT,
    CONFIG_SHRINK_CONTEXT,
    CONFIG_SHRINK_BOTH,
};

enum config_cpu {
    CONFIG_CPU_DENY = 0,
    CONFIG_CPU_ALLOW,
};

/* Where a program that failsoft runs is told to listen, in its arguments and environment. */
#define CONFIG_PLACE_PORT   "{port}"
#define CONFIG_PLACE_SOCKET "{socket}"

/* 1-based line and column of a value in the file; 0:0 where the default stands. */
struct config_mark {
    uint32_t line;
    uint32_t column;
};

struct config_strings {
    char **items;
    size_t count;
};

struct config_pair {
    char *name;
    char *value; /* in `sampling`: a JSON number, true or false, ready to be spliced in */
};

struct config_pairs {
    struct config_pair *items;
    size_t count;
};

/* The fields of struct http_server_limits, and the gateway's own bounds. */
struct config_limits {
    uint64_t head_bytes;
    uint64_t body_bytes;
    uint64_t write_queue_bytes;
    uint64_t event_bytes;    /* one upstream event; above: the upstream broke */
    uint64_t response_bytes; /* a collected (not streamed) upstream answer */
    uint64_t head_timeout_ms;
    uint64_t idle_timeout_ms;
    uint64_t body_timeout_ms;
    uint64_t write_timeout_ms;
    uint32_t max_connections; /* 0: from RLIMIT_NOFILE */
};

struct config_device {
    char *name;
    struct config_mark mark; /* of the name */
    int kind;                /* enum config_device_kind */
    uint64_t reserve_bytes;  /* 0: chosen (the larger of 512 MiB and 5 %) */
    uint64_t back_after_ms;  /* room for this long: a worker that yielded is started again */
    uint64_t memory_bytes;   /* declared: where telemetry has none; else a limit. 0: not said */
    int exclusive;           /* enum config_switch, off or on: nobody else uses it */
    int integrated;          /* enum config_switch */
    uint32_t index;          /* which of the machine's devices of this kind, as its driver counts */
    char *card;              /* sim: name of the simulated card; the device's name by default */
    char *plugin;            /* sim: path of the engine plug-in; NULL: looked for beside failsoft */
    const struct config_mark *marks; /* one a table row; private to config/ */
};

struct config_tier_queue {
    uint32_t length;  /* requests that may wait; 0: none */
    uint64_t wait_ms; /* longest wait */
};

struct config_tier_restart {
    uint64_t backoff_ms; /* first pause, doubled each time */
    uint64_t backoff_max_ms;
    uint64_t settled_ms; /* ready for this long: the pause starts from the first again */
};

struct config_tier_availability {
    uint32_t failures; /* consecutive faults that suspend the worker */
    uint64_t hold_ms;  /* first pause before the one probe, doubled each time */
    uint64_t hold_max_ms;
};

struct config_tier {
    char *name; /* the tier word: gpu, hybrid, cpu, substitute, remote */
    int kind;   /* enum config_tier_kind */
    struct config_mark mark;

    bool managed;                       /* no url: failsoft runs the engine */
    const struct config_device *device; /* NULL: none */
    char *device_name;                  /* NULL: none */

    /* External: `http://host[:port][/prefix]`; NULL when managed. */
    char *url;
    char *url_host;    /* without brackets */
    uint16_t url_port; /* 80 by default */
    char *url_prefix;  /* "" or "/v1x", no slash at the end */
    int engine;        /* enum config_engine */

    char *model;      /* the name that is sent to a worker by url or command; NULL: the client's */
    char *model_path; /* managed: the GGUF file, absolute; the service's unless the tier has one */
    struct config_mark model_mark;
    bool model_path_own; /* given by this tier, not by the service */

    uint32_t slots;             /* attempts at a time; 0: not limited (external only) */
    uint32_t request_tokens;    /* longest request it is given; 0: no limit of its own */
    uint32_t threads;           /* 0: auto (quota aware) */
    int32_t gpu_layers;         /* -1: all; 0 on cpu tiers */
    struct config_strings args; /* further arguments of the engine */
    struct config_pairs env;    /* further environment of the engine */

    /*
     * Managed, not llama-server: a program (a path, or a name that is looked up on PATH) and its
     * arguments; count 0: llama-server. CONFIG_PLACE_PORT or CONFIG_PLACE_SOCKET, never both, is
     * in an argument or in a value of env.
     */
    struct config_strings command;
    char *health;               /* path of its readiness; NULL: /health */
    uint64_t memory_bytes;      /* what it takes of its device, at most; 0: it has none */
    uint64_t host_memory_bytes; /* and of the machine; 0: not said */

    uint64_t keep_alive_max_ms; /* external: bound of an Ollama client's keep_alive */
    char *unload;               /* external: path that is sent a POST to unload; NULL: by engine */

    uint64_t first_event_timeout_ms; /* from dispatch to the first event with output */
    uint64_t stall_timeout_ms;       /* between two events afterwards */
    uint64_t connect_timeout_ms;
    uint64_t load_timeout_ms; /* managed, spawn to ready; 0: by the size of the model */
    uint64_t
        retry_after_max_ms; /* a worker's Retry-After up to this is waited for; above: next tier */
    uint64_t stop_grace_ms; /* managed: TERM to KILL */
    struct config_tier_queue queue;
    struct config_tier_restart restart;
    struct config_tier_availability availability;
    const struct config_mark *marks; /* private to config/ */
};

struct config_service {
    char *name;
    struct config_mark mark;
    int kind;         /* enum config_service_kind */
    char *model_path; /* absolute, NULL: none */
    struct config_mark model_mark;
    uint32_t context_tokens; /* for one request; 0: the model's own */
    bool context_given;      /* the file says it */
    uint64_t recovery_budget_ms;
    uint64_t memory_wait_ms;        /* longest wait for memory that is on its way back */
    uint32_t assumed_output_tokens; /* of a request that names no limit */
    int shrink;                     /* enum config_shrink */
    int cpu;                        /* enum config_cpu */
    struct config_strings aliases;  /* further model names that mean this service */
    struct config_strings paths;    /* URL path prefixes that belong to it */
    struct config_pairs
        sampling;        /* JSON name → literal, engine defaults included; [0] for other kinds */
    bool sampling_given; /* the file has a `sampling` block */
    char *cache_type_k;  /* f16 by default */
    char *cache_type_v;
    int flash_attention;       /* enum config_switch; the same for every tier, or answers differ */
    struct config_tier *tiers; /* in order of preference */
    size_t tier_count;
    const struct config_mark *marks; /* private to config/ */
};

struct config {
    char *path;                 /* as given; "" when loaded from a string */
    char *host;                 /* numeric address (localhost is 127.0.0.1) */
    uint16_t port;              /* 0: any free one */
    char *engine_path;          /* llama-server: a path, or a bare name that is looked up on PATH */
    char *runtime_dir;          /* for sockets of workers; NULL: chosen at start */
    char *state_dir;            /* for what outlives a restart; NULL: chosen at start */
    int admission;              /* enum config_switch, off or on: memory decides */
    int log_level;              /* enum log_level */
    uint64_t shutdown_grace_ms; /* running requests may end for this long */
    struct config_limits limits;
    uint64_t host_reserve_bytes; /* 0: chosen (the larger of 512 MiB and 5 %) */
    struct config_device *devices;
    size_t device_count;
    struct config_service *services;
    size_t service_count;
    const struct config_mark *marks; /* private to config/ */
    void *arena;                     /* private: owner of everything above */
};

enum config_severity {
    CONFIG_SEVERITY_ERROR = 0,
    CONFIG_SEVERITY_WARNING,
};

struct config_problem {
    enum config_severity severity;
    uint32_t line;   /* from 1; 0: the file as a whole */
    uint32_t column; /* from 1, in characters */
    char *message;   /* one sentence: the token, what is allowed, a suggestion */
};

/* Every problem of one file, in the order of the file. Owned by the caller: init, then free. */
struct config_report {
    char *path;
    struct config_problem *items;
    size_t count;
    size_t errors;
    size_t warnings;
    bool truncated;  /* more than CONFIG_REPORT_MAX */
    bool unreadable; /* the file could not be opened or read: an environment problem */
};

enum { CONFIG_REPORT_MAX = 200 };
/* A larger file is refused. */
enum { CONFIG_FILE_MAX_BYTES = 1024 * 1024 };

void config_report_init(struct config_report *report);
void config_report_free(struct config_report *report);

/*
 * Reads, parses and checks the file. All problems of form and meaning are reported together; model
 * files are not looked at (config_check_files does). Blocks on the file only.
 * 0 (there may be warnings); -EINVAL when the report has errors; -ENOENT, -EACCES, … when the file
 * can not be read (also reported); -ENOMEM. *ret is owned by the caller and untouched on failure.
 */
int config_load_file(const char *path, struct config **ret, struct config_report *report);

/* As config_load_file, from memory. Relative paths are relative to base_dir (NULL: the working dir). */
int config_load_string(const char *text, size_t len, const char *base_dir, struct config **ret,
                       struct config_report *report);

/*
 * Looks at the files that the configuration names: model files (missing, a folder, not a GGUF,
 * truncated, big-endian), the engine, the plug-ins. Blocks on the file system. Appends to the report.
 * 0; -EINVAL when it found errors; -ENOMEM.
 */
int config_check_files(const struct config *c, struct config_report *report);

/* NULL is fine. */
void config_free(struct config *c);

/*
 * The file to use when none is named: ./failsoft.yaml, $XDG_CONFIG_HOME/failsoft/failsoft.yaml
 * (~/.config by default), /etc/failsoft/failsoft.yaml. 0; -ENOENT: none exists; -ENAMETOOLONG.
 */
int config_find_default(char *out, size_t out_size);

/* The service of a model name or alias, NULL: none. */
const struct config_service *config_find_service(const struct config *c, const char *name,
                                                 size_t name_len);

/* The words of the file for an enum value, e.g. "chat", "llama-server", "sim". */
const char *config_service_kind_name(int kind);
const char *config_engine_name(int engine);
const char *config_device_kind_name(int kind);

#endif
