"""Section K of the field cases, requests: what is refused, what is understood, cut anywhere."""

import json
import threading

import pytest

from conftest import load_cases
from fake_engines import CHAT
from fake_upstream import peer_unread_bytes
from rig_config import two_tiers
from rig_gateway import eventually
from rig_http import Client

BODY = json.dumps({"model": "chat", "messages": [{"role": "user", "content": "hi"}]}).encode()
SPLITS_AT_A_TIME = 24


@pytest.fixture
def gateway(start_gateway, gpu, cpu):
    return start_gateway(two_tiers(gpu, cpu, limits={
        "head": "4KiB", "body": "64KiB", "head_timeout": "2s", "body_timeout": "2s"}))


def wire(case):
    if "send_hex" in case:
        return bytes.fromhex(case["send_hex"])
    return case["send"].encode("latin-1")


def send_in_two(client, data, cut):
    """Two reads at the other side: the second part goes out when the first was taken."""
    if 0 < cut < len(data):
        client.send(data[:cut])
        eventually(lambda: not peer_unread_bytes(client.sock), 0.5, every=0.0003)
    client.send_or_refused(data[cut:] if 0 < cut < len(data) else data)


def refused(gateway, case, data, cut):
    client = Client(gateway.port, timeout=5)
    try:
        send_in_two(client, data, cut)
        reply = client.read_reply()
        assert reply.status in case["status"], f"cut at {cut}: {reply!r}"
        if reply.status < 500 or reply.body.startswith(b"{"):
            assert reply.error["message"] and reply.error["type"], f"cut at {cut}: {reply!r}"
        if not case.get("may_stay_open"):
            assert client.is_closed(3), f"cut at {cut}: the connection stayed open"
            assert not client.buffer, f"cut at {cut}: a second answer: {client.buffer[:200]}"
    finally:
        client.abort()


@pytest.mark.parametrize("case", load_cases("framing_rejected"))
def test_refused_whole_and_at_every_split(gateway, gpu, cpu, case):
    data = wire(case)
    for cut in range(len(data)):
        refused(gateway, case, data, cut)
    # Still well, and no worker saw anything of it.
    assert gateway.chat().status == 200
    assert [r.path for r in gpu.posts()] == [CHAT] and cpu.posts() == []
    assert b"SMUGGLED" not in gpu.raw_received() + cpu.raw_received()


@pytest.mark.parametrize("case", load_cases("framing_accepted"))
def test_understood_whole_and_at_every_split(gateway, gpu, case):
    text = case["send"].replace("HEXLENGTH", f"{len(BODY):x}").replace("LENGTH", str(len(BODY)))
    data = text.encode("latin-1").replace(b"BODY", BODY)
    for cut in range(len(data)):
        client = Client(gateway.port)
        send_in_two(client, data, cut)
        reply = client.read_reply()
        assert reply.status == 200, f"cut at {cut}: {reply!r}"
        assert reply.json()["choices"][0]["message"]["content"] == gpu.text
        assert len(client.interim) <= 1 and all(i.status == 100 for i in client.interim)
        if case.get("closes"):
            assert client.is_closed(3)
        client.abort()
    assert len(gpu.posts()) == len(data)
    for request in gpu.posts():
        sent = request.json()
        assert sent["messages"] == json.loads(BODY)["messages"]
        assert request.error is None


def test_byte_by_byte(gateway, gpu):
    data = (b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
            + b"".join(b"1\r\n%c\r\n" % byte for byte in BODY) + b"0\r\n\r\n")
    with Client(gateway.port) as client:
        for at in range(len(data)):
            client.send(data[at:at + 1])
        assert client.read_reply().status == 200


