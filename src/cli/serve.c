/*
 * `failsoft serve`: reads the configuration, starts the gateway, and answers signals.
 *
 *   SIGHUP          reload: everything is checked on another thread, then swapped, or kept
 *   SIGTERM, SIGINT drain and stop; a second one skips the grace
 *
 * The main thread is the loop thread and the one that starts engines (see worker/worker.h).
 */
#include "admin/routes.h"
#include "base/log.h"
#include "cli/cli.h"
#include "config/config.h"
#include "gateway/gateway.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <uv.h>

#ifndef FAILSOFT_VERSION
#define FAILSOFT_VERSION "unknown"
#endif

static const char help[] =
    "usage: failsoft serve [--config FILE]\n\n"
    "Runs the gateway in the foreground; it logs to stderr.\n\n"
    "  --config FILE  the configuration (default: ./failsoft.yaml, then\n"
    "                 ~/.config/failsoft/failsoft.yaml, then /etc/failsoft/failsoft.yaml)\n\n"
    "SIGHUP reloads the configuration, SIGTERM and SIGINT drain and stop.\n";

struct reload_job {
    uv_work_t work;
    struct serve *serve;
    struct config *config;
    struct config_report report;
    int result;
};

struct serve {
    uv_loop_t loop;
    uv_signal_t signals[3];
    struct gateway *gateway;
    char config_path[PATH_MAX];
    bool reloading, reload_again;
    bool stopping;
};

static void log_problems(const struct config_report *report)
{
    for (size_t i = 0; i < report->count; i++) {
        const struct config_problem *p = &report->items[i];
        bool error = p->severity == CONFIG_SEVERITY_ERROR;
        log_write(error ? LOG_LEVEL_ERROR : LOG_LEVEL_WARNING, "config", "%s:%u:%u: %s",
                  report->path ? report->path : "", p->line, p->column, p->message);
    }
}

/* Loads and checks the form and the files. Any thread. */
static int load(const char *path, struct config **ret, struct config_report *report)
{
    struct config *config = NULL;
    int r = config_load_file(path, &config, report);
    if (r == 0)
        r = config_check_files(config, report);
    if (r < 0) {
        config_free(config);
        return r;
    }
    *ret = config;
    return 0;
}

static void start_reload(struct serve *s);

static void reload_work(uv_work_t *work)
{
    struct reload_job *job = work->data;
    job->result = load(job->serve->config_path, &job->config, &job->report);
}

static void reload_done(uv_work_t *work, int status)
{
    struct reload_job *job = work->data;
    struct serve *s = job->serve;
    s->reloading = false;
    if (status < 0 || s->stopping) {
        config_free(job->config);
        goto out;
    }
    log_problems(&job->report);
    if (job->result < 0) {
        const char *first =
            job->report.count > 0 ? job->report.items[0].message : strerror(-job->result);
        char text[512];
        snprintf(text, sizeof(text), "%zu errors, the first: %s", job->report.errors, first);
        gateway_set_config_error(s->gateway, text);
        log_warning("config", "reload refused, the running configuration stays: %s", text);
        goto out;
    }
    const char *warning;
    int log_level = job->config->log_level;
    int r = gateway_reload(s->gateway, job->config, &warning);
    if (r < 0) {
        gateway_set_config_error(s->gateway, strerror(-r));
        log_warning("config", "reload refused, the running configuration stays: %s", strerror(-r));
        goto out;
    }
    log_set_level((enum log_level)log_level);
    if (warning)
        log_warning("config", "%s", warning);
    log_info("config", "reloaded %s", s->config_path);
out:
    config_report_free(&job->report);
    free(job);
    if (s->reload_again && !s->stopping) {
        s->reload_again = false;
        start_reload(s);
    }
}

static void start_reload(struct serve *s)
{
    if (s->reloading) {
        s->reload_again = true;
        return;
    }
    struct reload_job *job = calloc(1, sizeof(*job));
    if (!job) {
        log_warning("config", "reload refused: out of memory");
        return;
    }
    job->serve = s;
    job->work.data = job;
    config_report_init(&job->report);
    s->reloading = true;
    if (uv_queue_work(&s->loop, &job->work, reload_work, reload_done) < 0) {
        s->reloading = false;
        config_report_free(&job->report);
        free(job);
    }
}

