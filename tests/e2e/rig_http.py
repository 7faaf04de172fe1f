"""A strict HTTP/1.1 client over a plain socket: what it accepts is what the rules allow.

Used instead of a library where a test has to see framing, timing, or the end of a connection; a
reply that is cut, framed wrongly or longer than it said is an error of the gateway, told as such.
"""

import json
import socket
import time


class BadFraming(AssertionError):
    """The gateway wrote something that HTTP/1.1 does not allow."""


class Cut(AssertionError):
    """The connection ended before the message did."""


class Reply:
    def __init__(self, status, fields, version):
        self.status = status
        self.fields = fields
        self.version = version
        self.received = bytearray()
        self.complete = False

    def get(self, name, default=None):
        values = self.all(name)
        return values[0] if values else default

    def all(self, name):
        return [value for key, value in self.fields if key.lower() == name.lower()]

    @property
    def body(self):
        return bytes(self.received)

    def json(self):
        return json.loads(self.body)

    @property
    def tier(self):
        return self.get("X-Failsoft-Tier")

    @property
    def error(self):
        """The error object of an OpenAI or Anthropic shaped answer."""
        return self.json()["error"]

    def events(self):
        return sse_events(self.body)

    def data(self):
        """The JSON of every event but the last `[DONE]`."""
        return [json.loads(e["data"]) for e in self.events() if e["data"] != "[DONE]"]

    def text(self):
        return chat_text(self.data())

    def __repr__(self):
        return f"<Reply {self.status} {self.fields} {self.body[:400]!r} complete={self.complete}>"


def sse_events(body):
    """Splits a body of LF-terminated SSE strictly: each block must carry data and be complete."""
    assert body == b"" or body.endswith(b"\n\n"), f"the last event is not complete: {body[-80:]!r}"
    events = []
    for block in body.decode().split("\n\n"):
        if not block:
            continue
        event = {"data": None, "event": None, "id": None, "comments": []}
        for line in block.split("\n"):
            if line.startswith(":"):
                event["comments"].append(line)
                continue
            name, _, value = line.partition(":")
            value = value.removeprefix(" ")
            assert name in ("data", "event", "id"), f"unexpected field in {block!r}"
            if name == "data" and event["data"] is not None:
                value = event["data"] + "\n" + value
            event[name] = value
        assert event["data"] is not None, f"an event without data reached the client: {block!r}"
        events.append(event)
    return events


def chat_text(chunks):
    out = ""
    for chunk in chunks:
        for choice in chunk.get("choices") or []:
            out += (choice.get("delta") or {}).get("content") or ""
    return out


def finish_reasons(chunks):
    return [choice["finish_reason"] for chunk in chunks for choice in chunk.get("choices") or []
            if choice.get("finish_reason")]


