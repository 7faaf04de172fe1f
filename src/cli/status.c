/*
 * `failsoft status`: asks a running gateway and shows the answer as a table. The gateway's words
 * are somebody else's text by the time they are here: control characters do not reach the terminal.
 */
#include "cli/cli.h"

#include "base/units.h"
#include "cli/fetch.h"
#include "cli/gateway_url.h"
#include "config/address.h"
#include "config/config.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <yyjson.h>

enum {
    BODY_MAX_BYTES = 16 * 1024 * 1024,
    TIMEOUT_MS = 5000,
    WATCH_INTERVAL_MS = 1000,
    DECISIONS_SHOWN = 8,
};

static const char help[] =
    "usage: failsoft status [--url URL | --config FILE] [--watch] [--json]\n\n"
    "Shows services, tiers, workers and running requests of a running gateway.\n\n"
    "  --url URL      where it listens, e.g. http://127.0.0.1:8080\n"
    "  --config FILE  take the address from `listen` of this file\n"
    "                 default of both: the usual configuration file, else http://127.0.0.1:8080\n"
    "  --watch        again every second, until Ctrl-C\n"
    "  --json         the gateway's own answer\n\n"
    "exit status: 0 every service is served by its first tier, 1 degraded or unavailable,\n"
    "             2 wrong usage, 3 no gateway answers there\n";

static const char *text_of(yyjson_val *object, const char *key)
{
    const char *text = yyjson_get_str(yyjson_obj_get(object, key));

    return text ? text : "";
}

static uint64_t number_of(yyjson_val *object, const char *key)
{
    return yyjson_get_uint(yyjson_obj_get(object, key));
}

/* Text cut to the room of its column, line breaks as `?`. */
static const char *cut(const char *text, char *out, size_t out_size)
{
    size_t n = 0;

    for (; text[n] && n + 1 < out_size; n++)
        out[n] = text[n] == '\n' ? '?' : text[n];
    /* Not in the middle of a character. */
    while (text[n] && n > 0 && ((unsigned char)text[n] & 0xC0) == 0x80)
        n--;
    out[n] = '\0';
    return out;
}

/* Nothing in a table commands the terminal: C0 (but line feeds), DEL and C1 become `?`. */
static void make_plain(char *text, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)text[i];

        if ((c < 0x20 && c != '\n') || c == 0x7f)
            text[i] = '?';
        else if (c == 0xC2 && i + 1 < len && ((unsigned char)text[i + 1] & 0xE0) == 0x80)
            text[i] = text[i + 1] = '?';
    }
}

static int write_tier(struct buf *out, yyjson_val *tier)
{
    yyjson_val *worker = yyjson_obj_get(tier, "worker");
    bool usable = yyjson_get_bool(yyjson_obj_get(tier, "usable"));
    const char *availability = text_of(tier, "availability");
    uint64_t retry_in_ms = number_of(tier, "retry_in_ms");
    uint64_t slots = number_of(tier, "slots");
    char name[24];
    char state[32];
    char limit[24] = "-";
    char where[128];
    char why[512];
    char retry[24];
    int r;

    cut(text_of(tier, "name"), name, sizeof(name));
    cut(strcmp(availability, "available") == 0 ? text_of(worker, "state") : availability, state,
        sizeof(state));
    cut(text_of(worker, "address"), where, sizeof(where));
    cut(text_of(tier, "reason"), why, sizeof(why));
    if (slots > 0)
        snprintf(limit, sizeof(limit), "%" PRIu64, slots);
    r = buf_printf(
        out, "  %c %-10s %-10s %4" PRIu64 "/%-4s %7" PRIu64 " %9" PRIu64 " %7" PRIu64 "  %s %s\n",
        usable ? '*' : '!', name, state, number_of(tier, "running"), limit,
        number_of(tier, "waiting"), number_of(tier, "attempts_total"),
        number_of(tier, "attempts_failed"), text_of(worker, "engine"), where);
    if (r == 0 && why[0])
        r = buf_printf(out, "      why: %s\n", why);
    if (r == 0 && retry_in_ms > 0)
        r = buf_printf(out, "      next try in %s\n",
                       units_format_duration_ms(retry_in_ms, retry, sizeof(retry)));
    return r;
}

