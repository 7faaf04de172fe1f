"""A scripted HTTP server that can misbehave: the black-box tests' stand-in for an engine.

Raw asyncio transports, no HTTP framework, because it has to send what no framework would: half an
event, a reset, bytes without framing, one byte at a time. It owns one loop thread for the whole
test process; tests talk to it from their own thread.

    up = FakeUpstream()                      listening on 127.0.0.1, its own port
    up.route("/health", {"json": {...}})     answers that stay
    up.script(PATH, [steps, steps, ...])     answers by request number, then the route's
    up.gate("go").set()                      lets a script that waits in {"gate": "go"} go on
    up.wait_request(PATH).wait_closed(0.5)   when did the peer leave

A script is a list of steps, each a one-key dict, so that a case file can hold it:

    head: {status, type, framing: chunked|length|close, length, headers, reason}
    send: TEXT   hex: "e9 82"   fill: {byte: "x", bytes: N}       body bytes (framed)
    raw: TEXT    rawhex: "…"                                      bytes past the framing
    sse: JSON    nd: JSON       error: {…}                        one event, one line
    role / delta / reasoning / tool / progress / finish / usage / done   as llama-server says it
    repeat: {times, steps}      split: {every | at, level: body|socket, steps}
    gate: NAME   reach: NAME    pause: SECONDS   silence: true    waiting (silence: until peer leaves)
    end: true    fin: true      rst: true                         proper end, half close, reset
    reply: {status, json | text | hex, type, headers}             a whole answer

An unfinished chunked body is never ended by accident: without `end` the connection is closed.
"""

import asyncio
import json
import os
import socket
import struct
import threading
import time
from dataclasses import dataclass, field

RAW_KEPT_BYTES = 1 << 20
SETTLE_DEADLINE_S = 0.5


class PeerGone(Exception):
    """The peer closed its connection while the script still had something to say."""


class _LoopThread:
    """One event loop in one daemon thread, shared by every fake of the test process."""

    _instance = None
    _lock = threading.Lock()

    def __init__(self):
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, name="fakes", daemon=True)
        self.thread.start()

    @classmethod
    def get(cls):
        with cls._lock:
            if cls._instance is None:
                cls._instance = cls()
            return cls._instance

    def call(self, coroutine, timeout=10):
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(timeout)


class Gate:
    """An event that tests set and scripts wait for, or the other way round."""

    def __init__(self, loop):
        self._loop = loop
        self._async = asyncio.Event()
        self._thread = threading.Event()

    def set(self):
        self._thread.set()
        self._loop.call_soon_threadsafe(self._async.set)

    def is_set(self):
        return self._thread.is_set()

    def wait(self, timeout=5):
        assert self._thread.wait(timeout), "the script did not get there in time"

    async def wait_async(self):
        await self._async.wait()


@dataclass
class Received:
    """One request as it came in, and what became of its connection."""

    method: str
    target: str
    path: str
    fields: list
    raw_head: bytes
    body: bytes
    number: int  # 1-based, per path
    on_connection: int  # 1-based, per connection
    arrived_at: float
    connection: "Connection"
    closed_at: float = None
    error: str = None
    whole: bool = False  # the answer was ended properly
    sent: bytearray = field(default_factory=bytearray)  # body bytes answered, without framing
    _closed: threading.Event = field(default_factory=threading.Event)
    _answered: threading.Event = field(default_factory=threading.Event)

    def get(self, name, default=None):
        for key, value in self.fields:
            if key.lower() == name.lower():
                return value
        return default

    def all(self, name):
        return [value for key, value in self.fields if key.lower() == name.lower()]

    def json(self):
        return json.loads(self.body)

    def wait_closed(self, timeout=5):
        """Seconds from now (or negative, if before) until the peer closed; fails when it did not."""
        now = time.monotonic()
        assert self._closed.wait(timeout), f"upstream connection still open after {timeout} s"
        return self.closed_at - now

    def wait_answered(self, timeout=5):
        assert self._answered.wait(timeout), "the script has not ended"


