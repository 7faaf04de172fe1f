/*
 * One case for every kind of message: the snippet, where the message points, and what it says.
 * A case lists all problems of its snippet, so that nothing is reported twice or by the way.
 */
#include "unit.h"

#include "config/config.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { MAX_EXPECTED = 4 };

struct expected {
    unsigned line;
    unsigned column;
    const char *text; /* a part of the message; NULL ends the list */
};

struct message_case {
    const char *name;
    const char *yaml;
    struct expected expected[MAX_EXPECTED];
};

/* A service that is right, so that a snippet about something else has only its own problem. */
#define GOOD    "services: { chat: { tiers: [{ name: cpu, url: 'http://10.0.0.1' }] } }\n"
#define WITH(s) "services:\n  chat:\n    model: /m.gguf\n    " s "\n"
#define TIER(t) "services:\n  chat:\n    model: /m.gguf\n    tiers:\n      - " t "\n"
#define GPU     "devices: { gpu0: { kind: nvidia } }\n"

/* A tier that runs a program: its command, and what else is said of it. */
#define PROGRAM(c, more)                                                                           \
    "services:\n  t: { kind: transcription, tiers: [\n    { name: cpu, command: [" c               \
    "], host_memory: 1GiB" more " }] }\n"
#define PROGRAM_ON(tier, more)                                                                     \
    "services: { t: { kind: transcription, tiers: [\n"                                             \
    "  { name: " tier ", command: [p, '{port}'], host_memory: 1GiB, " more " }] } }\n"

