#!/usr/bin/env python3
"""A small HTTP program of the kind that people run beside an LLM: what `command` starts in tests.

    fake_program.py --port N | --uds PATH  [--name WORD] [options]

It answers every POST with JSON that says who it is (a transcription gets its `text`), and GET of
the health path with 200. What it can do wrong is said by options; waiting is for files that the
test makes, never for time:

    --health PATH     the path of its readiness (default /health); any other GET is 404
    --load FILE       503 at the health path until the file exists
    --late FILE       does not even listen until the file exists
    --ignore-term     TERM does nothing
    --chatter N       writes N KiB to each of its outputs before it listens
    --child FILE      has a child that lives on; its pid is written to the file
    --stubborn FILE   the same with one that takes no TERM
    --squat FILE      at the first start somebody else (pid into the file) takes the port before it
    --crash TEXT      writes the text to stderr and ends with status 3
    --record FILE     writes its pid, group, arguments and environment to the file, as JSON

POST /die ends it with status 7 in the middle of the request; POST /wait?FILE waits for a file.
"""

import argparse
import json
import os
import signal
import socket
import socketserver
import sys
import time
from http.server import BaseHTTPRequestHandler


def wait_for(path):
    while not os.path.exists(path):
        time.sleep(0.01)


def record(path):
    stat = open("/proc/self/stat", encoding="ascii").read().rpartition(")")[2].split()
    seen = {"pid": os.getpid(), "parent": os.getppid(), "pgid": os.getpgid(0), "argv": sys.argv,
            "env": dict(os.environ), "state": stat[0],
            "oom_score_adj": int(open("/proc/self/oom_score_adj", encoding="ascii").read()),
            "descriptors": sorted(map(int, os.listdir("/proc/self/fd")))[:3]}
    with open(path + ".new", "w", encoding="utf-8") as file:
        json.dump(seen, file)
    os.rename(path + ".new", path)


def squat(port, path):
    """A stranger that outlives this process and has its port."""
    if os.path.exists(path):
        return
    listener = socket.create_server(("127.0.0.1", port))
    pid = os.fork()
    if pid == 0:
        os.setsid()
        signal.pause()
    while os.getpgid(pid) != pid:
        time.sleep(0.001)
    with open(path, "w", encoding="ascii") as file:
        file.write(str(pid))
    listener.close()


def have_child(path, on_term=signal.SIG_DFL):
    pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGTERM, on_term)
        signal.pause()
    with open(path, "w", encoding="ascii") as file:
        file.write(str(pid))


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    options = None

    def say(self, status, body, kind="application/json"):
        body = (json.dumps(body) if kind == "application/json" else body).encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        if self.path != self.options.health:
            self.say(404, "no such page", "text/plain")
        elif self.options.load and not os.path.exists(self.options.load):
            self.say(503, "still loading", "text/plain")
        else:
            self.say(200, "I am well", "text/plain")

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path == "/die":
            os._exit(7)
        if self.path.startswith("/wait?"):
            wait_for(self.path.partition("?")[2])
        self.say(200, {"text": f"{self.options.name} heard {len(body)} bytes",
                       "by": self.options.name, "pid": os.getpid(), "path": self.path,
                       "host": self.headers.get("Host"),
                       "connection": self.headers.get("Connection"),
                       "gpus": os.environ.get("CUDA_VISIBLE_DEVICES")})

    def address_string(self):
        return "client"


class Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    # Like most servers it may come back to a port with connections in TIME_WAIT.
    allow_reuse_address = True


class UnixServer(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int)
    for name in ("uds", "load", "late", "child", "stubborn", "squat", "crash", "record"):
        parser.add_argument("--" + name)
    parser.add_argument("--name", default="program")
    parser.add_argument("--health", default="/health")
    parser.add_argument("--chatter", type=int, default=0)
    parser.add_argument("--ignore-term", action="store_true")
    options = Handler.options = parser.parse_args()
    if options.port is None and options.uds is None:
        options.port = int(os.environ["PROGRAM_PORT"])
    if options.ignore_term:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if options.record:
        record(options.record)
    if options.crash:
        sys.exit(print(options.crash, file=sys.stderr) or 3)
    for out in (sys.stdout, sys.stderr):
        for _ in range(options.chatter):
            print("x" * 1023, file=out, flush=True)
    if options.child:
        have_child(options.child)
    if options.stubborn:
        have_child(options.stubborn, signal.SIG_IGN)
    if options.squat:
        squat(options.port, options.squat)
    if options.late:
        wait_for(options.late)
    server = (UnixServer(options.uds, Handler) if options.uds
              else Server(("127.0.0.1", options.port), Handler))
    server.serve_forever()


if __name__ == "__main__":
    main()
