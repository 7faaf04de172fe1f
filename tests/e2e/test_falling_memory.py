"""The card shrinks in steps while requests of mixed length run. With admission nobody's allocation
ever fails and every request is answered by the tier that was chosen for it; the same run without
admission meets failed allocations, which is what the first half is worth.

The card makes the engine allocate while it computes, as a CUDA pool does: a workspace for every token of
the longest batch so far, kept. So a prompt that is longer than all before needs memory just when
there is less of it.
"""

import json
import random
import re
import threading

import pytest

from rig_engine import SimCard
from rig_gateway import Gateway, eventually

pytestmark = [pytest.mark.real_engine, pytest.mark.timeout(240)]

READY_S = 60
MIB = 1 << 20
RESERVE = 128 * MIB
CLIENTS = 3
PER_STEP = 8
# Capacity beyond what the loaded worker holds, in parts of the reserve, and the longest prompt in words.
STEPS = [(4.0, 8), (2.0, 30), (1.3, 60), (0.9, 120), (0.7, 260), (0.6, 400), (0.3, 400), (0.1, 400)]


@pytest.fixture
def files(engine_files):
    return engine_files


@pytest.fixture
def card():
    card = SimCard(capacity="1GiB")
    card.set(workspace="256KiB")
    yield card
    card.destroy()


def start(files, card, tmp_path, admission):
    tier = {"threads": 1, "stop_grace": "1s", "first_event_timeout": "90s", "stall_timeout": "90s",
            "args": ["-b", "512", "-ub", "512"], "restart": {"backoff": "200ms", "backoff_max": "1s"}}
    gateway = Gateway({
        "listen": "127.0.0.1:0", "shutdown_grace": "3s", "engine": files["engine"],
        "admission": admission, "log": {"level": "debug"},
        "devices": {"gpu0": {"kind": "sim", "card": card.name, "plugin": files["plugin"],
                             "reserve": "128MiB", "back_after": "500ms"}},
        "services": {"chat": {"kind": "chat", "model": files["chat"], "context": 1024, "tiers": [
            {"name": "gpu", "device": "gpu0", **tier}, {"name": "cpu", **tier}]}},
    }, tmp_path)
    gateway.idle_descriptors = None
    gateway.allow_log(r"(gpu|cpu|worker|chat|device|gateway|engine)")
    return gateway


def gpu(gateway):
    return gateway.tiers("chat")["gpu"]


def failed_allocations(card):
    return json.loads(card.command("show", card.name, "--json"))["counters"]["allocations_failed"]


def complaints(gateway):
    """Lines of the engine about allocations that failed."""
    failed = re.compile(r"(unable|failed) to allocate|out of memory|graph_compute_async failed")
    return [line for line in gateway.log() if failed.search(line)]


class Crowd:
    """A few clients that ask without pause, prompts of one word up to `longest` words."""

    def __init__(self, gateway):
        self.gateway, self.longest, self.replies, self.chosen = gateway, 8, [], {}
        self.random, self.ended = random.Random(4), threading.Event()
        self.threads = [threading.Thread(target=self.run) for _ in range(CLIENTS)]
        for thread in self.threads:
            thread.start()

    def run(self):
        while not self.ended.is_set():
            words = self.random.randint(1, self.longest)
            body = {"model": "chat", "temperature": 0, "max_tokens": 3, "stream": words % 2 == 0,
                    "messages": [{"role": "user", "content": "tree " * words}]}
            reply = self.gateway.call("POST", "/v1/chat/completions", body, timeout=120)
            # Newest first; the last decision about a request is the one that counts.
            for decision in reversed(self.gateway.status()["decisions"]):
                self.chosen[decision["request"]] = decision
            self.replies.append(reply)

    def take(self, count):
        """Waits for so many further answers, those of prompts chosen before not counted."""
        target = len(self.replies) + CLIENTS + count
        return eventually(lambda: len(self.replies) >= target, 90, 0.05)

    def end(self):
        self.ended.set()
        for thread in self.threads:
            thread.join()


def settled(gateway):
    return gpu(gateway)["state"] in ("ready", "stopped")


def run(gateway, card):
    assert eventually(lambda: gpu(gateway)["state"] == "ready", READY_S, 0.1)
    assert eventually(lambda: gateway.tiers("chat")["cpu"]["state"] == "ready", READY_S, 0.1)
    held = json.loads(card.command("show", card.name, "--json"))["used_bytes"]
    crowd = Crowd(gateway)
    try:
        for share, longest in STEPS:
            total = held + int(share * RESERVE)
            crowd.longest = longest
            card.set(capacity=f"{total // MIB}MiB")
            assert eventually(lambda total=total: abs(
                gateway.status()["devices"][0]["total_bytes"] - total) <= MIB, 10, 0.05)
            assert crowd.take(PER_STEP)
            # A step in the middle of a load would be a trap that nobody could have foreseen.
            eventually(lambda: settled(gateway), 20, 0.05)
    finally:
        crowd.end()
    return crowd


def test_with_admission_nobody_meets_a_failed_allocation(files, card, tmp_path):
    gateway = start(files, card, tmp_path, "on")
    try:
        crowd = run(gateway, card)
        assert [r for r in crowd.replies if r.status != 200] == []
        tiers = [r.tier for r in crowd.replies]
        assert set(tiers) == {"gpu", "cpu"}, tiers
        assert failed_allocations(card) == 0 and gpu(gateway)["attempts_failed"] == 0
        for reply in crowd.replies:
            decision = crowd.chosen.get(reply.get("X-Failsoft-Request"))
            if decision:
                assert decision["tier"] == reply.tier and decision["reason"], decision
        assert len(crowd.chosen) >= len(crowd.replies) * 3 // 4
        # Under pressure a prompt that is longer than all before goes to the CPU, with the reason.
        reasons = [r.get("X-Failsoft-Reason") for r in crowd.replies if r.tier == "cpu"]
        assert any("pressure on gpu0" in reason for reason in reasons), reasons
        assert not complaints(gateway)
    finally:
        gateway.stop()


def test_without_admission_allocations_fail(files, card, tmp_path):
    gateway = start(files, card, tmp_path, "off")
    try:
        run(gateway, card)
        assert failed_allocations(card) > 0 and complaints(gateway)
        assert gpu(gateway)["attempts_failed"] > 0
    finally:
        gateway.stop()
