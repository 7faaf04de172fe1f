/*
 * Finding a port; see port.h. Not among the ephemeral ones where that can be helped: between our
 * look and the program's bind (a program may load for a minute before it listens), any connection
 * that anybody opens on this machine may get one of those.
 */
#include "worker/port.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    PORT_LOW = 20000,  /* above what is well known */
    PORT_HIGH = 32767, /* below Linux' own choice of ephemeral ports */
    PORT_TRIES = 64,
    PORT_TAKEN_MAX = 1024,
};

static uint16_t taken[PORT_TAKEN_MAX];
static unsigned taken_count;

static bool is_taken(uint16_t port)
{
    for (unsigned i = 0; i < taken_count; i++) {
        if (taken[i] == port)
            return true;
    }
    return false;
}

/* Binds and lets go. 0 asks the kernel for any. 0; -EADDRINUSE; other negative errno. */
static int look_at(uint16_t port, uint16_t *ret_port)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons(port),
                                  .sin_addr = {.s_addr = htonl(INADDR_LOOPBACK)}};
    socklen_t len = sizeof(address);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int rc = 0;

    if (fd < 0)
        return -errno;
    if (bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0 ||
        getsockname(fd, (struct sockaddr *)&address, &len) < 0)
        rc = -errno;
    close(fd);
    if (rc == 0)
        *ret_port = ntohs(address.sin_port);
    return rc;
}

static void read_ephemeral(unsigned *ret_first, unsigned *ret_last)
{
    FILE *f = fopen("/proc/sys/net/ipv4/ip_local_port_range", "re");
    unsigned first = 0, last = 0;

    if (f != NULL) {
        if (fscanf(f, "%u %u", &first, &last) != 2)
            first = last = 0;
        fclose(f);
    }
    *ret_first = first;
    *ret_last = last;
}

static uint16_t draw(void)
{
    uint16_t number = 0;

    if (getrandom(&number, sizeof(number), GRND_NONBLOCK) != (ssize_t)sizeof(number))
        number = (uint16_t)(getpid() * 31 + (int)taken_count);
    return (uint16_t)(PORT_LOW + number % (PORT_HIGH - PORT_LOW + 1));
}

int port_take(uint16_t *ret_port)
{
    unsigned first, last;
    int rc = -EADDRNOTAVAIL;

    if (taken_count == PORT_TAKEN_MAX)
        return -ENOMEM;
    read_ephemeral(&first, &last);
    for (unsigned i = 0; i < PORT_TRIES; i++) {
        uint16_t port = draw();
        bool any = i >= PORT_TRIES / 2 || (port >= first && port <= last);

        rc = look_at(any ? 0 : port, &port);
        if (rc == 0 && !is_taken(port)) {
            taken[taken_count++] = port;
            *ret_port = port;
            return 0;
        }
        if (rc < 0 && rc != -EADDRINUSE)
            return rc;
    }
    return -EADDRNOTAVAIL;
}

void port_give_back(uint16_t port)
{
    for (unsigned i = 0; port != 0 && i < taken_count; i++) {
        if (taken[i] == port) {
            taken[i] = taken[--taken_count];
            return;
        }
    }
}
