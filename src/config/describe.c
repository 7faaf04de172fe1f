/*
 * The option table for people: as text for the terminal, as tables for docs/configuration.md.
 */
#include "config/options.h"

#include "config/values.h"

#include <stdbool.h>
#include <stdio.h>

/* `a.b[].c` as it is found in a file. */
static const char *const scope_paths[OPTION_SCOPE_COUNT] = {
    [OPTION_SCOPE_ROOT] = "",
    [OPTION_SCOPE_LOG] = "log.",
    [OPTION_SCOPE_LIMITS] = "limits.",
    [OPTION_SCOPE_HOST] = "host.",
    [OPTION_SCOPE_DEVICE] = "devices.NAME.",
    [OPTION_SCOPE_SERVICE] = "services.NAME.",
    [OPTION_SCOPE_TIER] = "tiers[].",
    [OPTION_SCOPE_QUEUE] = "tiers[].queue.",
    [OPTION_SCOPE_RESTART] = "tiers[].restart.",
    [OPTION_SCOPE_AVAILABILITY] = "tiers[].availability.",
};

static const char *const scope_titles[OPTION_SCOPE_COUNT] = {
    [OPTION_SCOPE_ROOT] = "Top level",
    [OPTION_SCOPE_LOG] = "log",
    [OPTION_SCOPE_LIMITS] = "limits",
    [OPTION_SCOPE_HOST] = "host",
    [OPTION_SCOPE_DEVICE] = "A device (devices.NAME)",
    [OPTION_SCOPE_SERVICE] = "A service (services.NAME)",
    [OPTION_SCOPE_TIER] = "A tier (services.NAME.tiers[])",
    [OPTION_SCOPE_QUEUE] = "queue of a tier",
    [OPTION_SCOPE_RESTART] = "restart of a tier",
    [OPTION_SCOPE_AVAILABILITY] = "availability of a tier",
};

static const char *note(const struct config_option *o)
{
    if (o->flags & OPTION_COMMAND)
        return " With a `command` only.";
    if (o->flags & OPTION_LLAMA)
        return " Managed tiers without a `command` only.";
    if (o->flags & OPTION_MANAGED)
        return " Managed tiers only.";
    if (o->flags & OPTION_EXTERNAL)
        return " With a `url` only.";
    if (o->flags & OPTION_SIM)
        return " Devices of kind `sim` only.";
    return "";
}

static void describe_default(const struct config_option *o, bool ticks, char *out, size_t out_size)
{
    const char *tick = ticks ? "`" : "";

    if (o->flags & OPTION_REQUIRED)
        snprintf(out, out_size, "required");
    else if (o->shown)
        snprintf(out, out_size, "%s", o->shown);
    else if (o->fallback)
        snprintf(out, out_size, "%s%s%s", tick, o->fallback, tick);
    else
        snprintf(out, out_size, o->type == OPTION_TYPE_BLOCK ? "see below" : "none");
}

int options_write_text(struct buf *out)
{
    int r = 0;

    for (size_t i = 0; r == 0 && i < config_option_count; i++) {
        const struct config_option *o = &config_options[i];
        char allowed[192];
        char fallback[128];

        value_describe(o, allowed, sizeof(allowed));
        describe_default(o, false, fallback, sizeof(fallback));
        r = buf_printf(out, "%s%s%s\n    %s%s\n    allowed: %s\n    default: %s\n", i ? "\n" : "",
                       scope_paths[o->scope], o->key, o->help, note(o), allowed, fallback);
    }
    return r;
}

static int write_row(struct buf *out, const struct config_option *o)
{
    char allowed[192];
    char fallback[128];

    value_describe(o, allowed, sizeof(allowed));
    describe_default(o, true, fallback, sizeof(fallback));
    return buf_printf(out, "| `%s` | %s | %s | %s%s |\n", o->key, allowed, fallback, o->help,
                      note(o));
}

int options_write_markdown(struct buf *out)
{
    int scope = -1;
    int r = 0;

    for (size_t i = 0; r == 0 && i < config_option_count; i++) {
        const struct config_option *o = &config_options[i];

        if ((int)o->scope != scope)
            r = buf_printf(out,
                           "%s### %s\n\n| option | allowed | default | meaning |\n"
                           "|---|---|---|---|\n",
                           i ? "\n" : "", scope_titles[o->scope]);
        scope = (int)o->scope;
        if (r == 0)
            r = write_row(out, o);
    }
    return r;
}
