/*
 * A TCP port of 127.0.0.1 for a program that must be told where to listen. It is looked for and let
 * go again, for only the program itself can keep it; so somebody else may take it in between. The
 * program then dies of it, and its next start gets another one.
 *
 * Ports of our own workers never meet: what was taken stays taken until it is given back, whether or
 * not the program has come to listen there. Loop thread only; the list of them is one for the process.
 */
#ifndef FAILSOFT_WORKER_PORT_H
#define FAILSOFT_WORKER_PORT_H

#include <stdint.h>

/*
 * A port that nobody listens at and no worker of this process has. 0; -EMFILE, -ENFILE;
 * -EADDRNOTAVAIL (none found); -ENOMEM.
 */
int port_take(uint16_t *ret_port);

/* 0 is fine. */
void port_give_back(uint16_t port);

#endif
