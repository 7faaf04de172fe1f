"""What an Ollama client may decide for a device that it does not own: how long a model stays in
memory (F46 open-webui/open-webui#11003) and how large a context is reserved for it (F33
ollama/ollama#8964). Read off what the upstream was sent.
"""

import json

import pytest

from fake_engines import FakeOllama
from rig_config import gateway_config, service, tier

CHAT = {"model": "chat", "stream": False, "messages": [{"role": "user", "content": "hi"}]}
GENERATE = {"model": "chat", "stream": False, "prompt": "hi"}
ABSENT = object()


BATCH_S = 5  # of a batch that wants its model gone at once, the gateway tells the end itself


def asked_posts(ollama):
    """Without what the gateway sends of its own accord, which has no text."""
    return [post for post in ollama.posts() if {"prompt", "messages"} & set(post.json())]


@pytest.fixture
def start(start_gateway, fakes):
    """start(service options, tier options): one Ollama behind the gateway; returns ask."""

    def make(service_options=None, **tier_options):
        ollama = fakes(FakeOllama)
        gateway = start_gateway(gateway_config({"chat": service(
            tier("gpu", ollama, engine="ollama", **tier_options), **(service_options or {}))}))

        def ask(path, raw, expect=200):
            """What reached the upstream of this body, raw and read."""
            before = len(asked_posts(ollama))
            reply = gateway.call("POST", path, raw.encode(),
                                 fields=[("Content-Type", "application/json")])
            assert reply.status == expect, repr(reply)
            ask.told = (reply.get("X-Failsoft-Degraded"), reply.get("X-Failsoft-Reason"))
            sent = asked_posts(ollama)[before:]
            if expect != 200:
                assert sent == [], "a worker was asked"
                return None, reply
            assert len(sent) == 1
            return sent[0].body.decode(), sent[0].json()

        return ask

    return make


def with_member(body, name, raw):
    """The body with one more member, written as given; ABSENT: as it is."""
    text = json.dumps(body)
    return text if raw is ABSENT else f'{text[:-1]},"{name}":{raw}}}'


# What a client writes → what is sent, by the largest that the tier allows. None: as written.
ASKED = {
    "1h": {ABSENT: None, "null": None, "0": None, '"0"': None, '"5m"': None, "300": None,
           '"1h"': None, "3600": None, '"60m"': None, '"3600001ms"': 3600, "3601": 3600,
           '"24h"': 3600, "-1": 3600, '"-1"': 3600, '"-1m"': 3600, "1000000000": 3600,
           '"1000000h"': 3600, "1e9": 3600, "3.6e3": None, '"soon"': "bad", "true": "bad"},
    "10m": {ABSENT: None, '"5m"': None, "600": None, "601": 600, '"24h"': 600, "-1": 600},
    "0s": {ABSENT: None, "0": None, '"5m"': 0, "-1": 0, "1": 0},
}


@pytest.mark.parametrize("most", ASKED)
@pytest.mark.parametrize("path,body", [("/api/chat", CHAT), ("/api/generate", GENERATE)],
                         ids=["chat", "generate"])
def test_keep_alive(start, most, path, body):
    ask = start(keep_alive_max=most)
    for asked, sent in ASKED[most].items():
        raw = with_member(body, "keep_alive", asked)
        if sent == "bad":
            _, reply = ask(path, raw, expect=400)
            assert "keep_alive" in reply.json()["error"] and asked in reply.json()["error"]
            continue
        text, read = ask(path, raw)
        wanted = json.loads(raw)
        if asked in ("0", '"0"') and read["keep_alive"] == BATCH_S:
            sent = BATCH_S
        if sent is None:
            assert text == raw, "changed without need"
        else:
            assert read.pop("keep_alive") == sent, asked
            wanted.pop("keep_alive")
            assert read == wanted
            assert text.count("keep_alive") == 1


def test_keep_alive_is_an_hour_when_nothing_is_configured(start):
    ask = start()
    assert ask("/api/chat", with_member(CHAT, "keep_alive", "-1"))[1]["keep_alive"] == 3600
    assert ask("/api/chat", with_member(CHAT, "keep_alive", '"45m"'))[1]["keep_alive"] == "45m"
    assert "keep_alive" not in ask("/api/chat", json.dumps(CHAT))[1]


def test_keep_alive_of_another_dialect_is_its_own(start):
    ask = start(keep_alive_max="1m")
    raw = with_member(CHAT, "keep_alive", "-1")
    assert ask("/v1/chat/completions", raw)[1]["keep_alive"] == -1


CONTEXTS = [
    # service, tier, asked → sent
    ({"context": 8192}, {}, 8192, 8192),
    ({"context": 8192}, {}, 8193, 8192),
    ({"context": 8192}, {}, 2147483648, 8192),
    ({"context": 8192}, {}, 0, 0),
    ({"context": 8192}, {"request_tokens": 2048}, 2049, 2048),
    ({"context": 8192}, {"request_tokens": 2048}, 2048, 2048),
    ({"context": 2048}, {"request_tokens": 8192}, 8192, 8192),
    ({}, {}, 131072, 131072),  # nothing is said: what a home device could have room for
    ({}, {}, 131073, 131072),
]


@pytest.mark.parametrize("services,tiers,asked,sent", CONTEXTS)
def test_context(start, services, tiers, asked, sent):
    ask = start(services, **tiers)
    raw = with_member(CHAT, "options", '{"seed":1, "num_ctx" : %d, "num_predict":7}' % asked)
    text, read = ask("/api/chat", raw)
    assert read == json.loads(raw) | {"options": {"seed": 1, "num_ctx": sent, "num_predict": 7}}
    assert text == raw.replace(f": {asked},", f": {sent},")
    kind, reason = ask.told
    if asked == sent:
        assert kind is None
    else:
        assert kind == "short-context" and str(asked) in reason and f"{sent} is its limit" in reason


def test_no_context_is_set_that_was_not_asked_for(start):
    ask = start({"context": 2048})
    for raw in (json.dumps(CHAT), with_member(CHAT, "options", '{"seed":1}'),
                with_member(CHAT, "options", '{"num_ctx":null}'), with_member(CHAT, "options", "null")):
        assert ask("/api/chat", raw)[0] == raw


def test_both_at_once(start):
    ask = start({"context": 2048}, keep_alive_max="2m", model="other")
    raw = with_member(CHAT, "options", '{"n\\u0075m_ctx":9999},"keep_alive":"24h"')
    text, read = ask("/api/chat", raw)
    assert read == CHAT | {"model": "other", "options": {"num_ctx": 2048}, "keep_alive": 120}
