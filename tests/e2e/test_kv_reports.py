"""What engines say of their KV cache, seen on the status pages: which pages are asked, when, and what
is believed. Engines are fakes that speak as vLLM, SGLang, TGI, llama-server and Ollama do."""

import pytest

from fake_engines import CHAT, HEAD, FakeLlama, FakeOllama, FakeOpenai, FakeVllm, vllm_metrics
from rig_config import gateway_config, service, tier
from rig_gateway import eventually

LONG = {"first_event_timeout": "30s", "stall_timeout": "30s"}


@pytest.fixture
def hold(start_gateway):
    """hold(gateway, fake): a request that has begun, and lasts as long as the test."""
    clients = []

    def start(gateway, fake, **body):
        fake.script(CHAT, [[HEAD, {"role": True}, {"delta": "x"}, {"silence": True}]])
        client = gateway.start_chat(**body)
        clients.append(client)
        client.read_head()
        client.read_until(b'"x"')

    yield start
    for client in clients:
        client.close()


@pytest.fixture
def watch(start_gateway, hold):
    """watch(fake, …): a gateway with it behind `chat`, and a request that runs on it."""
    def start(fake, running=True, **options):
        engine = {FakeLlama: "llama-server", FakeOllama: "ollama"}.get(type(fake), "openai")
        gateway = start_gateway(gateway_config({"chat": service(
            tier("gpu", fake, **({"engine": engine} | LONG | options)))}))
        if running:
            hold(gateway, fake)
        return gateway
    return start


def kv(gateway):
    return gateway.tiers()["gpu"]["kv"]


def wait_kv(gateway, timeout=6, **wanted):
    """Waits until the figures that are named are so."""
    def is_so():
        now = kv(gateway)
        return now is not None and all(now[key] == value for key, value in wanted.items())
    assert eventually(is_so, timeout, every=0.05), f"{kv(gateway)}, not {wanted}"
    return kv(gateway)


def settled(fake, path, count=1, timeout=10):
    """The path has been asked `count` times, and answered."""
    fake.wait_request(path, number=count, method="GET", timeout=timeout).wait_answered()


# --- one engine after the other


def test_vllm(watch, fakes):
    fake = fakes(FakeVllm)
    gateway = watch(fake)
    known = wait_kv(gateway, kind="paged")
    assert (known["tokens"], known["slots"], known["page_tokens"]) == (81280, 0, 16)
    assert known["used_tokens"] >= 20320
    assert 0 < known["free_tokens"] <= 32768
    metrics = gateway.metrics()
    assert metrics['failsoft_worker_kv_tokens{service="chat",tier="gpu"}'] == 81280
    assert 'failsoft_worker_kv_taken_tokens{service="chat",tier="gpu"}' in metrics
    # Somebody else's requests fill it.
    fake.say(usage="0.9")
    known = wait_kv(gateway, used_tokens=73152)
    assert known["free_tokens"] == 81280 - 73152
    fake.say(usage="0.0")
    assert wait_kv(gateway, free_tokens=32768)["used_tokens"] < 40000
    assert gateway.wait_log("KV cache of 81280 tokens in pages, requests of at most 32768 tokens")


def test_vllm_before_the_renaming(watch, fakes):
    fake = fakes(FakeVllm)
    page = vllm_metrics(usage="0.5")
    fake.route("/metrics", {"text": page.replace("vllm:kv_cache", "vllm:gpu_cache")})
    wait_kv(watch(fake), kind="paged", used_tokens=40640)


def test_vllm_that_counts_its_tokens_itself(watch, fakes):
    fake = fakes(FakeVllm)
    fake.say(block_size="4", blocks="2000", kv_cache_size_tokens="130000")
    wait_kv(watch(fake), kind="paged", tokens=130000, page_tokens=4)


def test_sglang_with_metrics(watch, fakes):
    fake = fakes(FakeOpenai, max_model_len=8192)
    labels = '{engine_type="unified",model_name="m",tp_rank="0"}'
    fake.route("/metrics", {"text": f"sglang:token_usage{labels} 0.5\n"
                                    f"sglang:num_running_reqs{labels} 1.0\n"})
    fake.route("/get_server_info", {"json": {"model_path": "m", "page_size": 1,
                                             "context_length": None,
                                             "max_total_num_tokens": 20480,
                                             "internal_states": [{"x": "y" * 100000}]}})
    gateway = watch(fake)
    known = wait_kv(gateway, kind="paged", tokens=20480)
    assert known["used_tokens"] >= 10240
    assert known["free_tokens"] <= 8192


