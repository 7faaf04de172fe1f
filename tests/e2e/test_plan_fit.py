"""`failsoft plan` on what fits: every hint is put into the configuration and planned again, so that none
is a guess; memory is that of a simulated card, of a pretended NVIDIA card, or of a gateway's ledger."""

import json
import os
import socket
import subprocess
import time

import pytest
import yaml

from rig_device import GiB, MiB, NvidiaCard, build_stub
from rig_engine import SimCard
from rig_gateway import ROOT, Gateway, binary, eventually
from rig_gguf import language_model

RESERVE = 128 * MiB
COLUMNS = 100
STEP = 256  # of a context
LAYERS, KV_BYTES = 8, 2 * 2 * 512  # keys and values of a token in one layer: 512 numbers of 2 bytes


@pytest.fixture
def card():
    card = SimCard(capacity="2GiB")
    yield card
    card.destroy()


class Plan:
    """A configuration, what is said of it, and its memory."""

    def __init__(self, folder, services, device, env=None, **top):
        self.folder, self.env = folder, env or {}
        self.config = {"listen": "127.0.0.1:0", "engine": "true",
                       "state_dir": str(folder / "state"), "devices": {"gpu0": device},
                       "services": services, **top}

    def __call__(self, *args):
        path = self.folder / "plan.yaml"
        path.write_text(yaml.safe_dump(self.config, sort_keys=False))
        # A thread that is in a driver's library cannot be joined; what it holds is no leak.
        self.done = subprocess.run(
            [str(binary()), "plan", "--config", str(path), *args], capture_output=True, text=True,
            timeout=20, check=False,
            env={**os.environ, "ASAN_OPTIONS": f"detect_leaks={int(not self.env)}", **self.env})
        assert self.done.returncode in (0, 1), self.done.stderr
        assert "Sanitizer" not in self.done.stderr and "runtime error" not in self.done.stderr
        return self.done

    def json(self):
        return json.loads(self("--json").stdout)

    def tier(self, service="chat", tier="gpu"):
        return next(t for t in self.json()["plans"] if (t["service"], t["tier"]) == (service, tier))

    def place(self, name="gpu0"):
        return next(p for p in self.json()["places"] if p["name"] == name)

    def text(self):
        text = self().stdout
        assert max(map(len, text.splitlines())) <= COLUMNS, text
        return text

    def hints(self, **which):
        return {h["setting"]: h for h in self.tier(**which)["would_fit"]}


def chat(folder, context=2048, slots=4, **more):
    model = language_model(layers=LAYERS, width=512, heads=8, size=64 * MiB).write(folder / "m.gguf")
    return {"kind": "chat", "model": str(model), "context": context,
            "tiers": [{"name": "gpu", "device": "gpu0", "slots": slots}], **more}


@pytest.fixture
def plan(tmp_path, card):
    return Plan(tmp_path, {"chat": chat(tmp_path)},
                {"kind": "sim", "card": card.name, "reserve": f"{RESERVE}B"})


def capacity(card, bytes):
    card.set(capacity=f"{bytes}B")


def test_it_fits_to_the_byte(plan, card):
    tier = plan.tier()
    assert plan.done.returncode == 0 and tier["fits"] == "yes" and tier["would_fit"] == []
    need = tier["need_device_bytes"]
    assert need == tier["device"]["total"]["upper_bytes"] > 64 * MiB
    capacity(card, RESERVE + need)
    assert plan.tier()["fits"] == "yes"
    capacity(card, RESERVE + need - 1)
    tier = plan.tier()
    assert plan.done.returncode == 1
    assert (tier["fits"], tier["short_of"], tier["short_bytes"]) == ("no", "gpu0", 1)


def test_what_a_token_costs(plan):
    tier = plan.tier()
    cost = LAYERS * KV_BYTES
    # The mask of a graph grows a little with the cache.
    assert cost <= tier["device_bytes_per_token"] <= cost + 1024
    assert tier["floor_bytes"] == tier["device"]["weights"]["bytes"] + 4 * 2048 * cost
    assert tier["largest_bytes"] == max(tier["device"]["weights"]["upper_bytes"],
                                        tier["device"]["kv"]["upper_bytes"])


