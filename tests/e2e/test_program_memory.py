"""What a program that is not llama-server counts for. A program may load its model in a process that it
forked: here the card is the stub NVML, which says what the test wants of whom. And on a simulated card it
takes no memory of the machine for what the card holds for it."""

import json
import os
import subprocess

import pytest
import yaml

from rig_config import gateway_config
from rig_device import GiB, MiB, NvidiaCard, build_stub
from rig_gateway import Gateway, binary, eventually
from test_programs import card, configure, on_card, until, until_settled  # noqa: F401

READY_S = 20


@pytest.fixture
def nvidia(tmp_path, tmp_path_factory):
    return NvidiaCard(tmp_path, build_stub(tmp_path_factory.getbasetemp(), "new"))


@pytest.fixture
def start(nvidia, tmp_path):
    started = []

    def start(config, **options):
        gateway = Gateway(config, tmp_path / "gateway", **options)
        gateway.idle_descriptors = None
        gateway.allow_log(r"(gpu|cpu|worker|ocr|device)")
        started.append(gateway)
        return gateway

    yield start
    for gateway in started:
        gateway.finish(1)


def with_child(child, folder):
    tier = on_card("--child", child, memory="6GiB")
    return gateway_config(
        {"ocr": {"kind": "generic", "paths": ["/ocr"], "tiers": [tier]}},
        state_dir=str(folder / "state"),
        devices={"gpu0": {"kind": "nvidia", "reserve": "512MiB", "back_after": "300ms"}})


def device(gateway):
    return gateway.status()["devices"][0]


def test_what_its_children_hold_is_its_own(start, nvidia, tmp_path):
    child = tmp_path / "child"
    gateway = start(with_child(child, tmp_path), env=nvidia.env())
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
    gateway = start(with_child(child, tmp_path), env=nvidia.env())
    until(gateway, "ocr", "gpu", "ready")
    nvidia.set(used=3 * GiB, free=21 * GiB, compute={int(child.read_text()): 3 * GiB})
    until_settled(gateway, "ocr/gpu", 3 * GiB)
    assert device(gateway)["foreign_bytes"] == 0


def test_what_the_simulated_card_holds_for_it_is_not_of_the_machine(card, start, tmp_path):  # noqa: F811
    config = configure(card, ocr=[on_card(memory="500MiB", host_memory="200MiB")])
    file = tmp_path / "failsoft.yaml"
    file.write_text(yaml.safe_dump(config))
    done = subprocess.run([str(binary()), "plan", "--config", str(file), "--json"],
                          capture_output=True, text=True, timeout=20, check=False)
    plan, = json.loads(done.stdout)["plans"]
    assert (plan["need_device_bytes"], plan["need_host_bytes"]) == (500 * MiB, 200 * MiB)
    gateway = start(config)
    until(gateway, "ocr", "gpu", "ready")
    claim, = gateway.status()["host"]["claims"]
    assert claim["predicted_bytes"] == 200 * MiB
