"""Starting, reloading and ending: nothing is dropped that was promised, nothing is left behind."""

import json
import os
import re
import signal
import socket
import subprocess
import time

import pytest

from fake_engines import CHAT, HEAD
from rig_config import gateway_config, service, tier, two_tiers
from rig_gateway import binary, eventually
from rig_http import Client, finish_reasons

HELD = [HEAD, {"role": True}, {"delta": "a"}, {"gate": "go"}, {"delta": "b"}, {"finish": "stop"},
        {"done": True}]


def held_stream(gateway, fake):
    fake.script(CHAT, [HELD])
    client = gateway.start_chat()
    client.read_head()
    client.read_until(b'"a"')
    return client


def run_failsoft(*args, timeout=10):
    return subprocess.run([str(binary()), *args], capture_output=True, text=True, timeout=timeout)


# --- reload

def test_good_reload_swaps_without_dropping(start_gateway, fakes, gpu, cpu):
    gateway = start_gateway(two_tiers(gpu, cpu, stall_timeout="20s"))
    running = held_stream(gateway, gpu)
    other = fakes(says=["N1", " N2"], model="fake-new")
    start = gateway.reload(two_tiers(other, cpu, stall_timeout="20s"))
    gateway.wait_log("reload|configuration", start=start)
    assert eventually(lambda: gateway.status()["config"]["generation"] == 2, 5)
    assert gateway.chat().json()["choices"][0]["message"]["content"] == "N1 N2"
    gpu.gate("go").set()
    reply = running.read_body()
    assert reply.text() == "ab" and reply.events()[-1]["data"] == "[DONE]"
    running.close()
    assert not gateway.status()["config"]["error"]


def test_reload_adds_and_removes_services(start_gateway, gpu, cpu):
    gateway = start_gateway(two_tiers(gpu, cpu))
    gateway.reload(gateway_config({"new": service(tier("cpu", cpu))}))
    assert eventually(lambda: gateway.chat(model="new").status == 200, 5)
    assert gateway.chat().status == 404
    assert {m["id"] for m in gateway.call("GET", "/v1/models").json()["data"]} == {"new"}


@pytest.mark.parametrize("bad, expected", [
    ("services: [", "failsoft.yaml:"),
    ("services:\n  chat:\n    tiers:\n      - { name: gpu, ulr: 'http://x' }\n", "ulr"),
    ("listen: 127.0.0.1:0\n", "services"),
    ("", "failsoft.yaml"),
], ids=["not-yaml", "unknown-key", "no-services", "empty"])
def test_bad_reload_changes_nothing(start_gateway, gpu, cpu, bad, expected):
    gateway = start_gateway(two_tiers(gpu, cpu, stall_timeout="20s"))
    gateway.allow_log(r"failsoft\.yaml", "reload", "configuration")
    running = held_stream(gateway, gpu)
    start = gateway.reload(bad)
    gateway.wait_log(expected, start=start)
    assert eventually(lambda: gateway.status()["config"]["error"], 5)
    assert gateway.status()["config"]["generation"] == 1
    assert gateway.chat().status == 200
    gpu.gate("go").set()
    assert running.read_body().text() == "ab"
    running.close()
    gateway.reload(two_tiers(gpu, cpu))
    assert eventually(lambda: gateway.status()["config"]["generation"] == 2, 5)
    assert not gateway.status()["config"]["error"]


def test_reload_with_the_file_gone(start_gateway, gpu, cpu):
    gateway = start_gateway(two_tiers(gpu, cpu))
    gateway.allow_log(r"failsoft\.yaml", "reload", "configuration")
    gateway.config_path.unlink()
    gateway.process.send_signal(signal.SIGHUP)
    assert eventually(lambda: gateway.status()["config"]["error"], 5)
    assert gateway.chat().status == 200


def test_reload_storm_under_load(start_gateway, gpu, cpu):
    gateway = start_gateway(two_tiers(gpu, cpu))
    for number in range(20):
        gateway.reload(two_tiers(gpu, cpu, first_event_timeout=f"{700 + number}ms"))
        assert gateway.chat(stream=True).text() in (gpu.text, cpu.text)
        assert gateway.chat().status == 200
    assert eventually(lambda: gateway.status()["config"]["generation"] > 2, 5)