# --- every hint, tried


def set_context(config, value):
    config["services"]["chat"]["context"] = value


def set_slots(config, value):
    config["services"]["chat"]["tiers"][0]["slots"] = value


def set_layers(config, value):
    config["services"]["chat"]["tiers"][0]["gpu_layers"] = value


def set_cache(config, value):
    config["services"]["chat"] |= {"cache_type_k": value, "cache_type_v": value}


def set_reserve(config, _value):
    config["devices"]["gpu0"]["reserve"] = "1B"  # 0 is the usual one


HINTS = {"context": (set_context, STEP), "slots": (set_slots, 1), "gpu_layers": (set_layers, 1),
         "cache_type": (set_cache, None), "reserve": (set_reserve, None)}


@pytest.mark.parametrize("missing", [1, 20 * MiB, 50 * MiB])
@pytest.mark.parametrize("setting", HINTS)
def test_a_hint_really_fits_and_more_does_not(plan, card, setting, missing):
    need = plan.tier()["need_device_bytes"]
    capacity(card, RESERVE + need - missing)
    hint = plan.hints().get(setting)
    apply, step = HINTS[setting]
    assert hint, f"no {setting} makes up for {missing}"
    apply(plan.config, hint["value"])
    tier = plan.tier()
    assert tier["fits"] == "yes" and plan.done.returncode == 0
    if setting != "reserve":
        assert tier["need_device_bytes"] == hint["device_bytes"]
    if step:
        apply(plan.config, hint["value"] + step)
        assert plan.tier()["fits"] == "no"


def test_the_reserve_is_blamed_only_where_it_is_the_reason(plan, card):
    need = plan.tier()["need_device_bytes"]
    capacity(card, need)
    assert plan.hints()["reserve"]["value"] == RESERVE
    assert "only the reserve of 128 MiB prevents it" in plan.text()
    capacity(card, need - 1)
    assert "reserve" not in plan.hints() and "only the reserve" not in plan.text()


def test_where_no_single_change_helps_that_is_said(plan, card):
    capacity(card, RESERVE + MiB)
    assert plan.tier()["would_fit"] == []
    assert "no change of context, slots, gpu_layers or cache type alone" in plan.text()


def test_values_in_fewer_bits_need_flash_attention(plan, card):
    plan.config["services"]["chat"]["flash_attention"] = "off"
    capacity(card, RESERVE + plan.tier()["need_device_bytes"] - MiB)
    assert "cache_type" not in plan.hints() and "context" in plan.hints()


def test_the_host_is_a_place_as_well(plan):
    plan.config["services"]["chat"]["tiers"].append({"name": "cpu", "slots": 1})
    plan.config["host"] = {"reserve": "1TiB"}
    tier = plan.tier(tier="cpu")
    assert (tier["fits"], tier["short_of"]) == ("no", "host")
    del plan.config["host"]
    tier = plan.tier(tier="cpu")
    assert tier["fits"] == "yes" and "on" not in tier
    # The prompt cache grows as it works, and the simulated card is in the engine's own memory.
    assert tier["need_host_bytes"] == tier["host"]["total"]["upper_bytes"] + 256 * MiB
    gpu = plan.tier()
    assert gpu["need_host_bytes"] == (gpu["host"]["total"]["upper_bytes"] + 256 * MiB +
                                      gpu["need_device_bytes"])


# --- who holds the memory


def test_others_are_named(plan, card):
    need = plan.tier()["need_device_bytes"]
    capacity(card, RESERVE + need + 50 * MiB)
    hog = start_hog(card, "60MiB")
    try:
        tier, place = plan.tier(), plan.place()
        assert tier["fits"] == "no" and tier["short_bytes"] == 10 * MiB
        assert place["foreign_bytes"] == 60 * MiB
        assert [h["pid"] for h in place["holders"]] == [hog.pid]
        text = plan.text()
        assert "10 MiB missing of" in text and "others hold 60 MiB" in text
        assert f"(pid {hog.pid})" in text
    finally:
        hog.stdin.close()
        hog.wait(timeout=10)
        hog.stdout.close()
    assert plan.tier()["fits"] == "yes"