def test_sglang_without_metrics(watch, fakes):
    fake = fakes(FakeOpenai, max_model_len=8192)
    fake.route("/get_server_info", {"json": {"max_total_num_tokens": 20480, "page_size": 64}})
    wait_kv(watch(fake), kind="paged", tokens=20480, page_tokens=64)


def test_tgi(watch, fakes):
    fake = fakes(FakeOpenai)
    fake.route("/metrics", {"text": "tgi_queue_size 0\n"})
    fake.route("/info", {"json": {"model_id": "m", "max_total_tokens": 4096,
                                  "max_batch_total_tokens": 20000}})
    wait_kv(watch(fake), kind="paged", tokens=20000)


def test_llama_server_of_somebody_else(watch, fakes):
    """Its pages do not say whether the slots share one cache: the smaller claim is made."""
    fake = fakes(FakeLlama)
    wait_kv(watch(fake), kind="unified", tokens=4096, slots=4)


def test_llama_server_that_says_it_on_another_page(watch, fakes):
    fake = fakes(FakeLlama)
    fake.route("/props", {"json": {"default_generation_settings": {}}})
    fake.route("/slots", {"json": [{"id": 0, "n_ctx": 2048, "is_processing": True}]})
    wait_kv(watch(fake), kind="slots", tokens=2048, slots=1)


def test_ollama(watch, fakes):
    fake = fakes(FakeOllama)
    fake.route("/api/ps", {"json": {"models": [
        {"name": "fake-model:latest", "model": "fake-model:latest", "size_vram": 5333539264,
         "context_length": 4096}]}})
    wait_kv(watch(fake, slots=2, model="fake-model"), kind="slots", tokens=8192, slots=2)


def test_ollama_loads_the_model_with_the_first_request(watch, fakes):
    fake = fakes(FakeOllama)
    gateway = watch(fake, slots=1)
    settled(fake, "/api/ps")
    assert kv(gateway) is None
    fake.route("/api/ps", {"json": {"models": [{"model": "m:latest", "context_length": 8192}]}})
    wait_kv(gateway, kind="slots", tokens=8192)


# --- when it is asked


def test_asked_as_soon_as_the_engine_is_found(watch, fakes):
    """Before any request, and beside the API that the base URL names."""
    fake = fakes(FakeVllm)
    gateway = watch(fake, running=False, url=fake.url + "/v1", engine="auto")
    wait_kv(gateway, kind="paged", tokens=81280, used_tokens=20320, free_tokens=32768)
    assert fake.asked("/metrics") and not fake.asked("/v1/metrics")


def test_asked_again_only_while_it_is_used(start_gateway, fakes, hold):
    busy, idle = fakes(FakeVllm), fakes(FakeVllm)
    gateway = start_gateway(gateway_config({"chat": service(
        tier("gpu", busy, engine="openai", **LONG), tier("cpu", idle, engine="openai", **LONG))}))
    hold(gateway, busy)
    settled(busy, "/metrics", 3)
    assert len(idle.asked("/metrics")) == 0
    # What does not move is not asked for each time.
    assert len(busy.asked("/v1/models")) == 1


def test_a_llama_server_is_not_asked_over_and_over(start_gateway, fakes, hold):
    fake, other = fakes(FakeLlama), fakes(FakeVllm)
    gateway = start_gateway(gateway_config({
        "chat": service(tier("gpu", fake, **LONG)),
        "more": service(tier("gpu", other, engine="openai", **LONG))}))
    hold(gateway, fake)
    hold(gateway, other, model="more")
    settled(other, "/metrics", 3)
    assert len(fake.received("/props", method="GET")) == 1


def test_one_question_at_a_time(watch, fakes):
    """An engine that does not answer its pages serves all the same; each call ends in time."""
    fake = fakes(FakeVllm)
    fake.always("/metrics", [{"silence": True}])
    gateway = watch(fake)
    first = fake.wait_request("/metrics", number=1, method="GET")
    assert gateway.chat().status == 200
    assert len(fake.asked("/metrics")) == 1
    first.wait_closed(4)
    second = fake.wait_request("/metrics", number=2, method="GET")
    assert second.arrived_at >= first.closed_at
    assert kv(gateway) is None


