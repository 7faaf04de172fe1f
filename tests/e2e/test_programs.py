"""Tiers that run a program other than llama-server: started, watched, admitted by the memory that they
declare, and ended like an engine. The programs are real processes with a real port; the memory of
the simulated card is held for them by `failsoft sim hold`.
"""

import json
import os
import re
import signal
import subprocess
import sys

import pytest
import yaml

from conftest import HERE
from rig_engine import SimCard
from rig_gateway import Gateway, binary, children_of, eventually, marked_processes

PROGRAM = str(HERE.parent / "fakes/fake_program.py")
MIB = 1 << 20
READY_S = 20


@pytest.fixture
def card():
    card = SimCard(capacity="1GiB")
    yield card
    card.destroy()


def program(*options, **tier):
    """A tier that runs the program; on a port, unless the options say something else."""
    where = () if "--uds" in options or "PROGRAM_PORT" in tier.get("env", {}) else ("--port",
                                                                                     "{port}")
    return {"command": [sys.executable, PROGRAM, *where, *map(str, options)], "host_memory": "64MiB",
            "stop_grace": "1s", "slots": 4,
            "restart": {"backoff": "100ms", "backoff_max": "500ms"},
            "availability": {"hold": "200ms", "hold_max": "400ms"}} | tier


def on_card(*options, memory="200MiB", **tier):
    return {"name": "gpu", "device": "gpu0", "memory": memory,
            **program("--name", "gpu", *options, **tier)}


def on_cpu(*options, **tier):
    return {"name": "cpu", **program("--name", "cpu", *options, **tier)}


def configure(card, **services):
    """Service `ocr` is generic, every other one is for speech."""
    made = {}
    for name, tiers in services.items():
        made[name] = {"kind": "generic", "paths": [f"/{name}", "/die", "/wait"], "tiers": tiers} \
            if name == "ocr" else {"kind": "transcription", "tiers": tiers}
    config = {"listen": "127.0.0.1:0", "shutdown_grace": "3s", "services": made}
    if card:
        config["devices"] = {"gpu0": {"kind": "sim", "card": card.name, "reserve": "128MiB",
                                      "back_after": "300ms"}}
    return config


@pytest.fixture
def start(card, tmp_path):
    started = []

    def start(config, children, **options):
        """`children`: processes that the gateway has when the test ends."""
        gateway = Gateway(config, tmp_path / f"gateway{len(started)}", **options)
        gateway.idle_descriptors = None
        gateway.expect_children = children
        gateway.allow_log(r"(gpu|cpu|worker|ocr|speech|device)")
        started.append(gateway)
        return gateway

    yield start
    for gateway in started:
        gateway.finish(gateway.expect_children)


def until(gateway, service, tier, state, timeout=READY_S):
    worker = lambda: gateway.tiers(service)[tier]  # noqa: E731
    assert eventually(lambda: worker()["state"] == state, timeout, 0.03), worker()
    return worker()


def claims(gateway):
    return {c["owner"]: c for c in gateway.status()["devices"][0]["claims"]}


def until_settled(gateway, owner, size_bytes):
    found = lambda: claims(gateway).get(owner, {})  # noqa: E731
    assert eventually(lambda: found().get("state") == "settled", READY_S, 0.03), claims(gateway)
    assert found()["bytes"] == size_bytes
    return found()


def ask(gateway, path="/ocr/page", body=b"a picture"):
    return gateway.call("POST", path, body, [("Content-Type", "application/octet-stream")])


def transcribe(gateway, model="speech"):
    boundary = "xxBOUNDARYxx"
    body = (f'--{boundary}\r\nContent-Disposition: form-data; name="model"\r\n\r\n{model}\r\n'
            f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n'
            f"Content-Type: audio/wav\r\n\r\nRIFF....\r\n--{boundary}--\r\n").encode()
    return gateway.call("POST", "/v1/audio/transcriptions", body,
                        [("Content-Type", f"multipart/form-data; boundary={boundary}")])


def holders(card):
    """{pid: bytes} as the card itself tells."""
    shown = json.loads(SimCard.command("show", card.name, "--json"))
    return {p["pid"]: p["used_bytes"] for p in shown["processes"] if not p["stale"]}


