/*
 * What the kernel's log says about GPUs: Xid lines of NVIDIA's driver, the same loss spread over
 * several lines without an Xid, resets and losses of amdgpu, xe and i915. Pure: lines in, events out.
 *
 * Lines may come bare, with dmesg's "[  12.3] ", or as records of /dev/kmsg ("6,1,2,-;text").
 */
#ifndef FAILSOFT_DEVICE_KERNEL_LOG_H
#define FAILSOFT_DEVICE_KERNEL_LOG_H

#include "base/span.h"
#include "device/sample.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * NVIDIA's driver may say one thing on several lines ("NVRM: The NVIDIA GPU 0000:06:00.0" / "… has" /
 * "NVRM: fallen off the bus …"); this remembers the last of them. Zeroed is ready.
 */
struct kernel_log {
    char pci[DEVICE_PCI_MAX]; /* named in the lines below */
    char tail[256];           /* text of the last NVRM lines, joined by single spaces */
    size_t tail_len;
};

/* One line without its end. True when it completes an event; at_ms is left 0. */
bool kernel_log_line(struct kernel_log *log, struct span line, struct device_event *ret_event);

/*
 * The class of an Xid (NVIDIA "XID Errors" catalogue). 13, 31, 43, 45 and the like end one process
 * and leave the device well; 79 is lost; an unknown one is suspect. 154 depends on its text.
 */
enum device_fault kernel_log_xid_fault(uint32_t xid);

/*
 * "PCI:0000:06:00", "0000:06:00.0", "00000000:06:00.0" and "06:00.0" as "0000:06:00.0" in lower
 * case, function 0 where none is said. 0, -EINVAL.
 */
int kernel_log_pci(struct span text, char out[DEVICE_PCI_MAX]);

/* Is the event about the device at `pci`? An event that could not tell is about nobody for certain. */
bool kernel_log_is_about(const struct device_event *event, const char *pci);

#endif
