/*
 * `failsoft check`: is this configuration good? Every problem at once; then what it would do.
 */
#include "cli/cli.h"

#include "base/units.h"
#include "config/config.h"
#include "config/options.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

enum { OUTPUT_MAX_BYTES = 8 * 1024 * 1024 };

static const char help[] =
    "usage: failsoft check [--config FILE] [--json] [--no-files]\n"
    "       failsoft check --help-options[=markdown]\n\n"
    "Checks a configuration and the files it names, and shows every problem at once:\n"
    "  FILE:LINE:COLUMN: error: what is wrong, what is allowed, what was probably meant\n\n"
    "  --config FILE   default: ./failsoft.yaml, then $XDG_CONFIG_HOME/failsoft/failsoft.yaml,\n"
    "                  then /etc/failsoft/failsoft.yaml; the FILE may also stand alone\n"
    "  --no-files      do not look at model files, engine and plug-ins\n"
    "  --json          problems, devices and services as JSON\n"
    "  --help-options  every option with its bounds, default and meaning\n\n"
    "exit status: 0 no error (there may be warnings), 1 errors, 2 wrong usage, 3 no such file\n";

static int write_json_string(struct buf *out, const char *text)
{
    int r;

    if (!text)
        return buf_append_str(out, "null");
    r = buf_append_str(out, "\"");
    if (r == 0)
        r = buf_append_json(out, span_from_str(text));
    return r < 0 ? r : buf_append_str(out, "\"");
}

static int write_json_problem(struct buf *out, const struct config_problem *p)
{
    int r =
        buf_printf(out, "{\"severity\":\"%s\",\"line\":%u,\"column\":%u,\"message\":",
                   p->severity == CONFIG_SEVERITY_ERROR ? "error" : "warning", p->line, p->column);

    if (r == 0)
        r = write_json_string(out, p->message);
    return r < 0 ? r : buf_append_str(out, "}");
}

static int write_json_tier(struct buf *out, const struct config_tier *t)
{
    int r;

    if ((r = buf_append_str(out, "{\"name\":")) < 0 || (r = write_json_string(out, t->name)) < 0 ||
        (r = buf_printf(out, ",\"managed\":%s,\"engine\":\"%s\",\"device\":",
                        t->managed ? "true" : "false", config_engine_name(t->engine))) < 0 ||
        (r = write_json_string(out, t->device_name)) < 0 ||
        (r = buf_append_str(out, ",\"url\":")) < 0 || (r = write_json_string(out, t->url)) < 0 ||
        (r = buf_append_str(out, ",\"model\":")) < 0 ||
        (r = write_json_string(out, t->model_path ? t->model_path : t->model)) < 0 ||
        (r = buf_append_str(out, ",\"program\":")) < 0 ||
        (r = write_json_string(out, t->command.count > 0 ? t->command.items[0] : NULL)) < 0)
        return r;
    return buf_printf(out, ",\"slots\":%u}", t->slots);
}

static int write_json_device(struct buf *out, const struct config_device *d)
{
    int r;

    if ((r = buf_append_str(out, "{\"name\":")) < 0 || (r = write_json_string(out, d->name)) < 0 ||
        (r = buf_printf(out, ",\"kind\":\"%s\",\"card\":", config_device_kind_name(d->kind))) < 0 ||
        (r = write_json_string(out, d->kind == CONFIG_DEVICE_KIND_SIM ? d->card : NULL)) < 0)
        return r;
    return buf_append_str(out, "}");
}

static int write_json_devices(struct buf *out, const struct config *c)
{
    int r = 0;

    for (size_t i = 0; r == 0 && c && i < c->device_count; i++) {
        if (i > 0)
            r = buf_append_str(out, ",");
        if (r == 0)
            r = write_json_device(out, &c->devices[i]);
    }
    return r;
}

static int write_json_service(struct buf *out, const struct config_service *s)
{
    int r = buf_append_str(out, "{\"name\":");

    if (r == 0)
        r = write_json_string(out, s->name);
    if (r == 0)
        r = buf_printf(out, ",\"kind\":\"%s\",\"context\":%u,\"tiers\":[",
                       config_service_kind_name(s->kind), s->context_tokens);
    for (size_t i = 0; r == 0 && i < s->tier_count; i++) {
        if (i > 0)
            r = buf_append_str(out, ",");
        if (r == 0)
            r = write_json_tier(out, &s->tiers[i]);
    }
    return r < 0 ? r : buf_append_str(out, "]}");
}

static int write_json(struct buf *out, const struct config *c, const struct config_report *report)
{
    int r = buf_append_str(out, "{\"file\":");

    if (r == 0)
        r = write_json_string(out, report->path);
    if (r == 0)
        r = buf_printf(out, ",\"ok\":%s,\"errors\":%zu,\"warnings\":%zu,\"problems\":[",
                       report->errors ? "false" : "true", report->errors, report->warnings);
    for (size_t i = 0; r == 0 && i < report->count; i++) {
        if (i > 0)
            r = buf_append_str(out, ",");
        if (r == 0)
            r = write_json_problem(out, &report->items[i]);
    }
    if (r == 0)
        r = buf_append_str(out, "],\"devices\":[");
    if (r == 0)
        r = write_json_devices(out, c);
    if (r == 0)
        r = buf_append_str(out, "],\"services\":[");
    for (size_t i = 0; r == 0 && c && i < c->service_count; i++) {
        if (i > 0)
            r = buf_append_str(out, ",");
        if (r == 0)
            r = write_json_service(out, &c->services[i]);
    }
    return r < 0 ? r : buf_append_str(out, "]}\n");
}

