"""The main job on real input: stock llama-server, real weights, the real `openai` client, a GPU
worker that dies in every way the field knows, and an answer all the same.

One gateway with four managed workers for the whole file: two services, on the simulated card and
on the CPU. Before each test all four must be well again, which is a test in itself.
"""

import json
import os
import signal
import threading

import anthropic
import httpx
import openai
import pytest

from rig_engine import SimCard, engine_config, find_engine_files
from rig_gateway import Gateway, binary, eventually, marked_processes

pytestmark = [pytest.mark.real_engine, pytest.mark.timeout(120)]

QUESTION = [{"role": "user", "content": "Count from one to twenty in words, with commas."}]
GREEDY = {"model": "chat", "messages": QUESTION, "temperature": 0, "seed": 1, "max_tokens": 28}
WELL_DEADLINE_S = 30
WORKERS = 4


@pytest.fixture(scope="module")
def card():
    files, missing = find_engine_files()
    if missing:
        message = "not provisioned: " + ", ".join(missing)
        if os.environ.get("FAILSOFT_REQUIRE_ENGINE"):
            pytest.fail(message)
        pytest.skip(message)
    if not binary().exists():
        pytest.fail(f"no gateway at {binary()}; set FAILSOFT_BIN")
    card = SimCard()
    yield card
    card.destroy()


@pytest.fixture(scope="module")
def running(card, tmp_path_factory):
    files, _ = find_engine_files()
    gateway = Gateway(engine_config(files, card), tmp_path_factory.mktemp("engine"))
    gateway.idle_descriptors = None  # compared around each test, when all workers are well
    # What these tests do to the workers is told in error lines; each names the worker or its tier.
    gateway.allow_log(r"(gpu|cpu|worker|chat|embed)")
    yield gateway
    gateway.finish(expect_children=WORKERS, idle_sockets=0)


def all_ready(gateway):
    return all(tier["state"] == "ready"
               for name in ("chat", "embed") for tier in gateway.tiers(name).values())


def all_well(gateway):
    return all_ready(gateway) and all(
        tier["usable"] for name in ("chat", "embed") for tier in gateway.tiers(name).values())


def answers_from_gpu(gateway):
    """Both services really answer from their first tier."""
    chat = gateway.chat(max_tokens=1, timeout=60)
    embed = gateway.call("POST", "/v1/embeddings", {"model": "embed", "input": "x"}, timeout=60)
    return chat.tier == "gpu" and embed.tier == "gpu"


def wait_well(gateway):
    well = eventually(lambda: all_ready(gateway) and answers_from_gpu(gateway)
                      and all_well(gateway), WELL_DEADLINE_S, 0.2)
    if not well:
        gateway.broken = True  # the tests after this one would only wait in vain
    assert well, "not well: " + "\n".join([str(gateway.tiers("chat")), str(gateway.tiers("embed")),
                                          *gateway.log()[-40:]])


@pytest.fixture
def gateway(running, card):
    assert not getattr(running, "broken", False), "the workers did not get well after another test"
    wait_well(running)
    descriptors = running.other_descriptors()
    yield running
    card.mend()
    assert eventually(lambda: running.status()["requests"] == [], 10)
    wait_well(running)
    assert eventually(lambda: running.other_descriptors() == descriptors, 5), \
        (descriptors, running.other_descriptors())
    assert eventually(lambda: len(running.children()) == WORKERS, 5), running.children()


@pytest.fixture
def client(gateway):
    with openai.OpenAI(base_url=gateway.url + "/v1", api_key="none", max_retries=0,
                       timeout=60) as client:
        yield client


@pytest.fixture(scope="module")
def expected(running):
    """The greedy answer, once, from the first tier while all is well."""
    wait_well(running)
    reply = running.call("POST", "/v1/chat/completions", GREEDY, timeout=60)
    assert reply.status == 200 and reply.tier == "gpu", repr(reply)
    return reply.json()["choices"][0]["message"]["content"]


def gpu_pid(gateway, service="chat"):
    return gateway.tiers(service)["gpu"]["pid"]


def ask(client, streamed, **changes):
    """(text, headers) of the greedy request."""
    raw = client.chat.completions.with_raw_response.create(**(GREEDY | changes), stream=streamed)
    answer = raw.parse()
    if not streamed:
        assert answer.choices[0].finish_reason in ("stop", "length")
        return answer.choices[0].message.content, raw.headers
    text, finish = "", None
    for chunk in answer:
        for choice in chunk.choices:
            text += choice.delta.content or ""
            finish = choice.finish_reason or finish
    assert finish in ("stop", "length")
    return text, raw.headers


