/*
 * Every option, one row each. The order of rows is the order of the documentation.
 *
 * Sampling defaults are those of the stock engine (llama.cpp v0.4.0, struct common_params_sampling):
 * they are sent explicitly, so that every tier of a service samples by the same rules.
 */
#include "config/options.h"

#include "config/config.h"
#include "config/words.h"

#include <string.h>

#define KIB(n) ((uint64_t)(n) << 10)
#define MIB(n) ((uint64_t)(n) << 20)
#define GIB(n) ((uint64_t)(n) << 30)
#define SEC(n) ((uint64_t)(n)*1000)
#define HOUR   SEC(3600)

const char *const option_service_kinds[] = {"chat", "embeddings", "transcription", "generic", NULL};
const char *const option_tier_names[] = {"gpu", "hybrid", "cpu", "substitute", "remote", NULL};
const char *const option_engines[] = {"auto", "llama-server", "ollama", "openai", "generic", NULL};
const char *const option_device_kinds[] = {"nvidia", "amd", "intel", "sim", NULL};
const char *const option_switches[] = {"off", "on", "auto", NULL};
static const char *const off_or_on[] = {"off", "on", NULL};
static const char *const shrinks[] = {"no", "output", "context", "both", NULL};
static const char *const cpu_words[] = {"deny", "allow", NULL};
static const char *const log_levels[] = {"error", "warning", "info", "debug", NULL};
/* What llama-server takes for --cache-type-k and -v. */
static const char *const cache_types[] = {"f32",  "f16",    "bf16", "q8_0", "q4_0",
                                          "q4_1", "iq4_nl", "q5_0", "q5_1", NULL};

#define AT(type, member) .offset = offsetof(struct type, member)
#define ROOT(k, t)       .scope = OPTION_SCOPE_ROOT, .key = (k), .type = OPTION_TYPE_##t
#define LIMIT(k, t)      .scope = OPTION_SCOPE_LIMITS, .key = (k), .type = OPTION_TYPE_##t
#define HOST(k, t)       .scope = OPTION_SCOPE_HOST, .key = (k), .type = OPTION_TYPE_##t
#define DEVICE(k, t)     .scope = OPTION_SCOPE_DEVICE, .key = (k), .type = OPTION_TYPE_##t
#define SERVICE(k, t)    .scope = OPTION_SCOPE_SERVICE, .key = (k), .type = OPTION_TYPE_##t
#define TIER(k, t)       .scope = OPTION_SCOPE_TIER, .key = (k), .type = OPTION_TYPE_##t
#define QUEUE(k, t)      .scope = OPTION_SCOPE_QUEUE, .key = (k), .type = OPTION_TYPE_##t
#define RESTART(k, t)    .scope = OPTION_SCOPE_RESTART, .key = (k), .type = OPTION_TYPE_##t
#define AVAIL(k, t)      .scope = OPTION_SCOPE_AVAILABILITY, .key = (k), .type = OPTION_TYPE_##t
#define BOUNDS(lo, hi)   .min = (lo), .max = (hi)
#define BLOCK(name)      .inner = OPTION_SCOPE_##name