# --- what is not believed


@pytest.mark.parametrize("figures", [
    {"blocks": "None"}, {"blocks": "-5080"}, {"blocks": "0"}, {"blocks": "9" * 30},
    {"block_size": "None"}, {"block_size": "0"},
    {"blocks": "100"},  # 1600 tokens cannot hold the longest request of 32768
], ids=str)
def test_figures_that_cannot_be(watch, fakes, figures):
    fake = fakes(FakeVllm)
    fake.say(**figures)
    gateway = watch(fake)
    settled(fake, "/v1/models")
    assert kv(gateway) is None
    assert not [name for name in gateway.metrics() if name.startswith("failsoft_worker_kv_tokens")]
    assert gateway.chat().status == 200
    assert kv(gateway) is None


@pytest.mark.parametrize("usage", ["NaN", "7"])
def test_usage_that_cannot_be_changes_nothing(watch, fakes, usage):
    fake = fakes(FakeVllm)
    fake.say(usage="0.5")
    gateway = watch(fake)
    wait_kv(gateway, used_tokens=40640)
    fake.say(usage=usage)
    settled(fake, "/metrics", len(fake.asked("/metrics")) + 1)
    settled(fake, "/metrics", len(fake.asked("/metrics")) + 1)
    assert kv(gateway)["used_tokens"] == 40640


@pytest.mark.parametrize("answer", [
    {"text": "<!DOCTYPE html><title>hi</title>", "type": "text/html"},
    {"text": vllm_metrics() + "# " + "x" * (256 * 1024)},
    {"status": 404, "text": vllm_metrics()},
    {"status": 401, "json": {"error": "key"}},
], ids=["html", "too long", "404", "401"])
def test_pages_that_are_none(watch, fakes, answer):
    fake = fakes(FakeVllm)
    fake.route("/metrics", answer)
    gateway = watch(fake)
    settled(fake, "/info")
    assert kv(gateway) is None


def test_a_passing_trouble_forgets_nothing(watch, fakes):
    fake = fakes(FakeVllm)
    gateway = watch(fake)
    wait_kv(gateway, tokens=81280)
    fake.route("/metrics", {"status": 500, "text": "no"})
    settled(fake, "/metrics", len(fake.asked("/metrics")) + 1)
    settled(fake, "/metrics", len(fake.asked("/metrics")) + 1)
    assert kv(gateway)["tokens"] == 81280


def test_an_engine_that_falls_silent_is_given_nothing_more(watch, fakes):
    """Its last figure is not held for ever: all that is not ours counts as somebody's."""
    fake = fakes(FakeVllm)
    fake.say(usage="0.0")
    gateway = watch(fake)
    assert wait_kv(gateway, tokens=81280)["free_tokens"] > 0
    fake.always("/metrics", [{"silence": True}])
    wait_kv(gateway, timeout=20, free_tokens=0, used_tokens=81280)
    fake.say(usage="0.0")
    assert wait_kv(gateway, timeout=8, free_tokens=32768)


def test_an_engine_that_comes_back_with_another_cache(watch, fakes, hold):
    fake = fakes(FakeVllm)
    gateway = watch(fake)
    wait_kv(gateway, tokens=81280)
    gateway.allow_log("chat|gpu|worker")
    fake.stop()
    fake.say(blocks="8000")
    fake.start()
    assert eventually(lambda: not gateway.status()["requests"])
    hold(gateway, fake)
    wait_kv(gateway, tokens=128000)


def test_who_waits_for_room_is_woken_by_the_report(watch, fakes):
    """Others fill the cache: a request waits for it, and goes on as soon as it is seen to be free."""
    fake = fakes(FakeVllm)
    gateway = watch(fake)
    wait_kv(gateway, tokens=81280)
    fake.say(usage="1.0")
    wait_kv(gateway, free_tokens=0)
    client = gateway.start_chat()
    assert eventually(lambda: gateway.tiers()["gpu"]["waiting"] == 1, 3), gateway.status()
    assert len(fake.received(CHAT)) == 1
    fake.say(usage="0.0")
    assert client.read_reply(timeout=8).status == 200
