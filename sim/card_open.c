/*
 * Making, opening and removing the file behind a card.
 *
 * A card is built under a temporary name and linked into place, so nobody ever opens half of one
 * and of two creators exactly one wins. A file of another version, another user, or from before
 * the last reboot (its clock and pids mean nothing any more) is refused in words.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sim/card_shared.h"

#define SIM_PREFIX "failsoft-sim-"

static void why_say(char *why, size_t why_size, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void why_say(char *why, size_t why_size, const char *format, ...)
{
    va_list arguments;

    if (why == NULL || why_size == 0)
        return;
    va_start(arguments, format);
    vsnprintf(why, why_size, format, arguments);
    va_end(arguments);
}

bool sim_card_name_valid(const char *name)
{
    static const char allowed[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_";
    size_t length = strlen(name);

    return length > 0 && length < SIM_NAME_MAX && strspn(name, allowed) == length;
}

static const char *card_dir(void)
{
    const char *dir = getenv(SIM_DIR_ENV);

    return dir != NULL && dir[0] != '\0' ? dir : "/dev/shm";
}

static int card_path(const char *name, char *out, size_t out_size, char *why, size_t why_size)
{
    int n;

    if (!sim_card_name_valid(name)) {
        why_say(why, why_size,
                "\"%.40s\" is no card name: 1 to %d letters, digits, '-' or '_' are allowed", name,
                SIM_NAME_MAX - 1);
        return -EINVAL;
    }
    n = snprintf(out, out_size, "%s/" SIM_PREFIX "%s-%u", card_dir(), name, (unsigned)geteuid());
    if (n < 0 || (size_t)n >= out_size) {
        why_say(why, why_size, "the path in %s is too long", SIM_DIR_ENV);
        return -ENAMETOOLONG;
    }
    return 0;
}

static void boot_id_read(char *out, size_t out_size)
{
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t n = 0;

    memset(out, 0, out_size);
    if (fd < 0)
        return;
    n = read(fd, out, out_size - 1);
    close(fd);
    if (n > 0 && out[n - 1] == '\n')
        out[n - 1] = '\0';
}

void sim_settings_init(struct sim_settings *settings, uint64_t capacity_bytes)
{
    memset(settings, 0, sizeof *settings);
    settings->capacity_bytes = capacity_bytes;
    settings->release_delay_ms = 500;
    settings->slowdown_pct = 100;
    settings->spill_slowdown_pct = 800;
}

static int shared_init(struct sim_shared *shared, const char *name,
                       const struct sim_settings *settings)
{
    struct sim_card card = {.shared = shared};
    int r = sim_lock_init(shared);

    if (r < 0)
        return r;
    shared->version = SIM_VERSION;
    shared->size_bytes = (uint32_t)sizeof *shared;
    snprintf(shared->name, sizeof shared->name, "%s", name);
    boot_id_read(shared->boot_id, sizeof shared->boot_id);
    shared->generation = 1;
    shared->next_id = 1;
    sim_settings_init(&shared->settings, 0);
    r = sim_card_set(&card, settings, SIM_SET_ALL);
    if (r < 0)
        return r;
    shared->event_seq = 0;
    sim_event_add(shared, SIM_EVENT_CREATED, (int32_t)getpid(), settings->capacity_bytes);
    atomic_store(&shared->magic, SIM_MAGIC);
    return 0;
}

static int file_fill(int fd, const char *name, const struct sim_settings *settings)
{
    struct sim_shared *shared;
    int r;

    /* fallocate, not ftruncate: a full /dev/shm is an error here and not a SIGBUS later. */
    r = posix_fallocate(fd, 0, (off_t)sizeof *shared);
    if (r != 0)
        return -r;
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (shared == MAP_FAILED)
        return -errno;
    r = shared_init(shared, name, settings);
    munmap(shared, sizeof *shared);
    return r;
}