/* clang-format off */
const struct config_option config_options[] = {
    {ROOT("listen", LISTEN), .fallback = "127.0.0.1:8080",
     .help = "Address that clients connect to: a numeric address or `localhost`, and a port."},
    {ROOT("engine", COMMAND), AT(config, engine_path), .fallback = "llama-server",
     .help = "llama-server for managed tiers: a path, or a name that is looked up on PATH."},
    {ROOT("runtime_dir", PATH), AT(config, runtime_dir), .shown = "chosen at start",
     .help = "Folder for the sockets of managed workers."},
    {ROOT("state_dir", PATH), AT(config, state_dir), .shown = "`$STATE_DIRECTORY`, else "
     "`$XDG_STATE_HOME/failsoft`, else `~/.local/state/failsoft`",
     .help = "Folder for what is learned and must outlive a restart."},
    {ROOT("admission", WORD), AT(config, admission), .words = off_or_on, .fallback = "on",
     .help = "Whether memory decides what is started and where requests go. `off` is for comparison."},
    {ROOT("shutdown_grace", DURATION), AT(config, shutdown_grace_ms), .fallback = "10s",
     BOUNDS(0, HOUR), .help = "At shutdown, running requests may end for this long."},
    {ROOT("log", BLOCK), BLOCK(LOG), .help = "What is logged, to stderr."},
    {ROOT("limits", BLOCK), BLOCK(LIMITS), .help = "Bounds of the HTTP server and of answers."},
    {ROOT("host", BLOCK), BLOCK(HOST), .help = "The memory of this machine."},
    {ROOT("devices", NAMED), BLOCK(DEVICE), .help = "Accelerators, by a name of your choice."},
    {ROOT("services", NAMED), BLOCK(SERVICE), .flags = OPTION_REQUIRED,
     .help = "What clients ask for, by model name."},

    {.scope = OPTION_SCOPE_LOG, .key = "level", .type = OPTION_TYPE_WORD, AT(config, log_level),
     .words = log_levels, .fallback = "info", .help = "The least important lines that are kept."},

    {LIMIT("body", BYTES), AT(config, limits.body_bytes), .fallback = "64MiB",
     BOUNDS(KIB(1), GIB(4)),
     .help = "Largest request; above: 413. Pictures in chats need 32MiB and more."},
    {LIMIT("head", BYTES), AT(config, limits.head_bytes), .fallback = "32KiB",
     BOUNDS(KIB(4), MIB(1)), .help = "Largest request line and header fields; above: 431."},
    {LIMIT("write_queue", BYTES), AT(config, limits.write_queue_bytes), .fallback = "256KiB",
     BOUNDS(KIB(16), MIB(64)),
     .help = "Unsent bytes for one client; above: its worker is not read on until they went out."},
    {LIMIT("event", BYTES), AT(config, limits.event_bytes), .fallback = "8MiB",
     BOUNDS(KIB(64), GIB(1)), .help = "Largest event of a worker's stream; above: a broken worker."},
    {LIMIT("response", BYTES), AT(config, limits.response_bytes), .fallback = "64MiB",
     BOUNDS(KIB(64), GIB(4)), .help = "Largest answer that is put together before it is sent."},
    {LIMIT("head_timeout", DURATION), AT(config, limits.head_timeout_ms), .fallback = "15s",
     BOUNDS(100, HOUR), .help = "From the first byte of a request's head to its end; above: 408."},
    {LIMIT("body_timeout", DURATION), AT(config, limits.body_timeout_ms), .fallback = "30s",
     BOUNDS(100, HOUR), .help = "Between two pieces of a request's body; above: 408."},
    {LIMIT("idle_timeout", DURATION), AT(config, limits.idle_timeout_ms), .fallback = "75s",
     BOUNDS(100, 24 * HOUR), .help = "A connection without a request is closed after this."},
    {LIMIT("write_timeout", DURATION), AT(config, limits.write_timeout_ms), .fallback = "60s",
     BOUNDS(100, HOUR), .help = "A client that takes no bytes for this long has left."},
    {LIMIT("connections", COUNT), AT(config, limits.max_connections), .fallback = "auto",
     BOUNDS(1, 1000000), .flags = OPTION_AUTO,
     .help = "Clients at a time; above: 503. `auto`: from the limit on open files."},

    {HOST("reserve", BYTES), AT(config, host_reserve_bytes), .fallback = "auto",
     .shown = "`auto`: the larger of 512MiB and 5 %", BOUNDS(1, GIB(1024)), .flags = OPTION_AUTO,
     .help = "Memory of the machine that workers are never planned with."},

    {DEVICE("kind", WORD), AT(config_device, kind), .words = option_device_kinds,
     .flags = OPTION_REQUIRED, .help = "`sim` is the simulated accelerator."},
    {DEVICE("reserve", BYTES), AT(config_device, reserve_bytes), .fallback = "auto",
     .shown = "`auto`: the larger of 512MiB and 5 %", BOUNDS(1, GIB(1024)), .flags = OPTION_AUTO,
     .help = "Memory of the device that is never planned with."},
    {DEVICE("back_after", DURATION), AT(config_device, back_after_ms), .fallback = "10s",
     BOUNDS(100, 24 * HOUR),
     .help = "A worker that gave its memory back returns when there was room for it for this long."},
    {DEVICE("memory", BYTES), AT(config_device, memory_bytes), .fallback = "auto",
     .shown = "`auto`: what the driver says", BOUNDS(MIB(1), GIB(65536)), .flags = OPTION_AUTO,
     .help = "Its memory where the driver does not tell; where it does, a limit."},
    {DEVICE("exclusive", WORD), AT(config_device, exclusive), .words = off_or_on,
     .fallback = "off",
     .help = "`on`: nobody else uses it, so that without telemetry our own use is the whole use."},
    {DEVICE("integrated", WORD), AT(config_device, integrated), .words = option_switches,
     .fallback = "auto",
     .help = "Whether it shares the machine's memory. `auto`: what the driver says."},
    {DEVICE("index", COUNT), AT(config_device, index), .fallback = "0", BOUNDS(0, 63),
     .help = "Which one, as the driver counts the devices of this kind."},
    {DEVICE("card", TEXT), AT(config_device, card), .shown = "the device's name",
     .flags = OPTION_SIM, .help = "Name of the simulated card (`failsoft sim create`)."},
    {DEVICE("plugin", PATH), AT(config_device, plugin), .shown = "looked for beside failsoft",
     .flags = OPTION_SIM, .help = "The engine plug-in of the simulated accelerator."},

    {SERVICE("kind", WORD), AT(config_service, kind), .words = option_service_kinds,
     .fallback = "chat", .help = "What the service does."},
    {SERVICE("model", PATH), AT(config_service, model_path),
     .help = "GGUF file for managed tiers, `~` allowed, relative to this file."},
    {SERVICE("context", COUNT), AT(config_service, context_tokens), BOUNDS(16, 1 << 24),
     .flags = OPTION_AUTO, .shown = "4096 for chat, else `auto`",
     .help = "Tokens of one request, prompt and answer together. `auto`: what the model was made "
             "for."},
    {SERVICE("recovery_budget", DURATION), AT(config_service, recovery_budget_ms),
     .fallback = "5s", BOUNDS(0, HOUR),
     .help = "How soon another tier must be able to answer. No effect yet."},
    {SERVICE("memory_wait", DURATION), AT(config_service, memory_wait_ms), .fallback = "5s",
     BOUNDS(0, HOUR),
     .help = "A request waits this long for memory that is on its way back, before the next tier."},
    {SERVICE("assumed_output", COUNT), AT(config_service, assumed_output_tokens),
     .fallback = "1024", BOUNDS(1, 1 << 24),
     .help = "Tokens of an answer that a request is planned with when it names no limit."},
    {SERVICE("shrink", WORD), AT(config_service, shrink), .words = shrinks, .fallback = "no",
     .help = "What may be given short, and told, where all of it does not fit: the longest answer, the "
             "context that a worker is started with, or both."},
    {SERVICE("cpu", WORD), AT(config_service, cpu), .words = cpu_words, .fallback = "allow",
     .help = "`deny`: refused rather than answered by a cpu tier."},
    {SERVICE("aliases", TEXTS), AT(config_service, aliases), BOUNDS(0, 64),
     .help = "Further model names that mean this service."},
    {SERVICE("paths", TEXTS), AT(config_service, paths), BOUNDS(0, 64),
     .help = "URL path prefixes that belong to this service, e.g. `/predict`."},
    {SERVICE("sampling", SAMPLING), AT(config_service, sampling),
     .shown = "the stock engine's own values",
     .help = "Numbers that every tier samples with where the client names none, e.g. `{ temperature: "
             "0.7 }`."},
    {SERVICE("cache_type_k", WORD_TEXT), AT(config_service, cache_type_k), .words = cache_types,
     .fallback = "f16", .help = "Type of the keys in the KV cache, the same on all tiers."},
    {SERVICE("cache_type_v", WORD_TEXT), AT(config_service, cache_type_v), .words = cache_types,
     .fallback = "f16", .help = "Type of the values in the KV cache, the same on all tiers."},
    {SERVICE("flash_attention", WORD), AT(config_service, flash_attention),
     .words = option_switches, .fallback = "on",
     .help = "The same on all tiers: answers differ between on and off."},
    {SERVICE("tiers", LIST), BLOCK(TIER), .shown = "gpu on the first device, then cpu",
     .help = "Ways to run the service, in order of preference."},

    {TIER("name", WORD), AT(config_tier, kind), .words = option_tier_names,
     .flags = OPTION_REQUIRED, .help = "What kind of tier it is; once per service."},
    {TIER("device", TEXT), AT(config_tier, device_name),
     .shown = "the only device, on managed gpu and hybrid tiers",
     .help = "The device it runs on: a name of `devices`."},
    {TIER("url", URL), .shown = "none: failsoft runs the engine",
     .help = "`http://host[:port][/prefix]` of a server that somebody else runs."},
    {TIER("engine", WORD), AT(config_tier, engine), .words = option_engines, .fallback = "auto",
     .help = "With a `url` or a `command`: what answers there. `auto`: a url is asked; a command is "
             "`generic` for a generic service, else `openai`."},
    {TIER("model", TEXT), AT(config_tier, model), .shown = "the client's; the service's file",
     .help = "With a `url` or a `command`: the model name that is sent. Else: a GGUF file of this "
             "tier's own."},
    {TIER("slots", COUNT), AT(config_tier, slots), .shown = "1; with a url: no limit",
     BOUNDS(1, 256), .help = "Requests at a time; managed workers hold a context for each."},
    {TIER("request_tokens", COUNT), AT(config_tier, request_tokens), .shown = "no limit of its own",
     BOUNDS(16, 1 << 24),
     .help = "Longest request, prompt and answer together, that this tier is given."},
    {TIER("command", TEXTS), AT(config_tier, command), BOUNDS(1, 128),
     .shown = "none: llama-server", .flags = OPTION_MANAGED,
     .help = "A program that is run instead of llama-server, and its arguments: `\"{port}\"` is the "
             "port of 127.0.0.1, `\"{socket}\"` the unix socket that it must listen on."},
    {TIER("health", TEXT), AT(config_tier, health), .shown = "`/health`",
     .flags = OPTION_COMMAND, .help = "The path that answers 200 when the program is ready."},
    {TIER("memory", BYTES), AT(config_tier, memory_bytes), BOUNDS(0, GIB(65536)),
     .shown = "none", .flags = OPTION_COMMAND,
     .help = "What the program takes of its device, at most; required there."},
    {TIER("host_memory", BYTES), AT(config_tier, host_memory_bytes), BOUNDS(0, GIB(65536)),
     .shown = "none", .flags = OPTION_COMMAND,
     .help = "What the program takes of the machine's memory, at most."},
    {TIER("keep_alive_max", DURATION), AT(config_tier, keep_alive_max_ms), .fallback = "1h",
     BOUNDS(0, 24 * HOUR * 365), .flags = OPTION_EXTERNAL,
     .help = "An Ollama client's `keep_alive` is sent as this at most."},
    {TIER("unload", TEXT), AT(config_tier, unload), .flags = OPTION_EXTERNAL,
     .shown = "what its engine is known to take",
     .help = "With a url and a device: the path that is sent a POST when the device must be given back."},
    {TIER("threads", COUNT), AT(config_tier, threads), .fallback = "auto", BOUNDS(1, 1024),
     .flags = OPTION_AUTO | OPTION_MANAGED | OPTION_LLAMA,
     .help = "CPU threads. `auto`: the cores that this machine's quota allows."},
    {TIER("gpu_layers", LAYERS), AT(config_tier, gpu_layers),
     .shown = "`all`; none on cpu tiers", BOUNDS(0, 1000), .flags = OPTION_MANAGED | OPTION_LLAMA,
     .help = "Layers of the model on the device."},
    {TIER("args", TEXTS), AT(config_tier, args), BOUNDS(0, 128), .flags = OPTION_MANAGED | OPTION_LLAMA,
     .help = "Further arguments of the engine, e.g. `[--override-kv, a=int:1]`."},
    {TIER("env", PAIRS), AT(config_tier, env), BOUNDS(0, 64), .flags = OPTION_MANAGED,
     .help = "Further environment of the engine."},
    {TIER("first_event_timeout", DURATION), AT(config_tier, first_event_timeout_ms),
     .shown = "`60s`; `600s` on cpu and substitute tiers", BOUNDS(100, 24 * HOUR),
     .help = "From dispatch to the first output, before the next tier is tried."},
    {TIER("stall_timeout", DURATION), AT(config_tier, stall_timeout_ms),
     .shown = "`60s`; `180s` on cpu and substitute tiers", BOUNDS(100, 24 * HOUR),
     .help = "Longest silence between two events of an answer."},
    {TIER("connect_timeout", DURATION), AT(config_tier, connect_timeout_ms), .fallback = "2s",
     BOUNDS(10, SEC(120)), .help = "To open a connection to the worker."},
    {TIER("load_timeout", DURATION), AT(config_tier, load_timeout_ms), .fallback = "auto",
     BOUNDS(SEC(1), 24 * HOUR), .flags = OPTION_AUTO | OPTION_MANAGED,
     .help = "From the engine's start until it is ready. `auto`: by the size of the model."},
    {TIER("retry_after_max", DURATION), AT(config_tier, retry_after_max_ms), .fallback = "2s",
     BOUNDS(0, SEC(60)),
     .help = "A worker that says Retry-After is waited for up to this; above: the next tier."},
    {TIER("stop_grace", DURATION), AT(config_tier, stop_grace_ms), .fallback = "5s",
     BOUNDS(0, SEC(300)), .flags = OPTION_MANAGED,
     .help = "From asking the engine to end (TERM) to ending it (KILL)."},
    {TIER("queue", BLOCK), BLOCK(QUEUE), .help = "Requests that wait for a slot."},
    {TIER("restart", BLOCK), BLOCK(RESTART), .flags = OPTION_MANAGED,
     .help = "Pauses before a dead engine is started again."},
    {TIER("availability", BLOCK), BLOCK(AVAILABILITY),
     .help = "When a worker is left alone, and when it is tried again."},

    {QUEUE("length", COUNT), AT(config_tier, queue.length), .fallback = "64", BOUNDS(0, 100000),
     .help = "Requests that may wait; more go to the next tier or are refused."},
    {QUEUE("wait", DURATION), AT(config_tier, queue.wait_ms), .fallback = "60s",
     BOUNDS(100, 24 * HOUR), .help = "Longest wait."},

    {RESTART("backoff", DURATION), AT(config_tier, restart.backoff_ms), .fallback = "500ms",
     BOUNDS(50, HOUR), .help = "The first pause; it doubles each time."},
    {RESTART("backoff_max", DURATION), AT(config_tier, restart.backoff_max_ms), .fallback = "30s",
     BOUNDS(50, 24 * HOUR), .help = "The longest pause."},
    {RESTART("settled", DURATION), AT(config_tier, restart.settled_ms), .fallback = "60s",
     BOUNDS(100, 24 * HOUR), .help = "Ready for this long, the next pause is the first again."},

    {AVAIL("failures", COUNT), AT(config_tier, availability.failures), .fallback = "3",
     BOUNDS(1, 1000), .help = "Faults in a row that suspend a worker."},
    {AVAIL("hold", DURATION), AT(config_tier, availability.hold_ms), .fallback = "5s",
     BOUNDS(100, HOUR), .help = "First pause before one request tries it again; it doubles."},
    {AVAIL("hold_max", DURATION), AT(config_tier, availability.hold_max_ms), .fallback = "15s",
     BOUNDS(100, 24 * HOUR), .help = "The longest pause."},
};
/* clang-format on */

