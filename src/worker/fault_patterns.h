/* Inside of worker/: what failing engines, drivers and kernels print, and what it means. */
#ifndef FAILSOFT_WORKER_FAULT_PATTERNS_H
#define FAILSOFT_WORKER_FAULT_PATTERNS_H

#include "worker/fault.h"

enum fault_scope {
    FAULT_SCOPE_ANSWER = 1, /* error bodies and in-band errors */
    FAULT_SCOPE_LOG = 2,    /* log lines of the worker or the kernel */
    FAULT_SCOPE_BOTH = 3,
    FAULT_SCOPE_DEVICE = 4, /* with one of the above: only where the tier uses an accelerator */
};

struct fault_pattern {
    enum fault_class class;
    unsigned scope;
    const char *pattern; /* lower case; '*' is any text within the line, '#' is a run of digits */
    const char *reason;  /* NULL: this row is not a fault (class FAULT_NONE) and says nothing */
};

/* In order: the first row that matches decides. The last row has pattern NULL. */
extern const struct fault_pattern fault_patterns[];

/* True when a line matches: case-insensitive, anywhere in the line. */
bool fault_pattern_matches(const char *pattern, struct span line);

#endif