class Connection(asyncio.Protocol):
    """One accepted connection: strict enough to read what a proxy sends, no more."""

    def __init__(self, upstream):
        self.upstream = upstream
        self.transport = None
        self.sock = None
        self.buffer = bytearray()
        self.raw = bytearray()
        self.raw_bytes = 0
        self.opened_at = time.monotonic()
        self.closed_at = None
        self.peer_closed = asyncio.Event()
        self.readable = asyncio.Event()
        self.writable = asyncio.Event()
        self.writable.set()
        self.requests = 0
        self.current = None
        self.task = None
        self.chunked = False
        self.begun = False
        self.ended = False
        self.keep = True

    # --- asyncio.Protocol

    def connection_made(self, transport):
        self.transport = transport
        self.sock = transport.get_extra_info("socket")
        if self.sock.family != socket.AF_UNIX:
            self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.upstream._connections.append(self)
        self.task = self.upstream._loop.create_task(self._serve())

    def data_received(self, data):
        self.raw_bytes += len(data)
        if len(self.raw) < RAW_KEPT_BYTES:
            self.raw += data[: RAW_KEPT_BYTES - len(self.raw)]
        self.buffer += data
        self.readable.set()

    def eof_received(self):
        self._note_closed()
        return True  # keep our half: a script may still want to send into it

    def connection_lost(self, _error):
        self._note_closed()
        self.writable.set()
        if self.task is not None:
            self.task.cancel()

    def pause_writing(self):
        self.writable.clear()

    def resume_writing(self):
        self.writable.set()

    def _note_closed(self):
        if self.closed_at is None:
            self.closed_at = time.monotonic()
            if self.current is not None:
                self.current.closed_at = self.closed_at
                self.current._closed.set()
        self.peer_closed.set()
        self.readable.set()

    # --- reading requests

    async def _more(self):
        self.readable.clear()
        if self.peer_closed.is_set():
            raise PeerGone
        timeout = self.upstream.idle_close_s if not self.buffer and self.requests else None
        try:
            await asyncio.wait_for(self.readable.wait(), timeout)
        except asyncio.TimeoutError:
            raise PeerGone from None
        if self.peer_closed.is_set() and not self.buffer:
            raise PeerGone

    async def _take(self, count):
        while len(self.buffer) < count:
            if self.peer_closed.is_set():
                raise PeerGone
            await self._more()
        out = bytes(self.buffer[:count])
        del self.buffer[:count]
        return out

    async def _take_line(self):
        while b"\r\n" not in self.buffer:
            if self.peer_closed.is_set():
                raise PeerGone
            await self._more()
        line, _, rest = bytes(self.buffer).partition(b"\r\n")
        self.buffer[:] = rest
        return line

    async def _read_request(self):
        while b"\r\n\r\n" not in self.buffer:
            await self._more()
        head, _, rest = bytes(self.buffer).partition(b"\r\n\r\n")
        self.buffer[:] = rest
        lines = head.split(b"\r\n")
        method, target, _version = lines[0].decode("latin-1").split(" ", 2)
        fields = []
        for line in lines[1:]:
            name, _, value = line.decode("latin-1").partition(":")
            fields.append((name, value.strip()))
        lower = {name.lower(): value for name, value in fields}
        error = None
        body = b""
        if self.upstream.early_answer and method == "POST":
            await self.write(self.upstream.early_answer)
            self.transport.pause_reading()
            await asyncio.sleep(0.05)  # the peer is still writing: that is the point
            raise PeerGone
        if "transfer-encoding" in lower and "content-length" in lower:
            error = "both Transfer-Encoding and Content-Length"
        if lower.get("transfer-encoding", "").lower() == "chunked":
            parts = []
            while True:
                size = int((await self._take_line()).split(b";")[0], 16)
                parts.append(await self._take(size))
                if size == 0:
                    while await self._take_line():
                        pass
                    break
                assert await self._take(2) == b"\r\n"
            body = b"".join(parts)
        elif "content-length" in lower:
            body = await self._take(int(lower["content-length"]))
        self.requests += 1
        path = target.split("?", 1)[0]
        number = self.upstream._count(path)
        return Received(
            method, target, path, fields, head + b"\r\n\r\n", body, number, self.requests,
            time.monotonic(), self, error=error,
        )

    async def _serve(self):
        try:
            while self.keep:
                self.begun = self.ended = self.chunked = False
                request = await self._read_request()
                self.current = request
                if self.peer_closed.is_set():  # it left while its request lay unread
                    request.closed_at = self.closed_at
                    request._closed.set()
                self.upstream._arrived(request)
                if self.upstream._drop_now(self):
                    break
                steps = self.upstream._answer_for(request)
                try:
                    if callable(steps):
                        steps = steps(request)
                    if asyncio.iscoroutine(steps):
                        await steps
                    else:
                        await self.run(steps)
                finally:
                    request.whole = self.ended
                    request._answered.set()
                limit = self.upstream.close_after_requests
                if not self.ended or (limit and self.requests >= limit):
                    break
                if request.get("connection", "").lower() == "close":
                    break
        except (PeerGone, ConnectionError):
            pass
        except asyncio.CancelledError:
            return
        if not self.transport.is_closing():
            self.transport.close()

    # --- answering

    async def write(self, data):
        """Raw bytes; waits while the peer does not take them."""
        if self.transport.is_closing():
            raise PeerGone
        self.transport.write(data)
        await self.writable.wait()

    async def send(self, data):
        """Body bytes, in a chunk of their own when the body is chunked."""
        if data:
            if len(self.current.sent) < RAW_KEPT_BYTES:
                self.current.sent += data
            await self.write(self._framed(data))

    def _framed(self, data):
        return b"%x\r\n%s\r\n" % (len(data), data) if self.chunked else data

    async def settle(self):
        """Waits until the peer has read all that was sent, so that the next bytes come alone."""
        deadline = time.monotonic() + SETTLE_DEADLINE_S
        while self.transport.get_write_buffer_size() or peer_unread_bytes(self.sock):
            if time.monotonic() > deadline or self.peer_closed.is_set():
                return
            await asyncio.sleep(0.0005)
        await asyncio.sleep(0)

    def reset(self):
        """RST instead of FIN; what is queued is lost."""
        self.keep = False
        try:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        except OSError:
            pass
        self.transport.abort()

    async def run(self, steps):
        for step in steps:
            (name, argument), = step.items()
            await getattr(self, "_do_" + name)(argument)

    def _head_bytes(self, status, fields, reason):
        lines = [f"HTTP/1.1 {status} {reason or 'Scripted'}"]
        lines += [f"{name}: {value}" for name, value in fields]
        return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n"

    async def _do_head(self, spec):
        spec = spec if isinstance(spec, dict) else {"status": spec}
        fields = [("Server", self.upstream.server_name)]
        kind = spec.get("type", "text/event-stream")
        if kind:
            fields.append(("Content-Type", kind))
        framing = spec.get("framing", "chunked")
        self.chunked = framing == "chunked"
        if self.chunked:
            fields.append(("Transfer-Encoding", "chunked"))
        elif framing == "length":
            fields.append(("Content-Length", spec["length"]))
        else:
            fields.append(("Connection", "close"))
        extra = spec.get("headers") or {}
        fields += list(extra.items()) if isinstance(extra, dict) else [tuple(f) for f in extra]
        self.begun = True
        await self.write(self._head_bytes(spec.get("status", 200), fields, spec.get("reason")))

    async def _do_reply(self, spec):
        if "json" in spec:
            body, kind = json.dumps(spec["json"]).encode(), "application/json; charset=utf-8"
        elif "hex" in spec:
            body, kind = bytes.fromhex(spec["hex"]), "application/octet-stream"
        elif "bytes" in spec:
            body, kind = spec["bytes"], "application/octet-stream"
        else:
            body, kind = str(spec.get("text", "")).encode(), "text/plain"
        head = {
            "status": spec.get("status", 200),
            "type": spec.get("type", kind),
            "framing": "length",
            "length": len(body),
            "headers": spec.get("headers"),
            "reason": spec.get("reason"),
        }
        await self._do_head(head)
        if self.current.method != "HEAD" and body:
            await self.write(body)
        self.ended = True

    async def _do_send(self, text):
        await self.send(text if isinstance(text, bytes) else text.encode())

    async def _do_hex(self, text):
        await self.send(bytes.fromhex(text))

    async def _do_fill(self, spec):
        left, unit = spec["bytes"], spec.get("byte", "x").encode() * 65536
        while left > 0:
            await self.send(unit[: min(left, len(unit))])
            left -= len(unit)

    async def _do_raw(self, text):
        await self.write(text if isinstance(text, bytes) else text.encode())

    async def _do_rawhex(self, text):
        await self.write(bytes.fromhex(text))

    async def _do_sse(self, value):
        await self.send(b"data: " + json.dumps(value, ensure_ascii=False).encode() + b"\n\n")

    async def _do_nd(self, value):
        await self.send(json.dumps(value, ensure_ascii=False).encode() + b"\n")

    async def _do_error(self, value):
        await self._do_sse({"error": value})

    def _chunk(self, delta=None, finish=None, **extra):
        choice = {"index": 0, "finish_reason": finish, "delta": delta or {}}
        return {
            "choices": [choice],
            "created": 1700000000,
            "id": f"chatcmpl-fake{self.current.number if self.current else 0}",
            "model": self.upstream.model,
            "system_fingerprint": "b1-fake",
            "object": "chat.completion.chunk",
            **extra,
        }

    async def _do_role(self, argument):
        extra = {"prompt_progress": argument} if isinstance(argument, dict) else {}
        await self._do_sse(self._chunk({"role": "assistant", "content": None}, **extra))

    async def _do_progress(self, argument):
        done, total = argument
        progress = {"total": total, "cache": 0, "processed": done, "time_ms": done}
        await self._do_sse(self._chunk({"role": "assistant", "content": None},
                                       prompt_progress=progress))

    async def _do_delta(self, text):
        await self._do_sse(self._chunk({"content": text}))

    async def _do_reasoning(self, text):
        await self._do_sse(self._chunk({"reasoning_content": text}))

    async def _do_tool(self, call):
        """One fragment: {index, id?, name?, arguments?}."""
        function = {k: call[k] for k in ("name", "arguments") if k in call}
        item = {"index": call.get("index", 0), "function": function}
        if "id" in call:
            item |= {"id": call["id"], "type": "function"}
        await self._do_sse(self._chunk({"tool_calls": [item]}))

    async def _do_finish(self, reason):
        await self._do_sse(self._chunk({}, finish=reason))

    async def _do_usage(self, argument):
        usage = argument if isinstance(argument, dict) else {
            "completion_tokens": 3, "prompt_tokens": 5, "total_tokens": 8,
        }
        chunk = self._chunk(usage=usage)
        chunk["choices"] = []
        await self._do_sse(chunk)

    async def _do_done(self, _argument):
        await self.send(b"data: [DONE]\n\n")
        await self._do_end(True)

    async def _do_repeat(self, spec):
        for _ in range(spec["times"]):
            await self.run(spec["steps"])

    async def _do_split(self, spec):
        collector = _Collector(self)
        await collector.run(spec["steps"])
        data = bytes(collector.out)
        level = spec.get("level", "body")
        if level == "socket":
            data = bytes(collector.framed)
            self.current.sent += collector.out
        cuts = spec.get("at")
        if cuts is None:
            cuts = range(spec["every"], len(data), spec["every"])
        last = 0
        for cut in [*cuts, len(data)]:
            piece = data[last:cut]
            last = cut
            if piece:
                await (self.write(piece) if level == "socket" else self.send(piece))
                await self.settle()
        if collector.ended and level != "socket":
            await self._do_end(True)
        self.ended = self.ended or collector.ended

    async def _do_gate(self, name):
        waiting = asyncio.ensure_future(self.upstream.gate(name).wait_async())
        leaving = asyncio.ensure_future(self.peer_closed.wait())
        await asyncio.wait({waiting, leaving}, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        leaving.cancel()
        if not self.upstream.gate(name).is_set():
            raise PeerGone

    async def _do_reach(self, name):
        self.upstream.gate(name).set()

    async def _do_pause(self, seconds):
        await asyncio.sleep(seconds)

    async def _do_silence(self, _argument):
        await self.peer_closed.wait()
        raise PeerGone

    async def _do_end(self, _argument):
        if self.chunked:
            await self.write(b"0\r\n\r\n")
        self.ended = True

    async def _do_fin(self, _argument):
        self.keep = False
        self.ended = False
        while self.transport.get_write_buffer_size():
            await asyncio.sleep(0.001)
        self.transport.close()
        raise PeerGone

    async def _do_rst(self, _argument):
        await self.settle()  # what was sent before the reset shall be seen
        self.reset()
        raise PeerGone


class _Collector(Connection):
    """Runs steps into memory, so that `split` can cut the result anywhere."""

    def __init__(self, real):  # noqa: no super().__init__: it borrows the real connection's place
        self.upstream = real.upstream
        self.current = real.current
        self.chunked = False
        self._real_chunked = real.chunked
        self.out = bytearray()
        self.framed = bytearray()
        self.ended = False

    async def send(self, data):
        self.out += data
        self.framed += b"%x\r\n%s\r\n" % (len(data), data) if self._real_chunked else data

    async def write(self, data):
        self.out += data
        self.framed += data

    async def _do_end(self, _argument):
        self.framed += b"0\r\n\r\n" if self._real_chunked else b""
        self.ended = True


NETLINK_SOCK_DIAG, SOCK_DIAG_BY_FAMILY = 4, 20
_diag = threading.local()


def peer_unread_bytes(sock):
    """Bytes that lie unread in the socket at the other end (both ends are on this machine)."""
    try:
        local, peer = sock.getsockname(), sock.getpeername()
    except OSError:
        return 0
    if not hasattr(_diag, "netlink"):
        try:
            _diag.netlink = socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, NETLINK_SOCK_DIAG)
        except OSError:  # no netlink here: the table in /proc says the same, slowly
            _diag.netlink = None
    return _unread_by_table(local, peer) if _diag.netlink is None else _unread_by_diag(local, peer)


