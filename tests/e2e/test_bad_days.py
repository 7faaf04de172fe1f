"""Bad input and bad days: what a client sends wrong, and what the machine runs out of."""

import json
import socket
import threading
import time

import pytest

from fake_engines import CHAT, EMBEDDINGS, HEAD
from rig_config import gateway_config, service, tier, two_tiers
from rig_gateway import eventually, is_sanitized
from rig_http import Client, Cut

MIB = 1024 * 1024


# --- what clients send

@pytest.mark.parametrize("body, line, column", [
    (b"", None, None),
    (b"{", None, None),
    (b"hello", 1, 1),
    (b'{"model":"chat",}', 1, 17),
    (b'{"model":"chat"\n "messages":[]}', 2, 2),
    (b'{"model":"chat","messages":[]} x', 1, 32),
    (b'{"model":"chat","messages":[}', 1, 29),
    (b'{"model":"chat","a":"\xff"}', 1, 22),
    (b'{"model":"chat","a":"\x01"}', 1, 22),
    (b'{"model":"chat","a":01}', None, None),
    (b'{"model":"chat","a":NaN}', None, None),
    (b"{'model':'chat'}", 1, 2),
    (b'{"model":"chat","a":"\\ud800"}', None, None),
    (b'\xef\xbb\xbf{"model"', None, None),
    (b"[" * 100_000, None, None),
    (b'{"a":' * 50_000 + b"1" + b"}" * 50_000, None, None),
], ids=lambda v: repr(v)[:40] if isinstance(v, bytes) else str(v))
@pytest.mark.parametrize("path", [CHAT, EMBEDDINGS, "/v1/messages", "/api/chat"])
def test_broken_json(gateway, gpu, cpu, body, line, column, path):
    reply = gateway.call("POST", path, body)
    assert reply.status == 400, repr(reply)
    told = reply.body.decode()
    assert json.loads(told)["error"]
    if line is not None:
        assert f"line {line}" in told and f"column {column}" in told, told
    assert gpu.posts() == [] and cpu.posts() == []


@pytest.mark.parametrize("body", [
    b"[]", b'"chat"', b"1", b"null", b'{"model":5}', b'{"model":""}',
    b'{"model":["chat"]}', b'{"model":"chat","model":"embed"}',
    b'{"model":"chat","mod\\u0065l":"embed"}', b'{"model":"chat","stream":"yes"}',
])
def test_wrong_members(start_gateway, gpu, cpu, body):
    gateway = start_gateway(two_tiers(gpu, cpu))
    reply = gateway.call("POST", CHAT, body)
    assert reply.status in (400, 404), repr(reply)
    assert reply.error["message"]
    assert gpu.posts() == []


@pytest.mark.parametrize("body", [b'{"messages":[]}', b'{"model":null,"messages":[]}'])
def test_without_a_model(start_gateway, gpu, cpu, body):
    """Clear as long as only one service can be meant."""
    assert start_gateway(two_tiers(gpu, cpu)).call("POST", CHAT, body).status == 200
    two = gateway_config({"a": service(tier("gpu", gpu)), "b": service(tier("gpu", gpu))})
    reply = start_gateway(two).call("POST", CHAT, body)
    assert reply.status in (400, 404) and reply.error["message"]
    assert len(gpu.posts()) == 1


@pytest.mark.parametrize("name", ["nope", "chat ", "Chat", "../chat", "\u4e2d", "x" * 5000])
def test_unknown_model(gateway, gpu, name):
    reply = gateway.chat(model=name)
    assert reply.status in (400, 404) and (len(name) > 255 or reply.status == 404)
    if reply.status == 404:
        assert "chat" in reply.error["message"] and "embed" in reply.error["message"]
        assert reply.error["code"] == "model_not_found"
    assert gpu.posts() == []


def test_models_are_listed(gateway):
    reply = gateway.call("GET", "/v1/models")
    assert {m["id"] for m in reply.json()["data"]} == {"chat", "embed"}


