/*
 * `failsoft sim COMMAND`: the command table, and the commands that change a card.
 */
#include "cli/sim.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/units.h"
#include "cli/sim_parts.h"

int sim_open(const char *name, enum sim_role role, struct sim_card **ret_card)
{
    char why[SIM_WHY_MAX] = "";
    int r;

    if (name == NULL)
        return sim_complain(SIM_EXIT_USAGE, "which card? Give its NAME");
    r = sim_card_open(name, role, ret_card, why, sizeof why);
    if (r < 0)
        return sim_complain(r == -EINVAL ? SIM_EXIT_USAGE : SIM_EXIT_ENVIRONMENT, "%s",
                            why[0] != '\0' ? why : strerror(-r));
    return 0;
}

static int done(struct sim_card *card, const char *name, int error)
{
    sim_card_close(card);
    return error < 0 ? sim_complain_card(name, error) : SIM_EXIT_GOOD;
}

static int sim_create(int argc, char **argv)
{
    struct sim_settings settings;
    char why[SIM_WHY_MAX] = "";
    char size[24];
    uint32_t mask = 0;
    int r;

    if (argc < 2 || argv[1][0] == '-')
        return sim_complain(SIM_EXIT_USAGE, "create: NAME --capacity SIZE [key=value ...]");
    sim_settings_init(&settings, 0);
    r = sim_settings_read(argc, argv, 2, &settings, &mask);
    if (r != 0)
        return r;
    if ((mask & SIM_SET_CAPACITY) == 0)
        return sim_complain(SIM_EXIT_USAGE, "create: --capacity is missing, as in --capacity 2GiB");
    r = sim_card_create(argv[1], &settings, why, sizeof why);
    if (r < 0)
        return sim_complain(r == -EINVAL ? SIM_EXIT_USAGE : SIM_EXIT_ENVIRONMENT, "%s",
                            why[0] != '\0' ? why : strerror(-r));
    printf("card %s created: %s (simulated)\n", argv[1],
           units_format_bytes(settings.capacity_bytes, size, sizeof size));
    return SIM_EXIT_GOOD;
}

static int sim_set(int argc, char **argv)
{
    struct sim_settings settings = {0};
    struct sim_card *card = NULL;
    uint32_t mask = 0;
    int r;

    if (argc < 3)
        return sim_complain(SIM_EXIT_USAGE,
                            "set: NAME key=value ..., as in set gpu0 capacity=1GiB");
    r = sim_settings_read(argc, argv, 2, &settings, &mask);
    if (r == 0)
        r = sim_open(argv[1], SIM_ROLE_OBSERVER, &card);
    if (r != 0)
        return r;
    return done(card, argv[1], sim_card_set(card, &settings, mask));
}

static int sim_fail(int argc, char **argv)
{
    struct sim_option options[] = {
        {.name = "--next", .takes_value = true},
        {.name = "--above", .takes_value = true},
        {.name = "--off"},
        {0},
    };
    struct sim_card *card = NULL;
    const char *name = NULL;
    uint64_t next = 0;
    uint64_t above_bytes = 0;
    int r = sim_args_read(argc, argv, options, &name, NULL);

    if (r != 0)
        return r;
    if (options[0].seen + options[1].seen == 0 && !options[2].seen)
        return sim_complain(SIM_EXIT_USAGE, "fail: NAME and --next N, --above SIZE or --off");
    if (options[2].seen && options[0].seen + options[1].seen != 0)
        return sim_complain(SIM_EXIT_USAGE, "fail: --off goes with neither --next nor --above");
    if (options[0].seen)
        r = sim_value_count("--next", options[0].value, &next);
    if (r == 0 && options[1].seen)
        r = sim_value_bytes("--above", options[1].value, &above_bytes);
    if (r == 0)
        r = sim_open(name, SIM_ROLE_OBSERVER, &card);
    if (r != 0)
        return r;
    return done(card, name, sim_card_set_fail(card, next, above_bytes));
}

static int sim_stall(int argc, char **argv)
{
    struct sim_option options[] = {{.name = "--off"}, {0}};
    struct sim_card *card = NULL;
    const char *name = NULL;
    int r = sim_args_read(argc, argv, options, &name, NULL);

    if (r == 0)
        r = sim_open(name, SIM_ROLE_OBSERVER, &card);
    if (r != 0)
        return r;
    return done(card, name, sim_card_set_stalled(card, !options[0].seen));
}

static int lose_words(const struct sim_option *options, enum sim_lose_mode *ret_mode,
                      enum sim_message *ret_message)
{
    const char *mode = options[0].seen ? options[0].value : "graph";
    const char *message = options[1].seen ? options[1].value : "cuda";

