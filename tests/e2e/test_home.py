"""The home server: an LLM, embeddings, speech recognition and text in pictures on one card, all of them
real, configured by examples/home.yaml. Speech and pictures are programs that are not ggml: on the
simulated card they hold what the example declares for them.
"""

import os
import re
import signal
import threading
from pathlib import Path
from types import SimpleNamespace

import openai
import pytest
import requests

from rig_engine import SimCard
from rig_gateway import Gateway, eventually
from rig_home import Home, find_home_files

pytestmark = [pytest.mark.real_engine, pytest.mark.timeout(180)]

SERVICES = ("chat", "embed", "transcribe", "ocr")
PROGRAMS = {"transcribe": 300 << 20, "ocr": 512 << 20}  # declared in the example
READY_S = 90
ANSWER_S = 100

# Said by a machine to a small model: what it always gets right, and the words that must come out.
SPEECH = [
    ("Please open the window and close the door.", ["open the window", "close the door"]),
    ("Good morning. The train to London leaves at ten o'clock.", ["good morning", "train to london"]),
    ("My favorite color is blue.", ["favorite color is blue"]),
]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    files, missing = find_home_files()
    if missing:
        message = "not provisioned: " + ", ".join(missing)
        if os.environ.get("FAILSOFT_REQUIRE_ENGINE"):
            pytest.fail(message)
        pytest.skip(message)
    return Home(files, tmp_path_factory.mktemp("recordings"))


def serve(home, card, folder, **device):
    gateway = Gateway(home.config(card, reserve="128MiB", back_after="500ms", **device), folder,
                      env=home.env)
    gateway.idle_descriptors = None  # workers come and go
    gateway.allow_log(r"(gpu|cpu|worker|chat|embed|transcribe|ocr|device)")
    return gateway


@pytest.fixture(scope="module")
def card(home):
    card = SimCard()
    yield card
    card.destroy()


@pytest.fixture(scope="module")
def running(home, card, tmp_path_factory):
    gateway = serve(home, card, tmp_path_factory.mktemp("home"))
    yield gateway
    gateway.finish(expect_children=2 * len(SERVICES))


@pytest.fixture
def gateway(running):
    assert eventually(lambda: all(tier["state"] == "ready" and tier["usable"]
                                  for name in SERVICES for tier in running.tiers(name).values()),
                      READY_S, 0.2), [running.tiers(name) for name in SERVICES]
    return running


def transcribe(gateway, recording, **fields):
    with open(recording, "rb") as file:
        return requests.post(f"{gateway.url}/v1/audio/transcriptions", timeout=ANSWER_S,
                             files={"file": file}, data={"model": "transcribe"} | fields)


def read_picture(gateway, picture):
    with open(picture, "rb") as file:
        return requests.post(f"{gateway.url}/ocr", timeout=ANSWER_S, files={"image_file": file})


def chat(gateway):
    return requests.post(f"{gateway.url}/v1/chat/completions", timeout=ANSWER_S,
                         json={"model": "chat", "max_tokens": 8, "temperature": 0,
                               "messages": [{"role": "user", "content": "Say hello."}]})


def embed(gateway):
    return requests.post(f"{gateway.url}/v1/embeddings", timeout=ANSWER_S,
                         json={"model": "embed", "input": "a small house"})


def tier_of(reply):
    assert reply.status_code == 200, (reply.status_code, reply.text)
    return reply.headers["X-Failsoft-Tier"]


def plain(text):
    return re.sub(r"[^a-z0-9 ]", "", text.lower())


def words_in(reply):
    """The text that a picture service read, without spaces: it does not see all of them."""
    return plain("".join(line["rec_txt"] for line in reply.json().values())).replace(" ", "")


def claims(gateway):
    return {claim["owner"]: claim for claim in gateway.status()["devices"][0]["claims"]}


def group_of(group):
    """Processes of a group; its marks would not do, some programs write over their environment."""
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            stat = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(stat[2]) == group and stat[0] not in "ZX":
            found.append(int(entry))
    return found


