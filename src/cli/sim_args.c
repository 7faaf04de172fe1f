/*
 * The command line of `failsoft sim`: options, values with units, and the settings of a card as one
 * table: a row makes the parser, the list in complaints, and the help.
 */
#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/units.h"
#include "cli/sim_parts.h"

enum setting_kind {
    SETTING_BYTES,
    SETTING_DURATION,
    SETTING_FACTOR,
    SETTING_SWITCH,
};

struct setting_row {
    const char *key;
    uint32_t mask;
    enum setting_kind kind;
    size_t offset;
    const char *help;
};

#define ROW(key, mask, kind, field, help)                                                          \
    {                                                                                              \
        key, mask, kind, offsetof(struct sim_settings, field), help                                \
    }

static const struct setting_row setting_rows[] = {
    ROW("capacity", SIM_SET_CAPACITY, SETTING_BYTES, capacity_bytes, "memory of the card"),
    ROW("reserve", SIM_SET_RESERVE, SETTING_BYTES, reserve_bytes,
        "the driver's own share, never free"),
    ROW("max-alloc", SIM_SET_MAX_ALLOC, SETTING_BYTES, max_alloc_bytes,
        "largest single buffer; 0: no limit"),
    ROW("context", SIM_SET_CONTEXT, SETTING_BYTES, context_bytes,
        "taken by every engine that starts"),
    ROW("workspace", SIM_SET_WORKSPACE, SETTING_BYTES, workspace_bytes,
        "taken while computing, per token of a batch"),
    ROW("release-delay", SIM_SET_RELEASE_DELAY, SETTING_DURATION, release_delay_ms,
        "until memory of a killed process is back"),
    ROW("slowdown", SIM_SET_SLOWDOWN, SETTING_FACTOR, slowdown_pct, "factor on the time of graphs"),
    ROW("spill", SIM_SET_SPILL, SETTING_SWITCH, spill, "on: what does not fit goes to host memory"),
    ROW("spill-slowdown", SIM_SET_SPILL_SLOWDOWN, SETTING_FACTOR, spill_slowdown_pct,
        "factor when all of a process is spilled"),
    ROW("hidden", SIM_SET_HIDDEN, SETTING_SWITCH, hidden, "on: engines that start find no device"),
};

#define SETTING_COUNT (sizeof setting_rows / sizeof setting_rows[0])