def test_check_says_who_runs_it(card, tmp_path):
    file = tmp_path / "failsoft.yaml"
    file.write_text(yaml.safe_dump(configure(card, ocr=[on_card(), on_cpu()])))
    done = subprocess.run([str(binary()), "check", "--config", str(file)], capture_output=True,
                          text=True, timeout=20, check=False)
    assert done.returncode == 0, done
    assert "gpu        a program run by failsoft on gpu0" in done.stdout
    file.write_text(file.read_text().replace(sys.executable, "/no/such/program"))
    done = subprocess.run([str(binary()), "check", "--config", str(file)], capture_output=True,
                          text=True, timeout=20, check=False)
    assert done.returncode == 1
    assert done.stderr.count("program `/no/such/program`: No such file or directory") == 2


# --- becoming ready, serving


def test_a_generic_and_a_speech_service_share_a_card(start, card):
    gateway = start(configure(card, ocr=[on_card(), on_cpu()],
                              speech=[on_card(memory="300MiB"), on_cpu()]), children=4)
    for service in ("ocr", "speech"):
        for tier in ("gpu", "cpu"):
            until(gateway, service, tier, "ready")
    reply = ask(gateway)
    assert (reply.status, reply.tier, reply.json()["by"]) == (200, "gpu", "gpu")
    # The program sees its own address, and no GPU of this machine.
    worker = gateway.tiers("ocr")["gpu"]
    assert reply.json()["host"] == worker["address"].removeprefix("http://")
    assert worker["address"].startswith("http://127.0.0.1:") and reply.json()["gpus"] == ""
    assert reply.json()["connection"] == "close"  # an idle one would hold its only thread
    heard = transcribe(gateway)
    assert (heard.status, heard.tier) == (200, "gpu") and heard.json()["text"].startswith("gpu heard")
    # What is declared is held, by the very process that the status names, and the ledger has it.
    for service, size in (("ocr", 200 * MIB), ("speech", 300 * MIB)):
        until_settled(gateway, f"{service}/gpu", size)
        assert holders(card)[gateway.tiers(service)["gpu"]["pid"]] == size
    assert worker["engine"] == "generic" and gateway.tiers("speech")["gpu"]["engine"] == "openai"
    ports = {t["address"] for s in ("ocr", "speech") for t in gateway.tiers(s).values()}
    assert len(ports) == 4


def test_it_is_given_what_it_needs_and_no_more(start, tmp_path):
    record = tmp_path / "record"
    tier = on_cpu("--record", record, env={"GIVEN": "at {port}", "PROGRAM_PORT": "{port}"})
    gateway = start(configure(None, ocr=[tier]), children=1)
    worker = until(gateway, "ocr", "cpu", "ready")
    seen = json.loads(record.read_text())
    assert seen["pid"] == seen["pgid"] == worker["pid"] and seen["parent"] == gateway.pid
    assert seen["env"]["GIVEN"] == "at " + worker["address"].rpartition(":")[2]
    assert seen["env"]["CUDA_VISIBLE_DEVICES"] == seen["env"]["HIP_VISIBLE_DEVICES"] == ""
    assert 1 <= int(seen["env"]["OMP_NUM_THREADS"]) <= os.cpu_count()
    assert seen["oom_score_adj"] >= 500


def test_at_a_unix_socket(start):
    gateway = start(configure(None, ocr=[on_cpu("--uds", "{socket}")]), children=1)
    assert until(gateway, "ocr", "cpu", "ready")["address"].startswith("unix:/")
    assert ask(gateway).json()["by"] == "cpu"


def test_it_is_ready_when_its_health_path_says_so(start, tmp_path):
    load, late = tmp_path / "load", tmp_path / "late"
    gateway = start(configure(None, ocr=[on_cpu("--health", "/v2/ready", "--load", load, "--late",
                                                late, health="/v2/ready")]), children=1)
    worker = lambda: gateway.tiers("ocr")["cpu"]  # noqa: E731
    assert eventually(lambda: "does not listen" in worker()["reason"], READY_S), worker()
    assert worker()["state"] == "loading"
    late.touch()
    assert eventually(lambda: "/v2/ready answered 503 still loading" in worker()["reason"], READY_S)
    assert worker()["state"] == "loading"
    load.touch()
    assert until(gateway, "ocr", "cpu", "ready")["restarts"] == 0


