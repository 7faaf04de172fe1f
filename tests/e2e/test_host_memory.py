"""The machine's memory: what runs on the CPU never takes more than there is, whoever else takes what.
The machine is a made-up one (a tree with meminfo, cgroups, pressure and processes), the engine a pretended
one, and models are holes with a header, so that gigabytes cost nothing. The last test is on the real
machine.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from rig_config import gateway_config, service, tier
from rig_engine import SimCard
from rig_gateway import binary, eventually
from rig_gguf import language_model

FAKE_ENGINE = Path(__file__).resolve().parents[1] / "fakes/fake_engine.py"
MIB, GIB = 1 << 20, 1 << 30
# What the engine takes beside the weights of these models, at most.
SMALL = 1 * GIB


class Machine:
    """A machine of the test's making, for FAILSOFT_PROC and FAILSOFT_CGROUP."""

    def __init__(self, folder):
        self.proc, self.cgroup = folder / "proc", folder / "cgroup"
        self.put(self.proc / "self/cgroup", "0::/user.slice/app.service\n")
        self.memory(64 * GIB, 48 * GIB)
        self.stalls(0)

    @staticmethod
    def put(path, text):
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_name(path.name + ".new")
        new.write_text(text)
        new.rename(path)

    def memory(self, total, available):
        self.put(self.proc / "meminfo", f"MemTotal: {total >> 10} kB\nMemFree: 1 kB\n"
                 f"MemAvailable: {available >> 10} kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\n")

    def stalls(self, percent):
        line = f"avg10={percent:.2f} avg60=0.00 avg300=0.00 total=0"
        self.put(self.proc / "pressure/memory", f"some {line}\nfull {line}\n")

    def level(self, folder, limit, current, inactive_file=0, active_file=0):
        self.put(self.cgroup / folder / "memory.max", f"{limit}\n")
        self.put(self.cgroup / folder / "memory.current", f"{current}\n")
        self.put(self.cgroup / folder / "memory.stat",
                 f"anon 1\nfile 2\nactive_file {active_file}\ninactive_file {inactive_file}\n")

    def process(self, pid, resident, anonymous):
        self.put(self.proc / str(pid) / "status", f"Name:\tllama-server\nVmRSS:\t{resident >> 10} kB\n"
                 f"RssAnon:\t{anonymous >> 10} kB\nRssShmem:\t0 kB\n")

    @property
    def env(self):
        return {"FAILSOFT_PROC": str(self.proc), "FAILSOFT_CGROUP": str(self.cgroup)}


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path / "machine")


@pytest.fixture
def engine(tmp_path):
    path = tmp_path / "llama-server"
    path.write_text(f"#!/bin/sh\nexec {sys.executable} {FAKE_ENGINE} \"$@\"\n")
    path.chmod(0o755)
    return str(path)


@pytest.fixture
def model(tmp_path):
    """model(GiB): a file of that many bytes of weights, nearly all of it a hole."""
    def make(gib):
        path = tmp_path / f"model-{gib}.gguf"
        if not path.exists():
            language_model(size=int(gib * GIB)).write(path)
        return str(path)
    return make


@pytest.fixture
def start(start_gateway, machine, engine):
    """start(services) on the made-up machine."""
    def start(services, env=None, **top):
        config = gateway_config(services, engine=engine, **top)
        gateway = start_gateway(config, expect_children=None, env=machine.env | (env or {}))
        gateway.idle_descriptors = None
        gateway.allow_log(r"(cpu|gpu|worker|chat|device)")
        return gateway
    return start


def cpu_tier(orders=None, **options):
    return {"name": "cpu", "stop_grace": "300ms", "queue": {"wait": "500ms"},
            "restart": {"backoff": "200ms", "backoff_max": "1s"},
            "env": {"FAKE_ENGINE": json.dumps(orders or {})}, **options}


def of(path, *tiers, **options):
    return service(*(tiers or (cpu_tier(),)), model=path, context=512, **options)


def host(gateway):
    return gateway.status()["host"]


