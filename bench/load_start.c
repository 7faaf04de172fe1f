/*
 * How long a program takes from its start to its first right answer, measured without a shell or an
 * interpreter in between.
 */
#include "load.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define TRY_EVERY_NS 200000

static bool answers(const struct load_options *options)
{
    struct load l = {.options = *options};
    FILE *nowhere = fopen("/dev/null", "w");

    if (!nowhere) {
        net_die("/dev/null");
    }
    l.options.connections = l.options.requests = 1;
    l.options.timeout_s = 1;
    load_run(&l, nowhere);
    fclose(nowhere);
    return l.ok == 1;
}

static pid_t program_start(char **argv)
{
    pid_t pid = fork();

    if (pid < 0) {
        net_die("fork");
    }
    if (pid == 0) {
        signal(SIGPIPE, SIG_DFL);
        execvp(argv[0], argv);
        net_die(argv[0]);
    }
    return pid;
}

void load_start_time(const struct load_options *options, char **argv, FILE *out)
{
    struct timespec pause = {.tv_nsec = TRY_EVERY_NS};
    uint64_t begin_ns = net_now_ns();
    uint64_t deadline_ns = begin_ns + (uint64_t)options->timeout_s * 1000000000u;
    pid_t pid = program_start(argv);
    unsigned tries = 0;
    int status = 0;
    bool ok;

    while (!(ok = answers(options)) && net_now_ns() < deadline_ns) {
        tries++;
        nanosleep(&pause, NULL);
    }
    uint64_t took_ns = net_now_ns() - begin_ns;
    kill(pid, SIGTERM);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    uint64_t end_ns = net_now_ns();
    if (!ok) {
        fprintf(stderr, "bench: %s gave no right answer in %u s\n", argv[0], options->timeout_s);
        exit(3);
    }
    fprintf(out, "{\"first_answer_ms\":%.3f,\"tries\":%u,\"stop_ms\":%.3f,\"status\":%d}\n",
            (double)took_ns / 1e6, tries, (double)(end_ns - begin_ns - took_ns) / 1e6,
            WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status));
}
