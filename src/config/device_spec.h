/*
 * Which of the machine's devices a configured one is, in the words of its telemetry: for the gateway
 * and for `failsoft plan`, which look at the same ones. Pure, any thread.
 */
#ifndef FAILSOFT_CONFIG_DEVICE_SPEC_H
#define FAILSOFT_CONFIG_DEVICE_SPEC_H

#include "config/config.h"
#include "device/source.h"

/* A name that is longer than telemetry keeps is cut. */
struct device_spec config_device_spec(const struct config_device *c);

#endif