def embedding(client):
    raw = client.embeddings.with_raw_response.create(model="embed", input=["a cat", "a dog"],
                                                     encoding_format="float")
    return [d.embedding for d in raw.parse().data], raw.headers


def assert_from_cpu(headers):
    assert headers["X-Failsoft-Tier"] == "cpu"
    assert headers["X-Failsoft-Degraded"] and headers["X-Failsoft-Reason"]
    assert headers["X-Failsoft-Request"]


both = pytest.mark.parametrize("streamed", [True, False], ids=["stream", "whole"])


# --- all is well

@both
def test_answers_from_the_first_tier(client, expected, streamed):
    text, headers = ask(client, streamed)
    assert text == expected and len(text) > 20
    assert headers["X-Failsoft-Tier"] == "gpu" and headers["X-Failsoft-Request"]
    assert "X-Failsoft-Degraded" not in headers


def direct(gateway, tier, path, body):
    """Asks the engine itself, past the gateway."""
    address = gateway.tiers("chat")[tier]["address"].removeprefix("unix:")
    with httpx.Client(transport=httpx.HTTPTransport(uds=address), timeout=60) as engine:
        return engine.post("http://engine" + path, json=body).json()


def comparable(value):
    """Without what is different every time: ids, times, speeds, what the cache had."""
    if isinstance(value, dict):
        cached = value.get("cache_read_input_tokens")
        if cached is not None:
            value = {k: v for k, v in value.items() if k != "cache_read_input_tokens"}
            value["input_tokens"] += cached
        return {k: comparable(v) for k, v in value.items()
                if k not in ("id", "created", "timings", "created_at", "completed_at",
                             "cached_tokens")}
    if isinstance(value, list):
        return [comparable(v) for v in value]
    return value


TOOLS = [{"type": "function", "function": {
    "name": "get_weather", "description": "Weather of a city",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}},
                   "required": ["city"]}}}]


def weather(number, city):
    call = {"name": "get_weather", "arguments": json.dumps({"city": city})}
    return [{"role": "user", "content": f"Weather in {city}?"},
            {"role": "assistant", "content": "", "tool_calls": [
                {"id": f"c{number}", "type": "function", "function": call}]},
            {"role": "tool", "tool_call_id": f"c{number}", "content": "sunny"}]


# With examples before its eyes even a small model calls the tool.
TOOL_CALL = {
    "messages": [m for n, city in enumerate(("Rome", "Oslo", "Lima")) for m in weather(n, city)]
    + weather(9, "Paris")[:1],
    "tools": TOOLS, "tool_choice": "required", "max_tokens": 60,
}


@pytest.mark.parametrize("path, extra", [
    ("/v1/chat/completions", {}),
    ("/v1/chat/completions", {"max_tokens": 1}),
    ("/v1/chat/completions", {"logprobs": True, "top_logprobs": 3, "max_tokens": 12}),
    ("/v1/chat/completions", {"n": 2, "max_tokens": 12}),
    ("/v1/chat/completions", TOOL_CALL),
    ("/v1/chat/completions", {"stop": ["three"]}),
    ("/v1/chat/completions", {"response_format": {"type": "json_schema", "json_schema": {
        "name": "x", "schema": {"type": "object", "properties": {"a": {"type": "integer"}},
                                "required": ["a"]}}}, "max_tokens": 30}),
    ("/v1/completions", {"prompt": "One, two, three,", "max_tokens": 16}),
    ("/v1/completions", {"prompt": "One, two, three,", "max_tokens": 8, "logprobs": 2}),
    ("/v1/completions", {"prompt": "One, two, three,", "max_tokens": 8, "n": 2}),
    ("/v1/messages", {"max_tokens": 16}),
    ("/v1/responses", {"input": "Say hello.", "max_output_tokens": 16}),
], ids=["chat", "one-token", "logprobs", "two-choices", "tool-call", "stop", "json-schema",
        "completions", "completions-logprobs", "completions-two", "messages", "responses"])