def adds_up(h):
    parts = ("reserve", "foreign", "settled", "unsettled", "releasing", "headroom")
    return sum(h[f"{p}_bytes"] for p in parts) == h["total_bytes"]


def samples(gateway, count):
    """So many samples go by."""
    for _ in range(count):
        age = host(gateway)["age_ms"]
        while (now := host(gateway)["age_ms"]) >= age:
            age = now
            time.sleep(0.02)


def waits(gateway, words, service="chat", name="cpu"):
    def question():
        t = gateway.tiers(service)[name]
        return t["pid"] == 0 and words in t["reason"]
    return eventually(question, 10, 0.05)


def is_ready(gateway, service="chat", name="cpu"):
    return eventually(lambda: gateway.tiers(service)[name]["state"] == "ready", 10, 0.05)


# --- what does not fit


def test_f120_a_model_that_does_not_fit_waits_and_starts_when_there_is_room(start, machine, model):
    """ollama/ollama#10739: 14 GiB into 8 GiB ended with the machine's killer."""
    machine.memory(64 * GIB, 8 * GIB)
    # A request does not wait for a load that cannot begin: half a minute would be too late for it.
    gateway = start({"chat": of(model(14), cpu_tier(queue={"wait": "30s"}))})
    assert waits(gateway, "waits for memory"), gateway.tiers()
    reason = gateway.tiers()["cpu"]["reason"]
    assert "of the machine, where 4.8 GiB of 64 GiB may be used; others hold 56 GiB" in reason
    reply = gateway.chat()
    error = reply.json()["error"]
    assert (reply.status, error["code"]) == (503, "no_capacity")
    assert "waits for memory" in error["message"] and "of the machine" in error["message"]
    h = host(gateway)
    assert adds_up(h) and h["total_bytes"] == 64 * GIB and h["claims"] == [] and h["trust"] == "fresh"
    machine.memory(64 * GIB, 40 * GIB)
    # What was used until now counts for a while: a gap between two levels of a game is no free memory.
    assert eventually(lambda: host(gateway)["claims"], 30, 0.1), host(gateway)
    assert is_ready(gateway)
    h = host(gateway)
    assert adds_up(h) and 14 * GIB <= h["claims"][0]["bytes"] <= 14 * GIB + SMALL


def test_the_reserve_is_kept(start, machine, model):
    machine.memory(64 * GIB, 16 * GIB)
    gateway = start({"chat": of(model(14))}, host={"reserve": "4GiB"})
    assert waits(gateway, "where 12 GiB of 64 GiB may be used")
    assert host(gateway)["reserve_bytes"] == 4 * GIB


def test_two_that_fit_alone_and_not_together(start, machine, model):
    """Started at the same time: the claim of the first counts before any of it is allocated."""
    machine.memory(64 * GIB, 24 * GIB)
    gateway = start({"one": of(model(14)), "two": of(model(14))})
    both = ("one", "two")
    assert eventually(lambda: sorted(gateway.tiers(s)["cpu"]["state"] for s in both) ==
                      ["ready", "starting"], 10, 0.05)
    loser = next(s for s in both if gateway.tiers(s)["cpu"]["state"] == "starting")
    winner = next(s for s in both if s != loser)
    assert waits(gateway, f"{winner}/cpu 14", loser), gateway.tiers(loser)
    assert len(host(gateway)["claims"]) == 1 and adds_up(host(gateway))


def test_admission_off_starts_all_the_same(start, machine, model):
    machine.memory(64 * GIB, 8 * GIB)
    gateway = start({"chat": of(model(14))}, admission="off")
    assert is_ready(gateway)
    assert adds_up(host(gateway))


def test_a_program_by_what_is_declared(start, machine, engine):
    machine.memory(64 * GIB, 8 * GIB)
    program = {"name": "cpu", "command": [engine, "--host", "{socket}"], "engine": "generic",
               "stop_grace": "300ms"}
    gateway = start({"one": service(program | {"host_memory": "14GiB"}, kind="generic", paths=["/a"]),
                     "two": service(program | {"host_memory": "2GiB"}, kind="generic", paths=["/b"])})
    assert is_ready(gateway, "two") and waits(gateway, "needs 14 GiB of the machine", "one")
    machine.process(gateway.tiers("two")["cpu"]["pid"], 64 * MIB, 64 * MIB)
    assert eventually(lambda: [c["state"] for c in host(gateway)["claims"]] == ["settled"], 10, 0.1)
    # It has taken little so far; "at most" is what it may take.
    assert host(gateway)["claims"][0]["bytes"] == 2 * GIB


