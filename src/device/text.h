/*
 * Small files of /proc, /sys and the cgroup tree, read bounded and strictly: a number is the whole
 * text or it is an error, and a missing file is not a zero.
 */
#ifndef FAILSOFT_DEVICE_TEXT_H
#define FAILSOFT_DEVICE_TEXT_H

#include "base/span.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * The file's bytes into out, closed by a NUL; `*ret` borrows out. 0; -ENOENT and the like from
 * open(2) or read(2); -EFBIG when it does not fit; -ENAMETOOLONG.
 */
int device_text_read(const char *root, const char *path, char *out, size_t out_size,
                     struct span *ret);

/* Decimal digits and nothing else (spaces and one line end around them aside). 0, -EINVAL, -ERANGE. */
int device_text_parse_u64(struct span text, uint64_t *ret);

/* A file that is one number. Errors of both. */
int device_text_read_u64(const char *root, const char *path, uint64_t *ret);

/*
 * Bytes from "123", "123 kB", "123 KiB", "123 MiB", "123 GiB" (/proc/meminfo; DRM fdinfo, kernel
 * documentation gpu/drm-usage-stats). 0, -EINVAL, -ERANGE.
 */
int device_text_parse_size(struct span text, uint64_t *ret_bytes);

/* The next line without its end; false when nothing is left. */
bool device_text_line(struct span *rest, struct span *ret_line);

/* The value of the first line "KEY<separator> value", trimmed; false when there is none. */
bool device_text_field(struct span text, const char *key, char separator, struct span *ret_value);

/* As device_text_field, and a number. 0, -ENOENT (no such line), -EINVAL, -ERANGE. */
int device_text_field_u64(struct span text, const char *key, char separator, uint64_t *ret);
int device_text_field_size(struct span text, const char *key, char separator, uint64_t *ret_bytes);

/* a/b into out; false when it does not fit. */
bool device_text_join(char *out, size_t out_size, const char *a, const char *b);

/* The program's name of a process, empty where it is not to be had. `out` of DEVICE_PROGRAM_MAX. */
void device_text_program(const char *proc, int32_t pid, char *out);

#endif