def test_put_together_equals_the_engines_own(gateway, path, extra):
    body = GREEDY | {"cache_prompt": False} | extra
    if "prompt" in extra or "input" in extra:
        body.pop("messages")
    reply = gateway.call("POST", path, body, timeout=60)
    assert reply.status == 200 and reply.tier == "gpu", repr(reply)
    ours, theirs = reply.json(), direct(gateway, "gpu", path, body)
    assert "error" not in theirs, theirs
    assert list(ours) == list(theirs) or sorted(ours) == sorted(theirs)
    assert comparable(ours) == comparable(theirs)


@both
def test_tool_call_by_the_client_library(client, streamed):
    answer = client.chat.completions.create(**GREEDY | TOOL_CALL, stream=streamed)
    if streamed:
        parts = [c.choices[0].delta.tool_calls[0] for c in answer
                 if c.choices and c.choices[0].delta.tool_calls]
        assert parts[0].function.name == "get_weather"
        arguments = "".join(p.function.arguments or "" for p in parts)
    else:
        arguments = answer.choices[0].message.tool_calls[0].function.arguments
    assert json.loads(arguments) == {"city": "Paris"}


def test_killed_inside_a_tool_call(gateway, client):
    """F93: no second voice, no finish, and words that say not to execute it."""
    asked_cpu = gateway.tiers()["cpu"]["attempts_total"]
    seen = []
    with pytest.raises(openai.APIError) as caught:
        for chunk in client.chat.completions.create(**GREEDY | TOOL_CALL, stream=True):
            for choice in chunk.choices:
                assert choice.finish_reason is None
                if choice.delta.tool_calls and not seen:
                    os.kill(gpu_pid(gateway), signal.SIGSTOP)
                seen += choice.delta.tool_calls or []
    assert seen
    assert "incomplete tool call" in caught.value.body["message"]
    assert gateway.tiers()["cpu"]["attempts_total"] == asked_cpu


def test_anthropic_client(gateway):
    ask = {"model": "chat", "max_tokens": 12, "messages": QUESTION,
           "extra_body": {"temperature": 0, "seed": 1}}
    with anthropic.Anthropic(base_url=gateway.url, api_key="none", max_retries=0) as client:
        answer = client.messages.create(**ask)
        assert answer.content[0].text and answer.usage.output_tokens
        with client.messages.stream(**ask) as stream:
            assert "".join(stream.text_stream) == answer.content[0].text


def test_context_too_long_is_the_clients_own(gateway, client):
    failed_before = gateway.tiers()["gpu"]["attempts_failed"]
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model="chat", messages=[
            {"role": "user", "content": "word " * 3000}])
    assert "context" in str(caught.value)
    tiers = gateway.tiers()
    assert tiers["gpu"]["attempts_failed"] == failed_before
    assert tiers["gpu"]["consecutive_failures"] == 0


def test_unknown_model_and_broken_json(gateway, client):
    with pytest.raises(openai.NotFoundError) as caught:
        client.chat.completions.create(model="nope", messages=QUESTION)
    assert "chat" in str(caught.value)
    assert gateway.call("POST", "/v1/chat/completions", b"{").status == 400


# --- the worker dies

@both
def test_killed_before(gateway, client, expected, streamed):
    old = gpu_pid(gateway)
    os.kill(old, signal.SIGKILL)
    text, headers = ask(client, streamed)
    assert_from_cpu(headers)
    assert text == expected, "same weights, greedy: the same tokens"
    wait_well(gateway)
    assert gpu_pid(gateway) not in (0, old)
    text, headers = ask(client, streamed)
    assert headers["X-Failsoft-Tier"] == "gpu" and text == expected


def test_killed_before_embeddings(gateway, client):
    before, headers = embedding(client)
    assert headers["X-Failsoft-Tier"] == "gpu"
    os.kill(gpu_pid(gateway, "embed"), signal.SIGKILL)
    after, headers = embedding(client)
    assert_from_cpu(headers)
    assert len(after) == 2 and len(after[0]) == 384
    assert max(abs(a - b) for x, y in zip(before, after) for a, b in zip(x, y)) < 1e-4


def interrupt(client, action, at=4, **changes):
    """Streams the greedy request, does `action` after some deltas; (text so far, the error)."""
    text, count, done = "", 0, False
    raw = client.chat.completions.with_raw_response.create(**(GREEDY | changes), stream=True)
    try:
        for chunk in raw.parse():
            for choice in chunk.choices:
                assert choice.finish_reason is None, "a cut stream claims to have finished"
                text += choice.delta.content or ""
                count += bool(choice.delta.content)
            if count >= at and not done:
                done = True
                action()
    except openai.APIError as error:
        return text, error, raw.headers
    pytest.fail(f"the stream ended as if it were whole: {text!r}")


