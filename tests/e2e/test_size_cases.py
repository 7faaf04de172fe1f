"""Sizes in requests that cannot be meant are the client's own error, in words and numbers, and no worker
hears of them: the rows of tests/cases/absurd_sizes.yaml (F33)."""

import re

import pytest

from conftest import load_cases
from fake_engines import FakeLlama, FakeOllama
from rig_config import gateway_config, service, tier

ROUTES = {"ollama": ("/api/chat", FakeOllama, "ollama"),
          "openai": ("/v1/chat/completions", FakeLlama, "llama-server")}


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """One gateway for all rows: nothing of a refused request stays."""
    from rig_gateway import Gateway
    workers = {name: kind(says=["yes"]) for name, (_, kind, _) in ROUTES.items()}
    gateway = Gateway(gateway_config({
        name: service(tier("gpu", workers[name], engine=engine))
        for name, (_, _, engine) in ROUTES.items()}), tmp_path_factory.mktemp("sizes"))
    yield gateway, workers
    for worker in workers.values():
        worker.close_connections()
    gateway.finish()
    for worker in workers.values():
        worker.stop()


@pytest.mark.parametrize("row", load_cases("absurd_sizes"))
def test_a_size(both, row):
    gateway, workers = both
    name = "ollama" if "ollama" in row else "openai"
    before = len(workers[name].posts())
    body = (f'{{"model":"{name}","stream":false,"messages":[{{"role":"user","content":"hi"}}],'
            + row[name].lstrip("{"))
    reply = gateway.call("POST", ROUTES[name][0], body.encode(),
                         [("Content-Type", "application/json")], timeout=10)
    asked = workers[name].posts()[before:]
    if "says" in row:
        assert reply.status == 400, reply
        assert re.search(row["says"], reply.body.decode()), reply
        assert not asked
    else:
        assert reply.status == 200 and len(asked) == 1, reply
        assert re.search(row.get("sent", ""), asked[0].body.decode())