def _unread_by_diag(local, peer):
    """struct inet_diag_req_v2 for the peer's own view of the connection (linux/inet_diag.h)."""
    def address(host):
        return socket.inet_aton(host) + bytes(12)

    any_cookie = 0xFFFFFFFF
    request = struct.pack("=BBBBI", socket.AF_INET, socket.IPPROTO_TCP, 0, 0, 0xFFFFFFFF)
    request += struct.pack("!HH", peer[1], local[1]) + address(peer[0]) + address(local[0])
    request += struct.pack("=III", 0, any_cookie, any_cookie)
    header = struct.pack("=IHHII", 16 + len(request), SOCK_DIAG_BY_FAMILY, 1, 1, 0)
    _diag.netlink.send(header + request)
    answer = _diag.netlink.recv(8192)
    if struct.unpack_from("=IH", answer)[1] != SOCK_DIAG_BY_FAMILY:
        return 0  # the peer's socket is gone
    return struct.unpack_from("=II", answer, 16 + 4 + 48)[1]


def _unread_by_table(local, peer):
    def text(address):
        return f"{struct.unpack('<I', socket.inet_aton(address[0]))[0]:08X}:{address[1]:04X}"

    want = f"{text(peer)} {text(local)} "
    with open("/proc/net/tcp", encoding="ascii") as table:
        for line in table:
            if want in line:
                return int(line.split()[4].split(":")[1], 16)
    return 0


