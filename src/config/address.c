/*
 * Strict on purpose: what is not understood completely is refused with what would be right, because
 * a half-understood address fails later and elsewhere.
 */
#include "config/address.h"

#include "base/units.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <strings.h>

static int refuse(const char **ret_why, const char *why)
{
    *ret_why = why;
    return -EINVAL;
}

static bool is_numeric(const char *host, bool brackets)
{
    unsigned char scratch[sizeof(struct in6_addr)];

    return inet_pton(brackets ? AF_INET6 : AF_INET, host, scratch) == 1;
}

static int parse_port(const char *text, size_t len, uint64_t min, uint16_t *ret_port)
{
    char digits[8];
    uint64_t port;

    if (len == 0 || len >= sizeof(digits))
        return -EINVAL;
    memcpy(digits, text, len);
    digits[len] = '\0';
    if (units_parse_u64(digits, &port) < 0 || port < min || port > 65535)
        return -EINVAL;
    *ret_port = (uint16_t)port;
    return 0;
}

/*
 * Splits `host[:port]` of len bytes. *ret_port_text is NULL without a port.
 */
static int split_host(const char *text, size_t len, char *ret_host, bool *ret_brackets,
                      const char **ret_port_text, const char **ret_why)
{
    const char *end = text + len;
    const char *host = text;
    const char *host_end;
    const char *rest;

    *ret_brackets = len > 0 && *text == '[';
    if (*ret_brackets) {
        host = text + 1;
        host_end = memchr(host, ']', (size_t)(end - host));
        if (!host_end)
            return refuse(ret_why, "has a `[` without `]`");
        rest = host_end + 1;
    } else {
        host_end = memchr(host, ':', len);
        if (!host_end)
            host_end = end;
        rest = host_end;
        if (rest < end && memchr(rest + 1, ':', (size_t)(end - rest - 1)))
            return refuse(ret_why,
                          "has more than one `:`; an IPv6 address is written `[::1]:8080`");
    }
    if (host_end == host)
        return refuse(ret_why, "has no host");
    if (host_end - host >= ADDRESS_HOST_SIZE)
        return refuse(ret_why, "has a host name that is too long");
    if (rest < end && *rest != ':')
        return refuse(ret_why, "has something between the host and the port");
    memcpy(ret_host, host, (size_t)(host_end - host));
    ret_host[host_end - host] = '\0';
    *ret_port_text = rest < end ? rest + 1 : NULL;
    return 0;
}

int address_parse_listen(const char *text, char *ret_host, uint16_t *ret_port, const char **ret_why)
{
    char host[ADDRESS_HOST_SIZE];
    const char *port_text;
    uint16_t port;
    bool brackets;
    int r;

    if (strstr(text, "://"))
        return refuse(ret_why, "is a URL; write an address and a port only, e.g. `127.0.0.1:8080`");
    r = split_host(text, strlen(text), host, &brackets, &port_text, ret_why);
    if (r < 0)
        return r;
    if (!port_text)
        return refuse(ret_why, "has no port; write e.g. `127.0.0.1:8080`");
    if (parse_port(port_text, strlen(port_text), 0, &port) < 0)
        return refuse(ret_why, "has a wrong port; allowed: 1 to 65535 (0 picks a free one)");
    if (!brackets && strcasecmp(host, "localhost") == 0)
        memcpy(host, "127.0.0.1", sizeof("127.0.0.1"));
    if (!is_numeric(host, brackets))
        return refuse(ret_why, "is not a numeric address; write e.g. `127.0.0.1:8080`, "
                               "`localhost:8080`, or `0.0.0.0:8080` for every network");
    memcpy(ret_host, host, strlen(host) + 1);
    *ret_port = port;
    return 0;
}

static bool is_host_name(const char *host)
{
    for (const char *p = host; *p; p++) {
        if (!isalnum((unsigned char)*p) && *p != '.' && *p != '-' && *p != '_')
            return false;
    }
    return true;
}

static int check_scheme(const char *text, const char **ret_why)
{
    if (strncasecmp(text, "http://", 7) == 0)
        return 0;
    if (strncasecmp(text, "https://", 8) == 0)
        return refuse(ret_why, "is https, which is not supported yet; use http:// in your own "
                               "network, or a local TLS proxy");
    if (strstr(text, "://"))
        return refuse(ret_why, "has a scheme that is not supported; allowed: http://");
    return refuse(ret_why, "does not begin with http://; write e.g. `http://127.0.0.1:8081`");
}

static int check_prefix(const char *prefix, const char **ret_why)
{
    for (const char *p = prefix; *p; p++) {
        if (*p == '?' || *p == '#')
            return refuse(ret_why, "has a query or a fragment; only a path prefix is allowed");
        if (*p <= 0x20 || *p >= 0x7f || *p == '"' || *p == '<' || *p == '>' || *p == '\\')
            return refuse(ret_why, "has a character that a URL may not have");
    }
    return 0;
}

int address_parse_url(const char *text, struct address_url *ret_url, const char **ret_why)
{
    struct address_url url = {.port = 80};
    const char *authority;
    const char *port_text;
    size_t len;
    bool brackets;
    int r = check_scheme(text, ret_why);

    if (r < 0)
        return r;
    authority = text + 7;
    len = strcspn(authority, "/?#");
    if (memchr(authority, '@', len))
        return refuse(ret_why, "has a user name, which is not supported");
    r = split_host(authority, len, url.host, &brackets, &port_text, ret_why);
    if (r < 0)
        return r;
    if (port_text && parse_port(port_text, (size_t)(authority + len - port_text), 1, &url.port) < 0)
        return refuse(ret_why, "has a wrong port; allowed: 1 to 65535");
    if (brackets ? !is_numeric(url.host, true) : !is_host_name(url.host))
        return refuse(ret_why, "has a host that is neither a name nor an address");
    url.prefix = authority + len;
    r = check_prefix(url.prefix, ret_why);
    if (r < 0)
        return r;
    url.prefix_len = strlen(url.prefix);
    while (url.prefix_len > 0 && url.prefix[url.prefix_len - 1] == '/')
        url.prefix_len--;
    *ret_url = url;
    return 0;
}
