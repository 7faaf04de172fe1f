/*
 * `failsoft yield`: asks the running gateway to give a device's memory back for a time, before a game
 * or a training job starts.
 */
#include "base/units.h"
#include "cli/cli.h"
#include "cli/fetch.h"
#include "cli/gateway_url.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <yyjson.h>

enum { YIELD_BODY_BYTES = 65536, YIELD_TIMEOUT_MS = 5000 };

static const char help[] =
    "usage: failsoft yield DEVICE (--for TIME | --off) [--url URL | --config FILE]\n\n"
    "Gives a device's memory back: its workers take no new requests, are stopped when the running\n"
    "ones have ended, and come back when the time is over and there is room.\n\n"
    "  --for TIME     e.g. 30m, 2h\n"
    "  --off          it may be used again now\n"
    "  --url URL      where the gateway listens\n"
    "  --config FILE  take the address from `listen` of this file\n";

static int tell(const struct buf *body, int http_status, const char *device, uint64_t for_ms)
{
    char time[24];
    if (http_status == 200) {
        if (for_ms > 0)
            printf("%s is given back for %s\n", device,
                   units_format_duration_ms(for_ms, time, sizeof(time)));
        else
            printf("%s may be used again\n", device);
        return CLI_EXIT_GOOD;
    }
    yyjson_doc *doc = yyjson_read(body->data, body->len, 0);
    yyjson_val *error = yyjson_obj_get(yyjson_doc_get_root(doc), "error");
    const char *message = yyjson_get_str(yyjson_obj_get(error, "message"));
    fprintf(stderr, "failsoft yield: %s\n", message ? message : "the gateway refused");
    yyjson_doc_free(doc);
    return CLI_EXIT_FINDING;
}

static int ask(const char *url, const char *device, uint64_t for_ms)
{
    char path[256];
    struct buf body;
    int http_status = 0;
    int n = snprintf(path, sizeof(path), "/failsoft/v1/devices/%s/yield?for_ms=%" PRIu64, device,
                     for_ms);
    if (n < 0 || (size_t)n >= sizeof(path) || strpbrk(device, " /?#%\r\n")) {
        fprintf(stderr, "failsoft yield: that is no name of a device\n");
        return CLI_EXIT_USAGE;
    }
    buf_init(&body, YIELD_BODY_BYTES);
    int r = cli_fetch("POST", url, path, YIELD_TIMEOUT_MS, &body, &http_status);
    int status = CLI_EXIT_ENVIRONMENT;
    if (r < 0)
        fprintf(stderr, "failsoft yield: no gateway answers at %s: %s\n", url, strerror(-r));
    else
        status = tell(&body, http_status, device, for_ms);
    buf_free(&body);
    return status;
}

int cli_yield_main(int argc, char **argv)
{
    const char *device = NULL, *text = NULL, *url = NULL, *config = NULL;
    bool off = false;
    char chosen[CLI_URL_SIZE];
    uint64_t for_ms = 0;
    const struct cli_flag flags[] = {
        {"--for", CLI_FLAG_VALUE, NULL, &text}, {"--off", CLI_FLAG_SWITCH, &off, NULL},
        {"--url", CLI_FLAG_VALUE, NULL, &url},  {"--config", CLI_FLAG_VALUE, NULL, &config},
        {NULL, CLI_FLAG_SWITCH, NULL, NULL},
    };
    const struct cli_arguments arguments = {
        .command = "yield", .help = help, .flags = flags, .operand = &device};
    int status;
    if (cli_read_arguments(&arguments, argc, argv, &status) < 0)
        return status;
    if (!device || off == (text != NULL)) {
        fprintf(stderr, "failsoft yield: name a device, and --for TIME or --off\n");
        return CLI_EXIT_USAGE;
    }
    if (text && (units_parse_duration_ms(text, &for_ms) < 0 || for_ms == 0)) {
        fprintf(stderr, "failsoft yield: `%s` is no time; e.g. 30m, 2h\n", text);
        return CLI_EXIT_USAGE;
    }
    if (!url) {
        status = cli_choose_url(config, chosen, sizeof(chosen));
        if (status != CLI_EXIT_GOOD)
            return status;
        url = chosen;
    }
    return ask(url, device, for_ms);
}
