"""The simulated accelerator's plug-in in the stock engine: what the engine sees, what it answers when
the card fails, and that the memory comes back. Real llama-server, real model; only the card is
pretended."""

import json
import os
import re
import signal

import pytest
from rig_sim import EMBED_MODEL, MIB, Card, Engine, content_of

pytestmark = pytest.mark.real_engine

LONG_PROMPT = "The lighthouse keeper wrote about the weather and the ships. " * 40
COMPUTE_ERROR = {"error": {"code": 500, "message": "Compute error.", "type": "server_error"}}


@pytest.fixture
def card():
    """card(capacity, setting=value, …); removed after the test."""
    made = []

    def make(capacity="2GiB", **settings):
        made.append(Card(f"t{os.getpid()}-{len(made)}", capacity, **settings))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def start_engine(tmp_path):
    """start_engine(card, …); stopped after the test."""
    made = []

    def start(on=None, ready=True, **options):
        folder = tmp_path / f"engine{len(made)}"
        folder.mkdir()
        made.append(Engine(folder, on, **options))
        if ready:
            assert made[-1].wait_ready(), made[-1].log
        return made[-1]

    yield start
    for engine in made:
        engine.stop()


def buffer_mib(log, kind):
    return float(re.search(rf"SIM0 {kind} buffer size =\s+([\d.]+) MiB", log)[1])


def test_all_layers_offload_and_tokens_equal_the_cpu(card, start_engine):
    gpu0 = card()
    gpu = start_engine(gpu0)
    log = gpu.log
    layers, of = re.search(r"offloaded (\d+)/(\d+) layers to GPU", log).groups()
    assert layers == of
    assert "failsoft simulated accelerator, card" in log
    graphs_before = gpu0.show()["counters"]["graphs"]
    status, on_gpu = gpu.completion("Once upon a time there was a lighthouse", 64)
    assert status == 200
    # It was the card that computed: one graph for the prompt at least, one for each later token.
    assert gpu0.show()["counters"]["graphs"] - graphs_before >= 64
    gpu.stop()
    cpu = start_engine()
    status, on_cpu = cpu.completion("Once upon a time there was a lighthouse", 64)
    assert status == 200
    assert len(on_cpu["tokens"]) == 64
    assert on_gpu["tokens"] == on_cpu["tokens"]


def test_some_layers_offloaded_give_the_same_tokens(card, start_engine):
    gpu0 = card()
    hybrid = start_engine(gpu0, layers=10)
    assert "offloaded 10/" in hybrid.log
    # A prompt of more than 32 tokens: large batches of the host's layers go to the card, too.
    status, on_both = hybrid.completion(LONG_PROMPT[:400], 16)
    assert status == 200
    assert gpu0.show()["counters"]["graphs"] > 0
    hybrid.stop()
    assert start_engine().completion(LONG_PROMPT[:400], 16)[1]["tokens"] == on_both["tokens"]


def test_embeddings_equal_the_cpu(card, start_engine):
    gpu0 = card()
    options = {"context": 512, "model": EMBED_MODEL, "options": ("--embeddings",)}
    body = {"input": ["The sea is wide.", "Ships in a harbour at night"]}
    found = [start_engine(on, **options).request("POST", "/v1/embeddings", body)
             for on in (gpu0, None)]
    assert found[0][0] == 200
    assert gpu0.show()["counters"]["graphs"] > 0
    on_card, on_cpu = ([item["embedding"] for item in answer["data"]] for _, answer in found)
    assert len(on_card) == 2 and on_card == on_cpu


def test_the_card_counts_what_the_engine_took(card, start_engine):
    gpu0 = card()
    engine = start_engine(gpu0, context=4096)
    shown = gpu0.show()
    log = engine.log
    sizes = [buffer_mib(log, kind) for kind in ("model", "KV", "compute")]
    # SmolLM2-135M Q4_1, context 4096: 92 and 90 MiB by its header, compute as small as it gets.
    assert 91 < sizes[0] < 94 and 89 < sizes[1] < 91 and 10 < sizes[2] < 20
    assert abs(shown["used_bytes"] - sum(sizes) * MIB) < MIB
    assert shown["free_bytes"] == shown["capacity_bytes"] - shown["used_bytes"]
    (process,) = shown["processes"]
    assert process["pid"] == engine.process.pid
    assert process["role"] == "engine"
    assert process["used_bytes"] == shown["used_bytes"]