def start_hog(card, size):
    hog = subprocess.Popen([str(binary()), "sim", "hog", card.name, "--bytes", size], text=True,
                           stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert hog.stdout.readline().startswith("READY ")
    return hog


# --- unknown is not free


@pytest.fixture(scope="module")
def stub(tmp_path_factory):
    return build_stub(tmp_path_factory.mktemp("stub"), "new")


@pytest.fixture
def nvidia(tmp_path, stub):
    return NvidiaCard(tmp_path, stub)


@pytest.fixture
def nvidia_plan(tmp_path, nvidia):
    return Plan(tmp_path, {"chat": chat(tmp_path)}, {"kind": "nvidia", "reserve": f"{RESERVE}B"},
                env=nvidia.env())


def test_a_driver_that_hangs_is_unknown_and_soon(nvidia_plan, nvidia):
    assert nvidia_plan.tier()["fits"] == "yes"
    nvidia.set(blocked=1)
    before = time.monotonic()
    tier = nvidia_plan.tier()
    assert time.monotonic() - before < 10  # not for ever; the look itself ends after 3 s
    assert tier["fits"] == "unknown" and tier["why"] and nvidia_plan.done.returncode == 1
    assert "fits: unknown: gpu0: " in nvidia_plan.text()
    assert nvidia_plan.place()["known"] is False


def test_without_a_driver_it_is_unknown(nvidia_plan):
    nvidia_plan.env = {"FAILSOFT_NVML_LIBRARY": "/nowhere/libnvidia-ml.so.1"}
    tier = nvidia_plan.tier()
    assert tier["fits"] == "unknown" and nvidia_plan.done.returncode == 1
    assert "nowhere" in tier["why"] or "libnvidia-ml" in tier["why"], tier["why"]
    # Its owner may vouch for it; a size alone says nothing of who else is there.
    nvidia_plan.config["devices"]["gpu0"] |= {"memory": "24GiB"}
    assert nvidia_plan.tier()["fits"] == "unknown"
    nvidia_plan.config["devices"]["gpu0"] |= {"exclusive": "on"}
    assert nvidia_plan.tier()["fits"] == "yes"
    nvidia_plan.config["devices"]["gpu0"] |= {"memory": "200MiB"}
    assert nvidia_plan.tier()["fits"] == "no"


def test_impossible_figures_are_unknown(nvidia_plan, nvidia):
    nvidia.set(free=25 * GiB)
    assert nvidia_plan.tier()["fits"] == "unknown"


def test_an_integrated_device_is_the_machines_memory(nvidia_plan, nvidia):
    nvidia_plan.config["devices"]["gpu0"]["integrated"] = "on"
    tier = nvidia_plan.tier()
    assert tier["fits"] == "yes"
    assert tier["need_host_bytes"] == (tier["host"]["total"]["upper_bytes"] + 256 * MiB +
                                       tier["need_device_bytes"])
    assert nvidia_plan.place()["integrated"] and "together" not in nvidia_plan.place()
    assert nvidia_plan.place("host")["planned_bytes"] == tier["need_host_bytes"]
    nvidia.set(free=100 * MiB)  # the driver's own limit
    assert (nvidia_plan.tier()["fits"], nvidia_plan.tier()["short_of"]) == ("no", "gpu0")


# --- together (F45)


def model_that_needs(plan, name, need, **parts):
    """By one more matrix, as much as wanted."""
    path = plan.folder / f"{name}.gguf"
    small = language_model(**parts)
    small.write(path)
    more = need - plan.tier(name)["device"]["total"]["upper_bytes"]
    language_model(**parts, size=small.bytes_of("*") + more // 256 * 256).write(path)


def test_f45_two_services_that_overlap(tmp_path, nvidia):
    gpu = [{"name": "gpu", "device": "gpu0"}]
    plan = Plan(tmp_path, {
        "chat": {"kind": "chat", "model": str(tmp_path / "chat.gguf"), "context": 40960,
                 "tiers": gpu},
        "embed": {"kind": "embeddings", "model": str(tmp_path / "embed.gguf"), "context": 512,
                  "tiers": gpu}}, {"kind": "nvidia"}, env=nvidia.env())
    language_model().write(tmp_path / "chat.gguf")
    language_model().write(tmp_path / "embed.gguf")
    model_that_needs(plan, "chat", int(18.3 * GiB), layers=40, width=5120, heads=32, kv_heads=8,
                     head=128, ff=2048, kind="q4_0")
    model_that_needs(plan, "embed", int(7.7 * GiB))
    tiers = plan.json()["plans"]
    assert [t["fits"] for t in tiers] == ["yes", "yes"]  # each alone
    together = plan.place()["together"]
    assert plan.done.returncode == 1 and together["all_fit"] is False
    assert [[t["service"] for t in s] for s in together["sets"]] == [["chat"], ["embed"]]
    assert [t["service"] for t in together["leave_out"]] == ["embed"]
    hint = next(h for h in together["would_fit"] if h["setting"] == "context")
    assert hint["service"] == "chat" and hint["value"] >= 8192
    text = plan.text()
    assert "not all together: 26 GiB for 22.8 GiB of room" in text
    assert f"all would fit with chat/gpu: context up to {hint['value']}" in text
    plan.config["services"]["chat"]["context"] = hint["value"] + STEP
    assert plan.place()["together"]["all_fit"] is False
    layers = next(h for h in together["would_fit"] if h["setting"] == "gpu_layers")
    plan.config["services"]["chat"] |= {"context": 40960, "tiers": [gpu[0] | {
        "gpu_layers": layers["value"]}]}
    assert layers["service"] == "chat" and plan.place()["together"]["all_fit"] is True
    plan.config["services"]["chat"]["tiers"] = gpu
    for context in hint["value"], 8192:
        plan.config["services"]["chat"]["context"] = context
        assert plan.place()["together"]["all_fit"] is True and plan.done.returncode == 0
    assert "all that is planned there fits together" in plan.text()


# --- learned


def learn(plan, *measured, verdict="fits", **other):
    """Writes the file of what was learned, for the key that the plan names."""
    key = plan.tier()["learned"] | other
    folder = plan.folder / "state"
    folder.mkdir(exist_ok=True)
    hashes = " ".join(key[k] for k in ("model", "settings", "engine", "device"))
    sizes = "".join(f" {n}" for n in measured)
    (folder / "learned.txt").write_text(
        f"failsoft-learning 1\nload {hashes} {verdict}{sizes}\nend 1\n")


def test_what_was_learned_counts(plan, card):
    formula = plan.tier()["need_device_bytes"]
    more = formula + 40 * MiB
    learn(plan, formula, more, more - MiB)
    tier = plan.tier()
    assert (tier["learned"]["bytes"], tier["learned"]["loads"]) == (more, 3)
    assert tier["need_device_bytes"] >= more
    assert "of 3 loads" in plan.text() and "learned: " in plan.text()
    capacity(card, RESERVE + tier["need_device_bytes"] - 1)
    assert plan.tier()["fits"] == "yes"  # another size, another card: nothing is known of it
    learn(plan, formula, more, more - MiB)
    assert plan.tier()["fits"] == "no"
    # A hint is as much short of the truth as the formula was.
    hint = plan.hints()["context"]
    plan.config["services"]["chat"]["context"] = hint["value"]
    assert plan.tier()["need_device_bytes"] + 40 * MiB <= hint["device_bytes"]


def test_what_was_learned_of_something_else_does_not(plan):
    before = plan.tier()["need_device_bytes"]
    learn(plan, before + 40 * MiB, settings="0000000000000001")
    tier = plan.tier()
    assert tier["learned"]["loads"] == 0 and tier["need_device_bytes"] == before
    learn(plan, before + 40 * MiB)
    plan.config["services"]["chat"]["tiers"][0]["slots"] = 3
    assert plan.tier()["learned"]["loads"] == 0


def test_a_load_that_failed_for_good(plan):
    learn(plan, verdict="unfit")
    tier = plan.tier()
    assert tier["fits"] == "no" and tier["would_fit"] == [] and plan.done.returncode == 1
    assert "loading it failed though there was memory enough" in plan.text()


# --- the running gateway


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@pytest.fixture
def serve(tmp_path, nvidia):
    started = []

    def serve(plan):
        gateway = Gateway(plan.config, tmp_path / f"gateway{len(started)}", env=nvidia.env())
        gateway.allow_log(r".")
        started.append(gateway)
        return gateway

    yield serve
    for gateway in started:
        gateway.stop()


def test_the_ledger_of_the_running_gateway(nvidia_plan, nvidia, serve):
    plan = nvidia_plan
    waits = {"stop_grace": "300ms", "restart": {"backoff": "100ms", "backoff_max": "200ms"}}
    plan.config |= {"listen": f"127.0.0.1:{free_port()}",
                    "engine": str(ROOT / "tests/fakes/fake_engine.py")}
    plan.config["services"]["chat"]["tiers"][0] |= waits
    model = language_model(size=48 * MiB).write(plan.folder / "other.gguf")
    plan.config["services"]["other"] = {
        "kind": "chat", "model": str(model), "context": 512,
        "tiers": [{"name": "gpu", "device": "gpu0", **waits}]}
    assert plan.json()["gateway"] == ""
    needs = [plan.tier(s)["need_device_bytes"] for s in ("chat", "other")]
    nvidia.set(total=RESERVE + sum(needs) - MiB, free=RESERVE + sum(needs) - MiB)
    gateway = serve(plan)
    assert eventually(lambda: sorted(gateway.tiers(s)["gpu"]["state"] for s in ("chat", "other")) ==
                      ["ready", "starting"], 15, 0.1)
    state = {s: gateway.tiers(s)["gpu"]["state"] for s in ("chat", "other")}
    loaded = next(s for s in state if state[s] == "ready")
    waiting = next(s for s in state if s != loaded)
    found = plan.json()
    assert found["gateway"] == f"http://127.0.0.1:{gateway.port}"
    tiers = {t["service"]: t for t in found["plans"]}
    assert tiers[loaded]["fits"] == "loaded" and tiers[waiting]["fits"] == "no"
    place = next(p for p in found["places"] if p["name"] == "gpu0")
    device = gateway.status()["devices"][0]
    assert place["claimed_bytes"] == device["unsettled_bytes"] + device["settled_bytes"] > 0
    assert place["headroom_bytes"] == device["headroom_bytes"]
    assert f"{loaded}/gpu" in [h["name"] for h in place["holders"]]
    # What is loaded is no obstacle to itself: all but 1 MiB of both is there.
    assert place["planned_bytes"] - place["room_bytes"] == MiB
    text = plan.text()
    assert f"held there: {loaded}/gpu" in text and "the figures of its ledger" in text

    del plan.config["services"]["other"]
    found = plan.json()
    assert found["gateway"] == "" and "another configuration" in found["gateway_why"]


def test_what_the_gateway_learned_is_found_again(nvidia_plan, nvidia, serve):
    """Both make the same key of it."""
    plan = nvidia_plan
    plan.config |= {"listen": f"127.0.0.1:{free_port()}",
                    "engine": str(ROOT / "tests/fakes/fake_engine.py")}
    need = plan.tier()["need_device_bytes"]
    gateway = serve(plan)
    assert eventually(lambda: gateway.tiers("chat")["gpu"]["state"] == "ready", 15, 0.1)
    used = need - 3 * MiB
    nvidia.set(compute={gateway.tiers("chat")["gpu"]["pid"]: used}, used=used,
               free=24 * GiB - used)
    assert eventually(lambda: plan.tier()["learned"]["bytes"] == used, 15, 0.5)
    tier = plan.tier()
    assert tier["learned"]["loads"] == 1 and tier["fits"] == "loaded"
    assert tier["need_device_bytes"] == used  # measured
    assert "learned: " in plan.text() and "of 1 load;" in plan.text()


def test_nobody_answers_like_a_gateway(plan):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        s.listen(1)  # takes the connection, says nothing
        plan.config["listen"] = f"127.0.0.1:{s.getsockname()[1]}"
        assert plan.tier()["fits"] == "yes" and plan.json()["gateway"] == ""
