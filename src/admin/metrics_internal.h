/* Private to the files of the metrics page. */
#ifndef FAILSOFT_ADMIN_METRICS_INTERNAL_H
#define FAILSOFT_ADMIN_METRICS_INTERNAL_H

#include "base/buf.h"
#include "gateway/snapshot.h"

/* The inside of a label value: escaped, invalid UTF-8 replaced. Errors as buf_append. */
int metrics_append_label(struct buf *out, const char *text);

/* The host's memory and the devices'. Errors as buf_append. */
int metrics_write_devices(const struct gateway_snapshot *s, struct buf *out);

#endif