static int write_service(struct buf *out, yyjson_val *service)
{
    yyjson_val *tier;
    yyjson_arr_iter tiers;
    char name[136];
    int r;

    r = buf_printf(out,
                   "\n%s (%s): %s — %" PRIu64 " requests, %" PRIu64 " done, %" PRIu64
                   " failed, %" PRIu64 " cancelled, %" PRIu64 " moved to another tier\n"
                   "    %-10s %-10s %9s %7s %9s %7s  worker\n",
                   cut(text_of(service, "name"), name, sizeof(name)), text_of(service, "kind"),
                   text_of(service, "state"), number_of(service, "requests_total"),
                   number_of(service, "done"), number_of(service, "failed"),
                   number_of(service, "cancelled"), number_of(service, "failovers"), "tier",
                   "state", "running", "waiting", "attempts", "faults");
    yyjson_arr_iter_init(yyjson_obj_get(service, "tiers"), &tiers);
    while (r == 0 && (tier = yyjson_arr_iter_next(&tiers)) != NULL)
        r = write_tier(out, tier);
    return r;
}

static const char *size_of(yyjson_val *object, const char *key, char *out, size_t out_size)
{
    int64_t bytes = yyjson_get_sint(yyjson_obj_get(object, key));
    char text[24];

    snprintf(out, out_size, "%s%s", bytes < 0 ? "-" : "",
             units_format_bytes((uint64_t)(bytes < 0 ? -bytes : bytes), text, sizeof(text)));
    return out;
}

static int write_device(struct buf *out, yyjson_val *device)
{
    static const char *const keys[] = {"total_bytes",   "reserve_bytes",   "foreign_bytes",
                                       "settled_bytes", "unsettled_bytes", "releasing_bytes",
                                       "headroom_bytes"};
    char name[24];
    char reason[200];
    char size[32];
    yyjson_arr_iter claims;
    yyjson_val *claim;
    int r = buf_printf(out, "    %-10s %-8s %-8s", cut(text_of(device, "name"), name, sizeof(name)),
                       text_of(device, "pressure"), text_of(device, "trust"));

    for (size_t i = 0; r == 0 && i < sizeof(keys) / sizeof(keys[0]); i++)
        r = buf_printf(out, " %10s", size_of(device, keys[i], size, sizeof(size)));
    if (r == 0)
        r = buf_append(out, "\n", 1);
    if (r == 0 && number_of(device, "yield_left_ms") > 0)
        r = buf_printf(
            out, "      given back by hand for another %s\n",
            units_format_duration_ms(number_of(device, "yield_left_ms"), size, sizeof(size)));
    if (r == 0 && text_of(device, "reason")[0])
        r = buf_printf(out, "      %s\n", cut(text_of(device, "reason"), reason, sizeof(reason)));
    yyjson_arr_iter_init(yyjson_obj_get(device, "claims"), &claims);
    while (r == 0 && (claim = yyjson_arr_iter_next(&claims)) != NULL)
        r = buf_printf(out, "      %s holds %s (%s)\n", text_of(claim, "owner"),
                       size_of(claim, "bytes", size, sizeof(size)), text_of(claim, "state"));
    return r;
}

static int write_devices(struct buf *out, yyjson_val *list, yyjson_val *host)
{
    yyjson_arr_iter devices;
    yyjson_val *device;
    int r = 0;

    if (yyjson_arr_size(list) > 0 || host)
        r = buf_printf(out, "\n    %-10s %-8s %-8s %10s %10s %10s %10s %10s %10s %10s\n", "memory",
                       "pressure", "figures", "total", "reserve", "foreign", "settled", "unsettled",
                       "releasing", "headroom");
    yyjson_arr_iter_init(list, &devices);
    while (r == 0 && (device = yyjson_arr_iter_next(&devices)) != NULL)
        r = write_device(out, device);
    if (r == 0 && host)
        r = write_device(out, host);
    return r;
}