static const char *who_runs(const struct config_tier *t)
{
    if (!t->managed)
        return t->url;
    return t->command.count > 0 ? "a program run by failsoft" : "llama-server run by failsoft";
}

static int write_tier(struct buf *out, const struct config_tier *t)
{
    char wait[24];
    char first[24];

    units_format_duration_ms(t->queue.wait_ms, wait, sizeof(wait));
    units_format_duration_ms(t->first_event_timeout_ms, first, sizeof(first));
    return buf_printf(out, "    %-10s %s%s%s, first output within %s, queue %u for %s\n", t->name,
                      who_runs(t), t->device_name ? " on " : "",
                      t->device_name ? t->device_name : "", first, t->queue.length, wait);
}

static int write_summary(struct buf *out, const struct config *c,
                         const struct config_report *report)
{
    int r = buf_printf(out, "%s: good (%zu warning%s)\n", report->path, report->warnings,
                       report->warnings == 1 ? "" : "s");

    for (size_t i = 0; r == 0 && i < c->service_count; i++) {
        const struct config_service *s = &c->services[i];

        r = buf_printf(out, "  %s (%s)%s\n", s->name, config_service_kind_name(s->kind),
                       s->tier_count == 1 ? ": one tier only, so there is no second way to run"
                                          : "");
        for (size_t j = 0; r == 0 && j < s->tier_count; j++)
            r = write_tier(out, &s->tiers[j]);
    }
    return r;
}

static int print_options(const char *format)
{
    struct buf out;
    int r;

    if (format && strcmp(format, "markdown") != 0) {
        fprintf(stderr, "failsoft check: --help-options takes nothing or `=markdown`\n");
        return CLI_EXIT_USAGE;
    }
    buf_init(&out, OUTPUT_MAX_BYTES);
    r = format ? options_write_markdown(&out) : options_write_text(&out);
    if (r == 0)
        r = cli_print(&out);
    buf_free(&out);
    return r < 0 ? CLI_EXIT_ENVIRONMENT : CLI_EXIT_GOOD;
}

static int print_result(bool json, const struct config *c, const struct config_report *report)
{
    struct buf problems;
    struct buf out;
    int r = 0;

    buf_init(&problems, OUTPUT_MAX_BYTES);
    buf_init(&out, OUTPUT_MAX_BYTES);
    if (json)
        r = write_json(&out, c, report);
    else
        r = cli_write_problems(report, &problems);
    if (r == 0 && !json && c && report->errors == 0)
        r = write_summary(&out, c, report);
    if (r == 0 && !json && report->errors > 0)
        r = buf_printf(&problems, "%zu error%s, %zu warning%s\n", report->errors,
                       report->errors == 1 ? "" : "s", report->warnings,
                       report->warnings == 1 ? "" : "s");
    if (r == 0 && problems.len > 0)
        fwrite(problems.data, 1, problems.len, stderr);
    if (r == 0)
        r = cli_print(&out);
    buf_free(&problems);
    buf_free(&out);
    return r;
}

static int check_file(const char *path, bool json, bool no_files)
{
    struct config_report report;
    struct config *c = NULL;
    int status;
    int r;

    config_report_init(&report);
    r = config_load_file(path, &c, &report);
    if (r == 0 && !no_files)
        r = config_check_files(c, &report);
    status = report.errors == 0 ? CLI_EXIT_GOOD : CLI_EXIT_FINDING;
    if (report.unreadable || r == -ENOMEM)
        status = CLI_EXIT_ENVIRONMENT;
    if (r == -ENOMEM)
        fputs("failsoft check: out of memory\n", stderr);
    if (print_result(json, c, &report) < 0)
        status = CLI_EXIT_ENVIRONMENT;
    config_free(c);
    config_report_free(&report);
    return status;
}

int cli_check_main(int argc, char **argv)
{
    bool json = false;
    bool no_files = false;
    bool options = false;
    const char *format = NULL;
    const char *named = NULL;
    const char *operand = NULL;
    char path[PATH_MAX];
    const struct cli_flag flags[] = {{"--config", CLI_FLAG_VALUE, NULL, &named},
                                     {"--json", CLI_FLAG_SWITCH, &json, NULL},
                                     {"--no-files", CLI_FLAG_SWITCH, &no_files, NULL},
                                     {"--help-options", CLI_FLAG_OPTIONAL, &options, &format},
                                     {NULL, CLI_FLAG_SWITCH, NULL, NULL}};
    const struct cli_arguments arguments = {"check", help, flags, &operand};
    int status;

    if (cli_read_arguments(&arguments, argc, argv, &status) < 0)
        return status;
    if (options)
        return print_options(format);
    if (named && operand) {
        fputs("failsoft check: two files named; one at a time\n", stderr);
        return CLI_EXIT_USAGE;
    }
    if (cli_find_config(named ? named : operand, path, sizeof(path)) < 0)
        return CLI_EXIT_ENVIRONMENT;
    return check_file(path, json, no_files);
}