const size_t config_option_count = sizeof(config_options) / sizeof(config_options[0]);

const struct option_sampling option_samplings[] = {
    {"temperature", "0.8", 0.0, 100.0, 0},
    {"top_k", "40", 0.0, 1000000.0, 1},
    {"top_p", "0.95", 0.0, 1.0, 0},
    {"min_p", "0.05", 0.0, 1.0, 0},
    {"typical_p", "1.0", 0.0, 1.0, 0},
    {"top_n_sigma", "-1.0", -1.0, 100.0, 0},
    {"repeat_penalty", "1.0", 0.0, 100.0, 0},
    {"repeat_last_n", "64", -1.0, 16777216.0, 1},
    {"presence_penalty", "0.0", -100.0, 100.0, 0},
    {"frequency_penalty", "0.0", -100.0, 100.0, 0},
    {"dynatemp_range", "0.0", 0.0, 100.0, 0},
    {"dynatemp_exponent", "1.0", 0.0, 100.0, 0},
    {"xtc_probability", "0.0", 0.0, 1.0, 0},
    {"xtc_threshold", "0.1", 0.0, 1.0, 0},
    {"dry_multiplier", "0.0", 0.0, 100.0, 0},
    {"dry_base", "1.75", 1.0, 100.0, 0},
    {"dry_allowed_length", "2", 0.0, 1000000.0, 1},
    {"dry_penalty_last_n", "64", -1.0, 16777216.0, 1},
    {"mirostat", "0", 0.0, 2.0, 1},
    {"mirostat_tau", "5.0", 0.0, 100.0, 0},
    {"mirostat_eta", "0.1", 0.0, 1.0, 0},
    {"min_keep", NULL, 0.0, 1000000.0, 1},
    {"adaptive_target", NULL, -1.0, 1.0, 0},
    {"adaptive_decay", NULL, 0.0, 0.99, 0},
    {"seed", NULL, -1.0, 4294967295.0, 1},
    {NULL, NULL, 0.0, 0.0, 0},
};

