"""The simulated accelerator with the real engine: cards, engines on them, and requests over a unix
socket, without the gateway. A card and an engine belong to one test and end with it."""

import http.client
import json
import os
import signal
import socket
import subprocess
import time
from pathlib import Path

FAILSOFT = os.environ.get("FAILSOFT_BIN", "failsoft")
ENGINE = Path(os.environ.get("FAILSOFT_ENGINE", "."))
PLUGIN = os.environ.get("FAILSOFT_SIM_PLUGIN", "")
CHAT_MODEL = os.environ.get("FAILSOFT_CHAT_MODEL", "")
EMBED_MODEL = os.environ.get("FAILSOFT_EMBED_MODEL", "")
MIB = 1024 * 1024


def engine_program():
    """FAILSOFT_ENGINE is the program or the folder it lies in."""
    return ENGINE / "llama-server" if ENGINE.is_dir() else ENGINE


class Card:
    """A card of this test, commanded as a user does: by `failsoft sim`."""

    def __init__(self, name, capacity, **settings):
        self.name = name
        self.hogs = []
        self.sim("create", name, "--capacity", capacity, *self._pairs(settings))

    @staticmethod
    def _pairs(settings):
        return [f"{key.replace('_', '-')}={value}" for key, value in settings.items()]

    @staticmethod
    def run(*arguments):
        return subprocess.run(
            [FAILSOFT, "sim", *map(str, arguments)], capture_output=True, text=True, timeout=30
        )

    def sim(self, command, *arguments):
        result = self.run(command, *arguments)
        assert result.returncode == 0, result.stderr
        return result.stdout

    def set(self, **settings):
        self.sim("set", self.name, *self._pairs(settings))

    def show(self):
        return json.loads(self.sim("show", self.name, "--json"))

    def command(self, command, *arguments):
        return self.sim(command, self.name, *arguments)

    def hog(self, *arguments):
        hog = subprocess.Popen(
            [FAILSOFT, "sim", "hog", self.name, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.hogs.append(hog)
        line = hog.stdout.readline()
        assert line.startswith("READY "), line
        return int(line.split()[1])

    def close(self):
        for hog in self.hogs:
            hog.stdin.close()
            hog.wait(timeout=10)
            hog.stdout.close()
        self.run("destroy", self.name, "--force")


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path, timeout):
        super().__init__("localhost", timeout=timeout)
        self.path = str(path)

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Engine:
    """One llama-server; on a card when one is given, else on the CPU alone. One thread: a busy
    machine slows it down instead of bringing it to a halt."""

    def __init__(self, folder, card=None, context=2048, options=(), device="SIM0", layers=99,
                 threads="1", model=CHAT_MODEL):
        self.socket = folder / f"{card.name if card else 'cpu'}.sock"
        self.log_path = folder / f"{self.socket.stem}.log"
        environment = dict(os.environ, GGML_NO_BACKTRACE="1", FAILSOFT_SIM_THREADS=threads)
        command = [engine_program(), "-m", model, "-c", context, "-np", 1, "-fa", "on",
                   "-fit", "off", "-t", threads, "-lv", 4, "--host", self.socket,
                   "--sse-ping-interval", 1, *options]
        environment.pop("GGML_BACKEND_PATH", None)
        if card:
            environment.update(GGML_BACKEND_PATH=PLUGIN, FAILSOFT_SIM_CARD=card.name)
            command += ["-ngl", layers]
        if card and device:
            command += ["--device", device]
        with open(self.log_path, "wb") as log:
            self.process = subprocess.Popen(
                list(map(str, command)), env=environment, stdin=subprocess.DEVNULL, stdout=log,
                stderr=subprocess.STDOUT, start_new_session=True,
            )

    @property
    def log(self):
        return self.log_path.read_text(errors="replace")

    def request(self, method, path, body=None, timeout=30):
        connection = UnixConnection(self.socket, timeout)
        try:
            text = json.dumps(body) if body is not None else None
            connection.request(method, path, text, {"Content-Type": "application/json"})
            response = connection.getresponse()
            return response.status, json.loads(response.read())
        finally:
            connection.close()

    def wait_ready(self, deadline_s=30):
        """Until /health says ok; False when the process ended instead."""
        end = time.monotonic() + deadline_s
        while time.monotonic() < end and self.process.poll() is None:
            try:
                if self.request("GET", "/health", timeout=5)[0] == 200:
                    return True
            except (OSError, http.client.HTTPException):
                pass
            time.sleep(0.05)  # a listening socket announces itself no other way
        assert self.process.poll() is not None, "the engine is neither ready nor gone:\n" + self.log
        return False

    def completion(self, prompt, tokens, **more):
        body = {"prompt": prompt, "n_predict": tokens, "temperature": 0, "seed": 1,
                "return_tokens": True, "cache_prompt": False, **more}
        return self.request("POST", "/completion", body)

    def chat_body(self, tokens=32, stream=False):
        return {"messages": [{"role": "user", "content": "Tell me about the sea."}],
                "max_tokens": tokens, "temperature": 0, "seed": 1, "stream": stream,
                "cache_prompt": False}

    def chat(self, **more):
        return self.request("POST", "/v1/chat/completions", self.chat_body(**more))

    def stream(self, tokens=32, timeout=30):
        """Status and an iterator over the data of events; ends where the connection ends."""
        connection = UnixConnection(self.socket, timeout)
        connection.request("POST", "/v1/chat/completions",
                           json.dumps(self.chat_body(tokens=tokens, stream=True)),
                           {"Content-Type": "application/json"})
        response = connection.getresponse()

        def events():
            try:
                for line in response:
                    if line.startswith(b"data: "):
                        yield line[6:].strip().decode()
            except (http.client.IncompleteRead, ConnectionError):
                pass
            finally:
                connection.close()

        return response.status, events()

    def wait_end(self, timeout=20):
        return self.process.wait(timeout=timeout)

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                self.process.kill()
        return self.process.wait(timeout=10)


def content_of(event):
    """The text of a chat event, '' for one without."""
    choices = json.loads(event).get("choices") or [{}]
    return choices[0].get("delta", {}).get("content") or ""
