"""Memory of servers that failsoft does not run (F46 open-webui/open-webui#11003, F50
stavsap/comfyui-ollama#85): Ollama, a llama.cpp router, an image generator share a card with the rest. They
are asked to unload, once, when the card is given back by hand or others take its memory; what counts is
the memory that is seen to come back, not their 200. The card is a pretended one (NVML stub), the
servers are fakes."""

import json
import os
import sys
import threading
import time

import pytest

from conftest import HERE
from fake_engines import FakeLlama, FakeOllama, FakeOpenai
from rig_config import gateway_config, service, tier
from rig_device import GiB, MiB, NvidiaCard, build_stub
from rig_gateway import Gateway, eventually

PROGRAM = str(HERE.parent / "fakes/fake_program.py")
WAIT_S = 9
UNLOADED = {"json": {"model": "m", "response": "", "done": True, "done_reason": "unload"}}


class Ollama(FakeOllama):
    """Knows an order to unload when it sees one."""

    def __init__(self, answer=UNLOADED, **options):
        super().__init__(**options)
        self.answer = answer

    def _generate(self, request):
        body = request.json()
        if "prompt" not in body and body.get("keep_alive") == 0:
            return [{"reply": self.answer}] if isinstance(self.answer, dict) else self.answer
        return super()._generate(request)

    def unloads(self):
        bodies = [r.json() for r in self.received("/api/generate", "POST")]
        return [b["model"] for b in bodies if "prompt" not in b]


@pytest.fixture(scope="session")
def library(tmp_path_factory):
    return build_stub(tmp_path_factory.mktemp("nvml"), "new")


@pytest.fixture
def card(tmp_path, library):
    folder = tmp_path / "card"
    folder.mkdir()
    return NvidiaCard(folder, library)


def hold(card, used, **facts):
    card.set(used=int(used), free=card.facts["total"] - int(used), **facts)


@pytest.fixture
def cpu():
    with FakeLlama(says=("cpu",)) as fake:
        yield fake


@pytest.fixture
def start(card, tmp_path):
    started = []

    def start(services, children=0, **device):
        kmsg = tmp_path / "kmsg"
        if not kmsg.exists():
            os.mkfifo(kmsg)
        config = gateway_config(services, state_dir=str(tmp_path / "state"), devices={
            "gpu0": {"kind": "nvidia", "reserve": "1GiB", "back_after": "300ms"} | device})
        gateway = Gateway(config, tmp_path / "gateway",
                          env=card.env() | {"FAILSOFT_KMSG": str(kmsg)})
        gateway.idle_descriptors = None
        gateway.config, gateway.expect_children = config, children
        started.append(gateway)
        assert eventually(lambda: device_of(gateway)["trust"] == "fresh", WAIT_S)
        return gateway

    yield start
    for gateway in started:
        gateway.finish(gateway.expect_children)


def on_card(fake, name="gpu", **options):
    return tier(name, fake, device="gpu0", **options)


def device_of(gateway):
    return gateway.status()["devices"][0]


def give_back(gateway, for_ms=3_600_000):
    assert gateway.call("POST", f"/failsoft/v1/devices/gpu0/yield?for_ms={for_ms}").status == 200


def reason(gateway, name="chat", on="gpu"):
    return gateway.tiers(name)[on]["reason"]


def says(gateway, text, name="chat", timeout=WAIT_S):
    assert eventually(lambda: text in reason(gateway, name), timeout, 0.05), reason(gateway, name)


def tier_of(gateway, model="chat"):
    reply = gateway.chat(model)
    assert reply.status == 200, reply.body
    return reply.tier


