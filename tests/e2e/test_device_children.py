"""Memory of a device that a program's own children hold: a program may load its model in a process that it
forked. The card is the stub NVML, so that it says what the test wants of whom."""

import os

import pytest

from rig_config import gateway_config
from rig_device import GiB, NvidiaCard, build_stub
from rig_gateway import Gateway, eventually
from test_programs import on_card, until, until_settled

READY_S = 20


@pytest.fixture
def nvidia(tmp_path, tmp_path_factory):
    return NvidiaCard(tmp_path, build_stub(tmp_path_factory.getbasetemp(), "new"))


@pytest.fixture
def start(nvidia, tmp_path):
    started = []

    def start(*options, **tier):
        service = {"kind": "generic", "paths": ["/ocr"], "tiers": [on_card(*options, **tier)]}
        config = gateway_config({"ocr": service}, state_dir=str(tmp_path / "state"), devices={
            "gpu0": {"kind": "nvidia", "reserve": "512MiB", "back_after": "300ms"}})
        gateway = Gateway(config, tmp_path / "gateway", env=nvidia.env())
        gateway.idle_descriptors = None
        gateway.allow_log(r"(gpu|cpu|worker|ocr|device)")
        started.append(gateway)
        return gateway

    yield start
    for gateway in started:
        gateway.finish(1)


def device(gateway):
    return gateway.status()["devices"][0]


def test_what_its_children_hold_is_its_own(start, nvidia, tmp_path):
    child = tmp_path / "child"
    gateway = start("--child", child, memory="6GiB")
    leader = until(gateway, "ocr", "gpu", "ready")["pid"]
    own = {leader: 1 * GiB, int(child.read_text()): 3 * GiB}
    nvidia.set(used=4 * GiB, free=20 * GiB, compute=own)
    until_settled(gateway, "ocr/gpu", 4 * GiB)
    assert device(gateway)["foreign_bytes"] == 0
    # A stranger's process is not its own, whatever it holds.
    nvidia.set(used=6 * GiB, free=18 * GiB, compute=own | {os.getpid(): 2 * GiB})
    assert eventually(lambda: device(gateway)["foreign_bytes"] == 2 * GiB, READY_S, 0.03), \
        device(gateway)
    assert device(gateway)["settled_bytes"] == 4 * GiB


def test_the_program_itself_may_hold_nothing(start, nvidia, tmp_path):
    child = tmp_path / "child"
    gateway = start("--child", child, memory="6GiB")
    until(gateway, "ocr", "gpu", "ready")
    nvidia.set(used=3 * GiB, free=21 * GiB, compute={int(child.read_text()): 3 * GiB})
    until_settled(gateway, "ocr/gpu", 3 * GiB)
    assert device(gateway)["foreign_bytes"] == 0
