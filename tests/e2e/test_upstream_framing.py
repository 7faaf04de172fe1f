"""What a worker may send and must be understood, and what it sends beyond its answer."""

import gzip
import json

import pytest

from fake_engines import CHAT, EMBEDDINGS
from rig_config import gateway_config, service, tier

VECTOR = {"object": "list", "data": [{"object": "embedding", "index": 0, "embedding": [1.0]}],
          "model": "m", "usage": {"prompt_tokens": 1, "total_tokens": 1}}
BODY = json.dumps(VECTOR)
TYPE = "Content-Type: application/json\r\n"
EMBED = {"model": "embed", "input": "x"}

ANSWERS = {
    "length": f"HTTP/1.1 200 OK\r\n{TYPE}Content-Length: {len(BODY)}\r\n\r\n{BODY}",
    "no-reason": f"HTTP/1.1 200 \r\n{TYPE}Content-Length: {len(BODY)}\r\n\r\n{BODY}",
    "chunked": f"HTTP/1.1 200 OK\r\n{TYPE}Transfer-Encoding: chunked\r\n\r\n"
               f"{len(BODY):x}\r\n{BODY}\r\n0\r\n\r\n",
    "chunk-extension": f"HTTP/1.1 200 OK\r\n{TYPE}Transfer-Encoding: chunked\r\n\r\n"
                       f"{len(BODY):X};a=b\r\n{BODY}\r\n0\r\n\r\n",
    "trailer": f"HTTP/1.1 200 OK\r\n{TYPE}Transfer-Encoding: chunked\r\n\r\n"
               f"{len(BODY):x}\r\n{BODY}\r\n0\r\nX-Sum: 1\r\n\r\n",
    "interim-first": f"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"
                     f"HTTP/1.1 200 OK\r\n{TYPE}Content-Length: {len(BODY)}\r\n\r\n{BODY}",
    "keep-alive-field": f"HTTP/1.1 200 OK\r\n{TYPE}Keep-Alive: timeout=1\r\nConnection: keep-alive"
                        f"\r\nContent-Length: {len(BODY)}\r\n\r\n{BODY}",
}
CLOSING = {
    "http-1-0": f"HTTP/1.0 200 OK\r\n{TYPE}\r\n{BODY}",
    "no-length": f"HTTP/1.1 200 OK\r\n{TYPE}Connection: close\r\n\r\n{BODY}",
}


@pytest.mark.parametrize("name", ANSWERS | CLOSING)
def test_understood_cut_at_every_offset(gateway, gpu, cpu, name):
    data = (ANSWERS | CLOSING)[name].encode()
    end = [{"fin": True}] if name in CLOSING else []

    def answer(request):
        cut = request.number
        request.connection.ended = not end
        return [{"split": {"at": [cut], "level": "socket", "steps": [{"raw": data}]}}, *end]

    gpu.route(EMBEDDINGS, answer)
    for cut in range(1, len(data), 1 if not end else 7):
        reply = gateway.call("POST", EMBEDDINGS, EMBED)
        assert reply.tier == "gpu" and reply.json() == VECTOR, f"cut at {cut}: {reply!r}"
    assert cpu.posts() == []


def test_204_and_304_have_no_body(gateway, gpu):
    for status in (204, 304):
        gpu.always("/v1/odd", [{"raw": f"HTTP/1.1 {status} X\r\n\r\n"}])
        reply = gateway.call("POST", "/v1/odd", {"model": "chat"})
        assert reply.status in (status, 404) and reply.complete


@pytest.mark.parametrize("extra", [b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nSTRAY", b"\r\n",
                                   b"x", b"STRAY" * 1000])
def test_bytes_beyond_an_answer_reach_nobody(start_gateway, gpu, cpu, extra):
    """An answer that nobody asked for must not become the answer of the next request."""
    gateway = start_gateway(gateway_config({
        "embed": service(tier("gpu", gpu), tier("cpu", cpu), kind="embeddings")}))

    def answer(request):
        vector = VECTOR | {"model": request.json()["input"]}
        body = json.dumps(vector).encode()
        request.connection.ended = True
        return [{"raw": b"HTTP/1.1 200 OK\r\n" + TYPE.encode()
                 + b"Content-Length: %d\r\n\r\n" % len(body) + body + extra}]

    gpu.route(EMBEDDINGS, answer)
    for number in range(30):
        reply = gateway.call("POST", EMBEDDINGS, EMBED | {"input": f"n{number}"})
        assert reply.status == 200 and b"STRAY" not in reply.body
        assert reply.tier == "cpu" or reply.json()["model"] == f"n{number}"