def test_pipelined_requests_are_answered_in_order(gateway, gpu):
    one = (b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s"
           % (len(BODY), BODY))
    two = b"GET /v1/models HTTP/1.1\r\nHost: a\r\n\r\n"
    three = b"GET /nothing/here HTTP/1.1\r\nHost: a\r\n\r\n"
    with Client(gateway.port) as client:
        client.send(one + two + three + one)
        assert client.read_reply().json()["choices"]
        assert client.read_reply().json()["data"]
        assert client.read_reply().status == 404
        assert client.read_reply().json()["choices"]
    assert len(gpu.posts()) == 2


def test_rest_of_a_body_longer_than_said_is_no_request(gateway, gpu):
    """The bytes after Content-Length are the next request; these are none."""
    with Client(gateway.port) as client:
        client.send(b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%sXX"
                    % (len(BODY), BODY))
        assert client.read_reply().status == 200
        client.send_or_refused(b"\r\n\r\n")
        assert client.read_reply().status == 400
        assert client.is_closed()
    assert len(gpu.posts()) == 1


@pytest.mark.parametrize("what, status", [
    ("GET /v1/models HTTP/1.1\r\nHost: a\r\nX-Long: %s\r\n\r\n" % ("x" * 5000), [431]),
    ("GET /v1/models HTTP/1.1\r\nHost: a\r\n%s\r\n" % ("X: y\r\n" * 700), [431]),
    ("GET /v1/models HTTP/1.1\r\nHost: a\r\n%s\r\n" % ("X: y\r\n" * 200), [431]),
    ("GET /%s HTTP/1.1\r\nHost: a\r\n\r\n" % ("x" * 5000), [414]),
    ("GET /%s HTTP/1.1\r\nHost: a\r\nX: %s\r\n\r\n" % ("x" * 3000, "x" * 3000), [431]),
    ("GET /v1/models HTTP/1.1\r\nHost: a\r\nX-%s: y\r\n\r\n" % ("x" * 5000), [431]),
    ("GET /v1/models HTTP/1.1\r\nHost: a\r\nX-Endless: %s" % ("x" * 200000), [431]),
], ids=["value", "bytes-in-fields", "number-of-fields", "target", "target-and-value", "name", "endless"])
def test_oversize_heads(gateway, what, status):
    with Client(gateway.port) as client:
        client.send_or_refused(what.encode())
        reply = client.read_reply()
        assert reply.status in status
        assert reply.error["message"]
        assert client.is_closed()


@pytest.mark.parametrize("tail", ["extension", "trailer", "tiny-chunks"])
def test_chunk_overhead_is_bounded(gateway, gpu, tail):
    """Bytes beside the body count as well: no endless extension, trailer, or one-byte chunks."""
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    with Client(gateway.port) as client:
        if tail == "extension":
            data = head + b"2;" + b"x" * 200_000
        elif tail == "trailer":
            data = head + b"2\r\n{}\r\n0\r\n" + b"X: y\r\n" * 50_000
        else:
            data = head + b"1;" + b"x" * 100 + b"\r\n \r\n"
            data += (b"1;" + b"x" * 100 + b"\r\n \r\n") * 20_000
        client.send_or_refused(data)
        assert client.read_reply().status in (400, 413, 431)
        assert client.is_closed()
    assert gpu.posts() == []


def test_many_at_once_do_not_mix(gateway, gpu):
    """Requests cut at different places on many connections at the same time."""
    problems = []

    def one(number):
        body = json.dumps({"model": "chat", "user": f"u{number}",
                           "messages": [{"role": "user", "content": "x" * number}]}).encode()
        data = (b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s"
                % (len(body), body))
        try:
            with Client(gateway.port) as client:
                for at in range(0, len(data), 1 + number):
                    client.send(data[at:at + 1 + number])
                assert client.read_reply().status == 200
        except Exception as problem:  # told by the main thread
            problems.append(problem)

    threads = [threading.Thread(target=one, args=(n,)) for n in range(SPLITS_AT_A_TIME)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    seen = sorted((r.json()["user"], len(r.json()["messages"][0]["content"])) for r in gpu.posts())
    assert seen == sorted((f"u{n}", n) for n in range(SPLITS_AT_A_TIME))