@pytest.mark.parametrize("path", [CHAT, EMBEDDINGS, "/v1/messages", "/healthz", "/metrics"])
def test_wrong_method(gateway, gpu, path):
    for method in ("DELETE", "PUT", "PATCH"):
        reply = gateway.call(method, path)
        assert reply.status == 405, f"{method} {path}: {reply!r}"
        assert reply.get("Allow")
    assert gpu.received(method="DELETE") == []


def test_error_shapes_of_the_dialects(gateway):
    openai = gateway.chat(model="nope")
    assert set(openai.error) >= {"message", "type", "code", "param"}
    anthropic = gateway.call("POST", "/v1/messages", {"model": "nope", "messages": []}).json()
    assert anthropic["type"] == "error" and anthropic["error"]["type"] == "not_found_error"
    ollama = gateway.call("POST", "/api/chat", {"model": "nope", "messages": []}).json()
    assert isinstance(ollama["error"], str) and "nope" in ollama["error"]


def test_text_from_outside_cannot_forge_a_log_line(gateway):
    gateway.chat(model="x\n2026-01-01 error gateway: forged")
    gateway.call("GET", "/x%0a2026-01-01%20error%20gateway:%20forged")
    assert not any(line.startswith("2026-01-01 error") for line in gateway.log())


# --- slow clients

def limited(start_gateway, gpu, cpu, **limits):
    return start_gateway(two_tiers(gpu, cpu, limits={
        "head_timeout": "400ms", "body_timeout": "400ms", "idle_timeout": "400ms",
        "write_timeout": "1s", **limits}, stall_timeout="20s", first_event_timeout="20s"))


