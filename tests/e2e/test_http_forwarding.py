"""Section K, towards the worker and back: framing is ours, everything else is the client's."""

import gzip
import json
import threading

import pytest

from fake_engines import CHAT, EMBEDDINGS, HEAD, TRANSCRIPTIONS, stream
from rig_config import gateway_config, service, tier, two_tiers
from rig_gateway import eventually
from rig_http import Client

HOP_BY_HOP = ("connection", "keep-alive", "proxy-authenticate", "proxy-authorization",
              "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade")


# --- F99 ggml-org/llama.cpp#20269

@pytest.mark.parametrize("chunked", [False, True])
def test_f99_framing_towards_the_worker_is_our_own(gateway, gpu, chunked):
    reply = gateway.call("POST", CHAT, json.dumps({"model": "chat", "messages": []}).encode(),
                         chunked=chunked)
    assert reply.status == 200
    request = gpu.posts()[0]
    assert request.error is None
    assert request.get("Transfer-Encoding") is None
    assert request.all("Content-Length") == [str(len(request.body))]
    assert request.json()["messages"] == []


def test_f99_hop_by_hop_fields_stay_here(gateway, gpu):
    fields = [
        ("Connection", "keep-alive, X-Private, close"), ("Keep-Alive", "timeout=5"),
        ("Proxy-Connection", "keep-alive"), ("Proxy-Authorization", "Basic x"), ("TE", "trailers"),
        ("Trailer", "X-Sum"), ("Upgrade", "h2c"), ("X-Private", "1"), ("X-Public", "2"),
        ("Authorization", "Bearer k"), ("Cookie", "a=b"), ("Accept-Encoding", "gzip, br"),
    ]
    assert gateway.chat(fields=fields).status == 200
    request = gpu.posts()[0]
    for name in HOP_BY_HOP:
        if name != "connection":
            assert request.get(name) is None, name
    assert request.get("connection", "keep-alive").lower() in ("keep-alive", "close")
    assert request.get("X-Private") is None
    assert request.get("X-Public") == "2"
    assert request.get("Authorization") == "Bearer k"
    assert len(request.all("Host")) == 1


def test_f99_hop_by_hop_fields_of_the_worker_stay_there(gateway, gpu):
    gpu.script(CHAT, [[{"head": {"status": 200, "headers": [
        ["Connection", "X-Internal"], ["X-Internal", "1"], ["Keep-Alive", "timeout=5, max=5"],
        ["Proxy-Authenticate", "Basic"], ["Upgrade", "h2c"], ["X-Shown", "2"]]}},
        *stream("a")[1:]]])
    reply = gateway.chat(stream=True)
    assert reply.text() == "a"
    assert reply.get("X-Shown") == "2"
    for name in ("X-Internal", "Proxy-Authenticate", "Upgrade"):
        assert reply.get(name) is None
    assert "max=5" not in (reply.get("Keep-Alive") or "")


# --- F100 yhirose/cpp-httplib#349, #1808, #2458

def continue_request(gateway, body, expect="100-continue", length=None):
    client = Client(gateway.port)
    client.send(b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
                b"Expect: %s\r\nContent-Length: %d\r\n\r\n"
                % (expect.encode(), length if length is not None else len(body)))
    return client


@pytest.mark.parametrize("expect", ["100-continue", "100-Continue", "100-CONTINUE"])
def test_f100_continue_comes_before_the_body(gateway, gpu, expect):
    body = json.dumps({"model": "chat", "messages": [{"role": "user", "content": "x" * 2_000_000}]})
    body = body.encode()
    with continue_request(gateway, body, expect) as client:
        assert client.read_line() == b"HTTP/1.1 100 Continue"
        assert client.read_line() == b""
        client.send(body)
        assert client.read_reply().status == 200
    assert gpu.posts()[0].get("Expect") is None
    assert len(gpu.posts()[0].json()["messages"][0]["content"]) == 2_000_000


def test_f100_refused_without_continue(start_gateway, gpu, cpu):
    gateway = start_gateway(two_tiers(gpu, cpu, limits={"body": "64KiB"}))
    with continue_request(gateway, b"", length=65537) as client:
        reply = client.read_reply()
        assert reply.status == 413 and client.interim == []
        assert client.is_closed()
    assert gpu.posts() == []