int sim_card_create(const char *name, const struct sim_settings *settings, char *why,
                    size_t why_size)
{
    char path[512];
    char temporary[560];
    int fd;
    int r = card_path(name, path, sizeof path, why, why_size);

    if (r < 0)
        return r;
    /* The dot keeps it out of sim_card_list(). mkostemp makes it 0600. */
    snprintf(temporary, sizeof temporary, "%s/.failsoft-sim-XXXXXX", card_dir());
    fd = mkostemp(temporary, O_CLOEXEC);
    if (fd < 0) {
        r = -errno;
        why_say(why, why_size, "cannot make a file in %s: %s", card_dir(), strerror(-r));
        return r;
    }
    r = file_fill(fd, name, settings);
    close(fd);
    if (r == -EINVAL)
        why_say(why, why_size, "a setting is out of bounds");
    else if (r < 0)
        why_say(why, why_size, "cannot lay out the card in %s: %s", card_dir(), strerror(-r));
    else if (link(temporary, path) != 0) {
        r = -errno;
        why_say(why, why_size, r == -EEXIST ? "card %s exists already" : "cannot create card %s",
                name);
    }
    unlink(temporary);
    return r;
}

static int header_check(const struct sim_shared *shared, const char *name, char *why,
                        size_t why_size)
{
    char boot_id[sizeof shared->boot_id];

    if (atomic_load(&shared->magic) != SIM_MAGIC) {
        why_say(why, why_size, "the file of card %s is not a simulated card", name);
        return -EPROTO;
    }
    if (shared->version != SIM_VERSION || shared->size_bytes != sizeof *shared) {
        why_say(why, why_size,
                "card %s was made by another version of failsoft (layout %u of %u bytes, this is "
                "%u of %zu): destroy it and create it again",
                name, shared->version, shared->size_bytes, SIM_VERSION, sizeof *shared);
        return -EPROTO;
    }
    boot_id_read(boot_id, sizeof boot_id);
    if (strncmp(boot_id, shared->boot_id, sizeof boot_id) != 0) {
        why_say(why, why_size,
                "card %s was made before the last reboot: destroy it and create it again", name);
        return -EPROTO;
    }
    return 0;
}

static int file_map(int fd, const char *name, struct sim_shared **ret_shared, char *why,
                    size_t why_size)
{
    struct sim_shared *shared;
    struct stat info;
    int r;

    if (fstat(fd, &info) != 0)
        return -errno;
    if (info.st_uid != geteuid() || !S_ISREG(info.st_mode)) {
        why_say(why, why_size, "card %s belongs to another user", name);
        return -EACCES;
    }
    if (info.st_size < (off_t)offsetof(struct sim_shared, name)) {
        why_say(why, why_size, "the file of card %s is not a simulated card", name);
        return -EPROTO;
    }
    /* A shorter file of another version: its first page is all that is read of it. */
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (shared == MAP_FAILED)
        return -errno;
    r = header_check(shared, name, why, why_size);
    if (r == 0 && info.st_size < (off_t)sizeof *shared) {
        why_say(why, why_size, "the file of card %s is cut short", name);
        r = -EPROTO;
    }
    if (r < 0) {
        munmap(shared, sizeof *shared);
        return r;
    }
    *ret_shared = shared;
    return 0;
}

static int shared_open(const char *name, struct sim_shared **ret_shared, char *why, size_t why_size)
{
    char path[512];
    int fd;
    int r = card_path(name, path, sizeof path, why, why_size);

    if (r < 0)
        return r;
    fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) {
        r = -errno;
        if (r == -ENOENT)
            why_say(why, why_size,
                    "there is no card %s; make one with: failsoft sim create %s --capacity 2GiB",
                    name, name);
        else
            why_say(why, why_size, "cannot open card %s: %s", name, strerror(-r));
        return r;
    }
    r = file_map(fd, name, ret_shared, why, why_size);
    close(fd);
    return r;
}

static int card_join(struct sim_card *card, enum sim_role role)
{
    uint64_t context_bytes;
    uint64_t id = 0;
    int r = sim_lock(card);

    if (r < 0)
        return r;
    card->generation = card->shared->generation;
    if (role != SIM_ROLE_OBSERVER)
        r = sim_attach(card, role);
    context_bytes = role == SIM_ROLE_ENGINE ? card->shared->settings.context_bytes : 0;
    /* On a lost card an engine starts all the same, and fails when it allocates. */
    if (r == 0 && context_bytes != 0 && !card->shared->faults.lost)
        r = sim_alloc_locked(card, context_bytes, &id);
    if (r < 0)
        sim_detach(card);
    sim_unlock(card, role != SIM_ROLE_OBSERVER);
    return r;
}