/* clang-format off */
static const struct message_case cases[] = {
    /* the form of the file */
    {"empty", "", {{1, 1, "the file is empty"}}},
    {"only a comment", "# nothing\n", {{1, 1, "the file is empty"}}},
    {"a list", "- a\n", {{1, 1, "must be a map of options (`services:` …), not a list"}}},
    {"a word", "hello\n", {{1, 1, "not a value"}}},
    {"syntax", "services: [\n", {{2, 1, "YAML: "}}},
    {"tab", "services:\n\tchat: {}\n", {{2, 1, "tab for indentation? use spaces"}}},
    {"unclosed quote", "listen: \"127\n", {{2, 1, "quoted scalar"}}},
    {"bad UTF-8", "listen: \xff\n", {{1, 1, "not readable text at byte 8"}}},
    {"two documents", GOOD "---\n" GOOD, {{2, 1, "only one YAML document"}}},
    {"duplicate key", GOOD "listen: 127.0.0.1:1\nlisten: 127.0.0.1:2\n",
     {{3, 1, "`listen` is given twice; the first one is in line 2"}}},
    {"duplicate service",
     "services:\n  a: { tiers: [{ name: cpu, url: 'http://h' }] }\n  a: { model: /x }\n",
     {{3, 3, "`a` is given twice; the first one is in line 2"}}},
    {"unknown alias", "listen: *a\n", {{1, 9, "no anchor `a` is defined before"}}},
    {"self reference", "listen: &a [*a]\n", {{1, 13, "no anchor `a`"}}},
    {"tag", "listen: !env PORT\n", {{1, 9, "the tag `!env` is not supported"}}},
    {"map as key", "{a: b}: c\n", {{1, 1, "a key must be a plain word, not a map"}}},
    {"merge key", "x: 1\n", {{1, 1, "`x` is not an option of the top level; `failsoft check"},
                             {1, 1, "`services` is missing"}}},
    {"merge key 2", GOOD "<<: 1\n", {{2, 1, "merge keys (`<<`) are not supported"}}},

    /* keys */
    {"missing services", "listen: 127.0.0.1:1\n", {{1, 1, "`services` is missing: the top level"}}},
    {"unknown key", GOOD "listn: 1\n", {{2, 1, "`listn` is not an option of the top level; did you "
                                               "mean `listen`?"}}},
    {"case and dash", GOOD "Shutdown-Grace: 1s\n", {{2, 1, "did you mean `shutdown_grace`?"}}},
    {"swapped letters", GOOD "limits: { haed: 8KiB }\n",
     {{2, 11, "`haed` is not an option of `limits`; did you mean `head`?"}}},
    {"elsewhere", GOOD "slots: 4\n",
     {{2, 1, "`slots` is not an option of the top level; it belongs to a tier"}}},
    {"escaped", GOOD "\"a\\e[1mb\": 4\n", {{2, 1, "`a\\x1b[1mb` is not an option"}}},
    {"services a list", "services: [a]\n", {{1, 11, "`services` is a list; allowed: a map"}}},
    {"services nothing", "services:\n", {{1, 10, "`services` has no value"}}},
    {"services empty", "services: {}\n", {{1, 11, "`services` is empty"}}},
    {"limits a word", GOOD "limits: 5\n", {{2, 9, "`limits` is a value; allowed: a map of options"}}},
    {"scalar a list", GOOD "engine: [a]\n", {{2, 9, "`engine` is a list; allowed: a path or a name"}}},
    {"null", GOOD "engine: ~\n", {{2, 9, "`engine` has no value; allowed: a path or a name"}}},

    /* values */
    {"duration without unit", GOOD "shutdown_grace: 30\n",
     {{2, 17, "`shutdown_grace`: `30` has no unit; write `30s` for seconds or `30ms` for "
              "milliseconds; allowed: 0 to 1 h"}}},
    {"duration in words", GOOD "shutdown_grace: 30 seconds\n",
     {{2, 17, "is not a duration (a number and ms, s, m, h or d)"}}},
    {"duration too long", GOOD "shutdown_grace: 2h\n", {{2, 17, "`2h` is out of range; allowed: 0 "
                                                               "to 1 h"}}},
    {"zero timeout", TIER("{ name: cpu, stall_timeout: 0 }"),
     {{5, 37, "`stall_timeout`: `0` is out of range; allowed: 100 ms to 24 h"}}},
    {"size without unit", GOOD "limits: { body: 64 }\n",
     {{2, 17, "`body`: `64` has no unit; write e.g. `64MiB` or `64GiB`; allowed: 1 KiB to 4 GiB"}}},
    {"size in words", GOOD "limits: { body: large }\n", {{2, 17, "is not a size (a number and B"}}},
    {"size too large", GOOD "limits: { head: 1GiB }\n", {{2, 17, "allowed: 4 KiB to 1 MiB"}}},
    {"count", TIER("{ name: cpu, slots: four }"),
     {{5, 29, "`slots`: `four` is not a whole number; allowed: a whole number, 1 to 256"}}},
    {"count low", TIER("{ name: cpu, slots: 0 }"), {{5, 29, "`0` is out of range"}}},
    {"count negative", TIER("{ name: cpu, slots: -2 }"), {{5, 29, "`-2` is out of range"}}},
    {"count huge", TIER("{ name: cpu, slots: 99999999999999999999999 }"),
     {{5, 29, "is out of range"}}},
    {"layers", GPU TIER("{ name: gpu, gpu_layers: most }"),
     {{6, 34, "allowed: a whole number, 0 to 1000, or `all`"}}},
    {"word", WITH("kind: chta"), {{4, 11, "`kind`: `chta` is not known; allowed: chat, embeddings, "
                                          "transcription, generic; did you mean `chat`?"}}},
    {"log level", GOOD "log: { level: loud }\n", {{2, 15, "allowed: error, warning, info, debug"}}},
    {"cache type", WITH("cache_type_k: q9"), {{4, 19, "allowed: f32, f16, bf16, q8_0"}}},
    {"empty text", TIER("{ name: cpu, model: \"\" }"), {{5, 29, "`model`: `` is empty"}}},
    {"control character", "services: { c: { tiers: [{ name: cpu, url: 'http://h', model: "
                          "\"a\\u0007\" }] } }\n",
     {{1, 63, "`a\\x07` has a control character"}}},
    {"other home", "services: { c: { model: ~joe/m.gguf } }\n", {{1, 25, "another user's home"}}},

    /* addresses */
    {"listen without port", GOOD "listen: 127.0.0.1\n", {{2, 9, "`127.0.0.1` has no port"}}},
    {"listen port", GOOD "listen: 127.0.0.1:65536\n", {{2, 9, "has a wrong port; allowed: 1 to"}}},
    {"listen port word", GOOD "listen: 127.0.0.1:http\n", {{2, 9, "has a wrong port"}}},
    {"listen only port", GOOD "listen: :8080\n", {{2, 9, "has no host"}}},
    {"listen name", GOOD "listen: myhost:80\n", {{2, 9, "is not a numeric address"}}},
    {"listen URL", GOOD "listen: http://127.0.0.1:80\n", {{2, 9, "is a URL"}}},
    {"listen v6", GOOD "listen: ::1:80\n", {{2, 9, "IPv6 address is written `[::1]:8080`"}}},
    {"listen bracket", GOOD "listen: \"[::1\"\n", {{2, 9, "has a `[` without `]`"}}},
    {"https", TIER("{ name: cpu, url: 'https://h' }"), {{5, 27, "https, which is not supported yet"}}},
    {"scheme", TIER("{ name: cpu, url: 'ftp://h' }"), {{5, 27, "a scheme that is not supported"}}},
    {"no scheme", TIER("{ name: cpu, url: 'h:8081' }"), {{5, 27, "does not begin with http://"}}},
    {"url port", TIER("{ name: cpu, url: 'http://h:0' }"), {{5, 27, "has a wrong port"}}},
    {"url host", TIER("{ name: cpu, url: 'http:///v' }"), {{5, 27, "has no host"}}},
    {"url user", TIER("{ name: cpu, url: 'http://u:p@h' }"), {{5, 27, "has a user name"}}},
    {"url query", TIER("{ name: cpu, url: 'http://h/a?b' }"), {{5, 27, "has a query"}}},
    {"url space", TIER("{ name: cpu, url: 'http://h/a b' }"), {{5, 27, "may not have"}}},
    {"url odd host", TIER("{ name: cpu, url: 'http://h$' }"), {{5, 27, "neither a name nor"}}},

    /* lists and maps of plain values */
    {"aliases a word", WITH("aliases: a"), {{4, 14, "`aliases` is a value; allowed: a list of texts"}}},
    {"aliases nested", WITH("aliases: [[a]]"), {{4, 15, "`aliases` has a list in it"}}},
    {"aliases empty entry", WITH("aliases: ['']"), {{4, 15, "has an empty entry"}}},
    {"env name", TIER("{ name: cpu, env: { 1A: x } }"), {{5, 29, "`1A` is not a name of an env"}}},
    {"env value", TIER("{ name: cpu, env: { A: [x] } }"), {{5, 32, "only plain texts"}}},
    {"sampling unknown", WITH("sampling: { temprature: 1 }"), {{4, 17, "did you mean `temperature`"}}},
    {"sampling synonym", WITH("sampling: { temp: 1 }"), {{4, 17, "did you mean `temperature`?"}}},
    {"sampling far", WITH("sampling: { foo: 1 }"), {{4, 17, "allowed are the sampling numbers"}}},
    {"sampling range", WITH("sampling: { top_p: 1.5 }"), {{4, 24, "out of range; allowed: 0 to 1"}}},
    {"sampling word", WITH("sampling: { top_p: .5 }"), {{4, 24, "`.5` is not a number"}}},
    {"sampling nan", WITH("sampling: { top_p: nan }"), {{4, 24, "is not a number"}}},
    {"sampling fraction", WITH("sampling: { top_k: 4.5 }"), {{4, 24, "is not a whole number"}}},
    {"sampling list", WITH("sampling: { top_k: [1] }"), {{4, 24, "is a list; allowed: a number"}}},
    {"sampling elsewhere", WITH("sampling: { top_k: 1 }\n    kind: embeddings"),
     {{4, 15, "`sampling` belongs to a service of kind chat"}}},

    /* devices */
    {"device kind missing", GOOD "devices: { g: {} }\n",
     {{2, 15, "`kind` is missing: a device needs it"}}},
    {"device kind", GOOD "devices: { g: { kind: nvida } }\n", {{2, 23, "did you mean `nvidia`?"}}},
    {"device a word", GOOD "devices: { g: nvidia }\n", {{2, 15, "must be a map of the options of a "
                                                               "device"}}},
    {"device unused", GOOD GPU, {{2, 12, "device `gpu0` is used by no tier"}}},
    {"device name", TIER("{ name: gpu, device: a/b }") "devices: { a/b: { kind: nvidia } }\n",
     {{6, 12, "`a/b` is not a name for a device"}}},
    {"device with an escape", GOOD "devices: { \"a\\e\": { kind: nvidia } }\n",
     {{2, 12, "`a\\x1b` is not a name for a device"}, {2, 12, "device `a?` is used by no tier"}}},
    {"card name", TIER("{ name: gpu }") "devices: { a: { kind: sim, card: '../x' } }\n",
     {{6, 34, "`../x` is not a name for a card"}}},
    {"card elsewhere", TIER("{ name: gpu }") "devices: { a: { kind: amd, card: x } }\n",
     {{6, 34, "`card` belongs to a device of kind sim; this one is amd"}}},
    {"same hardware",
     TIER("{ name: gpu, device: a }\n      - { name: hybrid, gpu_layers: 4, device: b }")
         "devices: { a: { kind: nvidia }, b: { kind: nvidia } }\n",
     {{7, 33, "`b` and `a` are the same hardware"}}},

    /* services */
    {"service a word", "services: { a: /m.gguf }\n", {{1, 16, "must be a map of the options of a "
                                                              "service"}}},
    {"no tiers, no model", "services: { a: {} }\n", {{1, 13, "no `tiers` and no `model`"}}},
    {"no tiers, other kind", "services: { a: { kind: transcription } }\n",
     {{1, 13, "has no `tiers`; write where it runs"}}},
    {"tiers empty", WITH("tiers: []"), {{4, 12, "has no tier: nothing can serve it"}}},
    {"tiers a map", WITH("tiers: { name: cpu }"), {{4, 12, "`tiers` is a map; allowed: a list"}}},
    {"tier a word", WITH("tiers: [{ name: cpu }, cpu]"), {{4, 28, "a tier must be a map of options"}}},
    {"service name", "services: { 'a b': { model: /m } }\n", {{1, 13, "is not a name for a service"}}},
    {"alias of another", "services:\n  a: { model: /m, aliases: [x] }\n  x: { model: /m }\n",
     {{3, 3, "`x` is already an alias of service `a`"}}},
    {"alias twice", "services:\n  a: { model: /m, aliases: [x] }\n  b: { model: /m, aliases: [x] }\n",
     {{3, 28, "alias `x` is already a name of service `a`"}}},
    {"alias own", WITH("aliases: [chat]"), {{4, 14, "already a name of this service"}}},
    {"alias name", WITH("aliases: ['a b']"), {{4, 14, "`a b` is not a model name"}}},
    {"generic without paths",
     "services: { g: { kind: generic, tiers: [{ name: cpu, url: 'http://h' }] } }\n",
     {{1, 13, "is generic and needs `paths`"}}},
    {"path relative", WITH("paths: [predict]"), {{4, 12, "does not begin with /"}}},
    {"path root", WITH("paths: [/]"), {{4, 12, "is the whole server"}}},
    {"path ours", WITH("paths: [/metrics/x]"), {{4, 12, "belongs to failsoft itself"}}},
    {"path up", WITH("paths: [/a/../b]"), {{4, 12, "empty or upward step"}}},
    {"path query", WITH("paths: ['/a?b']"), {{4, 12, "may not have"}}},
    {"path twice", "services:\n  a: { model: /m, paths: [/x] }\n  b: { model: /m, paths: [/x] }\n",
     {{3, 26, "path `/x` already belongs to service `a`"}}},
    {"quantized V", WITH("flash_attention: off\n    cache_type_v: q8_0"),
     {{5, 19, "`cache_type_v: q8_0` needs flash attention"}}},

    /* tiers */
    {"name missing", TIER("{ threads: 1 }"), {{5, 9, "`name` is missing: a tier needs it; allowed: "
                                                     "gpu, hybrid, cpu, substitute, remote"}}},
    {"name", TIER("{ name: cpux }"), {{5, 17, "did you mean `cpu`?"}}},
    {"name twice", TIER("{ name: cpu }\n      - { name: cpu }"), {{6, 17, "tier `cpu` is given twice"}}},
    {"unknown device", GPU TIER("{ name: gpu, device: gpu1 }"),
     {{1, 12, "used by no tier"}, {6, 30, "`gpu1` is not in `devices`; defined: gpu0; did you mean "
                                          "`gpu0`?"}}},
    {"no device", TIER("{ name: gpu }"), {{5, 9, "tier `gpu` needs a device; define one"}}},
    {"which device",
     TIER("{ name: gpu }\n      - { name: hybrid, device: a, gpu_layers: 1 }\n      - { name: "
          "substitute, device: b, model: /s }")
         "devices: { a: { kind: nvidia }, b: { kind: amd } }\n",
     {{5, 9, "tier `gpu` needs `device`: there are 2"}}},
    {"cpu with device", GPU TIER("{ name: cpu, device: gpu0 }"), {{6, 30, "a cpu tier has no device"}}},
    {"cpu with layers", TIER("{ name: cpu, gpu_layers: 3 }"), {{5, 34, "has no layers on a device"}}},
    {"hybrid without layers", GPU TIER("{ name: hybrid }"), {{6, 9, "needs `gpu_layers`"}}},
    {"remote without url", TIER("{ name: remote }"), {{5, 9, "a remote tier needs a `url`"}}},
    {"remote with device", GPU TIER("{ name: remote, url: 'http://h', device: gpu0 }"),
     {{6, 50, "a remote tier uses no device"}}},
    {"managed, other kind", "services:\n  t:\n    kind: transcription\n    tiers: [{ name: cpu }]\n",
     {{4, 13, "tier `cpu` needs a `url` or a `command`: llama-server is for chat and embeddings, not "
              "for transcription"}}},
    {"managed without model", "services: { c: { tiers: [{ name: cpu }] } }\n",
     {{1, 26, "tier `cpu` has no model: give service `c` a `model`"}}},
    {"substitute without model", TIER("{ name: substitute }"), {{5, 9, "a substitute is another model"}}},
    {"substitute without name", TIER("{ name: substitute, url: 'http://h' }"),
     {{5, 9, "the name that is sent to `http://h`"}}},
    {"threads with url", TIER("{ name: cpu, url: 'http://h', threads: 4 }"),
     {{5, 48, "`threads` is for engines that failsoft runs; this tier has a `url`"}}},
    {"restart with url", TIER("{ name: cpu, url: 'http://h', restart: { backoff: 1s } }"),
     {{5, 48, "`restart` is for engines that failsoft runs"}}},
    {"engine without url", TIER("{ name: cpu, engine: ollama }"),
     {{5, 30, "`engine: ollama` needs a `url` or a `command`"}}},
    {"unload without url", TIER("{ name: cpu, unload: /x }"), {{5, 30, "`unload` needs a `url`"}}},

    /* programs */
    {"program", PROGRAM("p, '{port}'", ""), {{0, 0, NULL}}},
    {"program at a socket", PROGRAM("p, '--uds={socket}'", ""), {{0, 0, NULL}}},
    {"program told by env", PROGRAM("p", ", env: { PORT: '{port}' }"), {{0, 0, NULL}}},
    {"program on a device", GPU PROGRAM_ON("gpu", "memory: 1GiB"), {{0, 0, NULL}}},
    {"program for chat", TIER("{ name: cpu, command: [p, '{port}'], host_memory: 1GiB, engine: generic"
                              ", model: tiny }"), {{0, 0, NULL}}},
    {"no command", PROGRAM("", ""), {{3, 27, "`command` is empty"}}},
    {"command a text", "services:\n  t: { kind: transcription, tiers: [\n    { name: cpu, command: p, "
                       "host_memory: 1GiB }] }\n",
     {{3, 27, "`command` is a value; allowed: a list of texts"}}},
    {"no port", PROGRAM("p, --port, '80'", ""),
     {{3, 27, "`command` has no `{port}`: the program must be told where to listen, e.g. `[PROGRAM, --port, "}}},
    {"port as a map", PROGRAM("p, {port}", ""),
     {{3, 31, "`command` has a map in it; only plain texts are allowed; braces need quotes, e.g. "
              "`\"{port}\"`"}}},
    {"port in the program", PROGRAM("'p{port}'", ""), {{3, 27, "has no `{port}`"}}},
    {"one text", PROGRAM("'p --port {port}'", ""), {{3, 27, "one entry with spaces in it"}}},
    {"port and socket", PROGRAM("p, '{port}', '{socket}'", ""),
     {{3, 27, "both `{port}` and `{socket}`"}}},
    {"home in an argument", PROGRAM("p, '{port}', ~/x", ""),
     {{3, 27, "`~/x` is given to the program as it stands"}}},
    {"other home of a program", PROGRAM("~joe/p, '{port}'", ""),
     {{3, 27, "`~joe/p` names another user's home"}}},
    {"command and url", PROGRAM("p, '{port}'", ", url: 'http://h'"),
     {{3, 27, "`command` is for engines that failsoft runs; this tier has a `url`"}}},
    {"command of a remote tier", "services: { t: { kind: transcription, tiers: [{ name: remote, "
                                 "command: [p, '{port}'], host_memory: 1GiB }] } }\n",
     {{1, 47, "a remote tier needs a `url`"}}},
    {"llama-server's with command", PROGRAM("p, '{port}'", ", threads: 4, args: [a], gpu_layers: 1"),
     {{3, 70, "`threads` is for llama-server; this tier runs a `command`"},
      {3, 79, "`args` is for llama-server"}, {3, 96, "`gpu_layers` is for llama-server"}}},
    {"engine of a program", PROGRAM("p, '{port}'", ", engine: llama-server"),
     {{3, 69, "`engine: llama-server` is not for a `command`; allowed: openai, generic"}}},
    {"health", PROGRAM("p, '{port}'", ", health: ready"), {{3, 69, "`health`: `ready` does not begin with /"}}},
    {"health of llama-server", TIER("{ name: cpu, health: /x, memory: 1GiB, host_memory: 1GiB }"),
     {{5, 30, "`health` needs a `command`"}, {5, 42, "`memory` needs a `command`"},
      {5, 61, "`host_memory` needs a `command`"}}},
    {"memory without a device", PROGRAM("p, '{port}'", ", memory: 1GiB"),
     {{3, 69, "`memory` is of a device, and tier `cpu` has none; of the machine it is `host_memory`"}}},
    {"memory on a device", GPU PROGRAM_ON("gpu", "slots: 2"),
     {{3, 3, "tier `gpu` needs `memory`: what its program takes of gpu0, at most, e.g. `memory: "
              "2GiB`"}}},
    {"memory of nothing", GPU PROGRAM_ON("hybrid", "memory: 0"), {{3, 70, "needs `memory`"}}},
    {"host memory", "services: { t: { kind: transcription, tiers: [{ name: cpu, command: [p, '{port}'] "
                    "}] } }\n",
     {{1, 47, "tier `cpu` says no `host_memory`"}}},
    {"substitute program", PROGRAM_ON("substitute", "slots: 1"),
     {{2, 3, "the tier needs `model`, its name"}}},
    {"file as a program's model", PROGRAM("p, '{port}'", ", model: /m.gguf"),
     {{3, 68, "with a `command`, `model` is the name that is sent"}}},
    {"reserved argument", TIER("{ name: cpu, args: [--port, '1'] }"),
     {{5, 28, "`--port` is set by failsoft"}}},
    {"reserved with value", TIER("{ name: cpu, args: [--ctx-size=4] }"),
     {{5, 28, "`--ctx-size` is set by failsoft: use `context`"}}},
    {"argument with space", TIER("{ name: cpu, args: ['--seed 4'] }"),
     {{5, 28, "`--seed 4` is one argument with a space in it"}}},
    {"too many tokens", WITH("context: 16777216\n    tiers: [{ name: cpu, slots: 256 }]"),
     {{5, 33, "256 slots of 16777216 tokens"}}},
    {"loop", TIER("{ name: cpu, url: 'http://localhost:8080' }"), {{5, 27, "points back at failsoft"}}},
    {"v1 twice", TIER("{ name: cpu, url: 'http://h/v1/' }"), {{5, 27, "the url ends in /v1"}}},
    {"file as name", TIER("{ name: cpu, url: 'http://h', model: /m.gguf }"),
     {{5, 46, "`model` is the name that is sent, not a file"}}},
    {"same server", TIER("{ name: gpu, url: 'http://h' }\n      - { name: cpu, url: 'http://h/' }"),
     {{6, 27, "tiers `gpu` and `cpu` are the same server"}}},
    {"order", GPU TIER("{ name: cpu }\n      - { name: gpu }"), {{7, 17, "`gpu` stands after `cpu`"}}},
    {"backoff", TIER("{ name: cpu, restart: { backoff: 2s, backoff_max: 1s } }"),
     {{5, 59, "`backoff_max` is shorter than `backoff`"}}},
    {"hold", TIER("{ name: cpu, availability: { hold: 20s } }"),
     {{5, 44, "`hold_max` is shorter than `hold`"}}},

    /* warnings of the whole */
    {"open to all", GOOD "listen: 0.0.0.0:80\n", {{2, 9, "failsoft asks for no password"}}},
    {"small body", GOOD "limits: { body: 1MiB }\n", {{2, 17, "refuses chats with a few pictures"}}},
};
/* clang-format on */