def test_orderly_exit_gives_the_memory_back_at_once(card, start_engine):
    gpu0 = card(release_delay="600s")
    engine = start_engine(gpu0)
    assert gpu0.show()["used_bytes"] > 0
    engine.stop()
    shown = gpu0.show()
    assert shown["used_bytes"] == 0 and shown["processes"] == []


def test_killed_engine_gives_the_memory_back_after_the_delay(card, start_engine):
    gpu0 = card(release_delay="600s")
    engine = start_engine(gpu0)
    used = gpu0.show()["used_bytes"]
    engine.process.kill()
    engine.wait_end()
    shown = gpu0.show()
    assert shown["releasing_bytes"] == used == shown["used_bytes"]
    assert shown["processes"] == []
    assert Card.run("wait", gpu0.name, "--free", "2GiB", "--timeout", "50ms").returncode == 1
    gpu0.set(release_delay="200ms")
    second = start_engine(gpu0)
    used = gpu0.show()["processes"][0]["used_bytes"]
    second.process.kill()
    second.wait_end()
    # The first one's is still being returned; what the second one held comes back.
    free_then = gpu0.show()["capacity_bytes"] - used
    gpu0.command("wait", "--free", f"{free_then}B", "--timeout", "10s")


@pytest.mark.parametrize("room, words", [
    ("60MiB", "unable to allocate SIM0 buffer"),
    ("120MiB", "failed to allocate buffer for kv cache"),
    ("187MiB", "failed to allocate SIM0 buffer"),
])
def test_load_over_capacity_fails_in_the_engines_words(card, start_engine, room, words):
    gpu0 = card(room)
    engine = start_engine(gpu0, ready=False, context=4096)
    assert not engine.wait_ready()
    # Not its very last words: the engine's log is written by a thread that its exit does not wait for.
    assert engine.process.returncode == 1
    assert "SIM0 (simulated): allocating" in engine.log
    assert words in engine.log
    assert "load_model: failed to " in engine.log
    shown = gpu0.show()
    assert shown["counters"]["allocations_failed"] >= 1


def test_what_others_hold_is_not_there(card, start_engine):
    gpu0 = card("1GiB")
    held = gpu0.hog("--share", "90%")
    assert held > 900 * MIB
    engine = start_engine(gpu0, ready=False)
    assert not engine.wait_ready()
    assert "out of memory" in engine.log


def test_fragmented_card_has_room_but_no_place(card, start_engine):
    gpu0 = card("1GiB")
    gpu0.hog("--fragment", "64MiB")
    shown = gpu0.show()
    assert shown["free_bytes"] >= 500 * MIB and shown["largest_free_bytes"] == 64 * MIB
    engine = start_engine(gpu0, ready=False)
    assert not engine.wait_ready()
    assert "largest block 64.00 MiB" in engine.log


def test_buffers_above_the_drivers_limit_are_split(card, start_engine):
    gpu0 = card(max_alloc="50MiB")
    engine = start_engine(gpu0)
    assert gpu0.show()["blocks"] >= 4
    assert engine.completion("The sea", 4)[0] == 200


def test_failed_allocations_while_loading(card, start_engine):
    gpu0 = card()
    gpu0.command("fail", "--next", 1)
    engine = start_engine(gpu0, ready=False)
    assert not engine.wait_ready()
    assert engine.process.returncode == 1
    assert "error loading model: unable to allocate SIM0 buffer" in engine.log
    assert start_engine(gpu0).completion("The sea", 4)[0] == 200


def test_allocation_failure_at_the_first_long_request(card, start_engine):
    gpu0 = card(workspace="1MiB")
    engine = start_engine(gpu0, options=("-ub", "128"))
    gpu0.hog("--bytes", f"{gpu0.show()['free_bytes'] // MIB - 60}MiB")
    # A short prompt fits into what is left, a batch of 128 tokens does not.
    assert engine.completion("The sea", 4)[0] == 200
    assert engine.completion(LONG_PROMPT, 4) == (500, COMPUTE_ERROR)
    assert "the workspace for 128 tokens does not fit" in engine.log
    assert engine.request("GET", "/health")[0] == 200
    assert engine.completion("The sea", 4)[0] == 200
    gpu0.set(workspace="0")
    assert engine.completion(LONG_PROMPT, 4)[0] == 200