int sim_card_open(const char *name, enum sim_role role, struct sim_card **ret_card, char *why,
                  size_t why_size)
{
    struct sim_card *card = calloc(1, sizeof *card);
    int r;

    if (card == NULL) {
        why_say(why, why_size, "out of host memory");
        return -ENOMEM;
    }
    r = shared_open(name, &card->shared, why, why_size);
    if (r < 0) {
        free(card);
        return r;
    }
    r = card_join(card, role);
    if (r < 0) {
        why_say(why, why_size,
                r == -ETIMEDOUT ? "card %s is locked by a process that does not run (stopped?)"
                : r == -EUSERS  ? "card %s has no room for another process"
                : r == -ENOMEM  ? "card %s has no room for the runtime context"
                                : "cannot attach to card %s",
                name);
        munmap(card->shared, sizeof *card->shared);
        free(card);
        return r;
    }
    *ret_card = card;
    return 0;
}

void sim_card_leave(struct sim_card *card)
{
    if (card->attachment == 0 || sim_lock(card) < 0)
        return;
    sim_detach(card);
    sim_unlock(card, true);
}

void sim_card_close(struct sim_card *card)
{
    if (card == NULL)
        return;
    sim_card_leave(card);
    munmap(card->shared, sizeof *card->shared);
    free(card);
}

static size_t attachments_count(const struct sim_shared *shared)
{
    size_t count = 0;

    for (size_t i = 0; i < SIM_PROCESSES_MAX; i++)
        count += shared->attachments[i].state == SIM_SLOT_HELD;
    return count;
}

/* A card of a version that cannot be opened must still be removable: only the name counts. */
static int path_remove(const char *name, char *why, size_t why_size)
{
    char path[512];
    int r = card_path(name, path, sizeof path, why, why_size);

    if (r < 0)
        return r;
    if (unlink(path) != 0) {
        r = -errno;
        why_say(why, why_size, "cannot remove card %s: %s", name, strerror(-r));
    }
    return r;
}

int sim_card_destroy(const char *name, bool force, char *why, size_t why_size)
{
    struct sim_card card = {0};
    size_t attached;
    int r = shared_open(name, &card.shared, why, why_size);

    if (r == -EPROTO)
        return path_remove(name, why, why_size);
    if (r < 0)
        return r;
    r = sim_lock(&card);
    if (r < 0 && !force) {
        why_say(why, why_size, "card %s is locked by a process that does not run (stopped?)", name);
        goto out;
    }
    attached = r == 0 ? attachments_count(card.shared) : 0;
    if (attached != 0 && !force) {
        why_say(why, why_size,
                "card %s is in use by %zu process%s; --force removes it all the same", name,
                attached, attached == 1 ? "" : "es");
        sim_unlock(&card, false);
        r = -EBUSY;
        goto out;
    }
    atomic_store(&card.shared->destroyed, 1);
    if (r == 0)
        sim_unlock(&card, true);
    r = path_remove(name, why, why_size);
out:
    munmap(card.shared, sizeof *card.shared);
    return r;
}

static int name_compare(const void *a, const void *b)
{
    return strcmp(a, b);
}

int sim_card_list(char (*ret_names)[SIM_NAME_MAX], size_t max)
{
    char suffix[24];
    size_t count = 0;
    struct dirent *entry;
    DIR *dir = opendir(card_dir());

    if (dir == NULL)
        return -errno;
    snprintf(suffix, sizeof suffix, "-%u", (unsigned)geteuid());
    while ((entry = readdir(dir)) != NULL) {
        size_t length = strlen(entry->d_name);
        size_t prefix = strlen(SIM_PREFIX);
        size_t tail = strlen(suffix);

        if (length <= prefix + tail || length - prefix - tail >= SIM_NAME_MAX ||
            strncmp(entry->d_name, SIM_PREFIX, prefix) != 0 ||
            strcmp(entry->d_name + length - tail, suffix) != 0)
            continue;
        if (count < max) {
            memset(ret_names[count], 0, SIM_NAME_MAX);
            memcpy(ret_names[count], entry->d_name + prefix, length - prefix - tail);
        }
        count++;
    }
    closedir(dir);
    qsort(ret_names, count < max ? count : max, SIM_NAME_MAX, name_compare);
    return (int)count;
}
