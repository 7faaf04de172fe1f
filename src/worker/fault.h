/*
 * Names a fault from the evidence: HTTP status, error text, exit status, transport error, log line.
 * A pure function over tables; what it decides:
 *
 *   class        counts against the worker   next tier   same worker again   whole device
 *   capacity     yes (throttles, teaches)    yes         no                  no
 *   device-lost  yes, at once                yes         no                  yes
 *   engine-dead  yes                         yes         after a restart     no
 *   driver       yes, held for a person      yes         no                  yes
 *   stall        yes                         yes         no                  no
 *   host-memory  yes                         yes         no                  no
 *   busy         no                          yes         after Retry-After   no
 *   loading      no                          yes         when loaded         no
 *   request      no                          no          no                  no
 *   transient    yes, if it stays            yes         once                no
 *   unknown      yes                         yes         no                  no
 *
 * A bare HTTP 500 (no words of a device, of memory, of a state) says neither whose fault it is nor
 * that the worker is unwell: speech and picture servers answer it to a file that is none. It is
 * transient with a doubt, which only another worker's answer to the same request resolves
 * (policy/failover). 502 and 504 are no such answers: a proxy says them of a connection that broke.
 *
 * Texts are matched by kind: case-insensitive, numbers free. Sources: the field cases named beside
 * each row of the table in fault.c.
 */
#ifndef FAILSOFT_WORKER_FAULT_H
#define FAILSOFT_WORKER_FAULT_H

#include "base/span.h"

#include <stdbool.h>
#include <stddef.h>

enum fault_class {
    FAULT_NONE = 0, /* no fault in this evidence */
    FAULT_CAPACITY,
    FAULT_DEVICE_LOST,
    FAULT_ENGINE_DEAD,
    FAULT_DRIVER,
    FAULT_STALL,
    FAULT_HOST_MEMORY,
    FAULT_BUSY,
    FAULT_LOADING,
    FAULT_REQUEST,
    FAULT_TRANSIENT,
    FAULT_UNKNOWN,
    FAULT_CLASS_COUNT,
};

/* Where in an attempt the evidence was seen. */
enum fault_phase {
    FAULT_PHASE_NONE = 0, /* not during an attempt (exit, log line) */
    FAULT_PHASE_CONNECT,
    FAULT_PHASE_SEND,
    FAULT_PHASE_HEAD,        /* sent, no response head yet */
    FAULT_PHASE_FIRST_EVENT, /* head there, nothing of use yet */
    FAULT_PHASE_STREAM,      /* in the middle of the answer */
};

struct fault_evidence {
    enum fault_phase phase;
    int status;       /* HTTP status of the worker, 0: none */
    bool in_band;     /* the text came as an event inside a 200 stream */
    struct span text; /* error body, in-band error or log lines; may be empty, bounded by caller */
    int transport_error;    /* negative errno of the transport, 0: none */
    bool connection_reused; /* the connection came from a pool and no response byte was seen */
    bool timed_out;         /* the watchdog of the phase fired */
    bool exited;            /* the process is gone (managed worker) */
    int exit_status;        /* exit code, or 128 + signal */
    bool expected_exit;     /* we ended it ourselves */
    bool on_device; /* the tier uses an accelerator: "Compute error." is a device fault there */
};

struct fault {
    enum fault_class class;
    bool doubt;       /* the request may be to blame (transient), or is by its content (request) */
    char reason[160]; /* short, for people: "out of device memory (ErrorOutOfDeviceMemory)" */
};

/* Classifies. Always fills *ret; unknown text never breaks it. */
void fault_classify(const struct fault_evidence *evidence, struct fault *ret);

/*
 * Looks at one line of a worker's log. FAULT_NONE for a line that says nothing; lines that warn but
 * are no fault (failed mlock) give FAULT_NONE, too, with a reason.
 */
void fault_classify_log_line(struct span line, bool on_device, struct fault *ret);

/* "capacity", "device-lost", … as in the documentation. */
const char *fault_class_name(enum fault_class class);

/* What the table above says. */
bool fault_counts(enum fault_class class);    /* against the worker's availability */
bool fault_moves_on(enum fault_class class);  /* the next tier may be tried (before commit) */
bool fault_may_retry(enum fault_class class); /* one more try on the same worker (before commit) */
bool fault_whole_device(enum fault_class class); /* every worker on the device is affected */

#endif
