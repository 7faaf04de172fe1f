/*
 * Command line of the load generator.
 *
 *     bench-load small  --port P --connections K --requests R         closed loop, whole answers
 *     bench-load stream --port P --connections S --requests R …       closed loop, streams
 *     bench-load idle   --port P --connections S                      streams left open
 *     bench-load body   --port P --pad BYTES --requests R             large request bodies
 *     bench-load paced  --port P --rate N --requests R                open loop, half are streams
 *     bench-load start  --port P -- PROGRAM ARGS…                     start to first answer
 *
 * One JSON object on stdout. Exit status 0 even when answers were wrong: the object says so.
 */
#include "load.h"

#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    struct load_options defaults;
} modes[] = {
    {"small", {.connections = 32, .requests = 10000, .ask = {.events = 8}}},
    {"stream",
     {.connections = 50, .requests = 50, .ask = {.events = 50, .interval_us = 20000, .stream = 1}}},
    {"idle",
     {.connections = 1000,
      .requests = 1000,
      .hold = true,
      .ask = {.events = 2, .interval_us = WIRE_HOLD_US, .stream = true}}},
    {"body", {.connections = 1, .requests = 4, .ask = {.events = 8, .pad_bytes = 8u << 20}}},
    {"paced", {.connections = 64, .requests = 200, .rate = 20, .mix = true, .ask = {.events = 8}}},
    {"start", {.connections = 1, .requests = 1, .ask = {.events = 8}}},
};

static _Noreturn void usage(void)
{
    fprintf(stderr, "usage: bench-load small|stream|idle|body|paced|start --port P\n"
                    "       [--connections N] [--requests N] [--rate N] [--ramp-ms N]\n"
                    "       [--events N] [--interval-us N] [--first-us N] [--pad BYTES]\n"
                    "       [--timeout-s N] [-- PROGRAM ARGS…]\n");
    exit(2);
}

static void option_set(struct load_options *o, const char *name, const char *value)
{
    if (strcmp(name, "--port") == 0) {
        o->port = (uint16_t)net_number(value, 65535);
    } else if (strcmp(name, "--connections") == 0) {
        o->connections = net_number(value, 100000);
    } else if (strcmp(name, "--requests") == 0) {
        o->requests = net_number(value, 100000000);
    } else if (strcmp(name, "--rate") == 0) {
        o->rate = net_number(value, 1000000);
    } else if (strcmp(name, "--ramp-ms") == 0) {
        o->ramp_ms = net_number(value, 600000);
    } else if (strcmp(name, "--events") == 0) {
        o->ask.events = net_number(value, WIRE_EVENTS_MAX);
    } else if (strcmp(name, "--interval-us") == 0) {
        o->ask.interval_us = net_number(value, WIRE_HOLD_US);
    } else if (strcmp(name, "--first-us") == 0) {
        o->ask.first_us = net_number(value, 999999);
    } else if (strcmp(name, "--pad") == 0) {
        o->ask.pad_bytes = net_number(value, 60u << 20);
    } else if (strcmp(name, "--timeout-s") == 0) {
        o->timeout_s = net_number(value, 3600);
    } else {
        usage();
    }
}

int main(int argc, char **argv)
{
    struct load l = {0};
    int i = 2;

    for (size_t m = 0; argc > 1 && m < sizeof(modes) / sizeof(modes[0]); m++) {
        if (strcmp(modes[m].name, argv[1]) == 0) {
            l.options = modes[m].defaults;
        }
    }
    if (!l.options.connections) {
        usage();
    }
    l.options.timeout_s = 60;
    for (; i + 1 < argc && strcmp(argv[i], "--") != 0; i += 2) {
        option_set(&l.options, argv[i], argv[i + 1]);
    }
    if (!l.options.port || !l.options.connections || !l.options.ask.events) {
        usage();
    }
    if (l.options.hold) {
        l.options.requests = l.options.connections;
    }
    net_prepare_process();
    if (strcmp(argv[1], "start") == 0) {
        if (i + 1 >= argc) {
            usage();
        }
        load_start_time(&l.options, argv + i + 1, stdout);
        return 0;
    }
    load_run(&l, stdout);
    return 0;
}
