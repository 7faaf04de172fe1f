/*
 * `failsoft sim hog` and `hold`: processes that hold memory of a card.
 *
 * A hog is other GPU work: it takes a share of what is free now, or cuts it into pieces, and keeps
 * it until told to stop. Hold wraps a program that is not ggml and stands in for the memory
 * that this program would take; what the program does is not simulated, so a stall does not reach
 * it, but when the card is lost it dies as a driver's client would.
 *
 * Both are single-threaded: signals come by signalfd, the card is looked at between polls.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/units.h"
#include "cli/sim_parts.h"

#define LOOK_MS 200
/* Leaves room in the block table for those the hog is to disturb. */
#define FRAGMENTS_MAX (SIM_BLOCKS_MAX - 128)

/*
 * Of a program that was killed the memory comes back late, as that of an engine: its card is not
 * closed but left to be found without an owner.
 */
static struct sim_card *volatile left_behind;

static int signals_open(sigset_t *ret_old)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    sigaddset(&set, SIGCHLD);
    if (sigprocmask(SIG_BLOCK, &set, ret_old) != 0)
        return -errno;
    return signalfd(-1, &set, SFD_CLOEXEC);
}

/* End of input ends a hog that a program started with a pipe; /dev/null and a terminal do not. */
static int stdin_watched(void)
{
    struct stat info;

    if (fstat(STDIN_FILENO, &info) == 0 && (S_ISFIFO(info.st_mode) || S_ISSOCK(info.st_mode)))
        return STDIN_FILENO;
    return -1;
}

static uint64_t monotonic_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000u + (uint64_t)now.tv_nsec / 1000000u;
}

static bool input_ended(int fd)
{
    char buffer[256];

    return read(fd, buffer, sizeof buffer) == 0;
}

static int hog_keep(struct sim_card *card, const char *name, int signals, uint64_t for_ms)
{
    struct pollfd fds[2] = {
        {.fd = signals, .events = POLLIN},
        {.fd = stdin_watched(), .events = POLLIN},
    };
    uint64_t start_ms = monotonic_ms();

    for (;;) {
        uint64_t spent_ms = monotonic_ms() - start_ms;
        uint64_t left_ms = for_ms > spent_ms ? for_ms - spent_ms : 0;

        if (for_ms != 0 && left_ms == 0)
            return SIM_EXIT_GOOD;
        if (poll(fds, 2, for_ms != 0 && left_ms < LOOK_MS ? (int)left_ms : LOOK_MS) < 0)
            return sim_complain(SIM_EXIT_ENVIRONMENT, "hog: %s", strerror(errno));
        if (fds[0].revents != 0)
            return SIM_EXIT_GOOD;
        if (fds[1].revents != 0 && input_ended(fds[1].fd))
            return SIM_EXIT_GOOD;
        if (sim_card_check(card, NULL) == -ENODEV)
            return sim_complain(SIM_EXIT_FINDING, "hog: card %s was lost or reset under it", name);
    }
}

/* As much as asked for, in as few pieces as the free space allows. *ret_bytes: what was got. */
static int hog_take(struct sim_card *card, uint64_t wanted, uint64_t *ret_bytes)
{
    struct sim_snapshot *snapshot = malloc(sizeof *snapshot);
    uint64_t got = 0;
    int r = snapshot == NULL ? -ENOMEM : 0;

    while (r == 0 && got < wanted) {
        uint64_t piece = wanted - got;
        uint64_t id = 0;

        r = sim_card_snapshot(card, snapshot);
        /* A spilling card gives what is not there: then in one piece. */
        if (r == 0 && !snapshot->settings.spill && piece > snapshot->largest_free_bytes)
            piece = snapshot->largest_free_bytes;
        if (r == 0)
            r = piece == 0 ? -ENOMEM : sim_card_alloc(card, piece, &id);
        if (r == 0)
            got += piece;
    }
    free(snapshot);
    *ret_bytes = got;
    return r;
}

