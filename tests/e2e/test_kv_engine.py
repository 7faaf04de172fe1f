"""The KV cache of managed workers, as the real engine reports it and our own arguments explain it;
and prompts that the real engine counts before they are admitted."""

import os
import re
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


def ask(gateway, words):
    message = "Please repeat: " + "the quick brown fox jumps over the lazy dog " * words
    return gateway.call("POST", "/v1/chat/completions", {
        "model": "chat", "messages": [{"role": "user", "content": message}], "max_tokens": 4},
        timeout=40), len(message)


def test_a_prompt_is_counted_by_the_engine_itself(managed):
    """By its bytes it could be twice as long as the slot: the engine's tokenizer knows better."""
    gateway = managed(slots=1)
    wait_known(gateway)
    reply, length = ask(gateway, 30)
    assert length > 2 * 512
    assert reply.status == 200, reply
    assert 300 < reply.json()["usage"]["prompt_tokens"] < 500
    # … and that this one is too long, to the token.
    before = gateway.tiers()["cpu"]["attempts_total"]
    reply, length = ask(gateway, 60)
    assert reply.status == 400, reply
    found = re.search(r"the prompt has (\d+) tokens", reply.json()["error"]["message"])
    assert found and 512 < int(found[1]) < length / 4, reply
    assert gateway.tiers()["cpu"]["attempts_total"] == before, "it reached the engine"