def test_four_services_share_the_card(gateway):
    assert eventually(lambda: [claim["state"] for claim in claims(gateway).values()] ==
                      ["settled"] * len(SERVICES), READY_S, 0.2), claims(gateway)
    d = gateway.status()["devices"][0]
    held = {claim["owner"]: claim["bytes"] for claim in d["claims"]}
    assert set(held) == {f"{name}/gpu" for name in SERVICES}
    for name, declared in PROGRAMS.items():
        assert held[f"{name}/gpu"] == declared
    # Nobody else is on this card, and what the four hold is all that is gone from it.
    assert sum(held.values()) == d["settled_bytes"] and d["reserve_bytes"] == 128 << 20
    assert d["settled_bytes"] + d["foreign_bytes"] + d["reserve_bytes"] + d["headroom_bytes"] == \
        d["total_bytes"] == 2 << 30


@pytest.mark.parametrize("text, words", SPEECH)
def test_speech_to_text(gateway, home, text, words):
    reply = transcribe(gateway, home.say(text))
    assert tier_of(reply) == "gpu" and "X-Failsoft-Degraded" not in reply.headers
    for some in words:
        assert some in plain(reply.json()["text"]), reply.text


def test_other_containers_and_formats(gateway, home):
    text, words = SPEECH[0]
    reply = transcribe(gateway, home.say(text, "ogg"), response_format="text", language="en")
    assert tier_of(reply) == "gpu" and reply.headers["Content-Type"].startswith("text/plain")
    assert words[0] in plain(reply.text)


def test_the_openai_client(gateway, home):
    text, words = SPEECH[0]
    with openai.OpenAI(base_url=gateway.url + "/v1", api_key="none", max_retries=0,
                       timeout=ANSWER_S) as client, open(home.say(text), "rb") as file:
        raw = client.audio.transcriptions.with_raw_response.create(
            model="transcribe", file=file, response_format="verbose_json")
    answer = raw.parse()
    assert raw.headers["X-Failsoft-Tier"] == "gpu"
    assert words[0] in plain(answer.text) and 2 < float(answer.duration) < 6 and answer.segments


def test_text_in_a_picture(gateway, home):
    reply = read_picture(gateway, home.show("Invoice 2741", "Total 38 EUR"))
    assert tier_of(reply) == "gpu" and "X-Failsoft-Degraded" not in reply.headers
    assert "invoice2741" in words_in(reply) and "total38eur" in words_in(reply)


@pytest.mark.parametrize("name", ["transcribe", "ocr"])
def test_a_file_that_is_none_is_nobodys_fault(gateway, tmp_path, name):
    """Both servers say 500 to it. Their own words reach the client, and both tiers stay available."""
    file = tmp_path / "file"
    file.write_bytes(b"neither a sound nor a picture " * 30)
    for _ in range(4):  # more than `failures`
        reply = transcribe(gateway, file) if name == "transcribe" else read_picture(gateway, file)
        assert reply.status_code == 500
        assert "X-Failsoft-Tier" in reply.headers and "upstream" not in reply.text, reply.text
        for tier in gateway.tiers(name).values():
            assert tier["consecutive_failures"] == 0 and tier["availability"] == "available", tier


