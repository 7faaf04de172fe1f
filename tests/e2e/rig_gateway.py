"""The gateway under test as a process: start, watch, reload, stop, and prove it left nothing.

What is checked after every test stands in Gateway.finish(): no descriptor more than at readiness,
no connection left, the exact set of processes, no `error` line that the test did not announce,
no sanitizer report, exit status 0 on SIGTERM.
"""

import json
import os
import re
import resource
import signal
import subprocess
import threading
import time
import uuid
from pathlib import Path

import yaml

from rig_http import Client, call

ROOT = Path(__file__).resolve().parents[2]
MARK_ENV = "FAILSOFT_TEST_MARK"
SANITIZER = re.compile(r"AddressSanitizer|LeakSanitizer|runtime error:|ThreadSanitizer|SUMMARY: ")
LISTENING = re.compile(r"listening on http://127\.0\.0\.1:(\d+)")
ERROR_LINE = re.compile(r"^\S+(?: \S+)? error ")
START_DEADLINE_S = 15
IDLE_DEADLINE_S = 6


def binary():
    path = Path(os.environ.get("FAILSOFT_BIN", ROOT / "build/src/failsoft"))
    return path if path.is_absolute() else ROOT / path


def is_sanitized():
    """ASan and UBSan builds have another idea of memory; tests that measure it leave them out."""
    return b"__asan_init" in binary().read_bytes()


def children_of(pid):
    """Direct children, from /proc: {pid: command line}."""
    found = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            stat = Path(f"/proc/{entry}/stat").read_text()
            if int(stat.rpartition(")")[2].split()[1]) == pid:
                line = Path(f"/proc/{entry}/cmdline").read_bytes().replace(b"\0", b" ")
                found[int(entry)] = line.decode(errors="replace").strip()
        except OSError:
            continue
    return found


def marked_processes(mark):
    """Everything that inherited a mark in its environment, children of children included."""
    needle = f"{MARK_ENV}={mark}".encode()
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                if needle in Path(f"/proc/{entry}/environ").read_bytes():
                    state = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()[0]
                    if state not in "ZX":
                        found.append(int(entry))
            except OSError:
                continue
    return found


def eventually(question, timeout=5, every=0.01):
    """Polls a question until it is true; returns its last answer."""
    deadline = time.monotonic() + timeout
    while True:
        answer = question()
        if answer or time.monotonic() > deadline:
            return answer
        time.sleep(every)


