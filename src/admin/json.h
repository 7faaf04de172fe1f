/* Writing JSON members, one line each. Private to admin/. Errors as buf_append. */
#ifndef FAILSOFT_ADMIN_JSON_H
#define FAILSOFT_ADMIN_JSON_H

#include "base/buf.h"
#include "gateway/snapshot.h"

#include <stdbool.h>
#include <stdint.h>

/* A value in quotes; NULL is written as "". */
int json_write_text(struct buf *out, const char *text);

/* `"key":value` with a comma before it unless the buffer ends with `{` or `[`. */
int json_add_text(struct buf *out, const char *key, const char *text);
int json_add_number(struct buf *out, const char *key, uint64_t value);
int json_add_bool(struct buf *out, const char *key, bool value);
/* `"key":` followed by `open`, `{` or `[`. */
int json_add_open(struct buf *out, const char *key, char open);
/* A comma where one is needed: before the next element of a list. */
int json_separate(struct buf *out);

/* What the pages conclude from a snapshot. */
/* "ready", "degraded" or "unavailable", of one service and of the whole. */
const char *admin_service_state(const struct gateway_snapshot *s, const char *service);
const char *admin_overall_state(const struct gateway_snapshot *s);

/* Why a tier can not serve, in words. Returns out. */
char *admin_tier_reason(const struct gateway_tier_snapshot *t, char *out, size_t out_size);

#endif