def assert_cut(text, error, headers, expected):
    assert headers["X-Failsoft-Tier"] == "gpu"
    assert text and expected.startswith(text), "what came before the fault is true"
    assert isinstance(error.body, dict) and error.body["type"] and error.body["message"]
    assert "retryable" in error.body
    assert headers["X-Failsoft-Request"] in str(error.body)


def test_killed_in_mid_stream(gateway, card, client, expected):
    card.set(slowdown="4")
    assert_cut(*interrupt(client, lambda: os.kill(gpu_pid(gateway), signal.SIGKILL)), expected)
    text, headers = ask(client, True)  # the next request is served at once
    assert text == expected


def in_background(client, **changes):
    """A non-streamed request that runs while the test does something to its worker."""
    out = {}

    def run():
        try:
            out["text"], out["headers"] = ask(client, False, **changes)
        except Exception as problem:  # told by the main thread
            out["problem"] = problem

    thread = threading.Thread(target=run)
    thread.start()
    return thread, out


def test_killed_in_the_middle_of_an_answer_that_is_not_streamed(gateway, card, client, expected):
    card.set(slowdown="10")
    thread, out = in_background(client)
    assert eventually(lambda: gateway.tiers()["gpu"]["running"] == 1, 10)
    os.kill(gpu_pid(gateway), signal.SIGKILL)
    thread.join(60)
    assert "problem" not in out, out
    assert_from_cpu(out["headers"])
    assert out["text"] == expected


# --- the worker is stopped

@both
def test_stopped_before(gateway, client, expected, streamed):
    os.kill(gpu_pid(gateway), signal.SIGSTOP)
    text, headers = ask(client, streamed)
    assert_from_cpu(headers)
    assert text == expected
    # Nobody continues it: the gateway has to replace it by itself.


def test_stopped_before_embeddings(gateway, client):
    os.kill(gpu_pid(gateway, "embed"), signal.SIGSTOP)
    vectors, headers = embedding(client)
    assert_from_cpu(headers)
    assert len(vectors[0]) == 384


def test_stopped_in_mid_stream(gateway, card, client, expected):
    card.set(slowdown="4")
    assert_cut(*interrupt(client, lambda: os.kill(gpu_pid(gateway), signal.SIGSTOP)), expected)


# --- memory is not to be had

def fresh_worker(gateway, service):
    """A worker that has loaded and not computed anything yet."""
    old = gpu_pid(gateway, service)
    os.kill(old, signal.SIGKILL)
    assert eventually(lambda: gpu_pid(gateway, service) not in (0, old) and all_ready(gateway),
                      WELL_DEADLINE_S, 0.05), gateway.status()


@both
def test_allocation_fails_at_load(gateway, card, client, expected, streamed):
    card.fail("--above", "1MiB")
    os.kill(gpu_pid(gateway), signal.SIGKILL)
    assert eventually(lambda: gateway.tiers()["gpu"]["state"] in ("backoff", "failed")
                      and gateway.tiers()["gpu"]["restarts"] >= 1, 20, 0.05)
    text, headers = ask(client, streamed)
    assert_from_cpu(headers)
    assert text == expected
    assert gateway.tiers()["gpu"]["reason"]
    card.fail("--off")
    # A load that fails although there is memory is not tried in a circle; a person says "again".
    gateway.process.send_signal(signal.SIGHUP)


@both
def test_allocation_fails_at_the_first_request(gateway, card, client, expected, streamed):
    """All buffers fit while loading; the workspace of a batch does not, as with CUDA's pools."""
    fresh_worker(gateway, "chat")
    card.set(workspace="64MiB")
    card.fail("--above", "1MiB")
    text, headers = ask(client, streamed)
    card.mend()
    assert_from_cpu(headers)
    assert text == expected


def test_allocation_fails_at_the_first_embedding(gateway, card, client):
    fresh_worker(gateway, "embed")
    card.set(workspace="64MiB")
    card.fail("--above", "1MiB")
    vectors, headers = embedding(client)
    assert_from_cpu(headers)
    assert len(vectors[0]) == 384


# --- the device is lost

@pytest.mark.parametrize("mode, message, streamed", [
    ("graph", "cuda", True), ("graph", "cuda", False), ("abort", "cuda", False),
    ("abort", "vulkan", True)])