static int write_requests(struct buf *out, yyjson_val *list)
{
    yyjson_arr_iter requests;
    yyjson_val *q;
    int r = 0;

    if (yyjson_arr_size(list) > 0)
        r = buf_printf(out, "\n%-22s %-16s %-12s %-11s %-10s %-10s %6s  degraded\n", "request",
                       "service", "operation", "state", "tier", "age", "events");
    yyjson_arr_iter_init(list, &requests);
    while (r == 0 && (q = yyjson_arr_iter_next(&requests)) != NULL) {
        char id[40];
        char service[24];
        char operation[20];
        char degraded[80];
        char age[24];

        r = buf_printf(
            out, "%-22s %-16s %-12s %-11s %-10s %-10s %6" PRIu64 "  %s\n",
            cut(text_of(q, "id"), id, sizeof(id)),
            cut(text_of(q, "service"), service, sizeof(service)),
            cut(text_of(q, "operation"), operation, sizeof(operation)), text_of(q, "state"),
            text_of(q, "tier"), units_format_duration_ms(number_of(q, "age_ms"), age, sizeof(age)),
            number_of(q, "events_sent"), cut(text_of(q, "degraded"), degraded, sizeof(degraded)));
    }
    return r;
}

/* The last ones that say more than "it fits". */
static int write_decisions(struct buf *out, yyjson_val *list)
{
    yyjson_arr_iter decisions;
    yyjson_val *d;
    unsigned shown = 0;
    int r = 0;

    yyjson_arr_iter_init(list, &decisions);
    while (r == 0 && shown < DECISIONS_SHOWN && (d = yyjson_arr_iter_next(&decisions)) != NULL) {
        char reason[400];
        char service[24];
        char age[24];

        if (strcmp(text_of(d, "action"), "admit") == 0)
            continue;
        if (shown++ == 0)
            r = buf_append_str(out, "\nlast decisions\n");
        if (r == 0)
            r = buf_printf(out, "    %s ago: %s %s%s%s: %s\n",
                           units_format_duration_ms(number_of(d, "age_ms"), age, sizeof(age)),
                           cut(text_of(d, "service"), service, sizeof(service)),
                           text_of(d, "action"), text_of(d, "tier")[0] ? " to " : "",
                           text_of(d, "tier"), cut(text_of(d, "reason"), reason, sizeof(reason)));
    }
    return r;
}

static int write_table(struct buf *out, yyjson_val *root, const char *url)
{
    yyjson_val *config = yyjson_obj_get(root, "config");
    yyjson_arr_iter services;
    yyjson_val *service;
    char error[512];
    char uptime[24];
    int r;

    cut(text_of(config, "error"), error, sizeof(error));
    r = buf_printf(out, "failsoft %s at %s: %s, up %s, %" PRIu64 " connections\n",
                   text_of(root, "version"), url, text_of(root, "state"),
                   units_format_duration_ms(number_of(root, "uptime_ms"), uptime, sizeof(uptime)),
                   number_of(root, "connections"));
    if (r == 0 && error[0])
        r = buf_printf(out, "the last reload was not taken: %s\n", error);
    yyjson_arr_iter_init(yyjson_obj_get(root, "services"), &services);
    while (r == 0 && (service = yyjson_arr_iter_next(&services)) != NULL)
        r = write_service(out, service);
    if (r == 0)
        r = write_devices(out, yyjson_obj_get(root, "devices"), yyjson_obj_get(root, "host"));
    if (r == 0)
        r = write_requests(out, yyjson_obj_get(root, "requests"));
    return r < 0 ? r : write_decisions(out, yyjson_obj_get(root, "decisions"));
}

static int tell_failure(const char *url, int error)
{
    if (error == -ECONNREFUSED)
        fprintf(stderr, "failsoft status: nothing listens at %s; is `failsoft serve` running?\n",
                url);
    else if (error == -EHOSTUNREACH)
        fprintf(stderr, "failsoft status: %s can not be reached\n", url);
    else
        fprintf(stderr, "failsoft status: %s: %s\n", url, strerrordesc_np(-error));
    return CLI_EXIT_ENVIRONMENT;
}