static void describe(const struct config_report *report, char *out, size_t size)
{
    size_t used = 0;

    out[0] = '\0';
    for (size_t i = 0; i < report->count && used < size; i++)
        used += (size_t)snprintf(out + used, size - used, "\n  %u:%u %s", report->items[i].line,
                                 report->items[i].column, report->items[i].message);
}

/* False, told, when the problems are not those expected. */
static bool check_case(const struct message_case *c)
{
    struct config_report report;
    struct config *config = NULL;
    bool good = true;
    char got[4096];
    size_t n = 0;
    int r;

    config_report_init(&report);
    r = config_load_string(c->yaml, strlen(c->yaml), "/", &config, &report);
    describe(&report, got, sizeof(got));
    for (; n < MAX_EXPECTED && c->expected[n].text; n++) {
        const struct expected *e = &c->expected[n];

        good &= n < report.count && report.items[n].line == e->line &&
                report.items[n].column == e->column && strstr(report.items[n].message, e->text);
        if (!good)
            print_error("%s: expected\n  %u:%u %s\n", c->name, e->line, e->column, e->text);
    }
    good &=
        report.count == n && r == (report.errors > 0 ? -EINVAL : 0) && (config != NULL) == (r == 0);
    if (!good)
        print_error("%s: got %d:%s\n", c->name, r, got);
    config_free(config);
    config_report_free(&report);
    return good;
}