def test_slow_head(start_gateway, gpu, cpu):
    """A byte now and then does not buy more time."""
    gateway = limited(start_gateway, gpu, cpu)
    with gateway.client() as client:
        client.send(b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nX-Slow: ")
        closed = threading.Event()

        def drip():
            while not closed.is_set() and client.send_or_refused(b"x"):
                time.sleep(0.05)

        dripper = threading.Thread(target=drip)
        dripper.start()
        try:
            assert client.read_reply(3).status == 408
            assert client.is_closed(2)
        except Cut:
            pass  # closed in silence is allowed, too
        finally:
            closed.set()
            dripper.join()
    assert gpu.posts() == []


def test_silent_connection_is_closed(start_gateway, gpu, cpu):
    gateway = limited(start_gateway, gpu, cpu)
    with gateway.client() as client:
        assert client.is_closed(3)
    with gateway.client() as client:
        client.request("GET", "/healthz")
        assert client.read_reply().status == 200
        assert client.is_closed(3) and client.buffer == b""


def test_slow_body(start_gateway, gpu, cpu):
    gateway = limited(start_gateway, gpu, cpu)
    with gateway.client() as client:
        client.send(b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 50\r\n\r\n{")
        reply = client.read_reply(3)
        assert reply.status == 408 and client.is_closed(2)
    assert gpu.posts() == []


def test_many_slow_heads_do_not_stop_others(start_gateway, gpu, cpu):
    gateway = limited(start_gateway, gpu, cpu, head_timeout="20s")
    slow = [gateway.client() for _ in range(200)]
    for client in slow:
        client.send(b"GET / HTTP/1.1\r\nX: ")
    assert gateway.chat().status == 200
    for client in slow:
        client.close()


def test_client_that_does_not_read(start_gateway, gpu, cpu):
    """Its worker is not read on, memory stays bounded, others are served, then it is gone."""
    gateway = limited(start_gateway, gpu, cpu)
    gpu.script(CHAT, [[HEAD, {"role": True},
                       {"repeat": {"times": 4000, "steps": [{"delta": "x" * 16000}]}},
                       {"finish": "stop"}, {"done": True}]])
    before = gateway.memory_bytes()
    client = gateway.client(receive_buffer=4096)
    client.request("POST", CHAT, {"model": "chat", "messages": [], "stream": True})
    request = gpu.wait_request(CHAT)
    assert gateway.chat().status == 200
    request.wait_closed(10)
    sent = len(request.sent)
    if not is_sanitized():
        assert gateway.memory_bytes("VmHWM") - before < 8 * MIB
    assert sent < 32 * MIB, f"{sent} bytes were read for a client that takes none"
    assert gateway.tiers()["gpu"]["consecutive_failures"] == 0, "a slow client is no fault"
    client.close()


def test_slow_reader_gets_everything(start_gateway, gpu, cpu):
    gateway = limited(start_gateway, gpu, cpu, write_timeout="20s")
    gpu.script(CHAT, [[HEAD, {"role": True},
                       {"repeat": {"times": 100, "steps": [{"delta": "x" * 20000}]}},
                       {"finish": "stop"}, {"done": True}]])
    with gateway.client(receive_buffer=4096) as client:
        client.request("POST", CHAT, {"model": "chat", "messages": [], "stream": True})
        client.read_head()
        for _ in range(40):
            client.read_piece()
            time.sleep(0.005)
        reply = client.read_body()
    assert len(reply.text()) == 2_000_000 and reply.events()[-1]["data"] == "[DONE]"


def test_one_large_answer_does_not_disturb_small_ones(gateway, gpu):
    gpu.script(CHAT, [[HEAD, {"repeat": {"times": 300, "steps": [{"delta": "x" * 60000}]}},
                       {"finish": "stop"}, {"done": True}]])
    large = gateway.start_chat()
    for _ in range(20):
        assert gateway.chat().status == 200
    assert len(large.read_reply().text()) == 300 * 60000
    large.close()


# --- out of descriptors

@pytest.mark.parametrize("limits", [{}, {"connections": 1000}], ids=["own-limit", "asked-for-more"])
def test_descriptors_exhausted(start_gateway, gpu, cpu, limits):
    """New clients are told so with a 503, a crowd of them is not left hanging, streams go on."""
    config = two_tiers(gpu, cpu, limits=limits or None, stall_timeout="20s")
    gateway = start_gateway(config, nofile=128)
    hold = [HEAD, {"role": True}, {"delta": "a"}, {"gate": "go"}, {"delta": "b"},
            {"finish": "stop"}, {"done": True}]
    gpu.script(CHAT, [hold] * 4)
    running, crowd = [gateway.start_chat() for _ in range(4)], []
    try:
        for client in running:
            client.read_head()
            client.read_until(b'"a"')
        for _ in range(150):  # more than there are descriptors, all at once
            crowd.append(Client(gateway.port, timeout=5))
            crowd[-1].send_or_refused(b"GET /v1/models HTTP/1.1\r\nHost: a\r\n\r\n")
        answers = [answer_or_closed(client) for client in crowd]
        assert set(answers) <= {200, 503, "closed"}
        assert answers.count(200) >= 8 and answers.count(503) >= 8, answers
        for client in crowd[answers.index(503):]:
            client.close()
        assert eventually(lambda: answer_or_closed(Client(gateway.port), True) == 503, 3)
        for _ in range(20):  # one after the other: each is told
            assert gateway.call("GET", "/v1/models").status == 503
        gpu.gate("go").set()
        for client in running:
            assert client.read_body().text() == "ab", "a running stream was disturbed"
    finally:
        for client in running + crowd:
            client.close()
    assert eventually(lambda: answer_or_closed(Client(gateway.port), True) == 200, 5)
    assert gateway.chat().status == 200


def answer_or_closed(client, ask=False):
    """Status of the answer, or "closed" where the connection ended without one."""
    try:
        if ask:
            client.request("GET", "/v1/models")
        return client.read_reply(5).status
    except (Cut, BrokenPipeError, ConnectionResetError):
        return "closed"
    finally:
        if ask:
            client.close()


def test_connections_limit(start_gateway, gpu, cpu):
    gateway = start_gateway(two_tiers(gpu, cpu, limits={"connections": 3}))
    clients = [gateway.client() for _ in range(3)]
    for client in clients:
        client.request("GET", "/healthz")
        assert client.read_reply().status == 200
    reply = gateway.call("GET", "/healthz")
    assert reply.status == 503 and reply.get("Connection", "").lower() == "close"
    clients.pop().close()
    assert eventually(lambda: gateway.call("GET", "/healthz").status == 200, 3)
    for client in clients:
        client.close()


# --- memory

def test_large_body_is_held_once(start_gateway, gpu, cpu):
    if is_sanitized():
        pytest.skip("a sanitizer's idea of memory is another")
    gateway = start_gateway(two_tiers(gpu, cpu))
    gateway.chat()
    before = gateway.memory_bytes("VmHWM")
    size = 16 * MIB
    reply = gateway.chat(messages=[{"role": "user", "content": "x" * size}], timeout=30)
    assert reply.status == 200
    grown = gateway.memory_bytes("VmHWM") - before
    assert grown < 1.6 * size, f"{grown / MIB:.1f} MiB for a body of {size / MIB} MiB"
    assert eventually(lambda: gateway.memory_bytes() - before < 6 * MIB, 3), "not given back"


def test_many_idle_streams_are_cheap(start_gateway, gpu, cpu):
    if is_sanitized():
        pytest.skip("a sanitizer's idea of memory is another")
    gateway = start_gateway(two_tiers(gpu, cpu, first_event_timeout="30s",
                                      stall_timeout="30s"))
    gpu.always(CHAT, [HEAD, {"role": True}, {"delta": "a"}, {"gate": "go"}, {"finish": "stop"},
                      {"done": True}])
    warm = [gateway.start_chat() for _ in range(20)]
    for client in warm:
        client.read_head()
    before = gateway.memory_bytes()
    clients = [gateway.start_chat() for _ in range(200)]
    for client in clients:
        client.read_head()
        client.read_until(b'"a"')
    each = (gateway.memory_bytes() - before) / 200
    gpu.gate("go").set()
    for client in clients + warm:
        client.read_body()
        client.close()
    assert each < 24 * 1024, f"{each / 1024:.1f} KiB per idle stream"


def test_repeated_faults_do_not_grow(start_gateway, gpu, cpu):
    if is_sanitized():
        pytest.skip("a sanitizer's idea of memory is another")
    gateway = start_gateway(two_tiers(gpu, cpu, availability={"failures": 1000}))
    gpu.always(CHAT, [HEAD, {"role": True}, {"fin": True}])
    for _ in range(50):
        gateway.chat(stream=True)
    before = gateway.memory_bytes()
    for _ in range(300):
        assert gateway.chat(stream=True).tier == "cpu"
    assert gateway.memory_bytes() - before < 1 * MIB


# --- one client's trouble is nobody else's

def test_faults_of_one_service_leave_others_alone(start_gateway, gpu, cpu):
    gateway = start_gateway(gateway_config({
        "chat": service(tier("gpu", gpu)), "other": service(tier("cpu", cpu))}))
    gpu.always(CHAT, [HEAD, {"hex": "ff" * 2000}, {"silence": True}])
    clients = [gateway.start_chat() for _ in range(10)]
    for _ in range(10):
        assert gateway.chat(model="other").status == 200
    for client in clients:
        client.close()


def test_half_closed_client_still_gets_its_answer_or_is_gone(gateway, gpu):
    """Some clients shut their sending side after the request. Either way nothing is left over."""
    gpu.script(CHAT, [[HEAD, {"role": True}, {"delta": "a"}, {"finish": "stop"}, {"done": True}]])
    client = gateway.start_chat()
    client.sock.shutdown(socket.SHUT_WR)
    try:
        client.read_reply(3)
    except (Cut, TimeoutError):
        pass
    client.close()
    assert eventually(lambda: gateway.status()["requests"] == [], 3)