# --- starting

def test_port_taken(start_gateway, gpu, cpu, tmp_path):
    gateway = start_gateway(two_tiers(gpu, cpu))
    config = two_tiers(gpu, cpu) | {"listen": f"127.0.0.1:{gateway.port}"}
    path = tmp_path / "second.yaml"
    path.write_text(json.dumps(config))
    result = run_failsoft("serve", "--config", str(path))
    assert result.returncode == 3
    sentences = [line for line in result.stderr.splitlines() if str(gateway.port) in line]
    assert sentences and re.search("taken|in use", sentences[-1])
    assert gateway.chat().status == 200


@pytest.mark.parametrize("text, expected", [
    (None, "No such file"),
    ("services: {", "failsoft.yaml:"),
    ("services:\n  chat:\n    kind: chta\n    tiers: [{name: gpu, url: 'http://127.0.0.1:1'}]\n",
     "chat"),
    ("listen: nonsense\nservices:\n  chat:\n    tiers: [{name: gpu, url: 'http://127.0.0.1:1'}]\n",
     "listen"),
])
def test_bad_configuration_at_start(tmp_path, text, expected):
    path = tmp_path / "failsoft.yaml"
    if text is not None:
        path.write_text(text)
    result = run_failsoft("serve", "--config", str(path))
    assert result.returncode in (1, 2, 3)
    assert expected in result.stderr


def test_two_gateways(start_gateway, gpu, cpu):
    one, two = (start_gateway(two_tiers(gpu, cpu)) for _ in range(2))
    assert one.port != two.port
    for gateway in (one, two, one, two):
        assert gateway.chat().status == 200
    assert one.stop() == 0
    one.may_exit = True
    assert two.chat().status == 200


def test_version_and_usage():
    result = run_failsoft("version")
    assert result.returncode == 0 and result.stdout.strip()
    assert run_failsoft("no-such-command").returncode == 2
    assert run_failsoft("serve", "--no-such-option").returncode == 2


def test_status_command(start_gateway, gpu, cpu):
    gateway = start_gateway(two_tiers(gpu, cpu))
    gateway.chat()
    result = run_failsoft("status", "--url", gateway.url, "--json")
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["services"][0]["tiers"]
    result = run_failsoft("status", "--url", gateway.url)
    assert result.returncode == 0 and "gpu" in result.stdout and "cpu" in result.stdout


# --- ending

def test_term_lets_a_stream_end(start_gateway, gpu, cpu):
    config = two_tiers(gpu, cpu, stall_timeout="20s") | {"shutdown_grace": "10s"}
    gateway = start_gateway(config)
    gateway.may_exit = True
    running = held_stream(gateway, gpu)
    idle = gateway.client()
    idle.request("GET", "/healthz")
    idle.read_reply()
    gateway.process.send_signal(signal.SIGTERM)
    assert idle.is_closed(3), "an idle connection was kept at shutdown"

    def refused():
        try:
            Client(gateway.port, timeout=1).close()
        except OSError:
            return True
        return False

    assert eventually(refused, 3), "new clients were taken at shutdown"
    gpu.gate("go").set()
    reply = running.read_body()
    assert reply.text() == "ab" and reply.events()[-1]["data"] == "[DONE]"
    running.close()
    assert gateway.wait_exit(5) == 0


def test_term_with_a_stream_that_does_not_end(start_gateway, gpu, cpu):
    config = two_tiers(gpu, cpu, stall_timeout="60s") | {"shutdown_grace": "300ms"}
    gateway = start_gateway(config)
    gateway.may_exit = True
    running = held_stream(gateway, gpu)
    gateway.process.send_signal(signal.SIGTERM)
    reply = running.read_body(5)
    assert "error" in reply.data()[-1] and finish_reasons(reply.data()) == []
    assert b"[DONE]" not in reply.body
    gpu.posts()[0].wait_closed(2)
    assert gateway.wait_exit(5) == 0
    running.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_ends_at_once_when_idle(start_gateway, gpu, cpu, number):
    gateway = start_gateway(two_tiers(gpu, cpu) | {"shutdown_grace": "30s"})
    gateway.may_exit = True
    gateway.chat()
    clients = [gateway.client() for _ in range(5)]
    gateway.process.send_signal(number)
    assert gateway.wait_exit(5) == 0
    for client in clients:
        client.close()