static void test_messages(void **state)
{
    unsigned bad = 0;

    (void)state;
    for (size_t i = 0; i < UNIT_COUNT(cases); i++)
        bad += !check_case(&cases[i]);
    assert_int_equal(bad, 0);
}

/* Not the first only: every problem of a file, in the order of the file. */
static void test_all_at_once(void **state)
{
    static const char yaml[] = "listn: 1\n"
                               "devices: { g: { kind: x } }\n"
                               "services:\n"
                               "  a: { model: /m, context: 8k, tiers: [{ name: q }, { name: cpu, "
                               "queue: { wait: 5 } }] }\n"
                               "  b: { kind: y }\n";
    static const unsigned lines[] = {1, 2, 4, 4, 4, 5};
    struct config_report report;
    struct config *config = NULL;

    (void)state;
    config_report_init(&report);
    assert_int_equal(config_load_string(yaml, sizeof(yaml) - 1, "/", &config, &report), -EINVAL);
    assert_int_equal(report.count, UNIT_COUNT(lines));
    for (size_t i = 0; i < report.count; i++)
        assert_int_equal(report.items[i].line, lines[i]);
    config_report_free(&report);
}

static void test_many_problems_are_bounded(void **state)
{
    struct config_report report;
    struct config *config = NULL;
    static char yaml[300 * 8];
    size_t len = 0;

    (void)state;
    for (int i = 0; i < 300; i++)
        len += (size_t)snprintf(yaml + len, sizeof(yaml) - len, "x%d: 1\n", i);
    config_report_init(&report);
    assert_int_equal(config_load_string(yaml, len, "/", &config, &report), -EINVAL);
    assert_int_equal(report.count, CONFIG_REPORT_MAX);
    assert_true(report.truncated);
    assert_int_equal(report.errors, 301);
    config_report_free(&report);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_messages),
        cmocka_unit_test(test_all_at_once),
        cmocka_unit_test(test_many_problems_are_bounded),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
