/* The checks of tiers, called for each service by check.c. Private to config/. */
#ifndef FAILSOFT_CONFIG_CHECK_H
#define FAILSOFT_CONFIG_CHECK_H

#include "config/load_internal.h"

void check_tiers(struct loader *l, const struct config_service *s);

#endif
