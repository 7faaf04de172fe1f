/*
 * What a worker is, as 64-bit numbers: which model, with which settings, by which engine, on which
 * device. What was measured of one is kept under them (policy/learning) and holds for none that
 * differs. Equal input gives equal numbers in every process and after every restart; 0 is none.
 * Not for secrets: who can choose the input can make two alike.
 *
 * Any thread; fingerprint_model() and fingerprint_engine() block on the file system or come after
 * something that did.
 */
#ifndef FAILSOFT_WORKER_FINGERPRINT_H
#define FAILSOFT_WORKER_FINGERPRINT_H

#include "config/config.h"
#include "model/estimate.h"
#include "model/gguf_file.h"

#include <stddef.h>
#include <stdint.h>

/* Of model, projector and draft, in this order: headers and sizes, never the tensors. Entries may be
 * NULL (there is none). */
uint64_t fingerprint_model(const struct gguf_file *const *files, size_t count);

/*
 * Of whatever changes the memory of a worker of this tier: the settings of its estimate, and what
 * only the engine understands of its arguments, its environment and its command.
 */
uint64_t fingerprint_settings(const struct estimate_settings *s, const struct config_tier *tier);

/* Of a program by path, size and time of change; a bare name is looked up on PATH. A program that is
 * not there has one as well, by its name alone. */
uint64_t fingerprint_engine(const char *path);

/* Of a device, by its name in the configuration, its kind and its size: another card in the same slot
 * is another device. total_bytes 0: not known. */
uint64_t fingerprint_device(const char *name, int kind, uint64_t total_bytes);

#endif