static const char *const scope_names[OPTION_SCOPE_COUNT] = {
    "the top level", "`log`",  "`limits`", "`host`",    "a device",
    "a service",     "a tier", "`queue`",  "`restart`", "`availability`",
};

const char *option_scope_name(enum option_scope scope)
{
    return scope_names[scope];
}

size_t option_index(const struct config_option *o)
{
    return (size_t)(o - config_options);
}

const struct config_option *option_find(enum option_scope scope, const char *key)
{
    for (size_t i = 0; i < config_option_count; i++) {
        if (config_options[i].scope == scope && strcmp(config_options[i].key, key) == 0)
            return &config_options[i];
    }
    return NULL;
}

struct scope_walk {
    enum option_scope scope;
    size_t next;
};

static const char *scope_next(void *ctx)
{
    struct scope_walk *walk = ctx;

    while (walk->next < config_option_count) {
        const struct config_option *o = &config_options[walk->next++];

        if (o->scope == walk->scope)
            return o->key;
    }
    return NULL;
}

const char *option_suggest(enum option_scope scope, const char *key)
{
    struct scope_walk walk = {scope, 0};

    return words_suggest(key, scope_next, &walk);
}

enum option_scope option_find_scope(const char *key)
{
    for (size_t i = 0; i < config_option_count; i++) {
        if (strcmp(config_options[i].key, key) == 0)
            return config_options[i].scope;
    }
    return OPTION_SCOPE_COUNT;
}
