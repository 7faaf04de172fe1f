"""The rig itself: a fake that misbehaves must misbehave as told, or the tests above it lie."""

import socket
import time

import pytest

from fake_engines import CHAT, HEAD, FakeLlama, stream
from rig_http import Client, Cut, call, sse_events

BODY = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


def test_llama_speaks_and_remembers(gpu):
    reply = call(gpu.port, "POST", CHAT, BODY | {"stream": True})
    assert reply.complete and reply.text() == "G1 G2 G3"
    assert reply.events()[-1]["data"] == "[DONE]"
    reply = call(gpu.port, "POST", CHAT, BODY, chunked=False)
    assert reply.json()["choices"][0]["message"]["content"] == "G1 G2 G3"
    assert [r.json().get("stream") for r in gpu.posts()] == [True, None]
    assert gpu.posts()[0].get("host") == "failsoft.test"


def test_script_by_request_number_then_route(gpu):
    gpu.script(CHAT, [[{"reply": {"status": 500, "json": {"error": {}}}}], None])
    assert [call(gpu.port, "POST", CHAT, BODY).status for _ in range(3)] == [500, 200, 200]


@pytest.mark.parametrize("ending, cut", [("fin", Cut), ("rst", Cut)])
def test_cut_in_mid_stream(gpu, ending, cut):
    gpu.script(CHAT, [[HEAD, {"role": True}, {"delta": "a"}, {ending: True}]])
    with Client(gpu.port) as client:
        client.request("POST", CHAT, BODY)
        client.read_head()
        with pytest.raises(cut):
            client.read_body()
        assert client.reset == (ending == "rst")
        assert b'"a"' in client.reply.body


def test_silence_gate_and_the_moment_of_leaving(gpu):
    gpu.script(CHAT, [[HEAD, {"reach": "there"}, {"gate": "go"}, {"delta": "a"}, {"silence": True}]])
    client = Client(gpu.port)
    client.request("POST", CHAT, BODY)
    gpu.gate("there").wait()
    client.read_head()
    with pytest.raises(TimeoutError):
        client.read_piece(0.05)
    gpu.gate("go").set()
    client.read_until(b'"a"')
    request = gpu.wait_request(CHAT)
    left = time.monotonic()
    client.close()
    request.wait_closed(1)
    assert abs(request.closed_at - left) < 0.5


def test_one_byte_writes_arrive_alone_and_whole(gpu):
    plain = call(gpu.port, "POST", CHAT, BODY | {"stream": True}).body
    gpu.script(CHAT, [[HEAD, {"split": {"every": 7, "steps": stream("G1", " G2", " G3")[1:]}}]])
    with Client(gpu.port) as client:
        client.request("POST", CHAT, BODY)
        reply = client.read_head()
        pieces = []
        while piece := client.read_piece():
            pieces.append(piece)
    assert len(pieces) > 10 and max(map(len, pieces)) == 7
    assert [e["data"][-40:] for e in sse_events(reply.body)][1:] == \
        [e["data"][-40:] for e in sse_events(plain)][1:]


def test_not_accepting_and_refusing(gpu):
    gpu.pause_accept()
    with Client(gpu.port) as first, Client(gpu.port) as client:
        for each in (first, client):
            each.request("GET", "/health")
            with pytest.raises(TimeoutError):
                each.read_head(0.1)
        gpu.resume_accept()
        assert client.read_reply().status == 200
    port = gpu.port
    gpu.stop()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))
    gpu.start()
    assert call(gpu.port, "GET", "/health").status == 200


def test_close_after_requests_and_idle(fakes):
    fake = fakes(FakeLlama)
    fake.close_after_requests = 2
    with Client(fake.port) as client:
        for _ in range(2):
            client.request("GET", "/health")
            assert client.read_reply().status == 200
        assert client.is_closed(1)
    fake.close_after_requests, fake.idle_close_s = 0, 0.05
    with Client(fake.port) as client:
        client.request("GET", "/health")
        client.read_reply()
        assert client.is_closed(1)
    fake.drop_requests = 1
    with Client(fake.port) as client:
        client.request("GET", "/health")
        with pytest.raises(Cut):
            client.read_reply()
