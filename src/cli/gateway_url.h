/* Where the running gateway listens, for the commands that talk to it. */
#ifndef FAILSOFT_CLI_GATEWAY_URL_H
#define FAILSOFT_CLI_GATEWAY_URL_H

#include "config/address.h"
#include "config/config.h"

#include <stddef.h>

enum { CLI_URL_SIZE = ADDRESS_HOST_SIZE + 32 };

/*
 * The address in `listen` of the named configuration (NULL: the usual one), as a client on this
 * machine reaches it; http://127.0.0.1:8080 when there is none. An exit status; problems of the file
 * are told on stderr.
 */
int cli_choose_url(const char *named, char *out, size_t out_size);

/* The address in `listen`, as a client on this machine reaches it. out: CLI_URL_SIZE. */
void cli_url_of_config(const struct config *c, char *out, size_t out_size);

#endif
