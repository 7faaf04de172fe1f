/* The folder of what outlives a restart. See state_dir.h. */
#include "config/state_dir.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* An absolute path in the environment, NULL: none. */
static const char *absolute(const char *name)
{
    const char *value = getenv(name);

    return value && value[0] == '/' ? value : NULL;
}

static int finish(int written, size_t size)
{
    return written >= 0 && (size_t)written < size ? 0 : -ENAMETOOLONG;
}

int state_dir_find(const struct config *config, char *out, size_t size)
{
    const char *list = absolute("STATE_DIRECTORY");
    const char *xdg = absolute("XDG_STATE_HOME");
    const char *home = absolute("HOME");

    if (config->state_dir)
        return finish(snprintf(out, size, "%s", config->state_dir), size);
    if (list)
        return finish(snprintf(out, size, "%.*s", (int)strcspn(list, ":"), list), size);
    if (xdg)
        return finish(snprintf(out, size, "%s/failsoft", xdg), size);
    if (home)
        return finish(snprintf(out, size, "%s/.local/state/failsoft", home), size);
    return -ENOENT;
}

int state_dir_path(const struct config *config, const char *name, char *out, size_t size)
{
    int r = state_dir_find(config, out, size);

    if (r < 0)
        return r;
    size_t used = strlen(out);
    return finish(snprintf(out + used, size - used, "/%s", name), size - used);
}
