/* Where the running gateway listens, for the commands that talk to it. */
#include "cli/gateway_url.h"

#include "cli/cli.h"
#include "config/config.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

enum { PROBLEMS_MAX_BYTES = 1024 * 1024 };

void cli_url_of_config(const struct config *c, char *out, size_t out_size)
{
    const char *host = c->host;

    if (strcmp(host, "0.0.0.0") == 0)
        host = "127.0.0.1";
    else if (strcmp(host, "::") == 0)
        host = "::1";
    if (strchr(host, ':'))
        snprintf(out, out_size, "http://[%s]:%u", host, c->port);
    else
        snprintf(out, out_size, "http://%s:%u", host, c->port);
}

int cli_choose_url(const char *named, char *out, size_t out_size)
{
    struct config_report report;
    struct config *c = NULL;
    char path[PATH_MAX];
    struct buf problems;
    int r;

    snprintf(out, out_size, "http://127.0.0.1:8080");
    if (!named && config_find_default(path, sizeof(path)) < 0)
        return CLI_EXIT_GOOD;
    if (named && snprintf(path, sizeof(path), "%s", named) >= (int)sizeof(path))
        return CLI_EXIT_USAGE;
    config_report_init(&report);
    r = config_load_file(path, &c, &report);
    if (r == 0) {
        cli_url_of_config(c, out, out_size);
    } else {
        buf_init(&problems, PROBLEMS_MAX_BYTES);
        if (cli_write_problems(&report, &problems) == 0 && problems.len > 0)
            fwrite(problems.data, 1, problems.len, stderr);
        buf_free(&problems);
    }
    config_free(c);
    config_report_free(&report);
    return r == 0 ? CLI_EXIT_GOOD : CLI_EXIT_ENVIRONMENT;
}
