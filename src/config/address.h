/* Addresses as people write them: where to listen, and where a worker is. Pure. Private to config/. */
#ifndef FAILSOFT_CONFIG_ADDRESS_H
#define FAILSOFT_CONFIG_ADDRESS_H

#include <stddef.h>
#include <stdint.h>

enum { ADDRESS_HOST_SIZE = 256 };

struct address_url {
    char host[ADDRESS_HOST_SIZE]; /* without brackets */
    uint16_t port;
    const char *prefix; /* into the text that was parsed; without a slash at the end */
    size_t prefix_len;
};

/*
 * `host:port` or `[host]:port` with a numeric host or `localhost` (which is 127.0.0.1 here).
 * 0; -EINVAL with *ret_why, a static sentence part that follows the quoted token.
 */
int address_parse_listen(const char *text, char *ret_host, uint16_t *ret_port,
                         const char **ret_why);

/* `http://host[:port][/prefix]`. Errors as address_parse_listen. */
int address_parse_url(const char *text, struct address_url *ret_url, const char **ret_why);

#endif
