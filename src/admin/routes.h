/*
 * The paths that failsoft answers itself: which page belongs to which path.
 */
#ifndef FAILSOFT_ADMIN_ROUTES_H
#define FAILSOFT_ADMIN_ROUTES_H

#include "gateway/gateway.h"

/*
 * Answers `/healthz`, `/readyz`, `/metrics` and everything below `/failsoft/`; the signature is that
 * of gateway_options.on_local. False: not one of ours.
 */
bool admin_answer(struct gateway *g, struct http_exchange *x, struct span method, struct span path,
                  struct span query, void *ctx);

#endif
