"""What was measured once is known the next time: loads that take more than the formula says, a worker whose
memory creeps up, a load that cannot succeed, sizes that the engine itself says. Stock llama-server on a
simulated card, whose `context` and `workspace` are what no formula knows.
"""

import json
import re
import stat
import subprocess

import pytest

from rig_engine import SimCard
from rig_gateway import ROOT, SANITIZER, Gateway, binary, eventually

pytestmark = [pytest.mark.real_engine, pytest.mark.timeout(180)]

MiB = 1 << 20
READY_S = 40


@pytest.fixture
def files(engine_files):
    return engine_files


@pytest.fixture
def card(files):
    card = SimCard(capacity="2GiB")
    yield card
    card.destroy()


@pytest.fixture
def start(files, card, tmp_path):
    """Gateways that keep what they learn in one folder; each ends the one before."""
    started = []

    def start(context=512, args=(), env=None, **options):
        if started:
            assert started[-1].stop() == 0
        tier = {"threads": 1, "stop_grace": "1s", "first_event_timeout": "60s",
                "stall_timeout": "60s", "restart": {"backoff": "200ms", "backoff_max": "1s"}}
        gateway = Gateway({
            "listen": "127.0.0.1:0", "shutdown_grace": "3s", "engine": files["engine"],
            "state_dir": str(tmp_path / "state"),
            "devices": {"gpu0": {"kind": "sim", "card": card.name, "plugin": files["plugin"],
                                 "reserve": "64MiB", "back_after": "500ms"}},
            "services": {"chat": {"kind": "chat", "model": files["chat"], "context": context,
                                  "tiers": [{"name": "gpu", "device": "gpu0",
                                             "args": list(args), **tier},
                                            {"name": "cpu", **tier}]}}} | options,
            tmp_path / f"gateway{len(started)}", env=env)
        gateway.idle_descriptors = None
        gateway.allow_log(r"(gpu|cpu|worker|chat|device)")
        started.append(gateway)
        return gateway

    yield start
    for gateway in started:
        killed = getattr(gateway, "may_exit", False)
        assert gateway.stop() == 0 or killed
        assert not gateway.left_behind()
        assert not [line for line in gateway.log() if SANITIZER.search(line)]


@pytest.fixture
def learned(tmp_path):
    return tmp_path / "state/learned.txt"