# --- whose limit


def test_a_limit_of_a_cgroup_above(start, machine, model):
    machine.level("user.slice/app.service", "max", 1 * GIB)
    machine.level("user.slice", 16 * GIB, 6 * GIB)
    gateway = start({"chat": of(model(14))})
    assert waits(gateway, "of 16 GiB (limit of cgroup /user.slice) may be used; others hold 6 GiB")
    assert host(gateway)["total_bytes"] == 16 * GIB


def test_f44_cached_files_of_a_cgroup_are_room(start, machine, model):
    """ggml-org/whisper.cpp#3254: after the first model all of the limit is page cache."""
    machine.level("user.slice/app.service", 16 * GIB, int(15.8 * GIB), inactive_file=12 * GIB)
    gateway = start({"chat": of(model(10))})
    assert is_ready(gateway), gateway.tiers()
    assert 3.7 * GIB < host(gateway)["foreign_bytes"] < 3.9 * GIB  # 12.2 GiB are to be had


# --- what is running


@pytest.mark.parametrize("cgroup", [False, True], ids=["meminfo", "cgroup"])
def test_mapped_weights_of_a_worker_are_its_own(start, machine, model, cgroup):
    """The kernel calls them available; a second model in their place makes the first one read its
    file again for every token (F124, ggml-org/llama.cpp#711)."""
    machine.memory(32 * GIB, 28 * GIB)
    if cgroup:
        machine.memory(64 * GIB, 60 * GIB)
        machine.level("user.slice/app.service", 24 * GIB, 0)
    gateway = start({"chat": of(model(14)), "late": of(model(14), cpu_tier(), aliases=["x"])})
    both = ("chat", "late")
    assert eventually(lambda: sorted(gateway.tiers(s)["cpu"]["state"] for s in both) ==
                      ["ready", "starting"], 10, 0.05)
    winner = next(s for s in both if gateway.tiers(s)["cpu"]["state"] == "ready")
    pid = gateway.tiers(winner)["cpu"]["pid"]
    # Loaded: 14 GiB of the file are mapped and resident, and still there is as much available.
    machine.process(pid, 14 * GIB + 300 * MIB, 300 * MIB)
    if cgroup:  # half of them in active use, which the cgroup counts as used, the other half not
        machine.level("user.slice/app.service", 24 * GIB, 14 * GIB + 300 * MIB, 7 * GIB, 7 * GIB)
    else:
        machine.memory(32 * GIB, 28 * GIB - 300 * MIB)
    assert eventually(lambda: [c["state"] for c in host(gateway)["claims"]] == ["settled"], 10, 0.1)
    h = host(gateway)
    assert adds_up(h) and h["trust"] == "fresh", h
    assert h["claims"][0]["bytes"] >= 14 * GIB
    assert abs(h["foreign_bytes"] - (0 if cgroup else 4 * GIB)) < 64 * MIB, h
    loser = next(s for s in both if s != winner)
    assert waits(gateway, "waits for memory", loser)
    # The kernel drops its pages under pressure: it needs them as before.
    machine.process(pid, 2 * GIB, 300 * MIB)
    if cgroup:
        machine.level("user.slice/app.service", 24 * GIB, 2 * GIB, 1 * GIB, 1 * GIB)
    age = eventually(lambda: host(gateway)["age_ms"] < 200, 5, 0.05)
    assert age and host(gateway)["claims"][0]["bytes"] >= 14 * GIB
    assert waits(gateway, "waits for memory", loser)


