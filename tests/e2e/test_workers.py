"""Managed workers whose engine never works: one clear sentence, no restart storm, and the other
tier serves. Engines here are tiny scripts; the real one is in test_real_engine.py."""

import re
import stat
import struct

import pytest

from rig_config import gateway_config, service, tier
from rig_gateway import eventually



def gguf():
    """The smallest file that passes for a model: one key, one tensor of 32 floats."""
    def text(value):
        return struct.pack("<Q", len(value)) + value

    out = b"GGUF" + struct.pack("<IQQ", 3, 1, 1)
    out += text(b"general.architecture") + struct.pack("<I", 8) + text(b"llama")
    out += text(b"token_embd.weight") + struct.pack("<IQIQ", 1, 32, 0, 0)
    out += bytes(-len(out) % 32)
    return out + bytes(32 * 4)


@pytest.fixture
def managed(start_gateway, cpu, tmp_path):
    """A gateway with a managed cpu tier on a script engine, and an external remote tier."""
    def start(script, model=gguf(), wait=True, **options):
        engine = tmp_path / "llama-server"
        engine.write_text("#!/bin/sh\n" + script)
        engine.chmod(engine.stat().st_mode | stat.S_IXUSR)
        path = tmp_path / "model.gguf"
        if model is not None:
            path.write_bytes(model)
        worker = {"name": "cpu", "model": str(path), "stop_grace": "300ms",
                  "restart": {"backoff": "200ms", "backoff_max": "2s"}, **options}
        config = gateway_config({"chat": service(worker, tier("remote", cpu))},
                                engine=str(engine))
        gateway = start_gateway(config, expect_children=None, wait=wait)
        gateway.idle_descriptors = None
        gateway.allow_log("cpu|worker|chat", r"failsoft\.yaml:")
        return gateway
    return start


def sentence_of(gateway):
    return gateway.tiers()["cpu"]["reason"]


@pytest.mark.parametrize("script, words", [
    ("echo 'cannot frobnicate' >&2; exit 7\n", "exit|7|frobnicate"),
    ("kill -SEGV $$\n", "signal|SEGV|segfault|11"),
], ids=["exits", "crashes"])
def test_engine_that_exits_at_once(managed, cpu, script, words):
    gateway = managed(script)
    assert eventually(lambda: gateway.tiers()["cpu"]["restarts"] >= 1, 5)
    for _ in range(3):
        assert gateway.chat().tier == "remote"
    # Between two pauses it is starting again, and says so.
    assert eventually(lambda: re.search(words, sentence_of(gateway), re.I), 5), gateway.log()
    assert eventually(lambda: gateway.tiers()["cpu"]["state"] in ("backoff", "failed"), 5)
    assert gateway.tiers()["cpu"]["restarts"] <= 6, "a restart storm"


def test_engine_that_never_gets_ready(managed):
    gateway = managed("exec sleep 600\n", load_timeout="1s")
    assert gateway.chat().tier == "remote", "a request waited for an engine that is only starting"
    assert eventually(lambda: gateway.tiers()["cpu"]["restarts"] >= 1
                      or gateway.tiers()["cpu"]["state"] in ("backoff", "failed"), 10)
    assert re.search(r"ready|load", sentence_of(gateway)), sentence_of(gateway)


def test_engine_that_ignores_term(managed):
    gateway = managed("trap '' TERM\nwhile :; do sleep 0.1; done\n")
    assert eventually(gateway.children, 5)
    assert gateway.stop(10) == 0
    gateway.may_exit = True


def test_engine_that_floods_its_log(managed):
    gateway = managed("head -c 3000000 /dev/zero | tr '\\0' x >&2\n"
                      "head -c 100000 /dev/zero >&2\nexec sleep 600\n")
    assert gateway.chat().tier == "remote"
    assert eventually(lambda: any("sleep" in c for c in gateway.children().values()), 10), \
        "the engine hangs on its own output"
    assert max(map(len, gateway.log())) < 8192


@pytest.mark.parametrize("model, words", [
    (None, r"no such file|missing|not found|does not exist"),
    (b"<!DOCTYPE html><html>", r"GGUF"),
    (b"", r"GGUF|empty"),
    (b"\0\0\0\0" * 100, r"GGUF"),
], ids=["missing", "html", "empty", "zeros"])
def test_model_that_is_none(managed, model, words):
    """Told in one sentence, with its place in the configuration: at start, or as a state."""
    gateway = managed("exec sleep 600\n", model=model, wait=False)

    def told():
        return [line for line in gateway.log() if "model" in line and "failsoft.yaml:" in line]

    assert eventually(told, 10), gateway.log()
    assert re.search(words, "\n".join(told()), re.I), told()
    if gateway.process.poll() is None and eventually(lambda: gateway.process.poll(), 1) is None:
        gateway.wait_listening()
        assert gateway.chat().tier == "remote"
        assert gateway.tiers()["cpu"]["restarts"] <= 3


def test_engine_that_is_missing(start_gateway, cpu, tmp_path):
    path = tmp_path / "model.gguf"
    path.write_bytes(gguf())
    config = gateway_config({"chat": service(
        {"name": "cpu", "model": str(path)}, tier("remote", cpu))},
        engine=str(tmp_path / "no-such-engine"))
    gateway = start_gateway(config, wait=False)
    gateway.allow_log(".*")

    def told():
        return [line for line in gateway.log() if "engine" in line and "failsoft.yaml:" in line]

    assert eventually(told, 10), gateway.log()
    if eventually(lambda: gateway.process.poll(), 1) is None:
        gateway.wait_listening()
        assert gateway.chat().tier == "remote"