def test_all_at_once(gateway, home):
    recording, picture = home.say(SPEECH[2][0]), home.show("Invoice 2741")
    asked = [lambda: chat(gateway), lambda: embed(gateway), lambda: transcribe(gateway, recording),
             lambda: read_picture(gateway, picture)]
    replies = [None] * len(asked)

    def run(at):
        replies[at] = asked[at]()

    threads = [threading.Thread(target=run, args=(at,)) for at in range(len(asked))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [tier_of(reply) for reply in replies] == ["gpu"] * 4
    assert SPEECH[2][1][0] in plain(replies[2].json()["text"]) and "2741" in words_in(replies[3])


def test_the_card_is_lost_and_comes_back(gateway, home, card):
    """The same words, from the CPU, and every answer says so; then the card serves again."""
    recording, picture = home.say(SPEECH[0][0]), home.show("Invoice 2741")
    before = transcribe(gateway, recording).json()
    card.lose()
    try:
        for reply in (transcribe(gateway, recording), read_picture(gateway, picture), chat(gateway),
                      embed(gateway)):
            assert tier_of(reply) == "cpu"
            assert reply.headers["X-Failsoft-Degraded"] == "other-tier"
            assert reply.headers["X-Failsoft-Reason"].startswith("gpu: ")
        assert transcribe(gateway, recording).json() == before
    finally:
        card.reset()
    assert eventually(lambda: all(gateway.tiers(name)["gpu"]["state"] == "ready" for name in SERVICES),
                      READY_S, 0.2), [gateway.tiers(name) for name in SERVICES]
    for ask in (lambda: transcribe(gateway, recording), lambda: read_picture(gateway, picture),
                lambda: chat(gateway), lambda: embed(gateway)):
        assert eventually(lambda ask=ask: tier_of(ask()) == "gpu", READY_S, 0.5)


def test_who_does_not_fit_waits_and_says_who_holds_the_memory(home, tmp_path):
    card = SimCard(capacity="740MiB")  # 128 reserve; 120, 26, 300 and 512 needed
    gateway = serve(home, card, tmp_path)
    try:
        def waiting():
            return [name for name in SERVICES
                    if "waits for memory" in gateway.tiers(name)["gpu"]["reason"]]

        def settled():
            states = [gateway.tiers(name)["gpu"]["state"] for name in SERVICES]
            return waiting() and states.count("ready") + len(waiting()) == len(SERVICES)

        assert eventually(settled, READY_S, 0.2), [gateway.tiers(name) for name in SERVICES]
        held = claims(gateway)
        for name in waiting():
            reason = gateway.tiers(name)["gpu"]["reason"]
            if name in PROGRAMS:
                assert f"needs {PROGRAMS[name] >> 20} MiB on gpu0" in reason
            for owner in held:
                assert re.search(rf"{owner} \d+(\.\d)? MiB", reason), (owner, reason)
        # Whoever waits is answered all the same, and the client is told the same words.
        name = waiting()[-1]
        assert eventually(lambda: gateway.tiers(name)["cpu"]["state"] == "ready", READY_S, 0.2)
        ask = {"chat": chat, "embed": embed,
               "transcribe": lambda g: transcribe(g, home.say(SPEECH[0][0])),
               "ocr": lambda g: read_picture(g, home.show("Invoice 2741"))}[name]
        reply = ask(gateway)
        assert tier_of(reply) == "cpu"
        assert "MiB on gpu0, where" in reply.headers["X-Failsoft-Reason"]
        card.set(capacity="2GiB")
        assert eventually(lambda: all(gateway.tiers(name)["gpu"]["state"] == "ready"
                                      for name in SERVICES), READY_S, 0.2)
        assert card.command("show", card.name, "--json").count('"allocations_failed": 0') == 1
    finally:
        gateway.stop()
        card.destroy()


def test_a_killed_gateway_leaves_no_model_process(home, tmp_path):
    """The speech server keeps its model in a process of its own, which survives its parent."""
    config = home.config(SimpleNamespace(name="unused"))
    del config["devices"]
    config["services"] = {"transcribe": config["services"]["transcribe"]}
    tiers = config["services"]["transcribe"]["tiers"]
    tiers[:] = [tier for tier in tiers if tier["name"] == "cpu"]
    gateway = Gateway(config, tmp_path, env=home.env)
    group = None
    try:
        worker = lambda: gateway.tiers("transcribe")["cpu"]  # noqa: E731
        assert eventually(lambda: worker()["state"] == "ready", READY_S, 0.2), worker()
        assert transcribe(gateway, home.say(SPEECH[0][0])).status_code == 200
        group = worker()["pid"]
        assert len(group_of(group)) > 2, "the program, its model, and the guard"
        gateway.process.kill()
        gateway.process.wait()
        assert eventually(lambda: group_of(group) == [], 10), group_of(group)
    finally:
        for pid in group_of(group) if group else []:
            os.kill(pid, signal.SIGKILL)
        gateway.kill()
