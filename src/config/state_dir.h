/*
 * Where failsoft keeps what must outlive a restart: one folder, chosen once and the same for every
 * command. Looks at the configuration and the environment only; makes and opens nothing.
 */
#ifndef FAILSOFT_CONFIG_STATE_DIR_H
#define FAILSOFT_CONFIG_STATE_DIR_H

#include "config/config.h"

#include <stddef.h>

/* Files in the folder. */
#define STATE_DIR_LEARNED "learned.txt" /* see policy/learning.h */

/*
 * The folder: `state_dir`, else the first of $STATE_DIRECTORY (systemd.exec(5): a list with colons),
 * else $XDG_STATE_HOME/failsoft, else ~/.local/state/failsoft. Relative values in the environment are
 * ignored, as the XDG base directory specification wants it. out: size bytes, the caller's.
 * 0; -ENOENT: none of them is there, nothing can be kept; -ENAMETOOLONG.
 */
int state_dir_find(const struct config *config, char *out, size_t size);

/* The path of a file in it, e.g. STATE_DIR_LEARNED. Errors as state_dir_find. */
int state_dir_path(const struct config *config, const char *name, char *out, size_t size);

#endif
