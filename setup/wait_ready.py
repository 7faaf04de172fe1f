#!/usr/bin/env python3
"""Waits until each tier of a running gateway has really answered, then says what to try.

A health endpoint that says 200 proves nothing about a model, so each worker is asked for one token
(or one vector) at its own address, which the gateway's status names; then the gateway itself is asked.
Speech and other kinds of services are not asked, because that takes a recording or knowledge of their
API: they are ready when the gateway says so. Ends at once when the gateway's process ends.
"""

import argparse
import http.client
import json
import os
import socket
import sys
import time

QUESTION = {
    "chat": ("/v1/chat/completions",
             {"messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 1}),
    "embeddings": ("/v1/embeddings", {"input": "hello"}),
}
RED, RESET = ("\033[31m", "\033[0m") if sys.stdout.isatty() else ("", "")


class UnixConnection(http.client.HTTPConnection):
    """HTTP over the unix socket of a managed worker."""

    def __init__(self, path, timeout):
        super().__init__("localhost", timeout=timeout)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


def connect(address, timeout):
    if address.startswith("unix:"):
        return UnixConnection(address[len("unix:"):], timeout), ""
    if address.startswith("/"):
        return UnixConnection(address, timeout), ""
    rest = address.split("://", 1)[-1]
    host, _, prefix = rest.partition("/")
    return http.client.HTTPConnection(host, timeout=timeout), "/" + prefix if prefix else ""


def ask(address, method, path, body=None, timeout=30.0):
    """(status, parsed body) or (0, reason)."""
    try:
        connection, prefix = connect(address, timeout)
        connection.request(method, prefix + path, json.dumps(body) if body is not None else None,
                           {"Content-Type": "application/json"})
        response = connection.getresponse()
        data = response.read()
        connection.close()
        return response.status, json.loads(data)
    except (OSError, ValueError, http.client.HTTPException) as error:
        return 0, str(error) or type(error).__name__


def answered(kind, body):
    """Output is there: a choice for chat, a vector for embeddings."""
    if not isinstance(body, dict):
        return False
    if kind == "embeddings":
        data = body.get("data") or [{}]
        return bool(data[0].get("embedding"))
    return bool(body.get("choices"))


def tiers_of(status):
    """Every tier in the status, with its service's name and kind and its worker's facts beside it."""
    found = []
    for service in status.get("services") or []:
        for tier in service.get("tiers") or []:
            found.append({**tier, **(tier.get("worker") or {}), "service": service["name"],
                          "kind": service.get("kind"), "tier": tier["name"]})
    return found


def question_for(tier):
    kind = tier.get("kind") or ""
    return kind, QUESTION.get(kind)


def alive(pid):
    """The gateway is our parent's child: a zombie has ended as well."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


class Waiter:
    def __init__(self, arguments):
        self.address = arguments.address
        self.pid = arguments.pid
        self.deadline = time.monotonic() + arguments.timeout
        self.started = time.monotonic()
        self.done = {}
        self.shown = {}
        self.last = "the gateway does not answer yet"

    def look(self):
        """One round over the tiers. True when each has answered."""
        status, body = ask(self.address, "GET", "/failsoft/v1/status", timeout=5)
        if status != 200 or not isinstance(body, dict):
            return False
        tiers = tiers_of(body)
        for tier in tiers:
            self.look_at(tier)
        names = [(tier["service"], tier["tier"]) for tier in tiers]
        return bool(names) and all(name in self.done for name in names)

    def look_at(self, tier):
        name = (tier["service"], tier["tier"])
        kind, question = question_for(tier)
        if name in self.done:
            return
        state = tier.get("state") or ""
        reason = tier.get("reason") or ""
        self.last = f"{name[0]}/{name[1]} is {state or 'not ready'}" + (f": {reason}" if reason else "")
        if self.shown.get(name) != self.last and state in ("backoff", "failed"):
            print(f"run: {self.last}", file=sys.stderr, flush=True)
            self.shown[name] = self.last
        if state not in ("ready", "external", "available", ""):
            return
        if question is None:
            self.settle(name, tier, "is ready")
            return
        path, request = question
        status, body = ask(tier.get("address") or "", "POST", path,
                           dict(request, model=tier.get("model") or tier["service"]))
        if status == 200 and answered(kind, body):
            self.settle(name, tier, "has answered")
        else:
            self.last = f"{name[0]}/{name[1]} does not answer: {status or ''} {body}"[:300]

    def settle(self, name, tier, what):
        self.done[name] = tier
        took = time.monotonic() - self.started
        device = tier.get("device") or "CPU"
        print(f"run: {name[0]}/{name[1]} {what} ({device}, {took:.1f} s)", file=sys.stderr, flush=True)

    def wait(self):
        """0 ready, 1 not in time, 2 the gateway has ended."""
        while True:
            if not alive(self.pid):
                return 2
            if self.look():
                return 0
            if time.monotonic() > self.deadline:
                return 1
            time.sleep(0.2)


def say_what_to_try(waiter, arguments):
    base = f"http://{arguments.address}"
    chat = next((tier for tier in waiter.done.values() if question_for(tier)[0] == "chat"), None)
    embed = next((tier for tier in waiter.done.values() if question_for(tier)[0] == "embeddings"), None)
    print(f"\nfailsoft answers on {base}   (OpenAI base URL: {base}/v1)")
    print(f"configuration: {arguments.config}\n")
    if chat:
        body = {"model": chat["service"], "max_tokens": 40, "messages": [
            {"role": "user", "content": "Name three colours."}]}
        text = json.dumps(body)
        print(f"Ask:\n  curl -si {base}/v1/chat/completions "
              f"-H 'Content-Type: application/json' -d '{text}'\n")
    elif embed:
        text = json.dumps({"model": embed["service"], "input": "hello"})
        print(f"Ask:\n  curl -si {base}/v1/embeddings "
              f"-H 'Content-Type: application/json' -d '{text}'\n")
    speech = next((tier for tier in waiter.done.values() if tier["kind"] == "transcription"), None)
    if speech:
        print(f"Speech to text (any recording):\n  curl -si {base}/v1/audio/transcriptions "
              f"-F model={speech['service']} -F file=@recording.wav\n")
    if arguments.fail:
        reset = arguments.fail.replace(" sim lose ", " sim reset ")
        print(f"Make the GPU fail, then ask again (X-Failsoft-Tier tells who answered):\n"
              f"  {arguments.fail}\nGive it back:\n  {reset}\n")
    else:
        victim = next((tier for tier in waiter.done.values()
                       if tier["tier"] == "gpu" and tier.get("pid")), None)
        if victim:
            print(f"Make the GPU worker fail, then ask again:\n  kill -9 {victim['pid']}\n")
    print("Ctrl-C ends the gateway and its workers.", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--address", required=True, help="host:port of the gateway")
    parser.add_argument("--pid", required=True, type=int, help="process of the gateway")
    parser.add_argument("--config", required=True)
    parser.add_argument("--fail", default="", help="the command that makes the GPU fail")
    parser.add_argument("--timeout", type=float,
                        default=float(os.environ.get("FAILSOFT_READY_S") or 180))
    arguments = parser.parse_args()
    waiter = Waiter(arguments)
    result = waiter.wait()
    if result == 1:
        print(f"{RED}run: not every tier has answered after {arguments.timeout:.0f} s; "
              f"{waiter.last}{RESET}", file=sys.stderr)
    if result != 2:
        say_what_to_try(waiter, arguments)
    return result


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