static void on_stopped(void *ctx)
{
    struct serve *s = ctx;
    log_info("gateway", "stopped");
    for (size_t i = 0; i < sizeof(s->signals) / sizeof(s->signals[0]); i++)
        uv_close((uv_handle_t *)&s->signals[i], NULL);
}

static void on_signal(uv_signal_t *handle, int number)
{
    struct serve *s = handle->data;
    if (number == SIGHUP) {
        if (!s->stopping)
            start_reload(s);
        return;
    }
    log_info("gateway", s->stopping ? "stopping at once" : "stopping: running requests may end");
    s->stopping = true;
    gateway_stop(s->gateway, on_stopped, s);
}

static void listen_signals(struct serve *s)
{
    static const int numbers[] = {SIGHUP, SIGTERM, SIGINT};
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        uv_signal_init(&s->loop, &s->signals[i]);
        s->signals[i].data = s;
        uv_signal_start(&s->signals[i], on_signal, numbers[i]);
    }
    signal(SIGPIPE, SIG_IGN);
}

/* As many descriptors as we may have: two for every stream. */
static void raise_descriptor_limit(void)
{
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < files.rlim_max) {
        files.rlim_cur = files.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &files);
    }
}

static int explain_start(const char *address, int error, const char *what)
{
    if (strcmp(what, "listen") != 0)
        log_error("gateway", "cannot start (%s): %s", what, strerror(-error));
    else if (error == -EADDRINUSE)
        log_error("gateway", "%s is taken by another program; stop it or choose another `listen`",
                  address);
    else
        log_error("gateway", "cannot listen on %s: %s", address, strerror(-error));
    return CLI_EXIT_ENVIRONMENT;
}

static int run(struct serve *s, struct config *config)
{
    static const struct gateway_options options = {
        .version = FAILSOFT_VERSION,
        .on_local = admin_answer,
    };
    /* For messages: the gateway takes the configuration over. */
    char host[128];
    char address[144];
    snprintf(host, sizeof(host), "%s", config->host);
    snprintf(address, sizeof(address), "%s:%u", host, config->port);
    const char *what = "";
    int status = CLI_EXIT_GOOD;
    int r = uv_loop_init(&s->loop);
    if (r < 0) {
        config_free(config);
        return CLI_EXIT_ENVIRONMENT;
    }
    log_set_level((enum log_level)config->log_level);
    r = gateway_start(&s->loop, config, &options, &s->gateway, &what);
    if (r < 0) {
        status = explain_start(address, r, what);
    } else {
        listen_signals(s);
        log_info("gateway", "listening on http://%s:%u", host, gateway_port(s->gateway));
    }
    uv_run(&s->loop, UV_RUN_DEFAULT);
    uv_loop_close(&s->loop);
    return status;
}

int cli_serve_main(int argc, char **argv)
{
    const char *named = NULL;
    const struct cli_flag flags[] = {
        {"--config", CLI_FLAG_VALUE, NULL, &named},
        {NULL, CLI_FLAG_SWITCH, NULL, NULL},
    };
    const struct cli_arguments arguments = {
        .command = "serve", .help = help, .flags = flags, .operand = NULL};
    int status;
    if (cli_read_arguments(&arguments, argc, argv, &status) < 0)
        return status;
    struct serve *s = calloc(1, sizeof(*s));
    if (!s)
        return CLI_EXIT_ENVIRONMENT;
    if (cli_find_config(named, s->config_path, sizeof(s->config_path)) < 0) {
        free(s);
        return CLI_EXIT_ENVIRONMENT;
    }
    struct config_report report;
    struct config *config = NULL;
    config_report_init(&report);
    int r = load(s->config_path, &config, &report);
    log_problems(&report);
    status = report.unreadable ? CLI_EXIT_ENVIRONMENT : CLI_EXIT_FINDING;
    config_report_free(&report);
    if (r == 0) {
        raise_descriptor_limit();
        status = run(s, config);
    }
    free(s);
    return status;
}