int sim_complain(int status, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    fputs("failsoft sim: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    return status;
}

int sim_complain_card(const char *name, int error)
{
    if (error == -ETIMEDOUT)
        return sim_complain(SIM_EXIT_ENVIRONMENT,
                            "card %s is locked by a process that does not run (stopped?)", name);
    if (error == -ENODEV)
        return sim_complain(SIM_EXIT_FINDING, "card %s is lost; failsoft sim reset %s", name, name);
    return sim_complain(SIM_EXIT_ENVIRONMENT, "card %s: %s", name, strerror(-error));
}

int sim_value_bytes(const char *what, const char *text, uint64_t *ret_bytes)
{
    uint64_t bytes = 0;

    if (units_parse_bytes(text, &bytes) < 0 || bytes > SIM_CAPACITY_MAX)
        return sim_complain(SIM_EXIT_USAGE,
                            "%s: \"%s\" is no size; write it as 512MiB or 2GiB, at most 16TiB",
                            what, text);
    *ret_bytes = bytes;
    return 0;
}

int sim_value_duration(const char *what, const char *text, uint64_t *ret_ms)
{
    if (units_parse_duration_ms(text, ret_ms) < 0)
        return sim_complain(SIM_EXIT_USAGE, "%s: \"%s\" is no duration; write it as 500ms or 30s",
                            what, text);
    return 0;
}

int sim_value_count(const char *what, const char *text, uint64_t *ret_count)
{
    if (units_parse_u64(text, ret_count) < 0)
        return sim_complain(SIM_EXIT_USAGE, "%s: \"%s\" is no count; write it as 3", what, text);
    return 0;
}

/* "3", "1.5", "2x" into percent. */
static int factor_read(const char *key, const char *text, uint32_t *ret_pct)
{
    uint64_t whole = 0;
    uint64_t pct;
    uint64_t weight = 10;
    size_t i = strspn(text, "0123456789");
    bool good = i > 0 && i < 6;

    for (size_t k = 0; good && k < i; k++)
        whole = whole * 10 + (uint64_t)(text[k] - '0');
    pct = whole * 100;
    if (good && text[i] == '.')
        for (i++; text[i] >= '0' && text[i] <= '9'; i++, weight /= 10)
            pct += weight * (uint64_t)(text[i] - '0');
    if (text[i] == 'x')
        i++;
    if (!good || text[i] != '\0' || pct < 100 || pct > SIM_SLOWDOWN_MAX)
        return sim_complain(SIM_EXIT_USAGE, "%s: \"%s\" is no factor; allowed are 1 to %u", key,
                            text, SIM_SLOWDOWN_MAX / 100);
    *ret_pct = (uint32_t)pct;
    return 0;
}

static int switch_read(const char *key, const char *text, bool *ret_on)
{
    if (strcmp(text, "on") != 0 && strcmp(text, "off") != 0)
        return sim_complain(SIM_EXIT_USAGE, "%s: \"%s\" is neither on nor off", key, text);
    *ret_on = strcmp(text, "on") == 0;
    return 0;
}

static int setting_read(const struct setting_row *row, const char *text,
                        struct sim_settings *settings)
{
    char *field = (char *)settings + row->offset;
    int r;

    switch (row->kind) {
    case SETTING_BYTES: return sim_value_bytes(row->key, text, (uint64_t *)(void *)field);
    case SETTING_FACTOR: return factor_read(row->key, text, (uint32_t *)(void *)field);
    case SETTING_SWITCH: return switch_read(row->key, text, (bool *)field);
    case SETTING_DURATION:
        r = sim_value_duration(row->key, text, (uint64_t *)(void *)field);
        if (r == 0 && *(uint64_t *)(void *)field > SIM_RELEASE_MAX_MS)
            r = sim_complain(SIM_EXIT_USAGE, "%s: at most 10m is allowed", row->key);
        return r;
    }
    return SIM_EXIT_USAGE;
}

static const struct setting_row *setting_find(const char *key, size_t length)
{
    for (size_t i = 0; i < SETTING_COUNT; i++)
        if (strlen(setting_rows[i].key) == length && strncmp(setting_rows[i].key, key, length) == 0)
            return &setting_rows[i];
    return NULL;
}

static int setting_unknown(const char *text)
{
    char allowed[256] = "";
    size_t at = 0;

    for (size_t i = 0; i < SETTING_COUNT && at < sizeof allowed; i++) {
        int n = snprintf(allowed + at, sizeof allowed - at, "%s%s", i == 0 ? "" : ", ",
                         setting_rows[i].key);
        if (n < 0)
            break;
        at += (size_t)n;
    }
    return sim_complain(SIM_EXIT_USAGE, "\"%s\" is no setting; write key=value with one of: %s",
                        text, allowed);
}

int sim_settings_read(int argc, char **argv, int first, struct sim_settings *settings,
                      uint32_t *ret_mask)
{
    uint32_t mask = 0;

    for (int i = first; i < argc; i++) {
        const char *key = argv[i];
        bool dashed = strncmp(key, "--", 2) == 0;
        const struct setting_row *row;
        const char *value;
        int r;

        if (dashed)
            key += 2;
        value = strchr(key, '=');
        row = setting_find(key, value != NULL ? (size_t)(value - key) : strlen(key));
        if (row == NULL || (value == NULL && !dashed))
            return setting_unknown(argv[i]);
        if (value != NULL)
            value++;
        else if (++i < argc)
            value = argv[i];
        else
            return sim_complain(SIM_EXIT_USAGE, "--%s needs a value", row->key);
        r = setting_read(row, value, settings);
        if (r != 0)
            return r;
        mask |= row->mask;
    }
    *ret_mask = mask;
    return 0;
}

void sim_settings_help(void)
{
    for (size_t i = 0; i < SETTING_COUNT; i++)
        printf("  %-15s %s\n", setting_rows[i].key, setting_rows[i].help);
}

struct sim_option *sim_option_find(struct sim_option *options, const char *name)
{
    for (; options->name != NULL; options++)
        if (strcmp(options->name, name) == 0)
            return options;
    return NULL;
}

static int option_unknown(const char *command, const char *text, const struct sim_option *options)
{
    char allowed[200] = "";
    size_t at = 0;

    for (; options->name != NULL && at < sizeof allowed; options++) {
        int n = snprintf(allowed + at, sizeof allowed - at, " %s", options->name);
        if (n < 0)
            break;
        at += (size_t)n;
    }
    return sim_complain(SIM_EXIT_USAGE, "%s: \"%s\" is not understood; allowed: NAME%s", command,
                        text, allowed);
}

int sim_args_read(int argc, char **argv, struct sim_option *options, const char **ret_name,
                  int *ret_rest)
{
    const char *name = NULL;
    int i;

    for (i = 1; i < argc; i++) {
        struct sim_option *option = sim_option_find(options, argv[i]);

        if (ret_rest != NULL && strcmp(argv[i], "--") == 0) {
            i++;
            break;
        }
        if (option == NULL && argv[i][0] != '-' && name == NULL) {
            name = argv[i];
            continue;
        }
        if (option == NULL)
            return option_unknown(argv[0], argv[i], options);
        option->seen = true;
        if (!option->takes_value)
            continue;
        if (++i >= argc)
            return sim_complain(SIM_EXIT_USAGE, "%s: %s needs a value", argv[0], option->name);
        option->value = argv[i];
    }
    if (ret_rest != NULL)
        *ret_rest = i;
    *ret_name = name;
    return 0;
}
