/*
 * The program's entry: finds the command and hands over.
 */
#include "cli/cli.h"

#include "config/words.h"

#include <stdio.h>
#include <string.h>

struct command {
    const char *name;
    const char *summary;
    int (*main)(int argc, char **argv);
};

static const struct command commands[] = {
#ifdef FAILSOFT_HAVE_SERVE
    {"serve", "run the gateway", cli_serve_main},
#endif
    {"check", "check a configuration: every problem at once, with its place", cli_check_main},
    {"plan", "predict the memory of every tier, by part", cli_plan_main},
    {"status", "show tiers, workers and requests of a running gateway", cli_status_main},
#ifdef FAILSOFT_HAVE_SIM
    {"sim", "make, show and break simulated accelerators", cli_sim_main},
#endif
    {"version", "show versions", cli_version_main},
    {"yield", "give a device's memory back for a time", cli_yield_main},
};

enum { COMMAND_COUNT = sizeof(commands) / sizeof(commands[0]) };

static void print_help(FILE *out)
{
    fputs("failsoft — a checked second way to run behind every local AI request\n\n"
          "usage: failsoft COMMAND [options]\n\ncommands:\n",
          out);
    for (size_t i = 0; i < COMMAND_COUNT; i++)
        fprintf(out, "  %-9s %s\n", commands[i].name, commands[i].summary);
    fputs("\n`failsoft COMMAND --help` tells more.\n"
          "exit status: 0 good, 1 a finding, 2 wrong usage, 3 something outside is missing\n",
          out);
}

static const struct command *command_find(const char *name)
{
    for (size_t i = 0; i < COMMAND_COUNT; i++) {
        if (strcmp(commands[i].name, name) == 0)
            return &commands[i];
    }
    return NULL;
}

static int refuse_unknown(const char *name)
{
    const char *names[COMMAND_COUNT + 1] = {NULL};
    char quoted[WORDS_QUOTED_SIZE];
    const char *meant;

    for (size_t i = 0; i < COMMAND_COUNT; i++)
        names[i] = commands[i].name;
    meant = words_suggest_from(name, names);
    fprintf(stderr, "failsoft: unknown command %s%s%s%s; see `failsoft --help`\n",
            words_quote(name, strlen(name), quoted), meant ? ", did you mean `" : "",
            meant ? meant : "", meant ? "`?" : "");
    return CLI_EXIT_USAGE;
}

int main(int argc, char **argv)
{
    const struct command *c;
    const char *name = argc > 1 ? argv[1] : NULL;

    if (!name) {
        print_help(stderr);
        return CLI_EXIT_USAGE;
    }
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0) {
        const struct command *about = argc > 2 ? command_find(argv[2]) : NULL;
        char help[] = "--help";
        char *args[] = {argv[argc > 2 ? 2 : 1], help, NULL};

        if (argc > 2 && !about)
            return refuse_unknown(argv[2]);
        if (about)
            return about->main(2, args);
        print_help(stdout);
        return CLI_EXIT_GOOD;
    }
    if (strcmp(name, "--version") == 0)
        name = "version";
    c = command_find(name);
    return c ? c->main(argc - 1, argv + 1) : refuse_unknown(name);
}
