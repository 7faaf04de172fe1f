"""Sizes among Ollama's options: what cannot be meant is the client's own error and no worker hears of it,
what can is bounded by the service's context: the rows of tests/cases/absurd_sizes.yaml (F33)."""

import re

import pytest

from conftest import load_cases
from fake_engines import FakeOllama
from rig_config import gateway_config, service, tier
from rig_gateway import Gateway


@pytest.fixture(scope="module")
def ollama(tmp_path_factory):
    """One gateway for all rows: nothing of a refused request stays."""
    worker = FakeOllama(says=["yes"])
    gateway = Gateway(gateway_config({"chat": service(tier("gpu", worker, engine="ollama"),
                                                       context=4096)}),
                      tmp_path_factory.mktemp("sizes"))
    yield gateway, worker
    worker.close_connections()
    gateway.finish()
    worker.stop()


@pytest.mark.parametrize("row", load_cases("absurd_sizes"))
def test_a_size(ollama, row):
    gateway, worker = ollama
    before = len(worker.posts())
    body = ('{"model":"chat","stream":false,"messages":[{"role":"user","content":"hi"}],'
            f'"options":{row["options"]}}}')
    reply = gateway.call("POST", "/api/chat", body.encode(), [("Content-Type", "application/json")],
                         timeout=10)
    asked = worker.posts()[before:]
    if "says" in row:
        assert reply.status == 400, reply
        assert re.search(row["says"], reply.body.decode()), reply
        assert not asked
    else:
        assert reply.status == 200 and len(asked) == 1, reply
        assert re.search(row.get("sent", ""), asked[0].body.decode()), asked[0].body
