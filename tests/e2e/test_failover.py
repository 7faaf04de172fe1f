"""Before the commit point a fault moves the request; after it, one typed error and nothing more.

Sections A, B, G, I and J of the field cases, on external tiers.
"""

import json
import threading
import time

import pytest

from conftest import load_cases
from fake_engines import CHAT, EMBEDDINGS, HEAD, FakeOllama, fault, loading, stream
from rig_config import gateway_config, service, tier, two_tiers
from rig_gateway import eventually
from rig_http import finish_reasons

CONTENT = "a"


def served_by_cpu(reply, cpu, streamed):
    assert reply.status == 200 and reply.complete, repr(reply)
    if streamed:
        assert reply.text() == cpu.text and reply.events()[-1]["data"] == "[DONE]"
        assert finish_reasons(reply.data()) == ["stop"]
        roles = [c for c in reply.data() if (c.get("choices") or [{}])[0].get("delta", {})
                 .get("role")]
        assert len(roles) == 1, "the role chunk of the failed tier went out as well"
        assert {c["model"] for c in reply.data()} <= {"fake-cpu", "chat"}
    else:
        assert reply.json()["choices"][0]["message"]["content"] == cpu.text
        assert "fake-gpu" not in reply.body.decode()
    assert reply.tier == "cpu"
    assert reply.get("X-Failsoft-Degraded")
    assert reply.get("X-Failsoft-Request")


def aborted_is_closed(fake):
    """The connection of an attempt that did not end properly is not kept (R10)."""
    for request in fake.posts():
        request.wait_answered(2)
        if not request.whole:
            request.wait_closed(2)


