"""Services that are not chats: any path, any bytes, both ways; and who is asked in which dialect."""

import os

import pytest

from fake_engines import FakeOllama
from fake_upstream import FakeUpstream
from rig_config import gateway_config, service, tier
from rig_http import Cut

MIB = 1024 * 1024


@pytest.fixture
def two(fakes):
    return fakes(FakeUpstream), fakes(FakeUpstream)


@pytest.fixture
def generic(start_gateway, two):
    tiers = [tier(name, fake, engine="generic") for name, fake in zip(("gpu", "cpu"), two)]
    return start_gateway(gateway_config(
        {"search": service(*tiers, kind="generic", paths=["/predict", "/v2/models"]),
         "other": service(*tiers, kind="generic", paths=["/other"])},
        limits={"response": "128KiB"}))


def test_bytes_both_ways(generic, two):
    body = os.urandom(300_000) + b"\r\n\r\n\0\xff"
    answer = os.urandom(100_000)
    two[0].route("/predict", {"bytes": answer, "headers": {"X-Kind": "raw"}})
    reply = generic.call("POST", "/predict?a=%20b&c", body,
                         [("Content-Type", "application/octet-stream")])
    assert reply.status == 200 and reply.body == answer and reply.get("X-Kind") == "raw"
    assert reply.tier == "gpu"
    request = two[0].received("/predict")[0]
    assert request.body == body and request.target == "/predict?a=%20b&c"
    assert request.get("Content-Type") == "application/octet-stream"


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_methods_pass(generic, two, method):
    two[0].route("/v2/models/x", {"json": {"ok": True}})
    reply = generic.call(method, "/v2/models/x")
    assert reply.status == 200 and reply.json() == {"ok": True}
    assert two[0].received("/v2/models/x")[0].method == method


def test_status_of_the_service_is_its_own(generic, two):
    for status in (201, 302, 404, 409, 418):
        two[0].always("/predict", [{"reply": {"status": status, "text": "own"}}])
        reply = generic.call("POST", "/predict", b"x")
        assert reply.status == status and reply.body == b"own"
    assert two[1].posts() == []


@pytest.mark.parametrize("how", ["refuse", "rst", "fin", "silence", "cut", "500"])
def test_moves_on(generic, two, how):
    steps = {"cut": [{"raw": "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nGPU"}, {"rst": True}],
             "500": [{"reply": {"status": 500, "text": "CUDA out of memory"}}]}
    if how == "refuse":
        two[0].stop()
    else:
        two[0].always("/predict", steps.get(how, [{how: True}]))
    two[1].route("/predict", {"text": "CPU"})
    reply = generic.call("POST", "/predict", b"\0\xff")
    assert reply.status == 200 and reply.body == b"CPU" and reply.tier == "cpu"
    assert two[1].posts()[0].body == b"\0\xff"


def test_larger_than_may_be_collected(generic, two):
    """Relayed as it comes, whole; and a cut is a cut, never a proper end or a second voice."""
    two[0].always("/predict", [{"head": {"type": "image/png", "framing": "length",
                                         "length": 5 * MIB}},
                               {"fill": {"bytes": 5 * MIB}}, {"end": True}])
    reply = generic.call("POST", "/predict", b"x")
    assert len(reply.body) == 5 * MIB and reply.get("Content-Length") == str(5 * MIB)
    for framing in ("length", "chunked"):
        two[0].always("/predict", [{"head": {"type": "image/png", "framing": framing,
                                             "length": 5 * MIB}},
                                   {"fill": {"bytes": MIB}}, {"rst": True}])
        with pytest.raises(Cut):
            generic.call("POST", "/predict", b"x")
    assert two[1].posts() == []


def test_paths_of_nobody(generic, two):
    for path in ("/", "/predictions", "/v2", "/v2/modelsx", "/.env", "/x" * 500):
        reply = generic.call("GET", path)
        assert reply.status in (200, 404) and (path == "/" or reply.status == 404), path
    assert two[0].received("/predictions") == []


def test_dialect_that_no_tier_speaks(start_gateway, gpu):
    """/api/chat on llama-server only: said plainly, and the worker is not bothered."""
    gateway = start_gateway(gateway_config({"chat": service(tier("gpu", gpu))}))
    reply = gateway.call("POST", "/api/chat", {"model": "chat", "messages": []})
    assert reply.status in (400, 404, 501, 503)
    assert isinstance(reply.json()["error"], str) and reply.json()["error"]
    assert gpu.posts() == []


def test_tiers_of_different_engines(start_gateway, fakes, gpu):
    """OpenAI requests go to either; Ollama's own only to Ollama."""
    ollama = fakes(FakeOllama)
    gateway = start_gateway(gateway_config({"chat": service(
        tier("gpu", gpu), tier("cpu", ollama, engine="ollama"))}))
    assert gateway.chat().tier == "gpu"
    reply = gateway.call("POST", "/api/chat", {"model": "chat", "messages": []})
    assert reply.status == 200 and reply.tier == "cpu"
    gpu.stop()
    for streamed in (True, False):
        assert gateway.chat(stream=streamed).tier == "cpu"