    if (strcmp(mode, "graph") != 0 && strcmp(mode, "abort") != 0)
        return sim_complain(SIM_EXIT_USAGE, "--mode: \"%s\" is neither graph nor abort", mode);
    if (strcmp(message, "cuda") != 0 && strcmp(message, "vulkan") != 0)
        return sim_complain(SIM_EXIT_USAGE, "--message: \"%s\" is neither cuda nor vulkan",
                            message);
    *ret_mode = strcmp(mode, "abort") == 0 ? SIM_LOSE_ABORT : SIM_LOSE_GRAPH;
    *ret_message = strcmp(message, "vulkan") == 0 ? SIM_MESSAGE_VULKAN : SIM_MESSAGE_CUDA;
    return 0;
}

static int sim_lose(int argc, char **argv)
{
    struct sim_option options[] = {
        {.name = "--mode", .takes_value = true},
        {.name = "--message", .takes_value = true},
        {.name = "--after-graphs", .takes_value = true},
        {0},
    };
    enum sim_lose_mode mode = SIM_LOSE_GRAPH;
    enum sim_message message = SIM_MESSAGE_CUDA;
    struct sim_card *card = NULL;
    const char *name = NULL;
    uint64_t after = 0;
    int r = sim_args_read(argc, argv, options, &name, NULL);

    if (r == 0)
        r = lose_words(options, &mode, &message);
    if (r == 0 && options[2].seen)
        r = sim_value_count("--after-graphs", options[2].value, &after);
    if (r == 0)
        r = sim_open(name, SIM_ROLE_OBSERVER, &card);
    if (r != 0)
        return r;
    return done(card, name, sim_card_lose(card, mode, message, after));
}

static int sim_reset(int argc, char **argv)
{
    struct sim_option options[] = {{0}};
    struct sim_card *card = NULL;
    const char *name = NULL;
    int r = sim_args_read(argc, argv, options, &name, NULL);

    if (r == 0)
        r = sim_open(name, SIM_ROLE_OBSERVER, &card);
    if (r != 0)
        return r;
    return done(card, name, sim_card_reset(card));
}

static int sim_destroy(int argc, char **argv)
{
    struct sim_option options[] = {{.name = "--force"}, {0}};
    char why[SIM_WHY_MAX] = "";
    const char *name = NULL;
    int r = sim_args_read(argc, argv, options, &name, NULL);

    if (r != 0)
        return r;
    if (name == NULL)
        return sim_complain(SIM_EXIT_USAGE, "which card? Give its NAME");
    r = sim_card_destroy(name, options[0].seen, why, sizeof why);
    if (r < 0)
        return sim_complain(r == -EBUSY    ? SIM_EXIT_FINDING
                            : r == -EINVAL ? SIM_EXIT_USAGE
                                           : SIM_EXIT_ENVIRONMENT,
                            "%s", why[0] != '\0' ? why : strerror(-r));
    return SIM_EXIT_GOOD;
}

struct command_row {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *arguments;
    const char *help;
};

static const struct command_row commands[] = {
    {"create", sim_create, "NAME --capacity SIZE [key=value ...]", "make a card"},
    {"show", sim_show, "[NAME] [--json]", "what it holds, who holds it, what is wrong with it"},
    {"set", sim_set, "NAME key=value ...", "change settings; capacity may go below what is used"},
    {"fail", sim_fail, "NAME --next N | --above SIZE | --off", "let allocations fail"},
    {"stall", sim_stall, "NAME [--off]", "let graphs block"},
    {"lose", sim_lose, "NAME [--mode graph|abort] [--message cuda|vulkan] [--after-graphs N]",
     "lose the device"},
    {"reset", sim_reset, "NAME", "driver reset: faults end, attached processes stay lost"},
    {"hog", sim_hog, "NAME --bytes SIZE | --share 80% | --fragment SIZE [--for 60s]",
     "hold memory as other GPU work does"},
    {"hold", sim_hold, "NAME --bytes SIZE -- COMMAND ...",
     "run a program that is not ggml, holding its declared memory"},
    {"wait", sim_wait, "NAME --free SIZE [--timeout 10s]", "until that much is free"},
    {"destroy", sim_destroy, "NAME [--force]", "remove the card"},
};

static void help_print(void)
{
    printf("failsoft sim: simulated accelerators, shared by every process that opens one\n\n");
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++)
        printf("  failsoft sim %s %s\n      %s\n", commands[i].name, commands[i].arguments,
               commands[i].help);
    printf("\nSettings of create and set:\n");
    sim_settings_help();
    printf("\nAn engine uses a card with GGML_BACKEND_PATH=.../libggml-failsoft-sim.so and "
           "FAILSOFT_SIM_CARD=NAME.\n");
}

int cli_sim_main(int argc, char **argv)
{
    if (argc < 2 || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "help") == 0) {
        help_print();
        return argc < 2 ? SIM_EXIT_USAGE : SIM_EXIT_GOOD;
    }
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++)
        if (strcmp(argv[1], commands[i].name) == 0)
            return commands[i].run(argc - 1, argv + 1);
    return sim_complain(
        SIM_EXIT_USAGE,
        "\"%s\" is no command; allowed: create, show, set, fail, stall, lose, reset, "
        "hog, hold, wait, destroy",
        argv[1]);
}