def test_second_term_ends_it_now(start_gateway, gpu, cpu):
    gateway = start_gateway(two_tiers(gpu, cpu, stall_timeout="60s") | {"shutdown_grace": "60s"})
    gateway.may_exit = True
    running = held_stream(gateway, gpu)
    gateway.process.send_signal(signal.SIGTERM)
    time.sleep(0.1)  # two signals at once may arrive as one
    gateway.process.send_signal(signal.SIGTERM)
    gateway.wait_exit(5)
    running.close()


def test_kill_frees_the_port(start_gateway, gpu, cpu):
    gateway = start_gateway(two_tiers(gpu, cpu))
    gateway.may_exit = True
    port = gateway.port
    held = held_stream(gateway, gpu)
    os.kill(gateway.pid, signal.SIGKILL)
    gateway.process.wait()
    gpu.posts()[0].wait_closed(2)
    held.close()
    gpu.gate("go").set()
    again = start_gateway(two_tiers(gpu, cpu) | {"listen": f"127.0.0.1:{port}"})
    assert again.port == port and again.chat().status == 200


def test_sigpipe_and_stray_signals(gateway, gpu):
    for number in (signal.SIGPIPE, signal.SIGCHLD, signal.SIGWINCH):
        gateway.process.send_signal(number)
    assert gateway.chat().status == 200


# --- numbers

def test_metrics_count_what_happened(gateway, gpu, cpu):
    gateway.chat()
    gpu.always(CHAT, [{"rst": True}])
    gateway.chat(stream=True)
    metrics = gateway.metrics()
    assert all(name.startswith("failsoft_") for name in metrics), list(metrics)[:5]
    assert metrics['failsoft_requests_total{service="chat"}'] == 2
    assert metrics['failsoft_requests_ended_total{service="chat",outcome="done"}'] == 2
    assert metrics['failsoft_failovers_total{service="chat"}'] == 1
    assert metrics['failsoft_attempts_failed_total{service="chat",tier="gpu"}'] >= 1
    assert metrics['failsoft_attempts_total{service="chat",tier="cpu"}'] == 1
    assert metrics['failsoft_config_generation'] == 1
    text = gateway.call("GET", "/metrics")
    assert text.get("Content-Type").startswith("text/plain")


def test_every_request_has_one_outcome(gateway, gpu, cpu):
    gateway.chat()
    gpu.always(CHAT, [HEAD, {"role": True}, {"delta": "a"}, {"fin": True}])
    gateway.chat(stream=True)
    gpu.always(CHAT, [{"silence": True}])
    client = gateway.start_chat()
    gpu.wait_request(CHAT, 3)
    client.close()
    gateway.chat(model="nope")
    assert eventually(lambda: gateway.status()["requests"] == [], 3)
    chat = gateway.service("chat")
    assert (chat["done"], chat["failed"], chat["cancelled"]) == (1, 1, 1)
    assert chat["requests_total"] == 3 and chat["cut_after_commit"] == 1


def test_slow_name_server_does_not_stop_the_loop(start_gateway, cpu):
    """A host name that does not resolve is the tier's trouble only."""
    gateway = start_gateway(gateway_config({"chat": service(
        tier("gpu", "http://no-such-host.invalid:1"), tier("cpu", cpu))}))
    reply = gateway.chat()
    assert reply.status == 200 and reply.tier == "cpu"


def test_listens_on_loopback_only(gateway):
    with socket.socket() as sock:
        sock.settimeout(1)
        own = socket.gethostbyname(socket.gethostname())
        if own.startswith("127."):
            pytest.skip("this machine has no other address")
        assert sock.connect_ex((own, gateway.port)) != 0