def test_f100_unknown_expectation(gateway, gpu):
    with continue_request(gateway, b"{}", "foo") as client:
        reply = client.read_reply()
        assert reply.status == 417 and client.interim == []
    assert gpu.posts() == []


# --- F103 mnfst/llm-gateway#2126, sgl-project/sglang#38735; F104 yhirose/cpp-httplib#1737

def test_f103_large_picture_in_json(gateway, gpu):
    picture = "data:image/png;base64," + "A" * (8 * 1024 * 1024 + 512 * 1024)
    content = [{"type": "image_url", "image_url": {"url": picture}}]
    reply = gateway.chat(messages=[{"role": "user", "content": content}])
    assert reply.status == 200
    assert gpu.posts()[0].json()["messages"][0]["content"] == content


def multipart(boundary, audio, model="listen"):
    return (b"--" + boundary + b'\r\nContent-Disposition: form-data; name="model"\r\n\r\n'
            + model.encode() + b"\r\n--" + boundary
            + b'\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n'
              b"Content-Type: audio/wav\r\n\r\n" + audio + b"\r\n--" + boundary + b"--\r\n")


@pytest.mark.parametrize("piece", [1, 7, 100000])
def test_f103_audio_multipart_is_bytes(start_gateway, gpu, cpu, piece):
    gateway = start_gateway(gateway_config({
        "listen": service(tier("gpu", gpu), tier("cpu", cpu), kind="transcription")}))
    boundary = b"xBOUNDARYx"
    audio = (b"RIFF\0\0\0\0WAVE" + bytes(range(256)) * 2 + b"\r\n--xBOUNDARY\r\n--xBOUNDARYy"
             + b"\xff\x00\r\n\r\n" + b"--" + boundary[:-1])
    body = multipart(boundary, audio)
    pieces = [body[at:at + piece] for at in range(0, len(body), piece)]
    fields = [("Content-Type", "multipart/form-data; boundary=" + boundary.decode())]
    with gateway.client() as client:
        client.request("POST", TRANSCRIPTIONS, pieces, fields, chunked=True)
        reply = client.read_reply()
    assert reply.status == 200 and reply.json()["text"] == gpu.text
    request = gpu.posts()[0]
    assert request.get("Content-Type") == fields[0][1]
    assert audio in request.body and request.body == body