class FakeUpstream:
    """One listening socket with its scripts and its memory of what came."""

    def __init__(self, port=0, model="fake-model", server_name="llama.cpp"):
        self._thread = _LoopThread.get()
        self._loop = self._thread.loop
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._connections = []
        self._requests = []
        self._counts = {}
        self._routes = {}
        self._scripts = {}
        self._gates = {}
        self._listener = None
        self._accepting = None
        self._accept_task = None
        self.model = model
        self.server_name = server_name
        self.close_after_requests = 0
        self.idle_close_s = None
        self.drop_requests = 0  # close that many connections just as a request is there
        self.drop_only_reused = False
        self.early_answer = None  # raw bytes: said after a POST's head, then closed, body unread
        self.port = port
        self.start()

    # --- life

    def start(self):
        self._thread.call(self._start())

    async def _start(self):
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", self.port))
        listener.listen(1024)
        listener.setblocking(False)
        self.port = listener.getsockname()[1]
        self._listener = listener
        self._accepting = asyncio.Event()
        self._accepting.set()
        self._accept_task = self._loop.create_task(self._accept_loop())

    async def _accept_loop(self):
        while True:
            await self._accepting.wait()
            sock, _ = await self._loop.sock_accept(self._listener)
            await self._accepting.wait()
            await self._loop.connect_accepted_socket(lambda: Connection(self), sock)

    def stop(self):
        """Refuses connections from now on and resets the open ones."""
        self._thread.call(self._stop())

    async def _stop(self):
        if self._accept_task is not None:
            self._accept_task.cancel()
            await asyncio.gather(self._accept_task, return_exceptions=True)
            self._listener.close()
            self._accept_task = None
        for connection in self._connections:
            if not connection.transport.is_closing():
                connection.reset()

    def pause_accept(self):
        """Connects succeed (backlog) and nothing answers, as with a stopped process."""
        self._loop.call_soon_threadsafe(self._accepting.clear)

    def resume_accept(self):
        self._loop.call_soon_threadsafe(self._accepting.set)

    def close_connections(self):
        """FIN on every open connection."""
        def close_all():
            for connection in self._connections:
                connection.transport.close()
        self._loop.call_soon_threadsafe(close_all)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    # --- what to answer

    def route(self, path, answer):
        """A lasting answer: steps, a reply dict, or a function of the request giving steps."""
        self._routes[path] = [{"reply": answer}] if isinstance(answer, dict) else answer

    def script(self, path, answers):
        """The next answers of a path, one per request; then its route again. None: the route."""
        with self._lock:
            self._scripts.setdefault(path, []).extend(answers)

    def always(self, path, steps):
        """The same script for every request of a path."""
        self._routes[path] = steps

    def gate(self, name):
        with self._lock:
            if name not in self._gates:
                self._gates[name] = Gate(self._loop)
            return self._gates[name]

    def _answer_for(self, request):
        with self._lock:
            queue = self._scripts.get(request.path)
            steps = queue.pop(0) if queue else None
        if steps is None:
            steps = self._routes.get(request.path)
        if steps is None:
            steps = self._routes.get("*")
        if steps is None:
            error = {"code": 404, "message": "File Not Found", "type": "not_found_error"}
            steps = [{"reply": {"status": 404, "json": {"error": error}}}]
        return steps

    def _drop_now(self, connection):
        if self.drop_requests <= 0 or (self.drop_only_reused and connection.requests < 2):
            return False
        self.drop_requests -= 1
        return True

    # --- what came

    def _count(self, path):
        with self._lock:
            self._counts[path] = self._counts.get(path, 0) + 1
            return self._counts[path]

    def _arrived(self, request):
        with self._changed:
            self._requests.append(request)
            self._changed.notify_all()

    def received(self, path=None, method=None):
        with self._lock:
            return [r for r in self._requests
                    if (path is None or r.path == path) and (method is None or r.method == method)]

    def posts(self):
        """Everything that is work; probes are GETs."""
        return self.received(method="POST")

    def wait_request(self, path=None, number=1, timeout=5, method="POST"):
        """The number-th request of a path, waited for."""
        deadline = time.monotonic() + timeout
        with self._changed:
            while True:
                found = [r for r in self._requests
                         if (path is None or r.path == path) and r.method == method]
                if len(found) >= number:
                    return found[number - 1]
                left = deadline - time.monotonic()
                assert left > 0, f"request {number} of {path or 'any path'} did not arrive"
                self._changed.wait(left)

    def raw_received(self):
        return b"".join(bytes(c.raw) for c in self._connections)

    def open_connections(self):
        return sum(1 for c in self._connections if c.closed_at is None
                   and not c.transport.is_closing())

    def forget(self):
        """Between the parts of one test: forgets requests, scripts and gates."""
        with self._lock:
            self._requests.clear()
            self._counts.clear()
            self._scripts.clear()
            self._gates.clear()


if __name__ == "__main__":  # a fake to poke at by hand
    from fake_engines import FakeLlama

    fake = FakeLlama(port=int(os.environ.get("PORT", "0")))
    print(f"listening on {fake.url}", flush=True)
    threading.Event().wait()