def test_a_health_path_that_is_not_there_is_named(start):
    gateway = start(configure(None, ocr=[on_cpu("--health", "/other", load_timeout="1s")]),
                    children=None)
    assert eventually(lambda: "not ready after" in gateway.tiers("ocr")["cpu"]["reason"]
                      and "/health answered 404: it has no such path"
                      in gateway.tiers("ocr")["cpu"]["reason"], READY_S), gateway.tiers("ocr")


def test_a_flood_of_output_stops_nobody(start):
    gateway = start(configure(None, ocr=[on_cpu("--chatter", 3000)]), children=1)
    until(gateway, "ocr", "cpu", "ready")
    assert ask(gateway).status == 200


# --- dying, and coming back


def test_a_killed_program_is_started_again_at_another_port(start, card):
    gateway = start(configure(card, ocr=[on_card(), on_cpu()]), children=2)
    before = until(gateway, "ocr", "gpu", "ready")
    until(gateway, "ocr", "cpu", "ready")
    # The program itself, not the process that holds its memory.
    inner, = children_of(before["pid"])
    os.kill(inner, signal.SIGKILL)
    assert eventually(lambda: gateway.tiers("ocr")["gpu"]["restarts"] == 1, READY_S, 0.03)
    after = until(gateway, "ocr", "gpu", "ready")
    assert after["pid"] != before["pid"] and after["address"] != before["address"]
    until_settled(gateway, "ocr/gpu", 200 * MIB)
    assert eventually(lambda: list(holders(card)) == [after["pid"]], READY_S)
    assert ask(gateway).tier == "gpu"


def test_a_port_that_somebody_takes_first_costs_one_start(start, tmp_path):
    squatter = tmp_path / "squatter"
    gateway = start(configure(None, ocr=[on_cpu("--squat", squatter)]), children=1)
    try:
        worker = until(gateway, "ocr", "cpu", "ready")
        assert worker["restarts"] == 1 and ask(gateway).json()["by"] == "cpu"
        assert any("Address already in use" in line for line in gateway.log())
    finally:
        os.kill(int(squatter.read_text()), signal.SIGKILL)


def test_the_end_of_a_program_is_explained_by_its_last_words(start):
    gateway = start(configure(None, ocr=[on_cpu("--crash", "no licence for this model")]),
                    children=0)
    assert eventually(lambda: gateway.tiers("ocr")["cpu"]["state"] == "failed", READY_S, 0.03)
    reason = gateway.tiers("ocr")["cpu"]["reason"]
    assert "exited with status 3" in reason and "it said: no licence for this model" in reason
    reply = ask(gateway)
    assert reply.status == 503 and "no licence for this model" in reply.body.decode()


def test_a_program_that_dies_under_a_request(start, card):
    """The next tier does not get a request that the program has seen: it may have had an effect."""
    gateway = start(configure(card, ocr=[on_card(), on_cpu()]), children=2)
    until(gateway, "ocr", "gpu", "ready")
    until(gateway, "ocr", "cpu", "ready")
    gateway.call("POST", "/die", b"")
    assert eventually(lambda: gateway.tiers("ocr")["gpu"]["restarts"] >= 1, READY_S, 0.03)
    until(gateway, "ocr", "gpu", "ready")
    until(gateway, "ocr", "cpu", "ready")
    assert ask(gateway).status == 200


# --- memory of the card decides


def test_one_that_does_not_fit_waits_and_the_cpu_serves(start, card):
    card.set(capacity="300MiB")
    gateway = start(configure(card, ocr=[on_card(), on_cpu()]), children=2)
    until(gateway, "ocr", "cpu", "ready")
    worker = lambda: gateway.tiers("ocr")["gpu"]  # noqa: E731
    assert eventually(lambda: "waits for memory: needs 200 MiB on gpu0" in worker()["reason"],
                      READY_S, 0.03), worker()
    assert worker()["pid"] == 0 and worker()["state"] == "starting" and holders(card) == {}
    assert ask(gateway).tier == "cpu"
    card.set(capacity="1GiB")
    until(gateway, "ocr", "gpu", "ready")
    assert ask(gateway).tier == "gpu"