def test_graph_loss_is_compute_error_and_ends_with_a_new_process(card, start_engine):
    gpu0 = card()
    engine = start_engine(gpu0)
    assert engine.chat(tokens=4)[0] == 200
    gpu0.command("lose")
    assert engine.chat(tokens=4) == (500, COMPUTE_ERROR)
    assert engine.process.poll() is None
    # After the reset the old process stays lost, a new one is well.
    gpu0.command("reset")
    assert engine.chat(tokens=4) == (500, COMPUTE_ERROR)
    engine.stop()
    assert start_engine(gpu0).chat(tokens=4)[0] == 200


def test_graph_loss_before_the_first_token_of_a_stream(card, start_engine):
    gpu0 = card()
    engine = start_engine(gpu0)
    gpu0.command("lose", "--after-graphs", 0)
    status, events = engine.stream()
    events = list(events)
    assert status == 200
    assert [json.loads(event) for event in events] == [COMPUTE_ERROR]


def test_graph_loss_in_mid_stream(card, start_engine):
    gpu0 = card()
    engine = start_engine(gpu0)
    gpu0.command("lose", "--after-graphs", 12)
    status, events = engine.stream(tokens=64)
    events = list(events)
    assert status == 200
    assert sum(bool(content_of(event)) for event in events) >= 5
    assert json.loads(events[-1]) == COMPUTE_ERROR
    assert "[DONE]" not in events


@pytest.mark.parametrize("message, words", [
    ("cuda", "CUDA error: unspecified launch failure"),
    ("vulkan", "what():  vk::Queue::submit: ErrorDeviceLost"),
])
def test_abort_with_the_drivers_words(card, start_engine, message, words):
    gpu0 = card(release_delay="0ms")
    engine = start_engine(gpu0)
    gpu0.command("lose", "--mode", "abort", "--message", message, "--after-graphs", 8)
    status, events = engine.stream(tokens=64)
    events = list(events)
    assert status == 200
    assert any(content_of(event) for event in events)
    assert "[DONE]" not in events
    assert engine.wait_end() == -signal.SIGABRT
    assert words in engine.log
    assert f"card {gpu0.name} (simulated) is lost" in engine.log
    assert gpu0.show()["used_bytes"] == 0


def test_stalled_graph_is_silent_while_health_is_well(card, start_engine):
    gpu0 = card()
    engine = start_engine(gpu0)
    gpu0.command("stall")
    status, events = engine.stream(tokens=4)
    assert status == 200
    assert engine.request("GET", "/health", timeout=5)[0] == 200
    graphs = gpu0.show()["counters"]["graphs"]
    assert engine.request("GET", "/health", timeout=5)[0] == 200
    assert gpu0.show()["counters"]["graphs"] == graphs
    gpu0.command("stall", "--off")
    events = list(events)
    assert events[-1] == "[DONE]"
    assert any(content_of(event) for event in events if event != "[DONE]")


def test_stalled_engine_can_be_killed(card, start_engine):
    gpu0 = card(release_delay="0ms")
    engine = start_engine(gpu0)
    gpu0.command("stall")
    _, events = engine.stream(tokens=4)
    engine.process.kill()
    assert list(events) == []
    assert engine.wait_end() == -signal.SIGKILL
    assert gpu0.show()["used_bytes"] == 0


def test_spilling_loads_what_does_not_fit(card, start_engine):
    gpu0 = card("100MiB", spill="on", spill_slowdown="2")
    engine = start_engine(gpu0, context=4096)
    shown = gpu0.show()
    assert shown["spilled_bytes"] > 80 * MIB
    assert shown["used_bytes"] <= 100 * MIB
    assert engine.completion("The sea", 4)[0] == 200


def test_two_engines_share_one_card(card, start_engine):
    gpu0 = card("250MiB")
    first = start_engine(gpu0)
    second = start_engine(gpu0, ready=False, context=4096)
    assert not second.wait_ready()
    assert first.completion("The sea", 4)[0] == 200
    first.stop()
    assert start_engine(gpu0, context=4096).completion("The sea", 4)[0] == 200


def test_no_card_no_device(card, start_engine):
    gpu0 = card()
    gpu0.command("destroy")
    engine = start_engine(gpu0, ready=False)
    assert not engine.wait_ready()
    assert f"failsoft-sim: no device: there is no card {gpu0.name}" in engine.log
    assert "invalid device: SIM0" in engine.log


def test_hidden_card_is_the_silent_fall_to_the_cpu(card, start_engine):
    gpu0 = card(hidden="on")
    engine = start_engine(gpu0, device=None)
    assert "is hidden" in engine.log
    assert "SIM0" not in engine.log
    assert engine.completion("The sea", 4)[0] == 200
