"""What a request needs is known before it reaches a worker: the length of its prompt, by the worker's
own tokenizer where that matters, the answer it asks for, and what the KV cache has room for."""

import subprocess

import pytest

from fake_engines import CHAT, HEAD, FakeLlama, FakeVllm
from rig_config import gateway_config, service, tier
from rig_gateway import binary, eventually

COUNT = CHAT + "/input_tokens"
LONG = {"first_event_timeout": "30s", "stall_timeout": "30s"}


class Llama(FakeLlama):
    """A llama-server with a context of so many tokens for all its slots."""

    def __init__(self, context=4096, tokens=None, **options):
        super().__init__(**options)
        self.route("/props", {"json": {"total_slots": 4, "default_generation_settings":
                                       {"n_ctx": context, "params": {}}}})
        if tokens is not None:
            self.route(COUNT, {"json": {"input_tokens": tokens}})


def words(count):
    return [{"role": "user", "content": "tree " * count}]


def knows_kv(gateway, name="gpu", model="chat"):
    assert eventually(lambda: gateway.tiers(model)[name]["kv"] is not None, 10), gateway.tiers(model)


def decisions(gateway):
    return gateway.status()["decisions"]


@pytest.fixture
def serve(start_gateway):
    """serve(gpu, cpu, …): both behind `chat`, and what they say of their cache has been seen."""
    def start(gpu, other=None, gpu_options=None, **options):
        # An engine that is found by asking is asked for its cache at once.
        found = {"engine": "auto"} | LONG
        tiers = [tier("gpu", gpu, **(found | (gpu_options or {})))]
        if other:
            tiers.append(tier("cpu", other, **found))
        top = {"admission": options.pop("admission")} if "admission" in options else {}
        gateway = start_gateway(gateway_config({"chat": service(*tiers, **options)}, **top))
        knows_kv(gateway)
        if other:
            knows_kv(gateway, "cpu")
        return gateway
    return start


# --- length


def test_too_long_is_refused_before_any_worker_sees_it(serve, fakes):
    fake = fakes(Llama, tokens=5000)
    gateway = serve(fake)
    reply = gateway.chat(messages=words(4000))
    error = reply.json()["error"]
    assert reply.status == 400 and error["code"] == "context_length_exceeded", error
    assert "5000 tokens" in error["message"] and "4096" in error["message"]
    assert "4096" in error["would_fit"] and error["retryable"] is False
    assert not fake.received(CHAT)
    assert gateway.tiers()["gpu"]["attempts_failed"] == 0
    assert decisions(gateway)[0]["action"] == "refuse"


def test_as_long_as_its_tokenizer_says_and_not_as_its_bytes(serve, fakes):
    """20,000 bytes could be 20,000 tokens, and are 3,000."""
    fake = fakes(Llama, tokens=3000)
    gateway = serve(fake)
    assert gateway.chat(messages=words(4000)).status == 200
    assert len(fake.received(COUNT)) == 1 and len(fake.received(CHAT)) == 1


def test_what_fits_by_its_bytes_is_not_counted(serve, fakes):
    fake = fakes(Llama, context=65536, tokens=1)
    gateway = serve(fake)
    assert gateway.chat(messages=words(100)).status == 200
    assert not fake.received(COUNT)


@pytest.mark.parametrize("count, status", [(4000, 200), (20000, 400)])
def test_without_a_tokenizer_only_what_surely_does_not_fit_is_refused(serve, fakes, count, status):
    fake = fakes(Llama)
    gateway = serve(fake)
    assert gateway.chat(messages=words(count)).status == status
    assert len(fake.received(CHAT)) == (status == 200)


@pytest.mark.parametrize("answer", [
    {"status": 500, "json": {"error": "no"}}, {"json": {"input_tokens": -4}},
    {"json": {"input_tokens": "12"}}, {"text": "<html>"}])
def test_a_tokenizer_that_does_not_tell(serve, fakes, answer):
    fake = fakes(Llama)
    fake.route(COUNT, answer)
    gateway = serve(fake)
    assert gateway.chat(messages=words(2000)).status == 200
    assert len(fake.received(COUNT)) == 1


def test_a_client_that_leaves_while_its_prompt_is_counted(serve, fakes):
    fake = fakes(Llama)
    fake.script(COUNT, [[{"silence": True}]])
    gateway = serve(fake)
    client = gateway.start_chat(messages=words(4000))
    asked = fake.wait_request(COUNT)
    assert gateway.status()["requests"][0]["state"] == "counting"
    client.close()
    asked.wait_closed(2)
    assert eventually(lambda: not gateway.status()["requests"])
    assert not fake.received(CHAT)


def test_the_tier_with_the_longer_context_takes_it(serve, fakes):
    gpu, cpu = fakes(Llama, tokens=5000), fakes(Llama, context=16384, tokens=5000)
    gateway = serve(gpu, cpu)
    reply = gateway.chat(messages=words(4000))
    assert reply.status == 200 and reply.tier == "cpu"
    assert "a request can have 4096" in reply.get("X-Failsoft-Reason")
    assert not gpu.received(CHAT)
    taken = decisions(gateway)[0]
    assert (taken["action"], taken["tier"], taken["request"]) == \
        ("route", "cpu", reply.get("X-Failsoft-Request"))
    assert gateway.metrics()[
        'failsoft_admission_decisions_total{service="chat",action="route"}'] == 1


def test_a_tier_that_is_only_given_short_requests(serve, fakes):
    gpu, cpu = fakes(Llama, context=65536), fakes(Llama, context=65536)
    gateway = serve(gpu, cpu, gpu_options={"request_tokens": 16384})
    assert gateway.chat(messages=words(100)).tier == "gpu"
    assert gateway.chat(messages=words(5000)).tier == "cpu"


