"""A device in another process that nobody here wrote: llama.cpp's own ggml-rpc-server as the card of
the gpu tier. Killed, it takes the worker along; stopped, it makes the worker hang while its `/health`
says 200. Either way the client gets its answer.
"""

import os
import signal
import socket
import subprocess
from pathlib import Path

import pytest

from rig_config import gateway_config
from rig_engine import find_engine_files
from rig_gateway import Gateway, eventually

pytestmark = [pytest.mark.real_engine, pytest.mark.timeout(120)]

ASK = {"model": "chat", "temperature": 0, "seed": 1, "max_tokens": 8,
       "messages": [{"role": "user", "content": "Say hello."}]}


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture
def rpc_server():
    files, missing = find_engine_files()
    if missing:
        if os.environ.get("FAILSOFT_REQUIRE_ENGINE"):
            pytest.fail("not provisioned: " + ", ".join(missing))
        pytest.skip("not provisioned: " + ", ".join(missing))
    program = Path(files["engine"]).parent / "ggml-rpc-server"
    port = free_port()
    with subprocess.Popen([program, "-H", "127.0.0.1", "-p", str(port), "-t", "1"],
                          stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        yield files, process, port
        process.send_signal(signal.SIGCONT)
        process.kill()


@pytest.fixture
def gateway(rpc_server, tmp_path):
    files, _, port = rpc_server
    # No kind of device stands for "remote": any real one lets the engine see all that it can.
    model = {"kind": "chat", "model": files["chat"], "context": 512}
    short = {"restart": {"backoff": "200ms", "backoff_max": "1s"}, "stop_grace": "1s",
             "availability": {"failures": 1, "hold": "500ms", "hold_max": "1s"}}
    gateway = Gateway(gateway_config({"chat": model | {"tiers": [
        {"name": "gpu", "device": "gpu0", "threads": 1, "first_event_timeout": "6s", "stall_timeout": "3s",
         "args": ["--rpc", f"127.0.0.1:{port}", "--device", "RPC0"], **short},
        {"name": "cpu", "threads": 1, "first_event_timeout": "60s", "stall_timeout": "60s", **short},
    ]}}, engine=files["engine"], devices={"gpu0": {"kind": "intel", "exclusive": "on", "memory": "4GiB"}}), tmp_path)
    gateway.idle_descriptors = None
    gateway.allow_log(r"(gpu|cpu|worker|chat)")
    assert eventually(lambda: all(t["state"] == "ready" for t in gateway.tiers().values()), 60, 0.1)
    yield gateway
    gateway.stop()


def answer(gateway):
    reply = gateway.call("POST", "/v1/chat/completions", ASK, timeout=90)
    assert reply.status == 200, repr(reply)
    return reply.tier, reply.json()["choices"][0]["message"]["content"]


def test_killed_device_takes_the_worker_along(gateway, rpc_server):
    tier, expected = answer(gateway)
    assert tier == "gpu"
    rpc_server[1].kill()
    assert answer(gateway) == ("cpu", expected)
    assert eventually(lambda: gateway.tiers()["gpu"]["state"] != "ready", 30, 0.1)


def test_stopped_device_makes_the_worker_hang(gateway, rpc_server):
    tier, expected = answer(gateway)
    assert tier == "gpu"
    rpc_server[1].send_signal(signal.SIGSTOP)
    assert answer(gateway) == ("cpu", expected)
    assert eventually(lambda: gateway.tiers()["gpu"]["state"] != "ready", 30, 0.1)