static int print_status(const struct buf *body, const char *url, bool json, bool clear)
{
    yyjson_doc *doc = yyjson_read(body->data, body->len, 0);
    yyjson_val *root = yyjson_doc_get_root(doc);
    const char *state = text_of(root, "state");
    int status = strcmp(state, "ready") == 0 ? CLI_EXIT_GOOD : CLI_EXIT_FINDING;
    struct buf out;
    int r = 0;

    if (!doc || !state[0]) {
        fprintf(stderr, "failsoft status: %s answers, but not as failsoft does\n", url);
        yyjson_doc_free(doc);
        return CLI_EXIT_ENVIRONMENT;
    }
    buf_init(&out, 2 * BODY_MAX_BYTES);
    r = json ? buf_append(&out, body->data, body->len) : write_table(&out, root, url);
    if (!json && out.len > 0)
        make_plain(out.data, out.len);
    if (r == 0 && clear)
        fputs("\033[H\033[2J", stdout);
    if (r == 0)
        r = cli_print(&out);
    buf_free(&out);
    yyjson_doc_free(doc);
    return r < 0 ? CLI_EXIT_ENVIRONMENT : status;
}

static int show_once(const char *url, bool json, bool clear)
{
    struct buf body;
    int http_status = 0;
    int status;
    int r;

    buf_init(&body, BODY_MAX_BYTES);
    r = cli_fetch("GET", url, "/failsoft/v1/status", TIMEOUT_MS, &body, &http_status);
    if (r < 0) {
        status = tell_failure(url, r);
    } else if (http_status != 200) {
        fprintf(stderr, "failsoft status: %s answers with HTTP status %d; is it failsoft?\n", url,
                http_status);
        status = CLI_EXIT_ENVIRONMENT;
    } else {
        status = print_status(&body, url, json, clear);
    }
    buf_free(&body);
    return status;
}

static volatile sig_atomic_t interrupted;

static void on_interrupt(int signal_number)
{
    (void)signal_number;
    interrupted = 1;
}

static int watch(const char *url, bool json)
{
    struct sigaction action = {.sa_handler = on_interrupt};
    const struct timespec pause = {WATCH_INTERVAL_MS / 1000, (WATCH_INTERVAL_MS % 1000) * 1000000L};
    bool terminal = isatty(STDOUT_FILENO) == 1;
    int status = CLI_EXIT_GOOD;

    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    while (!interrupted) {
        status = show_once(url, json, terminal && !json);
        /* A gateway that restarts is waited for; a closed pipe is not. */
        if (ferror(stdout))
            return CLI_EXIT_ENVIRONMENT;
        nanosleep(&pause, NULL);
    }
    return status;
}

int cli_status_main(int argc, char **argv)
{
    bool json = false;
    bool again = false;
    const char *url = NULL;
    const char *config = NULL;
    char chosen[CLI_URL_SIZE];
    struct address_url parsed;
    const char *why;
    const struct cli_flag flags[] = {{"--json", CLI_FLAG_SWITCH, &json, NULL},
                                     {"--watch", CLI_FLAG_SWITCH, &again, NULL},
                                     {"--url", CLI_FLAG_VALUE, NULL, &url},
                                     {"--config", CLI_FLAG_VALUE, NULL, &config},
                                     {NULL, CLI_FLAG_SWITCH, NULL, NULL}};
    const struct cli_arguments arguments = {"status", help, flags, NULL};
    int status;

    if (cli_read_arguments(&arguments, argc, argv, &status) < 0)
        return status;
    if (url && address_parse_url(url, &parsed, &why) < 0) {
        fprintf(stderr, "failsoft status: --url `%s` %s\n", url, why);
        return CLI_EXIT_USAGE;
    }
    if (!url) {
        status = cli_choose_url(config, chosen, sizeof(chosen));
        if (status != CLI_EXIT_GOOD)
            return status;
        url = chosen;
    }
    return again ? watch(url, json) : show_once(url, json, false);
}