class Client:
    def __init__(self, port, receive_buffer=None, timeout=10):
        self.sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        if receive_buffer:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.sock.settimeout(timeout)
        self.sock.connect(("127.0.0.1", port))
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.timeout = timeout
        self.buffer = b""
        self.eof = False
        self.reset = False
        self.interim = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.sock.close()

    def abort(self):
        """Leaves with a reset."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        self.sock.close()

    # --- sending

    def send(self, data):
        self.sock.sendall(data)

    def send_or_refused(self, data):
        """As send, where the other side may answer and close before it has taken everything."""
        try:
            self.sock.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            return False
        return True

    def request(self, method, path, body=None, fields=(), chunked=False):
        """Sends a request; a dict is sent as JSON, a list as chunks."""
        fields = list(fields)
        names = {name.lower() for name, _ in fields}
        if isinstance(body, dict):
            body = json.dumps(body).encode()
            if "content-type" not in names:
                fields.append(("Content-Type", "application/json"))
        head = [f"{method} {path} HTTP/1.1"]
        if "host" not in names:
            head.append("Host: failsoft.test")
        head += [f"{name}: {value}" for name, value in fields]
        if chunked:
            head.append("Transfer-Encoding: chunked")
        elif body is not None and "content-length" not in names:
            head.append(f"Content-Length: {len(body)}")
        data = "\r\n".join(head).encode("latin-1") + b"\r\n\r\n"
        if chunked:
            self.send(data)
            for piece in body if isinstance(body, list) else [body]:
                self.send(b"%x\r\n%s\r\n" % (len(piece), piece))
            self.send(b"0\r\n\r\n")
        else:
            self.send(data + (body or b""))

    # --- receiving

    def _fill(self, deadline):
        if self.eof:
            return False
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError(f"nothing more came; so far {self.buffer[:300]!r}")
        self.sock.settimeout(left)
        try:
            data = self.sock.recv(262144)
        except socket.timeout:
            raise TimeoutError(f"nothing more came; so far {self.buffer[:300]!r}") from None
        except ConnectionResetError:
            data, self.reset = b"", True
        if not data:
            self.eof = True
            return False
        self.buffer += data
        return True

    def _line(self, deadline):
        while b"\n" not in self.buffer:
            if not self._fill(deadline):
                raise Cut(f"cut inside a line: {self.buffer[:200]!r}")
        line, _, self.buffer = self.buffer.partition(b"\n")
        if not line.endswith(b"\r") or b"\r" in line[:-1]:
            raise BadFraming(f"line does not end in CRLF: {line!r}")
        return line[:-1]

    def read_line(self, timeout=None):
        return self._line(time.monotonic() + (timeout or self.timeout))

    def read_head(self, timeout=None):
        deadline = time.monotonic() + (timeout or self.timeout)
        while True:
            line = self._line(deadline).decode("latin-1")
            version, _, rest = line.partition(" ")
            status, _, _reason = rest.partition(" ")
            if version not in ("HTTP/1.1", "HTTP/1.0") or len(status) != 3:
                raise BadFraming(f"not a status line: {line!r}")
            fields = []
            while field := self._line(deadline).decode("latin-1"):
                name, colon, value = field.partition(":")
                if not colon or not name or name.strip() != name:
                    raise BadFraming(f"not a field: {field!r}")
                fields.append((name, value.strip()))
            reply = Reply(int(status), fields, version)
            if reply.status >= 200:
                break
            self.interim.append(reply)
        if reply.get("Transfer-Encoding") and reply.get("Content-Length"):
            raise BadFraming(f"two framings: {fields}")
        self._begin_body(reply)
        return reply

    def _begin_body(self, reply):
        self.reply = reply
        encoding = reply.get("Transfer-Encoding")
        if encoding:
            if encoding.lower() != "chunked":
                raise BadFraming(f"unknown transfer encoding {encoding}")
            self.left = "chunked"
        elif reply.get("Content-Length") is not None:
            self.left = int(reply.get("Content-Length"))
        elif reply.status in (204, 304):
            self.left = 0
        else:
            self.left = "close"

    def read_piece(self, timeout=None):
        """The next bytes of the body, as they come (one chunk); b"" at its proper end."""
        deadline = time.monotonic() + (timeout or self.timeout)
        if self.reply.complete:
            return b""
        piece = b""
        if self.left == "chunked":
            size_text = self._line(deadline).split(b";")[0]
            size = int(size_text, 16)
            while len(self.buffer) < size + 2:
                if not self._fill(deadline):
                    raise Cut(f"cut inside a chunk, {len(self.reply.received)} bytes before it")
            piece, end = self.buffer[:size], self.buffer[size:size + 2]
            self.buffer = self.buffer[size + 2:]
            if end != b"\r\n":
                raise BadFraming(f"chunk of {size} bytes ends in {end!r}")
        elif self.left == "close":
            if self.buffer or self._fill(deadline):
                piece, self.buffer = self.buffer, b""
            elif self.reset:
                raise Cut("reset")
        elif self.left > 0:
            if not self.buffer and not self._fill(deadline):
                raise Cut(f"cut, {self.left} bytes of the body missing")
            piece, self.buffer = self.buffer[: self.left], self.buffer[self.left:]
            self.left -= len(piece)
        if not piece:
            self.reply.complete = True
        self.reply.received += piece
        return piece

    def read_body(self, timeout=None):
        deadline = time.monotonic() + (timeout or self.timeout)
        while self.read_piece(max(deadline - time.monotonic(), 0.001)):
            pass
        return self.reply

    def read_until(self, needle, timeout=None):
        """Reads body pieces until the text is there."""
        deadline = time.monotonic() + (timeout or self.timeout)
        while needle not in self.reply.received:
            if not self.read_piece(max(deadline - time.monotonic(), 0.001)):
                raise AssertionError(f"{needle!r} never came: {self.reply!r}")
        return self.reply

    def read_reply(self, timeout=None, head_only=False):
        reply = self.read_head(timeout)
        if head_only:
            reply.complete = True
            return reply
        return self.read_body(timeout)

    def is_closed(self, timeout=2):
        """True when the other side closes (properly or not) within the time and says no more."""
        deadline = time.monotonic() + timeout
        try:
            while self._fill(deadline):
                pass
        except TimeoutError:
            return False
        return True


def call(port, method, path, body=None, fields=(), timeout=10, chunked=False):
    """One request on a connection of its own."""
    with Client(port, timeout=timeout) as client:
        client.request(method, path, body, fields, chunked)
        return client.read_reply(timeout, head_only=method == "HEAD")
