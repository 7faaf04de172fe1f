"""Free memory in pieces: one buffer needs one hole, and a driver's limit on single buffers is none for an
engine that cuts its parts to it. Stock llama-server on a simulated card."""

import json
import subprocess

import pytest

from rig_gateway import binary, eventually
from test_admission import (READY_S, ask, card, device, failed_allocations, files,  # noqa: F401
                            gpu, start)

pytestmark = [pytest.mark.real_engine, pytest.mark.timeout(120)]
MIB = 1 << 20


@pytest.fixture
def holes(card):  # noqa: F811
    """Half of the card is free, in holes of 64 MiB."""
    hog = subprocess.Popen([str(binary()), "sim", "hog", card.name, "--fragment", "64MiB"],
                           stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert hog.stdout.readline().startswith("READY ")
    shown = json.loads(card.command("show", card.name, "--json"))
    shown = shown["cards"][0] if "cards" in shown else shown
    assert shown["largest_free_bytes"] == 64 * MIB and shown["free_bytes"] > 400 * MIB
    yield failed_allocations(card)  # the hog's own, when it found no more
    hog.stdin.close()
    hog.wait(timeout=10)
    hog.stdout.close()


def test_a_hole_that_is_too_small_is_no_room(card, holes, start):  # noqa: F811
    gateway = start()
    assert eventually(lambda: gateway.tiers("chat")["cpu"]["state"] == "ready", READY_S, 0.1)
    assert eventually(lambda: "the largest on gpu0 is 64 MiB" in gpu(gateway)["reason"], READY_S,
                      0.1), gpu(gateway)
    assert ask(gateway).tier == "cpu"
    assert gpu(gateway)["pid"] == 0 and failed_allocations(card) == holes


def test_an_engine_that_cuts_its_buffers_needs_no_larger_hole(card, holes, start):  # noqa: F811
    card.set(max_alloc="50MiB")
    gateway = start()
    assert eventually(lambda: gpu(gateway)["state"] == "ready", READY_S, 0.1), gpu(gateway)
    assert ask(gateway).tier == "gpu"
    assert failed_allocations(card) == holes and gpu(gateway)["restarts"] == 0