@pytest.mark.parametrize("status", [400, 413, 503])
def test_worker_that_answers_before_it_read_the_body(gateway, gpu, cpu, status):
    """httplib answers a large body early and closes: the answer counts, not the broken pipe."""
    text = json.dumps({"error": {"code": status, "message": "early", "type": "x"}})
    head = (f"HTTP/1.1 {status} Early\r\n{TYPE}Content-Length: {len(text)}\r\n"
            f"Connection: close\r\n\r\n{text}")

    gpu.early_answer = head.encode()
    reply = gateway.chat(messages=[{"role": "user", "content": "x" * 3_000_000}], timeout=20)
    if status == 503:
        assert reply.status == 200 and reply.tier == "cpu"
        assert len(cpu.posts()[0].json()["messages"][0]["content"]) == 3_000_000
    else:
        assert reply.status == status and reply.error["message"] == "early"
        assert cpu.posts() == []


# --- clients that speak older or odder HTTP

def test_stream_for_an_http_1_0_client(gateway, gpu):
    body = json.dumps({"model": "chat", "messages": [], "stream": True}).encode()
    with gateway.client() as client:
        client.send(b"POST /v1/chat/completions HTTP/1.0\r\nContent-Length: %d\r\n\r\n%s"
                    % (len(body), body))
        reply = client.read_reply()
        assert reply.get("Transfer-Encoding") is None, "HTTP/1.0 knows no chunks"
        assert reply.text() == gpu.text
        assert client.is_closed()


def test_stream_with_connection_close(gateway, gpu):
    with gateway.client() as client:
        client.request("POST", CHAT, {"model": "chat", "messages": [], "stream": True},
                       [("Connection", "close")])
        assert client.read_reply().text() == gpu.text
        assert client.is_closed()


def test_coded_request_body_is_refused(gateway, gpu):
    body = gzip.compress(json.dumps({"model": "chat", "messages": []}).encode())
    reply = gateway.call("POST", CHAT, body, [("Content-Encoding", "gzip"),
                                              ("Content-Type", "application/json")])
    assert reply.status in (400, 415) and gpu.posts() == []


# --- who may be asked

@pytest.mark.parametrize("accept, tier_name", [("any", "cpu"), ("same-model", "cpu"),
                                               ("gpu-only", None)])
def test_client_says_what_it_accepts(gateway, gpu, cpu, accept, tier_name):
    fields = [("X-Failsoft-Accept", accept)]
    assert gateway.chat(fields=fields).tier == "gpu"
    gpu.stop()
    reply = gateway.chat(fields=fields)
    assert reply.tier == tier_name or (tier_name is None and reply.status in (502, 503))
    assert (cpu.posts() == []) == (tier_name is None)


def test_model_of_a_tier_is_sent_and_shown(start_gateway, gpu, cpu):
    gateway = start_gateway(gateway_config({"chat": service(
        tier("gpu", gpu, model="big-7b"), tier("substitute", cpu, model="small-1b"))}))
    assert gateway.chat().tier == "gpu"
    assert gpu.posts()[0].json()["model"] == "big-7b"
    gpu.stop()
    reply = gateway.chat()
    assert cpu.posts()[0].json()["model"] == "small-1b"
    assert reply.tier == "substitute" and reply.get("X-Failsoft-Degraded") == "other-model"
    assert reply.json()["model"] == "fake-cpu", "the model that really served is named"


def test_sampling_is_said_explicitly_and_the_clients_wins(gateway, gpu):
    gateway.chat()
    gateway.chat(temperature=0.123, top_k=7)
    first, second = (r.json() for r in gpu.posts())
    assert "temperature" in first and "top_k" in first and "top_p" in first
    assert second["temperature"] == 0.123 and second["top_k"] == 7

