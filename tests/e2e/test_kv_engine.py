"""The KV cache of managed workers, as the real engine reports it and our own arguments explain it."""

import os
import signal

import pytest

from rig_config import gateway_config
from rig_gateway import eventually

pytestmark = [pytest.mark.real_engine, pytest.mark.timeout(90)]


def config_of(files, *args, slots=2, context=512):
    cpu = {"name": "cpu", "threads": 1, "slots": slots, "args": list(args), "stop_grace": "2s",
           "restart": {"backoff": "300ms"}}
    return gateway_config({
        "chat": {"kind": "chat", "model": files["chat"], "context": context, "tiers": [cpu]},
    }, engine=files["engine"])


@pytest.fixture
def managed(start_gateway, engine_files):
    def start(*args, **options):
        gateway = start_gateway(config_of(engine_files, *args, **options), expect_children=None)
        gateway.idle_descriptors = None
        gateway.allow_log("cpu|worker|chat")
        return gateway
    return start


def wait_known(gateway):
    assert eventually(lambda: gateway.tiers()["cpu"]["kv"], 30, every=0.1), gateway.tiers()
    return gateway.tiers()["cpu"]["kv"]


def test_a_cache_that_is_divided(managed):
    gateway = managed()
    known = wait_known(gateway)
    assert (known["kind"], known["tokens"], known["slots"]) == ("slots", 1024, 2)
    assert (known["used_tokens"], known["free_tokens"]) == (0, 512)
    # It lives as long as the process: not known while there is none, and known again afterwards.
    pid = gateway.tiers()["cpu"]["pid"]
    os.kill(pid, signal.SIGKILL)
    assert eventually(lambda: gateway.tiers()["cpu"]["kv"] is None, 10)
    assert eventually(lambda: gateway.tiers()["cpu"]["pid"] not in (0, pid), 20)
    assert wait_known(gateway)["tokens"] == 1024


def test_a_cache_that_is_shared(managed):
    known = wait_known(managed("--kv-unified"))
    assert (known["kind"], known["tokens"], known["slots"]) == ("unified", 1024, 2)
    assert known["free_tokens"] == 1024
