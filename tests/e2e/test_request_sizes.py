"""Sizes that are none end at the gateway with words; those that are one reach the worker as written.

F33 ollama/ollama#8964.
"""

import pytest

from conftest import load_cases


@pytest.mark.parametrize("case", load_cases("request_sizes"))
def test_size(gateway, gpu, cpu, case):
    body = ('{"model":"chat","stream":false,"prompt":"hi",'
            '"messages":[{"role":"user","content":"hi"}],%s}' % case["body"]).encode()
    reply = gateway.call("POST", case["path"], body,
                         fields=[("Content-Type", "application/json")])
    assert reply.status == case["status"], repr(reply)
    if case["status"] == 200:
        assert len(gpu.posts()) == 1
        assert case["body"].encode() in gpu.posts()[0].body
        return
    text = reply.json()["error"]
    message = text if isinstance(text, str) else text["message"]
    for words in case["says"]:
        assert str(words) in message
    assert gpu.posts() == [] and cpu.posts() == [], "a worker was asked"