def test_loads_on_one_card_come_one_after_the_other(start, card, tmp_path):
    load = tmp_path / "load"
    gateway = start(configure(card, ocr=[on_card("--load", load), on_cpu()],
                              speech=[on_card("--load", load), on_cpu()]), children=4)
    workers = lambda: [gateway.tiers(s)["gpu"] for s in ("ocr", "speech")]  # noqa: E731
    assert eventually(lambda: sorted(w["state"] for w in workers()) == ["loading", "starting"],
                      READY_S, 0.03), workers()
    assert eventually(lambda: any(re.search("waits until (ocr|speech)/gpu is loaded on gpu0",
                                            w["reason"]) for w in workers()), READY_S), workers()
    assert eventually(lambda: len(holders(card)) == 1, READY_S)
    load.touch()
    for service in ("ocr", "speech"):
        until(gateway, service, "gpu", "ready")
        until(gateway, service, "cpu", "ready")


def test_the_second_that_does_not_fit_names_the_first(start, card):
    gateway = start(configure(card, ocr=[on_card(memory="500MiB"), on_cpu()],
                              speech=[on_card(memory="500MiB"), on_cpu()]), children=3)
    names = ("ocr", "speech")
    state = lambda: {n: gateway.tiers(n)["gpu"]["state"] for n in names}  # noqa: E731
    assert eventually(lambda: sorted(state().values()) == ["ready", "starting"], READY_S, 0.03)
    first, second = sorted(names, key=lambda n: state()[n])
    for name in names:
        until(gateway, name, "cpu", "ready")
    lack = rf"waits for memory: needs 500 MiB on gpu0.*{first}/gpu 500 MiB"
    assert eventually(lambda: re.search(lack, gateway.tiers(second)["gpu"]["reason"]), READY_S), \
        gateway.tiers(second)
    assert (ask(gateway) if second == "ocr" else transcribe(gateway)).tier == "cpu"


@pytest.mark.timeout(120)  # foreign memory is let down slowly
def test_others_who_take_the_memory_make_it_yield_and_it_comes_back(start, card):
    gateway = start(configure(card, ocr=[on_card(), on_cpu()]), children=2)
    before = until(gateway, "ocr", "gpu", "ready")
    until(gateway, "ocr", "cpu", "ready")
    until_settled(gateway, "ocr/gpu", 200 * MIB)
    with subprocess.Popen([str(binary()), "sim", "hog", card.name, "--share", "97%"],
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE) as hog:
        assert hog.stdout.readline().startswith(b"READY ")
        assert eventually(lambda: before["pid"] not in holders(card), READY_S, 0.03)
        assert eventually(lambda: ask(gateway).tier == "cpu", READY_S)
        hog.stdin.close()
    until(gateway, "ocr", "gpu", "ready", 40)
    assert eventually(lambda: ask(gateway).tier == "gpu", READY_S)


def test_a_lost_card_ends_the_program_and_the_cpu_serves_until_it_is_back(start, card):
    gateway = start(configure(card, ocr=[on_card(), on_cpu()]), children=2)
    before = until(gateway, "ocr", "gpu", "ready")
    until(gateway, "ocr", "cpu", "ready")
    inner, = children_of(before["pid"])
    card.lose()
    assert eventually(lambda: gateway.tiers("ocr")["gpu"]["state"] != "ready", READY_S, 0.03)
    assert eventually(lambda: not os.path.exists(f"/proc/{inner}"), READY_S)
    for _ in range(3):
        reply = ask(gateway)
        assert (reply.status, reply.tier) == (200, "cpu")
    card.reset()
    until(gateway, "ocr", "gpu", "ready", 40)
    assert eventually(lambda: ask(gateway).tier == "gpu", READY_S, 0.1)


