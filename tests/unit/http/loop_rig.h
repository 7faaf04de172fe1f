/* Raw sockets against the loop under test, in one thread: every wait is bounded and runs the loop. */
#ifndef FAILSOFT_TESTS_LOOP_RIG_H
#define FAILSOFT_TESTS_LOOP_RIG_H

#include "base/buf.h"

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

/* A connected, non-blocking socket to 127.0.0.1:port. */
int rig_connect(uint16_t port);
/* A non-blocking listener on 127.0.0.1, any port. */
int rig_listen(uint16_t *ret_port);
/* Runs the loop until a connection arrives. */
int rig_accept(uv_loop_t *loop, int listener);
/* Sends everything, running the loop in between. */
void rig_send(uv_loop_t *loop, int fd, const char *bytes, size_t n);
void rig_send_text(uv_loop_t *loop, int fd, const char *text);
/* Receives what is there; true at end of file or reset. */
bool rig_receive(int fd, struct buf *into);
/* Runs the loop until `needle` was received, the peer closed, or the deadline passed. True: found. */
bool rig_receive_until(uv_loop_t *loop, int fd, struct buf *into, const char *needle);
/* Runs the loop until the peer closed. */
bool rig_receive_to_end(uv_loop_t *loop, int fd, struct buf *into);
/* Runs the loop until *flag or the deadline. */
bool rig_run_until(uv_loop_t *loop, const bool *flag);
/* Runs until no handle is left; fails the test otherwise. */
void rig_finish(uv_loop_t *loop);

#endif