/* Fills the free space with pieces and gives every other one back. */
static int hog_fragment(struct sim_card *card, uint64_t piece, uint64_t *ret_bytes)
{
    uint64_t *ids = calloc(FRAGMENTS_MAX, sizeof *ids);
    size_t count = 0;
    int r = ids == NULL ? -ENOMEM : 0;

    while (r == 0 && count < FRAGMENTS_MAX) {
        r = sim_card_alloc(card, piece, &ids[count]);
        if (r == 0)
            count++;
    }
    for (size_t i = 0; i < count; i += 2)
        sim_card_free(card, ids[i]);
    free(ids);
    *ret_bytes = count / 2 * piece;
    if (r == 0)
        return -E2BIG;
    return r == -ENOMEM && count > 1 ? 0 : r;
}

static int hog_wanted(struct sim_card *card, const struct sim_option *options, uint64_t *ret_bytes)
{
    uint64_t total = 0;
    uint64_t available = 0;
    uint32_t hundredths = 0;
    int r;

    if (options[0].seen)
        return sim_value_bytes("--bytes", options[0].value, ret_bytes);
    if (units_parse_percent(options[1].value, &hundredths) < 0)
        return sim_complain(SIM_EXIT_USAGE, "--share: \"%s\" is no share; write it as 80%%",
                            options[1].value);
    r = sim_card_memory(card, &total, &available);
    if (r < 0)
        return sim_complain_card(sim_card_name(card), r);
    *ret_bytes = available / 10000 * hundredths / SIM_PAGE_BYTES * SIM_PAGE_BYTES;
    return 0;
}

static int hog_start(struct sim_card *card, const struct sim_option *options, uint64_t *ret_bytes)
{
    uint64_t wanted = 0;
    char a[24];
    char b[24];
    int r;

    if (options[2].seen) {
        r = sim_value_bytes("--fragment", options[2].value, &wanted);
        if (r != 0)
            return r;
        r = wanted == 0 ? -EINVAL : hog_fragment(card, wanted, ret_bytes);
        if (r == -E2BIG)
            return sim_complain(SIM_EXIT_USAGE, "--fragment: more than %d pieces; take larger ones",
                                FRAGMENTS_MAX);
        return r < 0 ? sim_complain_card(sim_card_name(card), r) : 0;
    }
    r = hog_wanted(card, options, &wanted);
    if (r != 0)
        return r;
    r = hog_take(card, wanted, ret_bytes);
    if (r == -ENOMEM)
        return sim_complain(SIM_EXIT_FINDING, "hog: %s wanted, only %s could be had",
                            units_format_bytes(wanted, a, sizeof a),
                            units_format_bytes(*ret_bytes, b, sizeof b));
    return r < 0 ? sim_complain_card(sim_card_name(card), r) : 0;
}

int sim_hog(int argc, char **argv)
{
    struct sim_option options[] = {
        {.name = "--bytes", .takes_value = true},
        {.name = "--share", .takes_value = true},
        {.name = "--fragment", .takes_value = true},
        {.name = "--for", .takes_value = true},
        {0},
    };
    struct sim_card *card = NULL;
    const char *name = NULL;
    uint64_t bytes = 0;
    uint64_t for_ms = 0;
    sigset_t old;
    int signals;
    int r = sim_args_read(argc, argv, options, &name, NULL);

    if (r != 0)
        return r;
    if (options[0].seen + options[1].seen + options[2].seen != 1)
        return sim_complain(SIM_EXIT_USAGE,
                            "hog: NAME and one of --bytes SIZE, --share 80%%, --fragment SIZE");
    if (options[3].seen)
        r = sim_value_duration("--for", options[3].value, &for_ms);
    if (r == 0)
        r = sim_open(name, SIM_ROLE_HOG, &card);
    if (r != 0)
        return r;
    signals = signals_open(&old);
    r = signals < 0 ? sim_complain(SIM_EXIT_ENVIRONMENT, "hog: %s", strerror(-signals)) : 0;
    if (r == 0)
        r = hog_start(card, options, &bytes);
    if (r == 0) {
        printf("READY %" PRIu64 " bytes held on card %s (simulated)\n", bytes, name);
        fflush(stdout);
        r = hog_keep(card, name, signals, for_ms);
    }
    if (signals >= 0)
        close(signals);
    sim_card_close(card);
    return r;
}