def test_more_output_than_there_is_context_ends_with_the_context(serve, fakes):
    """As the engine itself has it: the client asked for "a lot", and loses nothing by it."""
    fake = fakes(Llama, tokens=100)
    gateway = serve(fake)
    reply = gateway.chat(messages=words(10), max_tokens=100000)
    assert reply.status == 200 and not reply.get("X-Failsoft-Degraded")
    assert fake.received(CHAT)[0].json()["max_tokens"] == 100000


def test_a_batch_of_texts_is_as_long_as_its_longest(start_gateway, fakes):
    """A hundred texts that each fit are no text of a hundred times the length."""
    fake = fakes(Llama, context=512)
    gateway = start_gateway(gateway_config({"embed": service(
        tier("gpu", fake, engine="auto"), kind="embeddings")}))
    knows_kv(gateway, model="embed")

    def embed(texts):
        return gateway.call("POST", "/v1/embeddings", {"model": "embed", "input": texts})

    assert embed(["tree " * 40] * 100).status == 200
    assert embed(["tree " * 40, "tree " * 2000]).status == 400
    assert embed(["", "a"]).status == 200


# --- the shared cache


def hold(gateway, fake, tokens):
    """A request that has begun, of so many tokens, and lasts until it is let go."""
    fake.route(COUNT, {"json": {"input_tokens": tokens}})
    fake.script(CHAT, [[HEAD, {"role": True}, {"delta": "x"}, {"gate": "go"}, {"finish": "stop"},
                        {"done": True}]])
    client = gateway.start_chat(messages=words(4000), max_tokens=10)
    client.read_head()
    client.read_until(b'"x"')
    return client


def test_what_is_admitted_together_can_finish_together(serve, fakes):
    fake = fakes(Llama)
    gateway = serve(fake)
    first = hold(gateway, fake, 3000)
    assert gateway.tiers()["gpu"]["kv"]["free_tokens"] == 4096 - 3010
    second = gateway.start_chat(messages=words(4000), max_tokens=10)
    assert eventually(lambda: gateway.tiers()["gpu"]["waiting"] == 1)
    # A short one would fit, and does not overtake: the long one would wait for ever.
    third = gateway.start_chat(messages=words(1), max_tokens=10)
    assert eventually(lambda: gateway.tiers()["gpu"]["waiting"] == 2)
    assert len(fake.received(CHAT)) == 1
    fake.gate("go").set()
    for client in (second, third):
        client.read_head()
    for client in (first, second, third):
        client.read_until(b"[DONE]")
        client.close()
    assert eventually(lambda: gateway.tiers()["gpu"]["kv"]["free_tokens"] == 4096)


def test_a_claim_on_the_cache_ends_with_its_request(serve, fakes):
    fake = fakes(Llama)
    gateway = serve(fake)
    client = hold(gateway, fake, 3000)
    client.close()
    assert eventually(lambda: gateway.tiers()["gpu"]["kv"]["free_tokens"] == 4096)


def test_a_paged_cache_with_requests_of_others(serve, fakes):
    fake = fakes(FakeVllm)
    fake.say(usage="0.99")
    gateway = serve(fake)
    waiting = gateway.start_chat(max_tokens=4000)
    assert eventually(lambda: gateway.tiers()["gpu"]["waiting"] == 1)
    assert not fake.received(CHAT)
    fake.say(usage="0.1")
    waiting.read_head(timeout=10)
    waiting.read_until(b"[DONE]")
    waiting.close()


# --- less than asked


def test_a_shorter_answer_is_given_only_where_that_is_allowed(serve, fakes):
    plain, short = fakes(FakeVllm), fakes(FakeVllm)
    gateway = serve(plain)
    reply = gateway.chat(max_tokens=40000)
    assert reply.status == 400 and "32768" in reply.json()["error"]["message"]
    gateway = serve(short, shrink="output")
    reply = gateway.chat(max_tokens=40000)
    assert reply.status == 200 and reply.get("X-Failsoft-Degraded") == "short-answer"
    sent = short.received(CHAT)[0].json()["max_tokens"]
    assert 16 <= sent < 32768
    assert f"output is limited to {sent} tokens" in reply.get("X-Failsoft-Reason")


def test_a_service_that_may_not_use_the_cpu(serve, fakes):
    gpu, cpu = fakes(Llama), fakes(Llama)
    gateway = serve(gpu, cpu, cpu="deny")
    assert gateway.chat(messages=words(10)).tier == "gpu"
    gpu.always(CHAT, [{"rst": True}])
    reply = gateway.chat(messages=words(10))
    assert reply.status in (502, 503) and "not allowed by the service" in \
        reply.json()["error"]["message"]
    assert not cpu.received(CHAT)


def test_status_shows_the_last_decisions_that_say_more_than_it_fits(serve, fakes):
    gpu, cpu = fakes(Llama, tokens=5000), fakes(Llama, context=16384, tokens=5000)
    gateway = serve(gpu, cpu)
    assert gateway.chat(messages=words(10)).tier == "gpu"
    assert gateway.chat(messages=words(4000)).tier == "cpu"
    shown = subprocess.run([binary(), "status", "--url", gateway.url], capture_output=True, text=True,
                           timeout=20, check=False).stdout
    assert "last decisions" in shown
    told = [line for line in shown.splitlines() if " ago: chat " in line]
    assert len(told) == 1 and "route to cpu: gpu: needs 6024 tokens; a request can have 4096" in told[0]


def test_admission_can_be_off(serve, fakes):
    fake = fakes(Llama, tokens=5000)
    gateway = serve(fake, admission="off")
    assert gateway.chat(messages=words(4000)).status == 200
    assert not fake.received(COUNT) and decisions(gateway) == []
