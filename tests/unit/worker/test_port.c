/* Free ports: never one that somebody listens at, never one twice. */
#include "tests/unit/unit.h"

#include "worker/port.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

static int bind_port(uint16_t port)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons(port),
                                  .sin_addr = {.s_addr = htonl(INADDR_LOOPBACK)}};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_true(fd >= 0);
    if (bind(fd, (struct sockaddr *)&address, sizeof(address)) == 0 && listen(fd, 1) == 0)
        return fd;
    close(fd);
    return -errno;
}

static void a_program_can_listen_there(void **state)
{
    uint16_t port = 0;
    int fd;

    (void)state;
    assert_int_equal(port_take(&port), 0);
    fd = bind_port(port);
    assert_true(fd >= 0);
    close(fd);
    port_give_back(port);
    port_give_back(port); /* twice is nothing */
    port_give_back(0);
}

/* Any connection that somebody opens may get an ephemeral one meanwhile. */
static void it_is_not_an_ephemeral_one(void **state)
{
    FILE *f = fopen("/proc/sys/net/ipv4/ip_local_port_range", "r");
    unsigned first = 0, last = 0;

    (void)state;
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%u %u", &first, &last), 2);
    fclose(f);
    if (first <= 32767)
        skip(); /* this machine leaves no room for others */
    for (int i = 0; i < 100; i++) {
        uint16_t port = 0;

        assert_int_equal(port_take(&port), 0);
        assert_true(port < first || port > last);
        assert_true(port >= 1024);
        port_give_back(port);
    }
}

/* As many as can be had: those in our workers' hands are left out, listening or not. */
static void none_is_given_twice(void **state)
{
    static uint16_t ports[1024];
    static bool seen[65536];
    unsigned count = 0;
    uint16_t again = 0;

    (void)state;
    while (count < 1024 && port_take(&ports[count]) == 0) {
        assert_false(seen[ports[count]]);
        seen[ports[count++]] = true;
    }
    assert_int_equal(count, 1024);
    assert_int_equal(port_take(&again), -ENOMEM); /* bounded */
    port_give_back(ports[500]);
    assert_int_equal(port_take(&again), 0);
    port_give_back(again);
    for (unsigned i = 0; i < count; i++)
        port_give_back(ports[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_program_can_listen_there),
        cmocka_unit_test(it_is_not_an_ephemeral_one),
        cmocka_unit_test(none_is_given_twice),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