def test_what_was_allocated_and_not_touched_yet_is_held(start, machine, model):
    gateway = start({"chat": of(model(14))})
    assert is_ready(gateway)
    machine.process(gateway.tiers()["cpu"]["pid"], 1 * GIB, 300 * MIB)
    assert eventually(lambda: [c["state"] for c in host(gateway)["claims"]] == ["settled"], 10, 0.1)
    assert host(gateway)["claims"][0]["bytes"] >= 14 * GIB
    assert adds_up(host(gateway))


def test_what_a_load_takes_beyond_its_claim_is_not_held_by_others(start, machine, model):
    machine.memory(64 * GIB, 32 * GIB)
    gateway = start({"chat": of(model(1), cpu_tier({"ready_after": "never"}))})
    assert eventually(lambda: gateway.tiers()["cpu"]["pid"], 10, 0.05)
    machine.process(gateway.tiers()["cpu"]["pid"], 9 * GIB, 9 * GIB)
    machine.memory(64 * GIB, 23 * GIB)
    assert eventually(lambda: host(gateway)["claims"][0]["bytes"] == 9 * GIB, 10, 0.05)
    h = host(gateway)
    assert adds_up(h) and h["foreign_bytes"] == 32 * GIB and h["trust"] == "fresh", h


def test_memory_of_an_ended_worker_is_room_again(start, machine, model):
    machine.memory(64 * GIB, 24 * GIB)
    # Whichever starts first, it does not come back at once.
    slow = cpu_tier(restart={"backoff": "20s", "backoff_max": "20s"})
    gateway = start({"chat": of(model(14), slow), "late": of(model(14), slow)})
    both = ("chat", "late")
    assert eventually(lambda: sorted(gateway.tiers(s)["cpu"]["state"] for s in both) ==
                      ["ready", "starting"], 10, 0.05)
    first = next(s for s in both if gateway.tiers(s)["cpu"]["state"] == "ready")
    second = next(s for s in both if s != first)
    pid = gateway.tiers(first)["cpu"]["pid"]
    machine.process(pid, 14 * GIB, 300 * MIB)
    machine.memory(64 * GIB, 24 * GIB - 300 * MIB)
    assert eventually(lambda: [c["state"] for c in host(gateway)["claims"]] == ["settled"], 10, 0.1)
    # Seen to be gone before its end is known: its memory must not seem to be somebody's.
    (machine.proc / str(pid) / "status").unlink()
    machine.memory(64 * GIB, 24 * GIB)
    samples(gateway, 2)
    os.kill(pid, signal.SIGKILL)
    assert eventually(lambda: gateway.tiers(first)["cpu"]["pid"] == 0, 5, 0.01)
    samples(gateway, 4)
    assert host(gateway)["releasing_bytes"] == 0, "taken for memory that does not come back"
    assert is_ready(gateway, second)
    assert eventually(lambda: [c["owner"] for c in host(gateway)["claims"]] == [f"{second}/cpu"],
                      10, 0.1)
    assert adds_up(host(gateway))


@pytest.fixture
def card():
    card = SimCard(capacity="64GiB")
    yield card
    card.destroy()


def gpu_tier(orders=None, **options):
    return cpu_tier(orders, **options) | {"name": "gpu", "device": "gpu0"}


PLACED = {"lines": ["load_tensors: offloaded 3/3 layers to GPU"]}


