/*
 * What the tests of telemetry share: a fake tree of their own, and the stub of NVML.
 */
#ifndef FAILSOFT_TESTS_DEVICE_RIG_H
#define FAILSOFT_TESTS_DEVICE_RIG_H

#include "tests/unit/unit.h"

#include "device/source.h"
#include "tests/fakes/stub_nvml.h"

#define MIB (UINT64_C(1024) * 1024)
#define GIB (UINT64_C(1024) * MIB)

/* cmocka set-up and tear-down: an empty folder, and the stub as at the start. */
int rig_setup(void **state);
int rig_teardown(void **state);

extern char rig_root[64];
/* PROC, SYS and CGROUP below the folder (proc, sys, cgroup), the stub, `kmsg` in the folder. */
extern struct device_roots rig_roots;
extern struct stub_nvml *rig_nvml;
/* The state of a build of the stub, which stays loaded. */
struct stub_nvml *rig_open_stub(const char *path);

/* Writes a file below the folder, with the folders above it. */
void rig_put(const char *path, const char *format, ...) __attribute__((format(printf, 2, 3)));
void rig_put_bytes(const char *path, const void *bytes, size_t n);
void rig_remove(const char *path);
void rig_link(const char *path, const char *target);

/* PROC/meminfo; available_bytes UINT64_MAX leaves the line out. */
void rig_meminfo(uint64_t total_bytes, uint64_t available_bytes);

/* Opens a source, takes one sample and closes it, as a sampler does. Returns sample()'s result. */
int rig_sample(const struct device_source_ops *ops, const struct device_spec *spec,
               struct device_sample *ret);

#endif