def test_device_lost_before_output(gateway, card, client, expected, mode, message, streamed):
    card.lose("--mode", mode, "--message", message)
    text, headers = ask(client, streamed)
    assert_from_cpu(headers)
    assert text == expected
    card.reset()
    wait_well(gateway)
    text, headers = ask(client, streamed)
    assert headers["X-Failsoft-Tier"] == "gpu", "the tier did not come back after the reset"
    assert text == expected


@pytest.mark.parametrize("mode", ["graph", "abort"])
def test_device_lost_embeddings(gateway, card, client, mode):
    before, _ = embedding(client)
    card.lose("--mode", mode)
    after, headers = embedding(client)
    assert_from_cpu(headers)
    assert max(abs(a - b) for x, y in zip(before, after) for a, b in zip(x, y)) < 1e-4
    card.reset()
    wait_well(gateway)
    assert embedding(client)[1]["X-Failsoft-Tier"] == "gpu"


@pytest.mark.parametrize("mode", ["graph", "abort"])
def test_device_lost_in_mid_stream(gateway, card, client, expected, mode):
    card.lose("--mode", mode, "--after-graphs", "12")
    assert_cut(*interrupt(client, lambda: None), expected)


@pytest.mark.parametrize("mode", ["graph", "abort"])
def test_device_lost_in_the_middle_of_an_answer_that_is_not_streamed(gateway, card, client,
                                                                     expected, mode):
    card.lose("--mode", mode, "--after-graphs", "12")
    text, headers = ask(client, False)
    assert_from_cpu(headers)
    assert text == expected


# --- the device hangs

@both
def test_device_hangs_before_output(gateway, card, client, expected, streamed):
    card.stall()
    text, headers = ask(client, streamed)
    assert_from_cpu(headers)
    assert text == expected
    card.stall("--off")


def test_device_hangs_in_mid_stream(gateway, card, client, expected):
    card.set(slowdown="4")
    assert_cut(*interrupt(client, card.stall), expected)


# --- cancelling a real engine

@pytest.mark.parametrize("streamed", [True, False], ids=["stream", "whole"])
def test_a_client_that_leaves_frees_the_slot(gateway, card, streamed):
    card.set(slowdown="10")
    client = gateway.start_chat(stream=streamed, **{k: v for k, v in GREEDY.items()
                                                    if k != "model"} | {"max_tokens": 500})
    assert eventually(lambda: gateway.tiers()["gpu"]["running"] == 1, 10)
    client.close()
    assert eventually(lambda: gateway.tiers()["gpu"]["running"] == 0, 1)
    card.set(slowdown="1")
    address = gateway.tiers()["gpu"]["address"].removeprefix("unix:")
    with httpx.Client(transport=httpx.HTTPTransport(uds=address), timeout=10) as engine:
        def idle():
            return not any(s["is_processing"] for s in engine.get("http://e/slots").json())
        assert eventually(idle, 5, 0.05), "the engine works on for nobody"


# --- the end

def test_nothing_is_left_behind(card, tmp_path):
    """Its own gateway: SIGTERM with a stream open, and no process of it afterwards."""
    files, _ = find_engine_files()
    config = engine_config(files, card)
    del config["services"]["embed"]
    config["shutdown_grace"] = "500ms"
    gateway = Gateway(config, tmp_path)
    try:
        assert eventually(lambda: all(t["state"] == "ready" for t in gateway.tiers().values()),
                          WELL_DEADLINE_S, 0.1)
        assert len(gateway.children()) == 2
        client = gateway.start_chat(**{k: v for k, v in GREEDY.items() if k != "model"}
                                    | {"max_tokens": 800})
        client.read_head()
        gateway.process.send_signal(signal.SIGTERM)
        assert gateway.wait_exit(15) == 0
        assert marked_processes(gateway.mark) == []
        client.close()
    finally:
        gateway.kill()


def test_killed_gateway_takes_its_workers_along(card, tmp_path):
    files, _ = find_engine_files()
    config = engine_config(files, card)
    del config["services"]["embed"]
    gateway = Gateway(config, tmp_path)
    try:
        assert eventually(lambda: len(gateway.children()) == 2, 20)
        os.kill(gateway.pid, signal.SIGKILL)
        gateway.process.wait()
        assert eventually(lambda: marked_processes(gateway.mark) == [], 5), "orphans"
    finally:
        gateway.kill()