def test_f121_a_worker_on_a_device_counts_with_its_prompt_cache(start, machine, model, card):
    """ollama/ollama#18264: 8 GiB of host memory for prompts, of a runner that is all on the GPU."""
    device = {"gpu0": {"kind": "sim", "card": card.name}}
    machine.memory(64 * GIB, 32 * GIB)
    gateway = start({"chat": of(model(1), gpu_tier(PLACED)), "big": of(model(14), cpu_tier())},
                    devices=device)
    assert is_ready(gateway, "chat", "gpu"), gateway.tiers()
    assert is_ready(gateway, "big")
    claims = {c["owner"]: c["bytes"] for c in host(gateway)["claims"]}
    assert set(claims) == {"chat/gpu", "big/cpu"}
    assert claims["chat/gpu"] >= 256 * MIB  # the cap of its prompt cache
    pid, big = gateway.tiers()["gpu"]["pid"], gateway.tiers("big")["cpu"]["pid"]
    before = host(gateway)["headroom_bytes"]
    for grown in (GIB // 2, int(9.4 * GIB)):
        machine.process(pid, grown, grown)
        machine.process(big, 14 * GIB, 0)
        machine.memory(64 * GIB, 32 * GIB - grown)
        assert eventually(lambda: any(c["owner"] == "chat/gpu" and c["bytes"] >= grown
                                      for c in host(gateway)["claims"]), 10, 0.1), host(gateway)
    h = host(gateway)
    assert adds_up(h) and h["headroom_bytes"] < before - 7 * GIB
    # The next one on the CPU would have fitted before it grew.
    gateway.reload(gateway_config(
        {"chat": of(model(1), gpu_tier(PLACED)), "big": of(model(14), cpu_tier()),
         "next": of(model(10), cpu_tier())}, engine=gateway_engine(gateway), devices=device))
    assert eventually(lambda: any(s["name"] == "next" for s in gateway.status()["services"]), 5)
    assert waits(gateway, "chat/gpu 9.", "next"), gateway.tiers("next")


def gateway_engine(gateway):
    return next(line.split(": ", 1)[1] for line in gateway.config_path.read_text().splitlines()
                if line.startswith("engine: "))


def test_a_device_claim_is_given_back_when_the_machine_has_no_room(start, machine, model, card):
    """All layers on the machine: the device has room for it and the machine has not."""
    machine.memory(64 * GIB, 8 * GIB)
    gateway = start({"chat": of(model(14), gpu_tier(gpu_layers=0))},
                    devices={"gpu0": {"kind": "sim", "card": card.name}})
    assert waits(gateway, "of the machine", name="gpu"), gateway.tiers()
    assert gateway.status()["devices"][0]["claims"] == [] and host(gateway)["claims"] == []
    assert gateway.status()["devices"][0]["unsettled_bytes"] == 0


# --- stalls


def test_f124_a_machine_that_stalls_starts_nothing_on_the_cpu(start, machine, model):
    machine.stalls(80)
    gateway = start({"chat": of(model(1))})
    assert waits(gateway, "short of memory, its processes wait for it 80 % of the time")
    h = host(gateway)
    assert (h["pressure"], h["stall_pct"]) == ("critical", 80)
    assert "short of memory" in gateway.chat().json()["error"]["message"]
    machine.stalls(45)  # not below the limit that it has to fall to
    assert eventually(lambda: host(gateway)["stall_pct"] == 45, 5, 0.05)
    assert waits(gateway, "45 %")
    machine.stalls(10)
    assert is_ready(gateway)
    assert host(gateway)["pressure"] == "normal"


def test_f124_with_a_stall_admission_off_starts_all_the_same(start, machine, model):
    machine.stalls(80)
    gateway = start({"chat": of(model(1))}, admission="off")
    assert is_ready(gateway)


# --- a machine that tells nothing


def test_without_meminfo_workers_start_one_at_a_time(start, machine, model):
    (machine.proc / "meminfo").unlink()
    slow = {"ready_after": 1}
    gateway = start({"one": of(model(1), cpu_tier(slow)), "two": of(model(1), cpu_tier(slow))})
    both = ("one", "two")
    assert eventually(lambda: sorted(gateway.tiers(s)["cpu"]["state"] for s in both) ==
                      ["loading", "starting"], 10, 0.02)
    loser = next(s for s in both if gateway.tiers(s)["cpu"]["state"] == "starting")
    assert waits(gateway, "the memory of this machine cannot be told", loser)
    assert is_ready(gateway, "one") and is_ready(gateway, "two")
    said = [line for line in gateway.log() if "memory of this machine cannot be told (meminfo" in line]
    assert len(said) == 1 and " warn" in said[0]
    assert host(gateway)["trust"] == "stale"


def test_an_unreadable_limit_is_not_taken_for_none(start, machine, model):
    machine.level("user.slice", "many", 1)
    gateway = start({"chat": of(model(1))})
    assert is_ready(gateway)
    gateway.wait_log(r"a limit at cgroup .* can not be told")


# --- integrated devices


@pytest.mark.parametrize("service_first", ["gpu", "cpu"])
def test_f41_one_pool_is_not_given_twice(start, machine, model, card, service_first):
    """ollama/ollama#12062: a device whose memory is the machine's. 70 GiB fit once into 124."""
    card.set(capacity="108GiB")
    machine.memory(124 * GIB, 120 * GIB)
    tiers = {"gpu": gpu_tier(PLACED), "cpu": cpu_tier()}
    second = "cpu" if service_first == "gpu" else "gpu"
    services = {service_first: of(model(70), tiers[service_first])}
    device = {"gpu0": {"kind": "sim", "card": card.name, "integrated": "on"}}
    gateway = start(services, devices=device)
    assert is_ready(gateway, service_first, service_first), gateway.tiers(service_first)
    services[second] = of(model(70), tiers[second])
    gateway.reload(gateway_config(services, engine=gateway_engine(gateway), devices=device))
    assert eventually(lambda: any(s["name"] == second for s in gateway.status()["services"]), 5)
    assert waits(gateway, f"{service_first}/{service_first} 70", second, second), \
        gateway.tiers(second)
    d, h = gateway.status()["devices"][0], host(gateway)
    assert d["integrated"] and len(h["claims"]) == 1
    same = ("total_bytes", "settled_bytes", "unsettled_bytes", "headroom_bytes", "claims")
    assert {k: d[k] for k in same} == {k: h[k] for k in same} and adds_up(d)


def apu(machine, vram, gtt, vram_used=0, gtt_used=0):
    """An AMD card in the made-up /sys. Format 2 of its metrics is that of an APU."""
    card = machine.proc.parent / "sys/class/drm/card0/device"
    machine.put(card / "vendor", "0x1002\n")
    machine.put(card / "uevent", "DRIVER=amdgpu\nPCI_CLASS=30000\nPCI_SLOT_NAME=0000:c4:00.0\n")
    for name, value in (("vram_total", vram), ("vram_used", vram_used), ("gtt_total", gtt),
                        ("gtt_used", gtt_used)):
        machine.put(card / f"mem_info_{name}", f"{int(value)}\n")
    (card / "gpu_metrics").write_bytes(bytes([0x80, 0, 2, 1, 0xff, 0xff]))
    return {"FAILSOFT_SYS": str(machine.proc.parent / "sys")}


# The carve-out of the firmware, what the driver may take of the machine, MemTotal, and how much of that
# is available: the three machines of ollama/ollama#12062, ROCm/legacy-rocm-build#6004, AlexsJones/llmfit#964.
APUS = {"small carve-out": (GIB // 2, 108 * GIB, 124 * GIB, 120 * GIB),
        "sum above what there is": (8 * GIB, 124 * GIB, 120 * GIB, 112 * GIB),
        "all of it under two names": (120 * GIB, 120 * GIB, 120 * GIB, 112 * GIB)}


@pytest.mark.parametrize("what", APUS)
def test_f41_what_the_driver_says_is_not_added_to_the_machine(start, machine, model, what):
    vram, gtt, total, available = APUS[what]
    machine.memory(total, available)
    env = apu(machine, vram, gtt)
    device = {"gpu0": {"kind": "amd"}}
    services = {"chat": of(model(70), gpu_tier(PLACED))}
    gateway = start(services, env=env, devices=device)
    assert is_ready(gateway, name="gpu"), gateway.tiers()
    services["late"] = of(model(70))
    gateway.reload(gateway_config(services, engine=gateway_engine(gateway), devices=device))
    assert eventually(lambda: any(s["name"] == "late" for s in gateway.status()["services"]), 5)
    assert waits(gateway, "chat/gpu ", "late"), gateway.tiers("late")
    h = host(gateway)
    assert h["total_bytes"] == total and len(h["claims"]) == 1 and adds_up(h)
    d = gateway.status()["devices"][0]
    assert d["integrated"] and d["claims"] == h["claims"]


def test_f41_the_driver_s_own_limit(start, machine, model):
    machine.memory(124 * GIB, 120 * GIB)
    env = apu(machine, GIB // 2, 64 * GIB)
    gateway = start({"chat": of(model(70), gpu_tier(PLACED))}, env=env,
                    devices={"gpu0": {"kind": "amd"}})
    assert waits(gateway, "on gpu0, where 64.5 GiB are free", name="gpu"), gateway.tiers()


def test_a_carve_out_is_no_room_for_the_cpu(start, machine, model):
    """Half of the machine is the device's: a device worker in it takes nothing of the machine."""
    machine.memory(64 * GIB, 60 * GIB)
    env = apu(machine, 96 * GIB, 32 * GIB)
    gateway = start({"chat": of(model(50), gpu_tier(PLACED)), "text": of(model(50)),
                     "large": of(model(70))}, env=env, devices={"gpu0": {"kind": "amd"}})
    assert is_ready(gateway, name="gpu") and is_ready(gateway, "text")
    assert waits(gateway, "of the machine", "large")


# --- reload


def test_a_reload_of_reserves_takes_effect(start, machine, model, card):
    machine.memory(64 * GIB, 18 * GIB)
    card.set(capacity="2GiB")
    services = {"chat": of(model(14)), "other": of(model(1), gpu_tier(PLACED))}

    def devices(reserve, name=card.name):
        return {"gpu0": {"kind": "sim", "card": name, "reserve": reserve}}

    gateway = start(services, devices=devices("1536MiB"), host={"reserve": "4GiB"})
    assert waits(gateway, "where 14 GiB of 64 GiB may be used")
    assert waits(gateway, "on gpu0", "other", "gpu")
    engine = gateway_engine(gateway)
    at = gateway.reload(gateway_config(services, engine=engine, devices=devices("128MiB"),
                                       host={"reserve": "512MiB"}))
    assert is_ready(gateway), gateway.tiers()
    assert gateway.status()["devices"][0]["reserve_bytes"] == 128 * MIB
    assert host(gateway)["reserve_bytes"] == 512 * MIB
    gateway.reload(gateway_config(services, engine=engine, devices=devices("256MiB", "another")))
    gateway.wait_log("`devices` changed: their telemetry takes a restart", start=at)
    assert gateway.status()["devices"][0]["reserve_bytes"] == 128 * MIB, "of another device"
    assert sum("takes a restart" in line for line in gateway.log()) == 1


# --- pages


def test_the_machine_on_the_pages(start, machine, model):
    gateway = start({"chat": of(model(2))})
    assert is_ready(gateway)
    families = {f.name: f for f in
                text_string_to_metric_families(gateway.call("GET", "/metrics").body.decode())}
    total = families["failsoft_host_total_bytes"].samples[0]
    assert (total.labels, total.value) == ({}, 64 * GIB)
    parts = ("reserve", "foreign", "settled", "unsettled", "releasing", "headroom")
    assert sum(families[f"failsoft_host_{p}_bytes"].samples[0].value for p in parts) == 64 * GIB
    table = subprocess.run([binary(), "status", "--url", gateway.url], capture_output=True,
                           text=True, timeout=10).stdout
    assert "chat/cpu holds 2" in table and "\n    host " in table, table


# --- the real machine


def test_this_machine(start_gateway, engine, model):
    gateway = start_gateway(gateway_config({"chat": of(model(0.25))}, engine=engine),
                            expect_children=None)
    gateway.idle_descriptors = None
    assert is_ready(gateway)
    assert eventually(lambda: [c["state"] for c in host(gateway)["claims"]] == ["settled"], 10, 0.1)
    resident = next(int(line.split()[1]) << 10 for line in
                    Path(f"/proc/{gateway.tiers()['cpu']['pid']}/status").read_text().splitlines()
                    if line.startswith("VmRSS"))
    h = host(gateway)
    assert adds_up(h) and (h["trust"], h["reason"]) == ("fresh", "")
    assert h["claims"][0]["bytes"] >= max(resident, GIB // 4)
    assert 0 < h["foreign_bytes"] < h["total_bytes"]