@pytest.mark.parametrize("streamed", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("case", load_cases("faults_before_output"))
def test_fault_before_output(gateway, gpu, cpu, case, streamed):
    gpu.always(CHAT, case["steps"])
    reply = gateway.chat(stream=streamed)
    served_by_cpu(reply, cpu, streamed)
    assert 1 <= len(gpu.posts()) <= case["attempts"]
    assert len(cpu.posts()) == 1
    aborted_is_closed(gpu)


@pytest.mark.parametrize("how", ["refuse", "blackhole"])
@pytest.mark.parametrize("streamed", [True, False], ids=["stream", "whole"])
def test_no_connection(gateway, gpu, cpu, how, streamed):
    gpu.stop() if how == "refuse" else gpu.pause_accept()
    served_by_cpu(gateway.chat(stream=streamed), cpu, streamed)
    gpu.resume_accept()


@pytest.mark.parametrize("case", load_cases("faults_after_output"))
def test_fault_after_output(gateway, gpu, cpu, case):
    gpu.always(CHAT, case["steps"])
    reply = gateway.chat(stream=True)
    assert reply.status == 200 and reply.complete, repr(reply)
    assert reply.tier == "gpu"
    assert len(gpu.posts()) == 1 and cpu.posts() == [], "a second voice was asked"
    events = reply.events()
    chunks = [json.loads(e["data"]) for e in events]  # so no [DONE] either
    assert reply.text() == CONTENT * case["deltas"]
    assert finish_reasons(chunks) == []
    errors = [c for c in chunks if "error" in c]
    assert errors == chunks[-1:], "exactly one error event, at the end"
    error = errors[0]["error"]
    assert isinstance(error, dict) and error["type"] and error["message"] and error["code"]
    assert "retryable" in error
    assert reply.get("X-Failsoft-Request") in json.dumps(error), "no resume handle"
    if case.get("tool"):
        assert "incomplete tool call" in error["message"]
        assert "not execute" in error["message"]
    aborted_is_closed(gpu)


@pytest.mark.parametrize("case", load_cases("faults_after_output"))
def test_fault_after_output_of_a_request_that_is_not_streamed(gateway, gpu, cpu, case):
    """Nothing was sent, so it moves on. With a tool call begun, a refusal that says so is right,
    too: nobody has acted on it."""
    gpu.always(CHAT, case["steps"])
    reply = gateway.chat()
    assert len(gpu.posts()) <= 2
    if case.get("tool") and reply.status >= 500:
        assert cpu.posts() == [] and "tool call" in reply.error["message"]
    else:
        served_by_cpu(reply, cpu, False)


@pytest.mark.parametrize("streamed", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("case", load_cases("request_errors"))
def test_request_error_is_passed_on(gateway, gpu, cpu, case, streamed):
    gpu.always(CHAT, [{"reply": case["reply"]}])
    for _ in range(4):  # more than `failures`
        reply = gateway.chat(stream=streamed)
        assert reply.status in case["status"], repr(reply)
        assert case["text"] in reply.body.decode()
    assert len(gpu.posts()) == 4, "retried, or held back"
    assert cpu.posts() == []
    gpu.route(CHAT, gpu._chat)
    assert gateway.chat(stream=streamed).tier == "gpu"
    assert gateway.tiers()["gpu"]["consecutive_failures"] == 0
    assert gateway.tiers()["gpu"]["availability"] == "available"


def test_f112_context_error_inside_a_stream(gateway, gpu, cpu):
    gpu.always(CHAT, [HEAD, {"error": {
        "code": 400, "type": "exceed_context_size_error",
        "message": "request (4390 tokens) exceeds the available context size (4096 tokens)"}},
        {"end": True}])
    reply = gateway.chat(stream=True)
    assert "available context size" in reply.body.decode()
    assert b"[DONE]" not in reply.body
    assert len(gpu.posts()) == 1 and cpu.posts() == []


# --- the moment of the commit

def test_role_and_progress_wait_for_the_first_output(gateway, gpu):
    gpu.always(CHAT, [HEAD, {"role": True}, {"progress": [1, 2]}, {"reach": "held"},
                      {"gate": "go"}, {"delta": "a"}, {"finish": "stop"}, {"done": True}])
    with gateway.start_chat() as client:
        gpu.gate("held").wait()
        with pytest.raises(TimeoutError):
            client.read_head(0.15)
            client.read_piece(0.15)
        gpu.gate("go").set()
        client.read_head()
        piece = client.read_piece()
        reply = client.read_body()
    assert b'"role"' in piece and b'"a"' in piece, "the role goes out with the first output"
    assert reply.text() == "a"
    assert b"prompt_progress" not in reply.body, "the client did not ask for progress"


def test_progress_reaches_a_client_that_asked_for_it(gateway, gpu):
    gpu.always(CHAT, [HEAD, {"progress": [1, 2]}, {"progress": [2, 2]}, {"delta": "a"},
                      {"finish": "stop"}, {"done": True}])
    reply = gateway.chat(stream=True, return_progress=True)
    assert reply.body.count(b"prompt_progress") == 2


def test_llama_is_asked_for_streams_and_progress(gateway, gpu):
    gateway.chat()
    gateway.chat(stream=True)
    for request in gpu.posts():
        assert request.json()["stream"] is True
        assert request.json()["return_progress"] is True
    assert "X-Failsoft-Tier" not in gpu.posts()[0].raw_head.decode()


@pytest.mark.parametrize("finish", ["stop", "length", "tool_calls"])
def test_a_finished_stream_without_done_is_whole(gateway, gpu, cpu, finish):
    """Some workers close after the finish reason: nothing is missing, nothing is asked again."""
    gpu.always(CHAT, [HEAD, {"role": True}, {"delta": "a"}, {"finish": finish}, {"end": True}])
    reply = gateway.chat(stream=True)
    assert reply.text() == "a" and finish_reasons(reply.data()) == [finish]
    assert not any("error" in c for c in reply.data())
    assert cpu.posts() == []


@pytest.mark.parametrize("end", ["end", "fin"])
def test_a_finish_reason_ends_its_own_choice_only(gateway, gpu, cpu, end):
    """With two choices asked for, one finish reason is half an answer; both are all of it, also when
    the connection then breaks before `[DONE]`."""
    gpu.always(CHAT, [HEAD, {"role": True}, {"delta": "a"}, {"finish": "stop"}, {end: True}])
    half = gateway.chat(stream=True, n=2)
    assert any("error" in c for c in half.data())
    gpu.always(CHAT, [HEAD, {"role": True}, {"delta": "a"}, {"finish": "stop"}, {"finish": "stop"},
                      {end: True}])
    whole = gateway.chat(stream=True, n=2)
    assert finish_reasons(whole.data()) == ["stop", "stop"]
    assert not any("error" in c for c in whole.data())
    assert cpu.posts() == []


def test_empty_answer_is_an_answer(gateway, gpu, cpu):
    """A model may end at once: a finish reason without text is done, not a fault."""
    gpu.always(CHAT, stream(""))
    reply = gateway.chat(stream=True)
    assert finish_reasons(reply.data()) == ["stop"] and reply.tier == "gpu"
    gpu.always(CHAT, [HEAD, {"role": True}, {"finish": "stop"}, {"done": True}])
    reply = gateway.chat(stream=True)
    assert finish_reasons(reply.data()) == ["stop"] and reply.tier == "gpu"
    assert gateway.chat().json()["choices"][0]["message"]["content"] in ("", None)
    assert cpu.posts() == []


def test_retry_on_the_same_worker_first(gateway, gpu, cpu):
    """One transient error before the commit point: once more on the same worker, then it is well."""
    for steps in ([{"rst": True}], fault(500, "something odd"), fault(503, "try later"),
                  [{"reply": {"status": 429, "headers": {"Retry-After": "0"}, "text": ""}}]):
        gpu.forget()
        gpu.script(CHAT, [steps])
        reply = gateway.chat(stream=True)
        assert reply.tier == "gpu" and reply.text() == gpu.text, steps
        assert len(gpu.posts()) == 2
        assert not reply.get("X-Failsoft-Degraded")
    assert cpu.posts() == []


def test_short_retry_after_is_honoured(gateway, gpu, cpu):
    gpu.script(CHAT, [[{"reply": {"status": 503, "headers": {"Retry-After": "1"}, "text": ""}}]])
    reply = gateway.chat(timeout=10)
    assert reply.tier == "gpu" and cpu.posts() == []
    first, second = gpu.posts()
    assert second.arrived_at - first.arrived_at >= 0.95


def test_tool_calls_and_text_of_a_good_stream_pass(gateway, gpu):
    gpu.always(CHAT, [HEAD, {"role": True}, {"tool": {"id": "c1", "name": "run", "arguments": ""}},
                      {"tool": {"arguments": '{"a":'}}, {"tool": {"arguments": "1}"}},
                      {"finish": "tool_calls"}, {"done": True}])
    reply = gateway.chat(stream=True)
    assert finish_reasons(reply.data()) == ["tool_calls"]
    calls = gateway.chat().json()["choices"][0]["message"]["tool_calls"]
    assert len(calls) == 1 and calls[0]["id"] == "c1"
    assert calls[0]["function"] == {"name": "run", "arguments": '{"a":1}'}


# --- embeddings: nothing streams, so everything before the answer moves on

@pytest.mark.parametrize("steps", [
    [{"fin": True}], [{"rst": True}], [{"silence": True}],
    fault(500, "CUDA error: out of memory"), fault(500, "Compute error."), loading(),
    [{"raw": "HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n{\"data\":["}, {"fin": True}],
    [{"raw": "HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n{\"data\":["}, {"silence": True}],
    [{"reply": {"text": "<html></html>", "type": "text/html"}}],
    [{"reply": {"text": "{\"data\":[", "type": "application/json"}}],
], ids=["fin", "rst", "silence", "oom", "compute", "loading", "cut", "stalled", "html", "broken"])
def test_embeddings_move_on(gateway, gpu, cpu, steps):
    gpu.always(EMBEDDINGS, steps)
    reply = gateway.call("POST", EMBEDDINGS, {"model": "embed", "input": ["a", "b"]})
    assert reply.status == 200 and reply.tier == "cpu" and reply.get("X-Failsoft-Degraded")
    assert len(reply.json()["data"]) == 2
    assert cpu.posts()[0].json()["input"] == ["a", "b"]


# --- both tiers down

@pytest.mark.parametrize("streamed", [True, False], ids=["stream", "whole"])
def test_both_down(gateway, gpu, cpu, streamed):
    gpu.stop()
    cpu.stop()
    for _ in range(5):
        reply = gateway.chat(stream=streamed)
        assert reply.status in (502, 503)
        assert "gpu" in reply.error["message"] and "cpu" in reply.error["message"]
        assert reply.error["type"] and "retryable" in reply.error
    assert reply.status == 503, "suspended workers: no capacity"
    assert int(reply.get("Retry-After")) >= 1
    assert reply.get("Content-Type").startswith("application/json")
    gpu.start()
    assert eventually(lambda: gateway.chat().status == 200, 5, 0.05)


def test_f78_status_and_retry_after_of_the_only_worker(start_gateway, gpu):
    gateway = start_gateway(gateway_config({
        "chat": service(tier("gpu", gpu, retry_after_max="0s"))}))
    gpu.always(CHAT, [{"reply": {"status": 503, "headers": {"Retry-After": "2"},
                                 "json": {"error": {"message": "busy", "code": 503}}}}])
    for streamed in (True, False):
        reply = gateway.chat(stream=streamed)
        assert reply.status == 503
        assert int(reply.get("Retry-After")) >= 2
        assert reply.get("Content-Type").startswith("application/json")


def test_f78_refused_is_no_200(start_gateway, gpu):
    gateway = start_gateway(gateway_config({"chat": service(tier("gpu", gpu))}))
    gpu.stop()
    reply = gateway.chat(stream=True)
    assert reply.status in (502, 503) and reply.error["message"]


def test_no_progress_of_the_only_worker(start_gateway, gpu):
    gateway = start_gateway(gateway_config({"chat": service(tier("gpu", gpu))}))
    gpu.always(CHAT, [HEAD, {"role": True}, {"silence": True}])
    reply = gateway.chat(stream=True)
    assert reply.status in (502, 503, 504) and reply.error["message"]
    gpu.posts()[0].wait_closed(1)


# --- availability: bounding attempts, finding the way back

@pytest.mark.parametrize("answer", [
    (500, "server busy, please try again.  maximum pending requests exceeded"),
    (503, "server busy, please try again.  maximum pending requests exceeded"),
    (500, "unexpected server status: llm busy - no slots available"),
], ids=["500", "503", "500-slots"])
def test_f70_busy_is_no_fault(gateway, gpu, cpu, answer):
    gpu.always(CHAT, [{"reply": {"status": answer[0], "json": {"error": answer[1]}}}])
    for _ in range(6):
        assert gateway.chat().tier == "cpu"
    assert gateway.tiers()["gpu"]["consecutive_failures"] == 0
    assert gateway.tiers()["gpu"]["availability"] == "available"
    gpu.route(CHAT, gpu._chat)
    assert gateway.chat().tier == "gpu"


def test_f73_no_state_without_a_way_out(gateway, gpu, cpu):
    gpu.stop()
    for _ in range(5):
        assert gateway.chat().tier == "cpu"
    assert gateway.tiers()["gpu"]["availability"] != "available"
    assert gateway.tiers()["gpu"]["reason"]
    gpu.start()
    assert eventually(lambda: gateway.chat().tier == "gpu", 5, 0.05)
    assert gateway.tiers()["gpu"]["availability"] == "available"


def test_f73_readiness_comes_back_without_a_request(gateway, gpu, cpu):
    gpu.stop()
    cpu.stop()
    for _ in range(4):
        gateway.chat()
    assert gateway.call("GET", "/readyz").status == 503
    gpu.start()
    cpu.start()
    assert eventually(lambda: gateway.call("GET", "/readyz").status == 200, 3)


def test_f74_a_flood_of_deterministic_errors_is_held_back(start_gateway, gpu):
    hold = {"hold": "30s", "hold_max": "30s"}
    gateway = start_gateway(gateway_config({
        "x": service(tier("gpu", gpu, availability=hold)),
        "y": service(tier("gpu", gpu, availability=hold))}))

    def answer(request):
        if request.json()["model"] == "x":
            return fault(500, "model name=X failed to load")
        return gpu._chat(request)

    gpu.route(CHAT, answer)
    for _ in range(100):
        assert gateway.chat(model="x").status >= 500
        assert gateway.chat(model="y").status == 200
    x_attempts = [r for r in gpu.posts() if r.json()["model"] == "x"]
    assert len(x_attempts) <= 4, "three attempts, one of them with a retry"


def test_one_probe_at_a_time(gateway, gpu, cpu):
    """A suspended worker is tried by one request, not by all that wait."""
    gpu.stop()
    for _ in range(4):
        gateway.chat()
    gpu.start()
    gpu.always(CHAT, [HEAD, {"role": True}, {"gate": "free"}, *stream("late")[2:]])
    seen = []
    deadline = time.monotonic() + 1.5

    def ask():
        while time.monotonic() < deadline:
            seen.append(gateway.chat().tier)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    eventually(lambda: len(gpu.posts()) > 0, 2)
    time.sleep(0.2)  # the others have had their chance; the probe still holds
    running = sum(1 for r in gpu.posts() if not r._answered.is_set())
    gpu.gate("free").set()
    for thread in threads:
        thread.join()
    assert running <= 1


@pytest.fixture
def blackholes(gpu, cpu):
    """Both workers connect and never answer; well again afterwards."""
    def close():
        for fake in (gpu, cpu):
            fake.pause_accept()
            fake.close_connections()

    yield close
    for fake in (gpu, cpu):
        fake.resume_accept()


def test_f59_own_health_does_not_wait_for_workers(blackholes, gateway):
    blackholes()
    running = [gateway.start_chat() for _ in range(4)]
    replies = [gateway.call("GET", "/healthz", timeout=1) for _ in range(100)]
    assert all(r.status == 200 for r in replies)
    for client in running:
        client.close()


def test_f59_readiness_says_that_nothing_can_be_served(blackholes, gateway, gpu, cpu):
    assert gateway.call("GET", "/readyz").status == 200
    blackholes()
    for _ in range(3):
        assert gateway.chat().status >= 500
    assert eventually(lambda: gateway.call("GET", "/readyz", timeout=1).status == 503, 5)
    seen = [gateway.call("GET", "/readyz", timeout=1).status for _ in range(200)
            if not time.sleep(0.005)]
    assert set(seen) == {503}, "ready and not ready in turn while nothing answers"
    assert gateway.status()["state"] == "unavailable"
    gpu.resume_accept()
    cpu.resume_accept()
    assert eventually(lambda: gateway.chat().status == 200, 5, 0.05)
    assert gateway.call("GET", "/readyz").status == 200


@pytest.mark.parametrize("old", [False, True], ids=["new-form", "old-form"])
def test_f61_loading_is_no_fault(start_gateway, gpu, old):
    """The listing says 200 while the model loads; the only tier is waited for."""
    gateway = start_gateway(gateway_config({"chat": service(tier("gpu", gpu))}))
    gpu.always("/health", loading(old))
    gpu.always(CHAT, loading(old))
    waiting = gateway.start_chat(stream=False)
    gpu.wait_request(CHAT, 2)
    assert gateway.tiers()["gpu"]["consecutive_failures"] == 0
    gpu.route("/health", {"json": {"status": "ok"}})
    gpu.route(CHAT, gpu._chat)
    assert waiting.read_reply().status == 200, "a request that came while the model loaded"
    waiting.close()
    assert eventually(lambda: gateway.chat().status == 200, 5, 0.05)
    assert gateway.tiers()["gpu"]["attempts_failed"] == 0


def test_f61_loading_is_waited_for_no_longer_than_the_queue_allows(start_gateway, gpu):
    gateway = start_gateway(gateway_config({
        "chat": service(tier("gpu", gpu, queue={"length": 4, "wait": "500ms"}))}))
    gpu.always(CHAT, loading())
    reply = gateway.chat()
    assert reply.status == 503 and int(reply.get("Retry-After")) >= 1
    assert "load" in reply.error["message"].lower()
    assert gateway.tiers()["gpu"]["attempts_failed"] == 0


def test_f61_html_on_every_path_is_an_unknown_server(start_gateway, gpu, cpu):
    html = {"text": "<html>hello</html>", "type": "text/html"}
    gpu._routes.clear()
    gpu.route("*", html)
    config = two_tiers(gpu, cpu)
    for each in config["services"].values():
        each["tiers"][0].pop("engine")
    gateway = start_gateway(config)
    reply = gateway.chat(stream=True)
    assert reply.status == 200 and reply.tier == "cpu"
    assert gateway.tiers()["gpu"]["engine"] != "llama-server"


def test_f61_alias_not_in_the_list_is_served(start_gateway, gpu):
    config = gateway_config({"chat": service(tier("gpu", gpu), aliases=["gpt-4o-mini"])})
    gateway = start_gateway(config)
    assert gateway.chat(model="gpt-4o-mini").status == 200


@pytest.mark.parametrize("kind", ["llama", "ollama"])
def test_engine_is_found_by_probing(start_gateway, fakes, gpu, kind):
    fake = gpu if kind == "llama" else fakes(FakeOllama)
    entry = tier("gpu", fake)
    entry.pop("engine")
    gateway = start_gateway(gateway_config({"chat": service(entry)}))
    assert gateway.chat().status == 200
    expected = "llama-server" if kind == "llama" else "ollama"
    assert eventually(lambda: gateway.tiers()["gpu"]["engine"] == expected, 3)


# --- F95: what is said must be what was

def test_f95_headers_equal_for_streamed_and_not(gateway, gpu, cpu):
    def told(reply):
        return {n.lower(): v for n, v in reply.fields
                if n.lower().startswith("x-failsoft-") and n.lower() not in
                ("x-failsoft-request", "x-failsoft-eta-ms")}

    assert told(gateway.chat()) == told(gateway.chat(stream=True))
    gpu.always(CHAT, fault(500, "CUDA error: out of memory"))
    whole, streamed = gateway.chat(), gateway.chat(stream=True)
    assert told(whole) == told(streamed)
    assert whole.json()["model"] == streamed.data()[0]["model"]
    ids = {gateway.chat().get("X-Failsoft-Request") for _ in range(5)}
    assert len(ids) == 5


# --- F08: Ollama's NDJSON

@pytest.fixture
def ollama(start_gateway, fakes):
    first = fakes(FakeOllama, says=["O1", " O2"], model="chat")
    second = fakes(FakeOllama, says=["P1", " P2"], model="chat")
    config = gateway_config({"chat": service(tier("gpu", first, engine="ollama"),
                                             tier("cpu", second, engine="ollama"))})
    return start_gateway(config), first, second


NDJSON = {"head": {"status": 200, "type": "application/x-ndjson"}}
OLLAMA = {"model": "chat", "messages": [{"role": "user", "content": "hi"}]}


def ndjson(reply):
    return [json.loads(line) for line in reply.body.decode().splitlines()]


@pytest.mark.parametrize("path, key", [("/api/chat", "message"), ("/api/generate", "response")])
def test_ollama_passes_byte_for_byte(ollama, path, key):
    gateway, first, _ = ollama
    reply = gateway.call("POST", path, OLLAMA | {"prompt": "hi"})
    assert reply.body == bytes(first.posts()[0].sent)
    assert ndjson(reply)[-1]["done"] is True and reply.tier == "gpu"
    assert reply.get("Content-Type").startswith("application/x-ndjson")
    reply = gateway.call("POST", path, OLLAMA | {"prompt": "hi", "stream": False})
    text = reply.json()[key]
    assert (text["content"] if key == "message" else text) == "O1 O2"


def test_f08_error_line_after_two_deltas(ollama):
    gateway, first, second = ollama
    first.always("/api/chat", [NDJSON, {"nd": first.line("Hello!")}, {"nd": first.line(" How")},
                               {"nd": {"error": "an error was encountered while running the model:"
                                                " unexpected EOF"}}, {"end": True}])
    reply = gateway.call("POST", "/api/chat", OLLAMA)
    lines = ndjson(reply)
    assert [x["message"]["content"] for x in lines[:2]] == ["Hello!", " How"]
    assert len(lines) == 3 and isinstance(lines[2]["error"], str)
    assert not any(x.get("done") for x in lines)
    assert second.posts() == []
    assert gateway.tiers()["gpu"]["consecutive_failures"] == 1, "status 200 hid the fault"


@pytest.mark.parametrize("steps", [
    [NDJSON, {"nd": {"error": "llama runner process has terminated: exit status 2"}},
     {"end": True}],
    [NDJSON, {"silence": True}],
    [NDJSON, {"fin": True}],
    [{"reply": {"status": 500, "json": {"error": "llama runner process has terminated"}}}],
], ids=["error-line", "silence", "cut", "500"])
@pytest.mark.parametrize("streamed", [True, False])
def test_f08_before_output_moves_on(ollama, steps, streamed):
    gateway, first, second = ollama
    first.always("/api/chat", steps)
    reply = gateway.call("POST", "/api/chat", OLLAMA | {"stream": streamed})
    assert reply.status == 200 and reply.tier == "cpu"
    assert "".join(x["message"]["content"] for x in ndjson(reply)) == "P1 P2"


@pytest.mark.parametrize("how", ["fin", "rst", "silence", "end"])
def test_ndjson_cut_after_output(ollama, how):
    gateway, first, second = ollama
    first.always("/api/chat", [NDJSON, {"nd": first.line("Hello!")}, {how: True}])
    lines = ndjson(gateway.call("POST", "/api/chat", OLLAMA))
    assert lines[0]["message"]["content"] == "Hello!" and "error" in lines[-1]
    assert len(lines) == 2 and second.posts() == []


def test_ndjson_cut_at_every_offset(ollama):
    gateway, first, _ = ollama
    whole = b"".join(json.dumps(x, ensure_ascii=False).encode() + b"\n" for x in
                     (first.line("é🌍"), first.line("b"), first.line("", True)))
    for cut in range(1, len(whole)):
        first.script("/api/chat", [[NDJSON, {"split": {"at": [cut], "steps": [{"send": whole}]}},
                                    {"end": True}]])
        assert gateway.call("POST", "/api/chat", OLLAMA).body == whole, f"cut at {cut}"


# --- Anthropic and Responses: the same rules in their own words

@pytest.mark.parametrize("path", ["/v1/messages", "/v1/responses"])
@pytest.mark.parametrize("streamed", [True, False])
def test_other_dialects_move_on(gateway, gpu, cpu, path, streamed):
    body = {"model": "chat", "max_tokens": 9, "stream": streamed, "input": "hi",
            "messages": [{"role": "user", "content": "hi"}]}
    reply = gateway.call("POST", path, body)
    assert reply.status == 200 and reply.tier == "gpu"
    gpu.always(path, [{"rst": True}])
    reply = gateway.call("POST", path, body)
    assert reply.status == 200 and reply.tier == "cpu"
    if streamed:
        assert reply.body == bytes(cpu.posts()[0].sent)
    else:
        assert "C1 C2 C3" in reply.body.decode()


@pytest.mark.parametrize("path, begin, output", [
    ("/v1/messages", "message_start",
     'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,'
     '"delta":{"type":"text_delta","text":"a"}}\n\n'),
    ("/v1/responses", "response.created",
     'event: response.output_text.delta\ndata: {"type":"response.output_text.delta",'
     '"item_id":"m","output_index":0,"content_index":0,"delta":"a"}\n\n'),
])
def test_other_dialects_cut_after_output(gateway, gpu, cpu, path, begin, output):
    key = "message" if "messages" in path else "response"
    opening = f'event: {begin}\ndata: {{"type":"{begin}","{key}":{{}}}}\n\n'
    body = {"model": "chat", "max_tokens": 9, "stream": True, "input": "hi",
            "messages": [{"role": "user", "content": "hi"}]}
    gpu.always(path, [HEAD, {"send": opening}, {"fin": True}])
    assert gateway.call("POST", path, body).tier == "cpu", "the opening event is no output"
    cpu.forget()
    gpu.always(path, [HEAD, {"send": opening}, {"send": output}, {"fin": True}])
    reply = gateway.call("POST", path, body)
    events = reply.events()
    assert events[1]["data"] in output and events[-1]["event"] == "error"
    assert json.loads(events[-1]["data"])["type"] == "error"
    assert cpu.posts() == []
    for done in ("message_stop", "response.completed", "[DONE]"):
        assert done not in reply.body.decode()


@pytest.mark.parametrize("streamed", [True, False])
def test_completions_move_on_and_stop(gateway, gpu, cpu, streamed):
    path = "/v1/completions"
    body = {"model": "chat", "prompt": "hi", "stream": streamed}
    gpu.always(path, [HEAD, {"fin": True}])
    reply = gateway.call("POST", path, body)
    assert reply.tier == "cpu"
    if streamed:
        gpu.always(path, [HEAD, {"sse": {"choices": [{"text": "a", "index": 0}]}}, {"fin": True}])
        cpu.forget()
        reply = gateway.call("POST", path, body)
        assert "error" in reply.data()[-1] and cpu.posts() == []
    else:
        assert reply.json()["choices"][0]["text"] == cpu.text
