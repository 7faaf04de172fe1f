/*
 * Memory of the simulated accelerator, and where its plug-in lies. Takes the card's lock, which a
 * stopped engine may hold for seconds: never called on the loop thread.
 */
#include "device/sim_card.h"

#include "device/memory.h"
#include "sim/card.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int sim_held(const char *device, int pid, uint64_t *ret_bytes)
{
    struct sim_card *card = NULL;
    struct sim_snapshot *snapshot = NULL;
    uint64_t bytes;
    int rc;

    rc = sim_card_open(device ? device : SIM_CARD_DEFAULT, SIM_ROLE_OBSERVER, &card, NULL, 0);
    if (rc < 0)
        return rc;
    snapshot = malloc(sizeof(*snapshot));
    rc = snapshot == NULL ? -ENOMEM : sim_card_snapshot(card, snapshot);
    if (rc < 0)
        goto out;
    bytes = snapshot->releasing_bytes;
    for (size_t i = 0; i < snapshot->n_processes; i++) {
        if (snapshot->processes[i].pid == pid)
            bytes += snapshot->processes[i].used_bytes;
    }
    *ret_bytes = bytes;
out:
    free(snapshot);
    sim_card_close(card);
    return rc;
}

const struct device_memory_ops device_memory_sim = {"sim", sim_held};

static int take_if_there(const char *folder, const char *rest, char *out, size_t out_size)
{
    char path[4096];
    int n = snprintf(path, sizeof(path), "%s/%slibggml-failsoft-sim.so", folder, rest);

    if (n < 0 || (size_t)n >= sizeof(path) || access(path, R_OK) < 0)
        return -ENOENT;
    if ((size_t)n >= out_size)
        return -ENAMETOOLONG;
    memcpy(out, path, (size_t)n + 1);
    return 0;
}

int sim_plugin_find(char *out, size_t out_size)
{
    /* Beside the program, in a build tree, and installed: on the way up from the program's folder. */
    static const char *const places[] = {"", "sim/", "lib/failsoft/"};
    const char *given = getenv("FAILSOFT_SIM_PLUGIN");
    char self[4096];
    char *slash;
    ssize_t n;

    if (given != NULL && given[0] != '\0') {
        if (access(given, R_OK) < 0)
            return -ENOENT;
        if (strlen(given) >= out_size)
            return -ENAMETOOLONG;
        memcpy(out, given, strlen(given) + 1);
        return 0;
    }
    n = readlink("/proc/self/exe", self, sizeof(self) - 1);
    if (n <= 0)
        return -ENOENT;
    self[n] = '\0';
    for (unsigned level = 0; level < 3; level++) {
        slash = strrchr(self, '/');
        if (slash == NULL)
            return -ENOENT;
        *slash = '\0';
        for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
            int rc = take_if_there(self, places[i], out, out_size);

            if (rc != -ENOENT)
                return rc;
        }
    }
    return -ENOENT;
}