class Hog:
    """Somebody else's memory on the card."""

    def __init__(self, card, mib):
        self.process = subprocess.Popen(
            [str(binary()), "sim", "hog", card.name, "--bytes", f"{mib}MiB"],
            stdout=subprocess.PIPE, text=True)
        assert "READY" in self.process.stdout.readline()

    def end(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


def gpu(gateway):
    return gateway.tiers()["gpu"]


def memory(gateway):
    return gpu(gateway)["memory"]


def wait_measured(gateway):
    """Loaded and settled; its memory."""
    assert eventually(lambda: gpu(gateway)["state"] == "ready" and memory(gateway)["loads_measured"] > 0,
                      READY_S, 0.1), gpu(gateway)
    return memory(gateway)


def claim(gateway):
    return next(c for c in gateway.status()["devices"][0]["claims"] if c["owner"] == "chat/gpu")


def ask(gateway, text):
    reply = gateway.call("POST", "/v1/chat/completions", {
        "model": "chat", "temperature": 0, "seed": 1, "max_tokens": 2,
        "messages": [{"role": "user", "content": text}]}, timeout=90)
    assert reply.status == 200, repr(reply)
    return reply


def pause(gateway):
    """Long enough for the gateway to see an idle worker: samples come twice a second."""
    ages = []
    last = None
    while len(ages) < 5:
        age = gateway.status()["devices"][0]["age_ms"]
        if last is not None and age < last:
            ages.append(age)
        last = age


def test_the_next_gateway_knows_what_a_load_took(start, card, learned):
    card.set(context="200MiB")  # as CUDA's, on a machine where it is large: the formula knows nothing of it
    first = start()
    before = wait_measured(first)
    assert before["formula_bytes"] == claim(first)["predicted_bytes"] < before["learned_bytes"]
    assert before["learned_bytes"] == before["measured_bytes"] > 200 * MiB
    second = start()
    assert stat.S_IMODE(learned.stat().st_mode) == 0o600
    assert stat.S_IMODE(learned.parent.stat().st_mode) == 0o700
    after = wait_measured(second)
    assert after["formula_bytes"] == before["formula_bytes"]
    assert after["predicted_bytes"] == before["learned_bytes"] * 115 // 100
    assert claim(second)["predicted_bytes"] == after["predicted_bytes"]
    assert eventually(lambda: memory(second)["loads_measured"] == 2, 10, 0.1)
    pause(second)
    assert memory(second)["loads_measured"] == 2  # once a load, not at every look
    metrics = second.metrics()
    labels = '{service="chat",tier="gpu"}'
    assert metrics["failsoft_worker_predicted_bytes" + labels] == after["predicted_bytes"]
    assert metrics["failsoft_worker_learned_bytes" + labels] == after["learned_bytes"]

    # Other settings: nothing is known of them, and what was known of the old ones is gone.
    third = start(context=1024)
    other = wait_measured(third)
    assert claim(third)["predicted_bytes"] == other["formula_bytes"] != before["formula_bytes"]
    third.wait_log("1 learned entries are dropped")
    assert third.stop() == 0
    assert len([line for line in learned.read_text().splitlines() if line.startswith("load")]) == 1


def test_a_gateway_that_is_killed_has_written_it_by_then(start, card, learned):
    gateway = start()
    wait_measured(gateway)
    assert eventually(learned.exists, 10, 0.1)
    gateway.may_exit = True
    gateway.kill()
    assert learned.read_text().splitlines()[-1] == "end 1"
    assert [path.name for path in learned.parent.iterdir()] == ["learned.txt"]


def test_a_worker_whose_memory_creeps_up_is_recycled_when_idle(start, card):
    """F04 ggml-org/llama.cpp#23446. The card keeps the workspace of a process, and it is made to grow."""
    gateway = start()
    wait_measured(gateway)
    pid = gpu(gateway)["pid"]

    def grow(per_token, text):
        card.set(workspace=per_token)
        held = memory(gateway)["measured_bytes"]
        ask(gateway, text)
        assert eventually(lambda: memory(gateway)["measured_bytes"] > held, 5, 0.1)

    pause(gateway)
    # The first requests make what is made when it is first needed: what stays then is the baseline.
    grow("5MiB", "one " * 80)  # 320 MiB for a batch of 64: more than it may grow afterwards
    pause(gateway)
    grow("6MiB", "two " * 80)
    pause(gateway)
    assert gpu(gateway)["recycles"] == 0
    grow("10MiB", "three " * 80)
    pause(gateway)
    assert gpu(gateway)["recycles"] == 0 and gpu(gateway)["pid"] == pid
    grow("12MiB", "four " * 80)
    assert eventually(lambda: gpu(gateway)["recycles"] == 1, 10, 0.05)
    gateway.wait_log("its memory grew by .* since it was loaded and stays so: recycled when idle")
    card.set(workspace="0")
    assert eventually(lambda: gpu(gateway)["state"] == "ready" and gpu(gateway)["pid"] != pid,
                      READY_S, 0.1)
    # What grew beyond its claims counts as somebody else's, as a peak, for a while.
    assert eventually(lambda: ask(gateway, "Hello.").tier == "gpu", READY_S, 0.5)
    # It goes on leaking: that is shown, but it is not recycled all the time.
    again = gpu(gateway)["pid"]
    for per_token, text in (("5MiB", "five "), ("10MiB", "six "), ("12MiB", "seven ")):
        grow(per_token, text * 80)
        pause(gateway)
    assert eventually(lambda: "its memory grew by" in gpu(gateway)["reason"], 10, 0.05)
    pause(gateway)
    assert gpu(gateway)["recycles"] == 1 and gpu(gateway)["pid"] == again
    assert gateway.metrics()['failsoft_worker_recycles_total{service="chat",tier="gpu"}'] == 1
    assert gateway.service()["failed"] == 0


def test_a_load_that_cannot_succeed_is_not_tried_in_a_circle(start, card, learned):
    """F13 ggml-org/llama.cpp#18160: one buffer is refused although there is memory."""
    card.fail("--above", "32MiB")
    gateway = start()
    assert eventually(lambda: "does not fit on gpu0" in gpu(gateway)["reason"], READY_S, 0.1), gpu(gateway)
    tries = gpu(gateway)["restarts"]
    assert tries == 1  # once may have been somebody else's memory
    assert ask(gateway, "Say hello.").tier == "cpu"
    assert gpu(gateway)["restarts"] == tries and gpu(gateway)["pid"] == 0

    second = start()
    assert "unfit" in learned.read_text()
    assert eventually(lambda: "does not fit on gpu0" in gpu(second)["reason"], READY_S, 0.1)
    assert ask(second, "Say hello.").tier == "cpu"
    assert gpu(second)["restarts"] == 0 and gpu(second)["pid"] == 0
    # Other settings may fit.
    card.fail("--off")
    third = start(context=1024)
    wait_measured(third)
    assert third.stop() == 0
    assert "unfit" not in learned.read_text()


def test_one_failure_may_have_been_anybody_s(start, card, learned):
    card.fail("--next", "1")
    gateway = start()
    wait_measured(gateway)
    assert gpu(gateway)["restarts"] == 1
    assert gateway.stop() == 0
    assert "unfit" not in learned.read_text()


def test_more_room_than_it_failed_in_is_tried(start, card, learned):
    """The prediction may be wrong: 200 MiB of it are unknown here, and what is free looks like enough."""
    card.set(context="200MiB")
    hog = Hog(card, 2048 - 280)
    try:
        gateway = start()
        assert eventually(lambda: "does not fit on gpu0" in gpu(gateway)["reason"], READY_S, 0.1), \
            gpu(gateway)
        assert re.search(r"not tried again before 2\d\d MiB are free", gpu(gateway)["reason"])
    finally:
        hog.end()
    wait_measured(gateway)
    assert gateway.stop() == 0
    assert "unfit" not in learned.read_text()


def test_a_buffer_over_the_limit_is_believed_at_once(start, card, learned):
    """F13 ggml-org/llama.cpp#18160, in the engine's own words."""
    orders = {"exit": 1, "lines": [
        "ggml_vulkan: Requested buffer size exceeds device buffer size limit: ErrorOutOfDeviceMemory"]}
    gateway = start(engine=str(ROOT / "tests/fakes/fake_engine.py"),
                    env={"FAKE_ENGINE": json.dumps(orders)})
    assert eventually(lambda: "does not fit on gpu0" in gpu(gateway)["reason"], READY_S, 0.1), gpu(gateway)
    assert "one buffer is larger than the device allows" in gpu(gateway)["reason"]
    assert gpu(gateway)["restarts"] == 0


def test_a_reload_tries_again_what_did_not_fit(start, card, learned):
    card.fail("--above", "32MiB")
    gateway = start()
    assert eventually(lambda: "does not fit on gpu0" in gpu(gateway)["reason"], READY_S, 0.1), gpu(gateway)
    card.fail("--off")
    gateway.reload(gateway.config_path.read_text())
    wait_measured(gateway)
    assert gateway.stop() == 0
    assert "unfit" not in learned.read_text()


# Nobody but the engine knows what that makes.
UNSURE = ["--override-tensor", r"blk\.0\..*=CPU"]


def test_the_engine_is_asked_where_the_formula_is_not_sure(start, card, learned):
    first = start(args=UNSURE)
    first.wait_log("its engine says 89 MiB of weights, .* of cache", READY_S)
    known = wait_measured(first)
    second = start(args=UNSURE)
    assert learned.read_text().count("sizes ") == 1
    again = wait_measured(second)
    assert not any("its engine says" in line for line in second.log())
    assert again["formula_bytes"] == known["formula_bytes"]
    assert known["measured_bytes"] <= known["formula_bytes"] <= 1.2 * known["measured_bytes"]


def engine_with(files, folder, script):
    """The engine, with another program that says sizes beside it."""
    folder.mkdir()
    (folder / "llama-server").symlink_to(files["engine"])
    tool = folder / "llama-fit-params"
    tool.write_text("#!/bin/sh\n" + script + "\n")
    tool.chmod(0o755)
    return str(folder / "llama-server")


def test_an_engine_that_refuses_to_say_is_loaded_all_the_same(start, files, tmp_path, learned):
    gateway = start(args=UNSURE, engine=engine_with(files, tmp_path / "engine", "exit 1"))
    assert wait_measured(gateway)["formula_bytes"] > 0
    assert gateway.stop() == 0
    assert "sizes" not in learned.read_text()


def test_a_gateway_stops_while_the_engine_is_asked(start, files, tmp_path):
    engine = engine_with(files, tmp_path / "engine", "trap '' TERM; while :; do sleep 1; done")
    gateway = start(args=UNSURE, engine=engine)
    assert eventually(lambda: "is asked what it will take" in gpu(gateway)["reason"], READY_S, 0.05)
    assert gateway.tiers()["cpu"]["state"] in ("starting", "loading", "ready")
    assert gateway.stop(5) == 0


def test_a_damaged_file_costs_its_lines_only(start, card, learned):
    first = start()
    wait_measured(first)
    assert first.stop() == 0
    lines = learned.read_text().splitlines()
    learned.write_text("\n".join([lines[0], "load \x01 nonsense", *lines[1:]]) + "\n")
    second = start()
    second.wait_log("learned.txt is damaged: 1 lines skipped, the others are used")
    assert eventually(lambda: memory(second)["loads_measured"] == 2, READY_S, 0.1)
    assert (learned.parent / "learned.txt.damaged").exists()
    third = start()
    assert eventually(lambda: memory(third)["loads_measured"] == 3, READY_S, 0.1)
    assert not any("damaged" in line for line in third.log())


def test_a_folder_that_cannot_be_written_costs_the_memory_only(start, card, tmp_path):
    (tmp_path / "file").write_text("")
    gateway = start(state_dir=str(tmp_path / "file/state"))
    wait_measured(gateway)
    gateway.wait_log("learned.txt cannot be written: Not a directory")
    assert ask(gateway, "Say hello.").tier == "gpu"
    assert gateway.stop() == 0
    assert len([line for line in gateway.log() if "cannot be written" in line]) == 1