static void child_exec(char **command, const sigset_t *mask, pid_t parent)
{
    sigprocmask(SIG_SETMASK, mask, NULL);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(127);
    execvp(command[0], command);
    sim_complain(SIM_EXIT_ENVIRONMENT, "hold: cannot run %s: %s", command[0], strerror(errno));
    _exit(127);
}

/* The program's exit status, as a shell would give it; -1 while it runs. */
static int child_status(pid_t child, bool *ret_killed)
{
    int status = 0;

    if (waitpid(child, &status, WNOHANG) != child)
        return -1;
    *ret_killed = WIFSIGNALED(status);
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

static void child_lose(struct sim_card *card, pid_t child, const struct sim_loss *loss)
{
    char text[512];

    sim_card_loss_text(sim_card_name(card), loss->message, text, sizeof text);
    fputs(text, stderr);
    kill(child, SIGKILL);
}

static int child_watch(struct sim_card *card, pid_t child, int signals, bool *ret_killed)
{
    struct pollfd fd = {.fd = signals, .events = POLLIN};
    struct sim_loss loss = {0};
    bool lost = false;

    for (;;) {
        struct signalfd_siginfo info;
        int status = child_status(child, ret_killed);

        if (status >= 0)
            return lost ? 128 + SIGABRT : status;
        if (poll(&fd, 1, LOOK_MS) > 0 && read(signals, &info, sizeof info) == sizeof info &&
            info.ssi_signo != SIGCHLD)
            kill(child, (int)info.ssi_signo);
        if (!lost && sim_card_check(card, &loss) == -ENODEV) {
            child_lose(card, child, &loss);
            lost = true;
        }
    }
}

static int hold_run(struct sim_card *card, char **command, bool *ret_killed)
{
    sigset_t old;
    int signals = signals_open(&old);
    pid_t parent = getpid();
    pid_t child;
    int status;

    if (signals < 0)
        return sim_complain(SIM_EXIT_ENVIRONMENT, "hold: %s", strerror(-signals));
    child = fork();
    if (child == 0)
        child_exec(command, &old, parent);
    if (child < 0)
        status = sim_complain(SIM_EXIT_ENVIRONMENT, "hold: %s", strerror(errno));
    else
        status = child_watch(card, child, signals, ret_killed);
    close(signals);
    return status;
}

int sim_hold(int argc, char **argv)
{
    struct sim_option options[] = {{.name = "--bytes", .takes_value = true}, {0}};
    struct sim_card *card = NULL;
    const char *name = NULL;
    uint64_t bytes = 0;
    uint64_t id = 0;
    bool killed = false;
    int rest = argc;
    int r = sim_args_read(argc, argv, options, &name, &rest);

    if (r != 0)
        return r;
    if (!options[0].seen || rest >= argc)
        return sim_complain(SIM_EXIT_USAGE, "hold: NAME --bytes SIZE -- COMMAND ...");
    r = sim_value_bytes("--bytes", options[0].value, &bytes);
    if (r == 0)
        r = sim_open(name, SIM_ROLE_HOLD, &card);
    if (r != 0)
        return r;
    r = sim_card_alloc(card, bytes, &id);
    if (r < 0) {
        r = r == -ENOMEM || r == -EOVERFLOW
                ? sim_complain(SIM_EXIT_FINDING,
                               "hold: out of memory: %s does not fit on card %s "
                               "(simulated)",
                               options[0].value, name)
                : sim_complain_card(name, r);
        sim_card_close(card);
        return r;
    }
    r = hold_run(card, argv + rest, &killed);
    if (killed)
        left_behind = card;
    else
        sim_card_close(card);
    return r;
}