def stays(question, seconds):
    """True for all of the time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if not question():
            return False
        time.sleep(0.1)
    return True


# --- by hand


@pytest.mark.timeout(80)
def test_the_release_counts_and_not_the_200(start, card, cpu):
    """F50: the unload is answered at once, and the memory is back seven seconds later."""
    with Ollama() as ollama:
        hold(card, 14 * GiB)
        ocr = {"name": "gpu", "device": "gpu0", "memory": "10GiB", "host_memory": "64MiB",
               "command": [sys.executable, PROGRAM, "--port", "{port}", "--name", "gpu"]}
        gateway = start({
            "chat": service(on_card(ollama, engine="ollama", model="llama3"), tier("cpu", cpu)),
            "ocr": {"kind": "generic", "paths": ["/ocr"], "tiers": [ocr]}}, children=1)
        program = lambda: gateway.tiers("ocr")["gpu"]  # noqa: E731
        assert eventually(lambda: "waits for memory" in program()["reason"], WAIT_S), program()
        assert tier_of(gateway) == "gpu"
        give_back(gateway)
        asked = time.monotonic()
        assert tier_of(gateway) == "cpu"
        ollama.wait_request("/api/generate")
        says(gateway, "asked to give gpu0 back")
        says(gateway, "its memory is not back yet")
        give_back(gateway, 0)
        assert stays(lambda: program()["pid"] == 0 and "yielded" in reason(gateway),
                     asked + 7 - time.monotonic())
        assert "not back yet" in reason(gateway)
        hold(card, 0)
        says(gateway, "14 GiB of gpu0 came back")
        # Both want it; what the other one needs is not there any more.
        assert eventually(lambda: program()["state"] == "ready", 30, 0.05), program()
        assert stays(lambda: "yielded" in reason(gateway), 1.5)
        assert tier_of(gateway) == "cpu"
        assert ollama.unloads() == ["llama3"]


def test_it_takes_requests_again_when_there_is_room(start, card, cpu):
    with Ollama() as ollama:
        hold(card, 2 * GiB)
        gateway = start({"chat": service(on_card(ollama, engine="ollama", model="llama3"),
                                         tier("cpu", cpu))})
        give_back(gateway)
        ollama.wait_request("/api/generate")
        hold(card, 1 * GiB)
        says(gateway, "1 GiB of gpu0 came back")
        assert stays(lambda: tier_of(gateway) == "cpu", 1)
        give_back(gateway, 0)
        assert eventually(lambda: tier_of(gateway) == "gpu", WAIT_S, 0.05), reason(gateway)
        # The next time anew.
        give_back(gateway)
        assert eventually(lambda: ollama.unloads() == ["llama3", "llama3"], WAIT_S)


def test_two_tiers_of_one_server_share_what_came_back(start, card, cpu):
    with Ollama() as ollama:
        hold(card, 10 * GiB)
        gateway = start({name: service(on_card(ollama, engine="ollama", model=name),
                                       tier("cpu", cpu)) for name in ("chat", "other")})
        give_back(gateway)
        for name in ("chat", "other"):
            says(gateway, "not back yet", name)
        hold(card, 0)
        for name in ("chat", "other"):
            gateway.wait_log(f"{name}/gpu: 5 GiB of gpu0 came back")
        assert sorted(ollama.unloads()) == ["chat", "other"]
        hold(card, 16 * GiB)  # room for 7 GiB
        give_back(gateway, 0)
        for name in ("chat", "other"):
            assert eventually(lambda name=name: tier_of(gateway, name) == "gpu", WAIT_S, 0.05), \
                reason(gateway, name)


def test_room_that_never_comes_is_not_waited_for(start, card, cpu):
    """It held more than the reserve leaves to anybody; nobody is short of memory meanwhile."""
    with Ollama() as ollama:
        hold(card, 20 * GiB)
        gateway = start({"chat": service(on_card(ollama, engine="ollama", model="m"),
                                         tier("cpu", cpu))}, back_after="100ms")
        give_back(gateway)
        says(gateway, "not back yet")
        hold(card, 4 * GiB)
        gateway.wait_log("chat/gpu: 16 GiB of gpu0 came back")
        hold(card, 8 * GiB)  # room for 15 GiB
        give_back(gateway, 0)
        assert stays(lambda: tier_of(gateway) == "cpu", 3)
        assert eventually(lambda: tier_of(gateway) == "gpu", WAIT_S, 0.05), reason(gateway)


def test_running_requests_end_first(start, card, cpu):
    with Ollama() as ollama:
        ollama.script("/api/chat", [[{"head": {"status": 200, "type": "application/x-ndjson"}},
                                     {"nd": ollama.line("a")}, {"gate": "go"},
                                     {"nd": ollama.line("", True)}, {"end": True}]])
        gateway = start({"chat": service(on_card(ollama, engine="ollama", stall_timeout="20s"),
                                         tier("cpu", cpu))})
        client = gateway.client()
        client.request("POST", "/api/chat", {"model": "chat", "messages": [
            {"role": "user", "content": "hi"}]})
        ollama.wait_request("/api/chat")
        give_back(gateway)
        says(gateway, "finishes what runs there")
        assert stays(lambda: ollama.unloads() == [], 1.5)
        ollama.route("/api/ps", {"json": {"models": [{"model": "a:7b"}, {"model": 'b"x'}]}})
        ollama.gate("go").set()
        assert client.read_reply().status == 200
        # No name of a model in the configuration: whatever is loaded.
        assert eventually(lambda: ollama.unloads() == ["a:7b", 'b"x'], WAIT_S), ollama.unloads()
        client.close()


def test_the_drain_time_ends_the_wait(start, card, cpu):
    with Ollama() as ollama:
        ollama.route("/api/chat", [{"head": {"status": 200, "type": "application/x-ndjson"}},
                                   {"nd": ollama.line("a")}, {"gate": "go"},
                                   {"nd": ollama.line("", True)}, {"end": True}])
        gateway = start({"chat": service(on_card(ollama, engine="ollama", model="m",
                                                 stall_timeout="30s"), tier("cpu", cpu))})
        client = gateway.client()
        client.request("POST", "/api/chat", {"model": "chat", "messages": [
            {"role": "user", "content": "hi"}]})
        ollama.wait_request("/api/chat")
        begun = time.monotonic()
        give_back(gateway)
        assert eventually(lambda: ollama.unloads() == ["m"], 9)
        assert time.monotonic() - begun > 4.5
        ollama.gate("go").set()
        assert client.read_reply().status == 200
        client.close()


def test_nothing_is_loaded(start, card, cpu):
    with Ollama() as ollama:
        gateway = start({"chat": service(on_card(ollama, engine="ollama"), tier("cpu", cpu))})
        give_back(gateway)
        says(gateway, "it says that it holds no model")
        assert ollama.unloads() == []


def test_the_owners_path(start, card, cpu):
    with FakeOpenai() as images:
        images.route("/free", {"json": {}})
        gateway = start({"chat": service(on_card(images.url + "/v1", engine="openai",
                                                 unload="/free"), tier("cpu", cpu))})
        give_back(gateway)
        request = images.wait_request("/free")
        assert request.json() == {} and request.get("Content-Type") == "application/json"
        says(gateway, "not back yet")


def models(*status):
    return {"json": {"object": "list", "data": [
        {"id": f"m{i}", "object": "model"} | ({"status": {"value": s}} if s else {})
        for i, s in enumerate(status)]}}


def test_a_router_of_llama_cpp(start, card, cpu):
    with FakeLlama() as router:
        router.route("/models", models("unloaded", "loaded", "sleeping"))
        router.route("/models/unload", {"json": {"success": True}})
        gateway = start({"chat": service(on_card(router), tier("cpu", cpu))})
        give_back(gateway)
        says(gateway, "not back yet")
        assert [r.json() for r in router.received("/models/unload")] == [{"model": "m1"},
                                                                        {"model": "m2"}]


def test_a_router_unloads_only_the_tiers_model(start, card, cpu):
    with FakeLlama() as router:
        router.route("/models", models("loaded", "loaded"))
        router.route("/models/unload", {"json": {"success": True}})
        gateway = start({"chat": service(on_card(router, model="m1"), tier("cpu", cpu))})
        give_back(gateway)
        says(gateway, "not back yet")
        assert [r.json() for r in router.received("/models/unload")] == [{"model": "m1"}]


@pytest.mark.parametrize("engine", ["single", "old", "openai"])
def test_no_way_is_known(start, card, cpu, engine):
    fake = FakeOpenai() if engine == "openai" else FakeLlama()
    with fake:
        if engine == "single":
            fake.route("/models", models(None))
        gateway = start({"chat": service(
            on_card(fake, engine="openai" if engine == "openai" else "llama-server"),
            tier("cpu", cpu))})
        give_back(gateway)
        says(gateway, "and failsoft cannot make it give memory back: set `unload`")
        assert tier_of(gateway) == "cpu"
        assert [r for r in fake.posts() if "unload" in r.path or r.path == "/api/generate"] == []
        give_back(gateway, 0)
        assert eventually(lambda: tier_of(gateway) == "gpu", WAIT_S, 0.05), reason(gateway)


@pytest.mark.parametrize("answer,text", [
    ([{"reply": {"status": 500, "json": {"error": "no"}}}], "its unload failed: HTTP 500"),
    ([{"silence": True}], "its unload failed: no answer in time"),
    ([{"rst": True}], "its unload failed: the connection broke"),
])
def test_an_unload_that_fails_is_not_repeated(start, card, cpu, answer, text):
    with Ollama(answer=answer) as ollama:
        gateway = start({"chat": service(on_card(ollama, engine="ollama", model="m"),
                                         tier("cpu", cpu))})
        give_back(gateway)
        says(gateway, text)
        assert stays(lambda: ollama.unloads() == ["m"] and text in reason(gateway), 2)
        assert tier_of(gateway) == "cpu"
        give_back(gateway, 0)
        assert eventually(lambda: tier_of(gateway) == "gpu", WAIT_S, 0.05), reason(gateway)
        assert ollama.unloads() == ["m"]


def test_a_server_that_is_gone(start, card, cpu):
    with Ollama() as ollama:
        gateway = start({"chat": service(on_card(ollama, engine="ollama", model="m"),
                                         tier("cpu", cpu))})
        ollama.stop()
        give_back(gateway)
        says(gateway, "its unload failed: nobody listens")


def test_a_stop_in_the_middle(start, card, cpu):
    with Ollama(answer=[{"silence": True}]) as ollama:
        gateway = start({"chat": service(on_card(ollama, engine="ollama", model="m"),
                                         tier("cpu", cpu))})
        give_back(gateway)
        ollama.wait_request("/api/generate")
        gateway.may_exit = True
        assert gateway.stop(5) == 0


def test_a_reload_in_the_middle(start, card, cpu):
    """The worker of a tier that changed is a new one: the device is given back all the same."""
    with Ollama(answer=[{"silence": True}]) as ollama:
        gateway = start({"chat": service(on_card(ollama, engine="ollama", model="m"),
                                         tier("cpu", cpu))})
        give_back(gateway)
        ollama.wait_request("/api/generate")
        ollama.answer = UNLOADED
        changed = json.loads(json.dumps(gateway.config))
        changed["services"]["chat"]["tiers"][0]["connect_timeout"] = "900ms"
        gateway.reload(changed)
        ollama.wait_request("/api/generate", 2)
        says(gateway, "given back by hand")
        assert tier_of(gateway) == "cpu"


# --- under pressure


@pytest.mark.timeout(90)
def test_one_at_a_time_those_that_are_idle_first(start, card, cpu):
    with Ollama() as busy, Ollama() as idle, FakeOpenai() as fixed:
        hold(card, 20 * GiB)
        gateway = start({
            "chat": service(on_card(busy, engine="ollama", model="m"), tier("cpu", cpu)),
            "other": service(on_card(idle, engine="ollama", model="m"), tier("cpu", cpu)),
            "fixed": service(on_card(fixed, engine="openai"), tier("cpu", cpu))})
        assert tier_of(gateway, "other") == "gpu"
        later = time.monotonic() + 0.05  # within one millisecond nobody has been idle longer
        while time.monotonic() < later:
            assert tier_of(gateway) == "gpu"
        hold(card, 24 * GiB - 200 * MiB)
        idle.wait_request("/api/generate")
        says(gateway, "critical memory pressure on gpu0", "other")
        assert tier_of(gateway, "other") == "cpu"
        assert stays(lambda: busy.unloads() == [], 3)  # the other one's memory may still come
        hold(card, 24 * GiB - 300 * MiB)  # some of it came, and it does not suffice
        busy.wait_request("/api/generate")
        says(gateway, "100 MiB of gpu0 came back", "other")
        hold(card, 18 * GiB)
        gateway.wait_log("chat/gpu: 5.7 GiB of gpu0 came back")
        hold(card, 17 * GiB)  # the 5.0 GiB that could be used then would not have been enough
        # What cannot be unloaded serves on: taking it away would bring nothing.
        assert tier_of(gateway, "fixed") == "gpu"
        for name in ("chat", "other"):
            assert eventually(lambda name=name: tier_of(gateway, name) == "gpu", 40, 0.1), \
                reason(gateway, name)
        assert (busy.unloads(), idle.unloads()) == (["m"], ["m"])


@pytest.mark.timeout(90)
def test_what_failsoft_runs_goes_first(start, card, cpu):
    with Ollama() as ollama:
        hold(card, 10 * GiB)
        ocr = {"name": "gpu", "device": "gpu0", "memory": "2GiB", "host_memory": "64MiB",
               "stop_grace": "500ms", "restart": {"backoff": "100ms"},
               "command": [sys.executable, PROGRAM, "--port", "{port}", "--name", "gpu"]}
        gateway = start({
            "chat": service(on_card(ollama, engine="ollama", model="m"), tier("cpu", cpu)),
            "ocr": {"kind": "generic", "paths": ["/ocr"], "tiers": [ocr]}})
        gateway.allow_log("ocr|device|worker")
        program = lambda: gateway.tiers("ocr")["gpu"]  # noqa: E731
        assert eventually(lambda: program()["state"] == "ready", 20, 0.05), program()
        hold(card, 12 * GiB, compute={program()["pid"]: 2 * GiB})
        assert eventually(lambda: device_of(gateway)["settled_bytes"] == 2 * GiB, WAIT_S, 0.05)
        hold(card, 24 * GiB - 200 * MiB)
        assert eventually(lambda: program()["state"] == "stopped", WAIT_S, 0.05), program()
        assert ollama.unloads() == []
        hold(card, 24 * GiB - 200 * MiB, compute={})
        # Its memory went to somebody else: the next one.
        ollama.wait_request("/api/generate", timeout=25)
        assert "yielded" in program()["reason"] and program()["pid"] == 0


def test_without_admission_only_the_owners_word_counts(card, start, cpu):
    with Ollama() as ollama:
        gateway = start({"chat": service(on_card(ollama, engine="ollama", model="m"),
                                         tier("cpu", cpu))})
        config = gateway.config | {"admission": "off"}
        gateway.reload(config)
        hold(card, 24 * GiB - 200 * MiB)
        assert eventually(lambda: device_of(gateway)["pressure"] == "critical", WAIT_S, 0.05)
        assert stays(lambda: ollama.unloads() == [], 1.5) and tier_of(gateway) == "gpu"
        give_back(gateway)
        ollama.wait_request("/api/generate")


# --- batches


def generate(gateway, keep_alive=0, **body):
    return gateway.call("POST", "/api/generate", {
        "model": "chat", "prompt": "hi", "stream": False, "keep_alive": keep_alive} | body)


def kept(ollama):
    return [r.json().get("keep_alive") for r in ollama.received("/api/generate", "POST")]


@pytest.mark.parametrize("at_once", [1, 3, 10])
def test_a_batch_is_unloaded_once_at_its_end(start, cpu, at_once):
    """F50: ten requests with keep_alive 0 within five seconds."""
    with Ollama() as ollama:
        gateway = start({"chat": service(on_card(ollama, engine="ollama", model="m"),
                                         tier("cpu", cpu))})
        left, statuses = list(range(10)), []

        def client():
            while left:
                left.pop()
                statuses.append(generate(gateway).status)
                time.sleep(0.3 if at_once == 1 else 0.05)

        threads = [threading.Thread(target=client) for _ in range(at_once)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert statuses == [200] * 10
        ollama.wait_request("/api/generate", 11)
        assert kept(ollama) == [5] * 10 + [0] and ollama.unloads() == ["m"]
        assert stays(lambda: len(ollama.unloads()) == 1, 2)


def test_others_decide_how_long_it_stays(start, cpu):
    with Ollama() as ollama:
        gateway = start({"chat": service(on_card(ollama, engine="ollama"), tier("cpu", cpu))})
        assert generate(gateway).status == 200
        assert generate(gateway, "10m").status == 200
        assert stays(lambda: ollama.unloads() == [], 2.5)
        assert kept(ollama) == [5, "10m"]
        # Without a name in the configuration, the client's.
        assert generate(gateway, "0s").status == 200
        assert eventually(lambda: ollama.unloads() == ["chat"], WAIT_S)


def test_an_order_to_unload_goes_through(start, cpu):
    with Ollama() as ollama:
        gateway = start({"chat": service(on_card(ollama, engine="ollama", model="m"),
                                         tier("cpu", cpu))})
        reply = gateway.call("POST", "/api/generate", {"model": "chat", "keep_alive": 0})
        assert reply.status == 200 and reply.json()["done_reason"] == "unload"
        assert kept(ollama) == [0]
        assert stays(lambda: kept(ollama) == [0], 1.5)


def test_a_shorter_bound_of_the_owner_wins(start, cpu):
    with Ollama() as ollama:
        gateway = start({"chat": service(on_card(ollama, engine="ollama", keep_alive_max="2s"),
                                         tier("cpu", cpu))})
        assert generate(gateway).status == 200
        assert generate(gateway, -1).status == 200
        assert kept(ollama) == [0, 2]