class Gateway:
    def __init__(self, config, folder, env=None, nofile=None, wait=True, args=()):
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.config_path = self.folder / "failsoft.yaml"
        self.write_config(config)
        self.mark = uuid.uuid4().hex
        self.lines = []
        self.allowed = []
        self.changed = threading.Condition()
        self.port = None
        self.finished = False
        self.idle_descriptors = None  # None: not compared, because workers come and go
        # What it learns stays with the test, and never gets into the folder of who runs it.
        environment = {**os.environ, "XDG_STATE_HOME": str(self.folder / "state"),
                       MARK_ENV: self.mark, **(env or {})}

        def limits():
            if nofile:
                resource.setrlimit(resource.RLIMIT_NOFILE, (nofile, nofile))

        self.process = subprocess.Popen(
            [str(binary()), "serve", "--config", str(self.config_path), *args],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
            env=environment, cwd=self.folder, preexec_fn=limits if nofile else None,
        )
        self.reader = threading.Thread(target=self._read_log, daemon=True)
        self.reader.start()
        if wait:
            self.wait_listening()
            self.idle_descriptors = self.other_descriptors()

    # --- log

    def _read_log(self):
        for raw in self.process.stderr:
            with self.changed:
                self.lines.append(raw.decode(errors="replace").rstrip("\n"))
                self.changed.notify_all()
        with self.changed:
            self.lines.append(None)  # end of the log
            self.changed.notify_all()

    def log(self):
        with self.changed:
            return [line for line in self.lines if line is not None]

    def wait_log(self, pattern, timeout=10, start=0):
        """The first line (from number `start` on) that matches; fails when none comes."""
        seeker = re.compile(pattern)
        deadline = time.monotonic() + timeout
        at = start
        with self.changed:
            while True:
                while at < len(self.lines):
                    line = self.lines[at]
                    if line is None:
                        raise AssertionError(f"the gateway ended before {pattern!r}:\n"
                                             + "\n".join(self.lines[:-1]))
                    if seeker.search(line):
                        return line
                    at += 1
                left = deadline - time.monotonic()
                if left <= 0:
                    raise AssertionError(f"no log line {pattern!r}:\n"
                                         + "\n".join(map(str, self.lines[-40:])))
                self.changed.wait(left)

    def allow_log(self, *patterns):
        """Announces `error` lines that the test means to cause."""
        self.allowed += [re.compile(p) for p in patterns]

    # --- life

    def wait_listening(self):
        line = self.wait_log(LISTENING.pattern, START_DEADLINE_S)
        self.port = int(LISTENING.search(line).group(1))

    @property
    def pid(self):
        return self.process.pid

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def write_config(self, config):
        text = config if isinstance(config, str) else yaml.safe_dump(config, sort_keys=False)
        # Written in one step: the gateway must never read half a file.
        temporary = self.config_path.with_suffix(".new")
        temporary.write_text(text)
        temporary.rename(self.config_path)

    def reload(self, config):
        """New file, SIGHUP; returns the log position before it."""
        self.write_config(config)
        start = len(self.log())
        self.process.send_signal(signal.SIGHUP)
        return start

    def wait_exit(self, timeout=10):
        return self.process.wait(timeout)

    def stop(self, timeout=15):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(timeout)
        finally:
            if self.process.poll() is None:
                self.process.kill()
                self.process.wait()

    def left_behind(self):
        """What outlives it. What was killed with it has yet to be scheduled once to be gone."""
        left = lambda: [p for p in marked_processes(self.mark) if p != self.pid]  # noqa: E731
        eventually(lambda: not left(), 2)
        return left()

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for pid in marked_processes(self.mark):
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass

    # --- looking

    def call(self, method, path, body=None, fields=(), **options):
        return call(self.port, method, path, body, fields, **options)

    def client(self, **options):
        return Client(self.port, **options)

    def chat(self, model="chat", stream=False, fields=(), timeout=10, **body):
        """One chat request."""
        body = {"model": model, "messages": [{"role": "user", "content": "hi"}]} | body
        if stream:
            body["stream"] = True
        return self.call("POST", "/v1/chat/completions", body, fields, timeout=timeout)

    def start_chat(self, model="chat", stream=True, **body):
        """A chat request that is left running: the client, nothing read yet."""
        client = self.client()
        body = {"model": model, "messages": [{"role": "user", "content": "hi"}]} | body
        client.request("POST", "/v1/chat/completions", body | {"stream": stream})
        return client

    def status(self):
        return self.call("GET", "/failsoft/v1/status").json()

    def service(self, name="chat"):
        return next(s for s in self.status()["services"] if s["name"] == name)

    def tiers(self, service="chat"):
        """The tiers of a service by name, each with what its worker says merged in."""
        return {t["name"]: {**t, **t["worker"]} for t in self.service(service)["tiers"]}

    def metrics(self):
        """{'name{labels}': value}"""
        out = {}
        for line in self.call("GET", "/metrics").body.decode().splitlines():
            if line and not line.startswith("#"):
                name, _, value = line.rpartition(" ")
                out[name] = float(value)
        return out

    def children(self):
        return children_of(self.pid)

    def memory_bytes(self, key="VmRSS"):
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith(key + ":"):
                return int(line.split()[1]) * 1024
        raise KeyError(key)

    def _descriptors(self):
        links = []
        folder = f"/proc/{self.pid}/fd"
        for fd in os.listdir(folder):
            try:
                links.append(os.readlink(f"{folder}/{fd}"))
            except OSError:
                continue
        return links

    def other_descriptors(self):
        """Everything but sockets, as a sorted list of what it is. Telemetry of the host opens a file
        for some microseconds now and then: those in /proc and /sys are nobody's leak."""
        return sorted(re.sub(r"\d+", "N", d) for d in self._descriptors()
                      if not d.startswith(("socket:", "/proc/", "/sys/")))

    def open_sockets(self):
        """Sockets that are not listening: connections of clients and to workers."""
        listening = set()
        for name in ("tcp", "tcp6"):
            for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]:
                parts = line.split()
                if parts[3] == "0A":
                    listening.add(f"socket:[{parts[9]}]")
        return [d for d in self._descriptors()
                if d.startswith("socket:") and d not in listening]

    # --- the end of every test

    def finish(self, expect_children=0, idle_sockets=0):
        if self.finished:
            return
        self.finished = True
        try:
            self._finish(expect_children, idle_sockets)
        finally:
            self.kill()

    def _open_requests(self):
        """Every accepted request has reached exactly one terminal state."""
        # The first looks may still find the server full of connections that the test just closed.
        if not eventually(lambda: self.status().get("requests") == [], IDLE_DEADLINE_S):
            return [f"requests that never ended: {self.status()['requests']}"]
        return [f"outcomes do not add up: {s}" for s in self.status()["services"]
                if s["requests_total"] != s["done"] + s["failed"] + s["cancelled"]]

    def _finish(self, expect_children, idle_sockets):
        problems = []
        if self.process.poll() is None and self.port is not None:
            problems += self._open_requests()
            if not eventually(lambda: len(self.open_sockets()) <= idle_sockets, IDLE_DEADLINE_S):
                problems.append(f"sockets left open when idle: {len(self.open_sockets())}"
                                f" (expected {idle_sockets})")
            if self.idle_descriptors is not None and not eventually(
                    lambda: self.other_descriptors() == self.idle_descriptors, 1):
                problems.append(f"descriptors: {self.idle_descriptors} at start,"
                                f" {self.other_descriptors()} at the end")
            if expect_children is not None:
                children = self.children()
                if len(children) != expect_children:
                    problems.append(f"children: {children}, expected {expect_children}")
            code = self.stop()
            if code != 0:
                problems.append(f"exit status {code} on SIGTERM")
        elif self.port is not None and not getattr(self, "may_exit", False):
            problems.append(f"the gateway ended by itself with status {self.process.returncode}")
        self.reader.join(5)
        left = self.left_behind()
        if left:
            problems.append(f"processes left behind: {left}")
        for line in self.log():
            if SANITIZER.search(line):
                problems.append(f"sanitizer: {line}")
            if ERROR_LINE.search(line) and not any(p.search(line) for p in self.allowed):
                problems.append(f"unexplained error line: {line}")
        if problems:
            raise AssertionError("after the test: " + "; ".join(problems)
                                 + "\n--- log ---\n" + "\n".join(self.log()[-60:]))
