#!/usr/bin/env python3
"""A pretended llama-server for the tests of worker supervision: a child process with bad habits.

Takes llama-server's command line (only --host is used) and its orders from the environment variable
FAKE_ENGINE, a JSON object:

  record       path: write what this process was given (arguments, environment, descriptors, …)
  lines        lines to write to stderr first
  exit         exit with this status at once (after the lines)
  flag         path: when the file exists, `exit` does not apply (so a later start succeeds)
  signal       end by this signal at once (after the lines)
  junk         write 1 MiB of lines, one line of 300 KiB and NUL bytes to stderr, 256 KiB to stdout
  chatter      keep writing lines from a thread
  ready_after  seconds of loading before /health says ok (default 0); "never"
  form         how loading is said: "error" (503, today's body), "status" (503, old body), "silent"
               (accepts, answers nothing), "refuse" (no socket yet)
  html         answer 200 and HTML on every path
  health       a fixed answer to /health: [status, body]
  ignore_term  ignore SIGTERM
  grandchild   start a process in the same group that ignores SIGTERM; its pid goes to this path
  close_output close stdout and stderr, live on
"""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time

ORDERS = json.loads(os.environ.get("FAKE_ENGINE", "{}"))
STARTED = time.monotonic()


def record(path):
    descriptors = []
    for name in os.listdir("/proc/self/fd"):
        try:  # the one that read the folder is gone by now
            os.fstat(int(name))
        except OSError:
            continue
        descriptors.append(int(name))
    mask = {}
    with open("/proc/self/status", encoding="ascii") as f:
        for line in f:
            name, _, value = line.partition(":")
            if name in ("SigBlk", "SigIgn", "SigCgt"):
                mask[name] = int(value, 16)
    facts = {
        "argv": sys.argv,
        "env": dict(os.environ),
        "pid": os.getpid(),
        "pgid": os.getpgid(0),
        "descriptors": sorted(descriptors),
        "stdin": os.readlink("/proc/self/fd/0"),
        "oom_score_adj": int(open("/proc/self/oom_score_adj", encoding="ascii").read()),
        "signals": mask,
    }
    temporary = path + ".part"
    with open(temporary, "w", encoding="utf-8") as f:
        json.dump(facts, f)
    os.rename(temporary, path)


def write_all(fd, data):
    while data:
        data = data[os.write(fd, data) :]


def write_junk():
    line = b"0.00.001.000 I junk: " + b"x" * 78 + b"\n"
    write_all(2, line * (1024 * 1024 // len(line)))
    write_all(2, b"y" * (300 * 1024) + b"\n")
    write_all(2, b"before\0after \xff\xfe\n")
    write_all(1, b"on stdout\n" * (256 * 1024 // 10))
    write_all(2, b"0.00.002.000 I junk is over\n")


def chatter():
    n = 0
    while True:
        write_all(2, b"0.00.003.000 I chatter %d\n" % n)
        n += 1
        time.sleep(0.001)


def is_ready():
    after = ORDERS.get("ready_after", 0)
    return after != "never" and time.monotonic() - STARTED >= after


def number_after(flag, otherwise):
    return int(sys.argv[sys.argv.index(flag) + 1]) if flag in sys.argv else otherwise


def answer(path, request=b""):
    """Status and body for a path, or None for silence."""
    if ORDERS.get("html"):
        return 200, "text/html", "<!doctype html>\n<title>Files</title>\n"
    if path == "/health" and "health" in ORDERS:
        return ORDERS["health"][0], "application/json", ORDERS["health"][1]
    if not is_ready():
        form = ORDERS.get("form", "error")
        if form == "silent":
            return None
        if form == "status":
            return 503, "application/json", '{"status":"loading model"}'
        return 503, "application/json", (
            '{"error":{"message":"Loading model","type":"unavailable_error","code":503}}'
        )
    if path == "/health":
        return 200, "application/json; charset=utf-8", '{"status":"ok"}'
    if path == "/props":
        return 200, "application/json", '{"default_generation_settings":{},"model_path":"x"}'
    if path == "/v1/chat/completions/input_tokens":  # a token a word
        return 200, "application/json", json.dumps({"input_tokens": len(request.split()) + 8})
    if path == "/slots":
        slots = number_after("-np", 1)
        return 200, "application/json", json.dumps([
            {"id": i, "n_ctx": number_after("-c", 0) // slots, "speculative": False,
             "is_processing": False} for i in range(slots)])
    if path == "/v1/chat/completions":
        return 200, "application/json", json.dumps({
            "id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "fake",
            "choices": [{"index": 0, "finish_reason": "stop",
                         "message": {"role": "assistant", "content": "managed"}}],
            "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}})
    return 404, "application/json", '{"error":{"message":"File Not Found","code":404}}'


def read_request(connection):
    """Path and body, when all of it is there; None when the peer has left."""
    got = b""
    while True:
        head, end, body = got.partition(b"\r\n\r\n")
        length = re.search(rb"(?i)content-length: *(\d+)", head)
        if end and len(body) >= (int(length[1]) if length else 0):
            return head.split(b" ", 2)[1].decode("ascii"), body
        data = connection.recv(65536)
        if not data:
            return None
        got += data


def serve_one(connection):
    with connection:
        request = read_request(connection)
        if request is None:
            return
        reply = answer(*request)
        if reply is None:
            while connection.recv(4096):
                pass
            return
        status, kind, body = reply
        connection.sendall(
            (
                f"HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\n"
                f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n{body}"
            ).encode()
        )


def serve(path):
    server = socket.socket(socket.AF_UNIX)
    server.bind(path)  # fails, as the real one does, when the file is still there
    server.listen(16)
    write_all(2, b"0.00.010.000 I srv  llama_server: listening on unix://%s\n" % path.encode())
    while True:
        connection, _ = server.accept()
        threading.Thread(target=serve_one, args=(connection,), daemon=True).start()


def start_grandchild(path):
    child = subprocess.Popen(["/bin/sh", "-c", "trap '' TERM; exec sleep 1000"])
    with open(path + ".part", "w", encoding="ascii") as f:
        f.write(str(child.pid))
    os.rename(path + ".part", path)


def main():
    if ORDERS.get("ignore_term"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for line in ORDERS.get("lines", []):
        write_all(2, line.encode() + b"\n")
    if "record" in ORDERS:
        record(ORDERS["record"])
    if "grandchild" in ORDERS:
        start_grandchild(ORDERS["grandchild"])
    if ORDERS.get("junk"):
        write_junk()
    if "exit" in ORDERS and not os.path.exists(ORDERS.get("flag", "/nonexistent/flag")):
        sys.exit(ORDERS["exit"])
    if "signal" in ORDERS:
        os.kill(os.getpid(), ORDERS["signal"])
    if ORDERS.get("chatter"):
        threading.Thread(target=chatter, daemon=True).start()
    if ORDERS.get("close_output"):
        os.close(1)
        os.close(2)
        os.open("/dev/null", os.O_WRONLY)
        os.open("/dev/null", os.O_WRONLY)
    if ORDERS.get("form") == "refuse":
        while not is_ready():
            time.sleep(0.02)
    serve(sys.argv[sys.argv.index("--host") + 1])


if __name__ == "__main__":
    main()
