/*
 * Small files in the folder of what outlives a restart (state_dir.h): read whole, replaced whole.
 *
 *   write:  PATH.new-PID ─ write ─ fsync ─► rename over PATH ─► fsync of the folder
 *
 * so that a reader, and a crash at any moment, meet the old file or the new one. Blocks on the disk:
 * for threads of the pool, or for start-up. The folder and the file are for their owner only.
 */
#ifndef FAILSOFT_CONFIG_STATE_FILE_H
#define FAILSOFT_CONFIG_STATE_FILE_H

#include "base/buf.h"
#include "base/span.h"

#include <stdbool.h>

/*
 * Appends the file to `out`, at most what its cap leaves; *ret_cut: there was more. Only regular files
 * are read. 0; -ENOENT; -EINVAL: no regular file; errors of open(2) and read(2); -ENOMEM.
 */
int state_file_read(const char *path, struct buf *out, bool *ret_cut);

/*
 * Replaces the file; makes the folder and those above it (mode 0700) when missing. 0, or errors of
 * mkdir(2), open(2), write(2), fsync(2), rename(2); the file is then as it was.
 */
int state_file_write(const char *path, struct span text);

/*
 * Keeps what the file holds now as PATH.damaged as well, for a person to look at; an earlier one is
 * left alone (-EEXIST). 0, or errors of link(2).
 */
int state_file_keep_aside(const char *path);

#endif