def test_f103_audio_falls_back_with_all_its_bytes(start_gateway, gpu, cpu):
    gateway = start_gateway(gateway_config({
        "listen": service(tier("gpu", gpu), tier("cpu", cpu), kind="transcription")}))
    gpu.always(TRANSCRIPTIONS, [{"rst": True}])
    body = multipart(b"BB", bytes(range(256)) * 4000)
    reply = gateway.call("POST", TRANSCRIPTIONS, body,
                         [("Content-Type", 'multipart/form-data; boundary="BB"')])
    assert reply.status == 200 and reply.tier == "cpu"
    assert cpu.posts()[0].body == body


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("over, status", [(-1, 200), (0, 200), (1, 413)])
def test_f103_cap(start_gateway, gpu, cpu, over, status, chunked):
    cap = 64 * 1024
    gateway = start_gateway(two_tiers(gpu, cpu, limits={"body": "64KiB"}))
    start, end = b'{"model":"chat","messages":[],"user":"', b'"}'
    body = start + b"x" * (cap + over - len(start) - len(end)) + end
    with gateway.client() as client:
        if chunked:
            client.send(b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\n"
                        b"Transfer-Encoding: chunked\r\n\r\n")
            for at in range(0, len(body), 1000):
                part = body[at:at + 1000]
                client.send_or_refused(b"%x\r\n%s\r\n" % (len(part), part))
            client.send_or_refused(b"0\r\n\r\n")
        else:
            client.send_or_refused(b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\n"
                                   b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        reply = client.read_reply()
        assert reply.status == status
        if status == 413:
            assert "65536" in reply.error["message"] or "64 KiB" in reply.error["message"]
            assert client.is_closed()
    assert len(gpu.posts()) == (status == 200)


def test_f103_declared_length_is_refused_before_the_body(start_gateway, gpu, cpu):
    gateway = start_gateway(two_tiers(gpu, cpu, limits={"body": "64KiB"}))
    before = gateway.memory_bytes()
    with gateway.client() as client:
        client.send(b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\n"
                    b"Content-Length: 5000000000\r\n\r\n")
        reply = client.read_reply()  # not one byte of the body was sent
        assert reply.status == 413
    assert gateway.memory_bytes() - before < 4 * 1024 * 1024


def test_f104_json_with_a_form_label(gateway, gpu):
    """curl's default label makes httplib servers refuse more than 8 KiB."""
    def strict(request):
        if "urlencoded" in (request.get("Content-Type") or "") and len(request.body) > 8192:
            return [{"reply": {"status": 413, "text": "Payload too large"}}]
        return gpu._chat(request)

    gpu.route(CHAT, strict)
    body = json.dumps({"model": "chat", "messages": [{"role": "user", "content": "x" * 20000}]})
    reply = gateway.call("POST", CHAT, body.encode(),
                         [("Content-Type", "application/x-www-form-urlencoded")])
    assert reply.status == 200
    assert gpu.posts()[0].get("Content-Type") == "application/json"
    assert len(gpu.posts()) == 1


def test_f104_a_413_of_the_worker_is_passed_on(gateway, gpu, cpu):
    gpu.always(CHAT, [{"reply": {"status": 413, "text": "Payload too large"}}])
    assert gateway.chat().status == 413
    assert len(gpu.posts()) == 1 and cpu.posts() == []
    assert gateway.tiers()["gpu"]["consecutive_failures"] == 0


# --- F106 llm-d/llm-d-benchmark#1675, hyperium/hyper#3553

def settled_counts(gateway, gpu, cpu):
    assert cpu.posts() == [], "the race was taken for a fault"
    for name in ("chat", "embed"):
        told = gateway.tiers(name)["gpu"]
        assert (told["consecutive_failures"], told["attempts_failed"]) == (0, 0)


def test_f106_closed_after_five_requests(gateway, gpu, cpu):
    gpu.close_after_requests = 5
    assert [gateway.chat().status for _ in range(23)] == [200] * 23
    settled_counts(gateway, gpu, cpu)


def test_f106_closed_when_idle(gateway, gpu, cpu):
    gpu.idle_close_s = 0.02
    for _ in range(10):
        assert gateway.chat().status == 200
        assert eventually(lambda: gpu.open_connections() == 0, 2)
    settled_counts(gateway, gpu, cpu)


@pytest.mark.parametrize("streamed", [False, True])
def test_f106_closed_just_as_the_request_arrives(gateway, gpu, cpu, streamed):
    gpu.drop_only_reused = True
    for _ in range(5):
        assert gateway.chat().status == 200
        gpu.drop_requests = 1
        reply = gateway.chat(stream=streamed)
        assert reply.status == 200 and reply.tier == "gpu"
        gpu.drop_requests = 0
    settled_counts(gateway, gpu, cpu)


def test_f106_every_kept_connection_is_dead(gateway, gpu, cpu):
    """A worker that was restarted leaves several behind: the second try takes a fresh one."""
    gpu.always(CHAT, [HEAD, {"gate": "all"}, *stream("a")[1:]])
    together = [gateway.start_chat() for _ in range(6)]
    gpu.wait_request(CHAT, 6)
    gpu.gate("all").set()
    for client in together:
        assert client.read_reply().status == 200
        client.close()
    gpu.drop_only_reused, gpu.drop_requests = True, 6
    for _ in range(6):
        assert gateway.chat().tier == "gpu"
    settled_counts(gateway, gpu, cpu)


def test_f106_embeddings_too(gateway, gpu, cpu):
    gpu.drop_only_reused = True
    body = {"model": "embed", "input": "x"}
    for _ in range(3):
        assert gateway.call("POST", EMBEDDINGS, body).status == 200
        gpu.drop_requests = 1
        assert gateway.call("POST", EMBEDDINGS, body).tier == "gpu"
        gpu.drop_requests = 0
    settled_counts(gateway, gpu, cpu)


# --- F108 Wei-Shaw/claude-relay-service#1027, rossoctl/cortex#864

def test_f108_identity_is_asked_for(gateway, gpu):
    gateway.chat(fields=[("Accept-Encoding", "gzip, deflate, br")])
    asked = gpu.posts()[0].get("Accept-Encoding")
    assert asked in (None, "identity")


@pytest.mark.parametrize("streamed", [False, True])
def test_f108_coded_all_the_same(start_gateway, gpu, streamed):
    """Header and bytes agree, or it is an error said openly; never text that is not what it says."""
    gateway = start_gateway(gateway_config({"chat": service(tier("gpu", gpu))}))
    plain = b'data: {"choices":[{"index":0,"delta":{"content":"a"}}]}\n\ndata: [DONE]\n\n' \
        if streamed else b'{"choices":[]}'
    coded = gzip.compress(plain)
    kind = "text/event-stream" if streamed else "application/json"
    gpu.always(CHAT, [{"reply": {"bytes": coded, "type": kind,
                                 "headers": {"Content-Encoding": "gzip"}}}])
    reply = gateway.chat(stream=streamed, fields=[("Accept-Encoding", "gzip")])
    if reply.status == 200:
        assert reply.get("Content-Encoding") == "gzip"
        assert gzip.decompress(reply.body) == plain
    else:
        assert reply.status == 502 and reply.error["message"]
        assert reply.get("Content-Encoding") is None


def test_f108_coded_answers_elsewhere_are_bytes(gateway, gpu):
    coded = gzip.compress(b"hello")
    gpu.route("/v1/audio/speech", {"bytes": coded, "headers": {"Content-Encoding": "gzip"}})
    reply = gateway.call("POST", "/v1/audio/speech", {"model": "chat", "input": "x"},
                         [("Accept-Encoding", "gzip")])
    if reply.status == 200:
        assert reply.get("Content-Encoding") == "gzip" and reply.body == coded
    else:
        assert reply.status == 502


# --- F111 seifghazi/claude-code-proxy#33

def test_f111_unknown_fields_pass_both_ways(gateway, gpu):
    gpu.script(CHAT, [[{"head": {"status": 200, "headers": [
        ["X-Request-Id", "abc"], ["X-Odd_Name", "1"], ["Set-Cookie", "a=1"], ["Set-Cookie", "b=2"],
        ["OpenAI-Processing-Ms", "12"]]}}, *stream("a")[1:]]])
    reply = gateway.chat(stream=True, fields=[
        ("X-Odd_Name", "caf\u00e9"), ("anthropic-beta", "x"), ("anthropic-beta", "y"),
        ("traceparent", "00-1-2-3")])
    request = gpu.posts()[0]
    assert request.get("X-Odd_Name") == "caf\u00e9"
    assert request.all("anthropic-beta") == ["x", "y"]
    assert request.get("traceparent") == "00-1-2-3"
    assert reply.all("Set-Cookie") == ["a=1", "b=2"]
    assert reply.get("X-Request-Id") == "abc" and reply.get("X-Odd_Name") == "1"
    assert reply.get("OpenAI-Processing-Ms") == "12"


def test_f111_event_and_id_lines_are_kept(gateway, gpu):
    body = ('event: delta\nid: 7\ndata: {"choices":[{"index":0,"delta":{"content":"a"}}]}\n\n'
            'id: 8\nevent: delta\ndata: {"choices":[{"index":0,"delta":{"content":"b"}}]}\n\n'
            ': note\nevent: end\ndata: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
            'data: [DONE]\n\n')
    gpu.script(CHAT, [[HEAD, {"send": body}, {"end": True}]])
    assert gateway.chat(stream=True).body == body.encode()


def test_query_and_unknown_paths_reach_the_worker(gateway, gpu):
    gpu.route("/v1/audio/voices", {"json": {"voices": []}})
    reply = gateway.call("GET", "/v1/audio/voices?model=chat&x=%20y")
    if reply.status == 200:  # a path that names no service may also be refused: then openly
        assert gpu.received("/v1/audio/voices")[0].target == "/v1/audio/voices?model=chat&x=%20y"
    else:
        assert reply.status in (400, 404) and reply.error["message"]


def test_head_request(gateway):
    reply = gateway.call("HEAD", "/healthz")
    assert reply.status in (200, 405) and reply.body == b""


def test_one_connection_many_requests(gateway, gpu):
    with gateway.client() as client:
        for number in range(50):
            client.request("POST", CHAT, {"model": "chat", "messages": [], "stream": number % 2 == 0})
            assert client.read_reply().status == 200
    assert len(gpu.posts()) == 50
    assert len({id(r.connection) for r in gpu.posts()}) < 10, "the worker's connection is reused"


def test_many_connections_at_once(gateway, gpu):
    replies = []

    def one():
        replies.append(gateway.chat(stream=True))

    threads = [threading.Thread(target=one) for _ in range(60)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [r.text() for r in replies] == [gpu.text] * 60