def test_a_device_that_is_given_back_by_hand(start, card):
    gateway = start(configure(card, ocr=[on_card(), on_cpu()], speech=[on_card(), on_cpu()]),
                    children=4)
    for service in ("ocr", "speech"):
        until(gateway, service, "gpu", "ready")
        until(gateway, service, "cpu", "ready")
        until_settled(gateway, f"{service}/gpu", 200 * MIB)
    assert gateway.call("POST", "/failsoft/v1/devices/gpu0/yield?for_ms=3600000").status == 200
    assert eventually(lambda: holders(card) == {}, READY_S, 0.03), holders(card)
    assert ask(gateway).tier == "cpu" and transcribe(gateway).tier == "cpu"
    assert "asked to give gpu0 back" in str(gateway.tiers("ocr")["gpu"])
    assert gateway.call("POST", "/failsoft/v1/devices/gpu0/yield?for_ms=0").status == 200
    for service in ("ocr", "speech"):
        until(gateway, service, "gpu", "ready")
    assert eventually(lambda: len(holders(card)) == 2, READY_S)


# --- ends


def test_one_that_ignores_term_is_killed_with_all_that_it_started(start, card, tmp_path):
    child = tmp_path / "child"
    gateway = start(configure(card, ocr=[on_card("--ignore-term", "--child", child,
                                                 stop_grace="300ms"), on_cpu()]), children=2)
    until(gateway, "ocr", "gpu", "ready")
    until(gateway, "ocr", "cpu", "ready")
    assert int(child.read_text()) in marked_processes(gateway.mark)
    gateway.may_exit = True
    assert gateway.stop() == 0
    assert eventually(lambda: marked_processes(gateway.mark) == [], 5), "left behind"


def test_a_killed_gateway_leaves_no_program_behind(start, card):
    gateway = start(configure(card, ocr=[on_card(), on_cpu()]), children=2)
    inner, = children_of(until(gateway, "ocr", "gpu", "ready")["pid"])
    until(gateway, "ocr", "cpu", "ready")
    assert inner in marked_processes(gateway.mark)
    gateway.process.kill()
    gateway.process.wait()
    gateway.may_exit = True
    assert eventually(lambda: marked_processes(gateway.mark) == [], 5), "left behind"
    assert eventually(lambda: holders(card) == {}, READY_S)


@pytest.mark.parametrize("where", [on_card, on_cpu], ids=["held", "direct"])
def test_a_killed_gateway_leaves_no_child_of_a_program_behind(start, card, tmp_path, where):
    """Nor one that takes no TERM; and nothing of what ends them is left either."""
    child, stubborn = tmp_path / "child", tmp_path / "stubborn"
    tier = where("--child", child, "--stubborn", stubborn, "--ignore-term")
    gateway = start(configure(card, ocr=[tier]), children=1)
    worker = until(gateway, "ocr", tier["name"], "ready")
    family = [worker["pid"], int(child.read_text()), int(stubborn.read_text())]
    assert set(family) <= set(marked_processes(gateway.mark))
    gateway.process.kill()
    gateway.process.wait()
    gateway.may_exit = True
    assert eventually(lambda: marked_processes(gateway.mark) == [], 10), "left behind"


def test_a_reload_keeps_what_is_the_same_and_replaces_what_is_not(start, card):
    tiers = [on_card(), on_cpu()]
    gateway = start(configure(card, ocr=tiers), children=2)
    gpu = until(gateway, "ocr", "gpu", "ready")
    cpu = until(gateway, "ocr", "cpu", "ready")
    changed = [on_card(), on_cpu(env={"NEW": "1"})]
    gateway.reload(configure(card, ocr=changed) | {"log": {"level": "debug"}})
    assert eventually(lambda: gateway.tiers("ocr")["cpu"]["pid"] not in (0, cpu["pid"]), READY_S)
    until(gateway, "ocr", "cpu", "ready")
    assert gateway.tiers("ocr")["gpu"]["pid"] == gpu["pid"]
    assert gateway.tiers("ocr")["gpu"]["address"] == gpu["address"]
    gateway.reload(configure(card, ocr=[on_card(memory="250MiB"), changed[1]]))
    assert eventually(lambda: gateway.tiers("ocr")["gpu"]["pid"] not in (0, gpu["pid"]), READY_S)
    until(gateway, "ocr", "gpu", "ready")
    until_settled(gateway, "ocr/gpu", 250 * MIB)
    assert eventually(lambda: len(gateway.children()) == 2, READY_S), gateway.children()
