"""A client that leaves costs nothing from then on: in the queue, in prefill, in decode (F63)."""

import threading

import pytest

from fake_engines import CHAT, EMBEDDINGS, HEAD, FakeOllama, stream
from rig_config import gateway_config, service, tier, two_tiers
from rig_gateway import eventually

GONE_S = 0.5

PHASES = {
    "prefill-nothing-sent": [{"reach": "there"}, {"silence": True}],
    "prefill-headers-sent": [HEAD, {"reach": "there"}, {"silence": True}],
    "prefill-role-and-progress": [HEAD, {"role": True}, {"progress": [1, 9]}, {"reach": "there"},
                                  {"silence": True}],
    "after-delta-3": [HEAD, {"role": True}, {"delta": "a"}, {"delta": "b"}, {"delta": "c"},
                      {"reach": "there"}, {"silence": True}],
    "while-tokens-flow": [HEAD, {"role": True}, {"reach": "there"},
                          {"repeat": {"times": 1000, "steps": [{"delta": "x"}, {"pause": 0.01}]}}],
}


@pytest.fixture
def gateway(start_gateway, gpu, cpu):
    """Long waits: nothing but the client's leaving ends these requests."""
    return start_gateway(two_tiers(gpu, cpu, first_event_timeout="30s", stall_timeout="30s"))


@pytest.mark.parametrize("leave", ["close", "abort"])
@pytest.mark.parametrize("streamed", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("phase", PHASES)
def test_client_leaves(gateway, gpu, cpu, phase, streamed, leave):
    gpu.always(CHAT, PHASES[phase])
    client = gateway.start_chat(stream=streamed)
    gpu.gate("there").wait()
    if streamed and phase == "after-delta-3":
        client.read_head()
        client.read_until(b'"c"')
    getattr(client, leave)()
    gpu.wait_request(CHAT).wait_closed(GONE_S)
    assert eventually(lambda: gateway.status()["requests"] == [], 2)
    assert cpu.posts() == [] and len(gpu.posts()) == 1, "a request nobody waits for moved on"
    assert gateway.tiers()["gpu"]["consecutive_failures"] == 0, "leaving is no fault of the worker"


@pytest.mark.parametrize("body", [{"model": "embed", "input": "x"}])
def test_client_leaves_embeddings(gateway, gpu, body):
    gpu.always(EMBEDDINGS, [{"silence": True}])
    client = gateway.client()
    client.request("POST", EMBEDDINGS, body)
    request = gpu.wait_request(EMBEDDINGS)
    client.close()
    request.wait_closed(GONE_S)


def test_client_leaves_ollama(start_gateway, fakes):
    fake = fakes(FakeOllama)
    gateway = start_gateway(gateway_config({"chat": service(
        tier("gpu", fake, engine="ollama", first_event_timeout="30s"))}))
    for streamed in (True, False):
        fake.forget()
        fake.always("/api/chat", [{"silence": True}])
        client = gateway.client()
        client.request("POST", "/api/chat", {"model": "chat", "messages": [], "stream": streamed})
        request = fake.wait_request("/api/chat")
        client.close()
        request.wait_closed(GONE_S)


def test_client_leaves_while_connecting(gateway, gpu, cpu):
    gateway.chat()
    gpu.close_connections()
    gpu.pause_accept()
    client = gateway.start_chat()
    assert eventually(lambda: len(gateway.status()["requests"]) == 1, 2)
    client.close()
    assert eventually(lambda: gateway.status()["requests"] == [], 2)
    gpu.resume_accept()
    assert cpu.posts() == []


def test_client_leaves_in_the_middle_of_its_body(gateway, gpu):
    client = gateway.client()
    client.send(b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n{")
    client.close()
    assert gateway.chat().status == 200
    assert len(gpu.posts()) == 1


def one_slot(gpu, cpu, length=4):
    first = tier("gpu", gpu, slots=1, first_event_timeout="30s", stall_timeout="30s",
                 queue={"length": length, "wait": "20s"})
    second = tier("cpu", cpu, slots=1, first_event_timeout="30s", stall_timeout="30s",
                  queue={"length": length, "wait": "20s"})
    return first, second


def test_client_leaves_the_queue(start_gateway, gpu, cpu):
    first, _ = one_slot(gpu, cpu)
    gateway = start_gateway(gateway_config({"chat": service(first)}))
    gpu.script(CHAT, [[HEAD, {"role": True}, {"delta": "a"}, {"gate": "go"}, {"finish": "stop"},
                       {"done": True}]])
    holder = gateway.start_chat()
    holder.read_head()
    waiting = [gateway.start_chat(user=f"u{n}") for n in range(3)]
    assert eventually(lambda: gateway.tiers()["gpu"]["waiting"] == 3, 3)
    waiting[0].close()
    waiting[1].abort()
    assert eventually(lambda: gateway.tiers()["gpu"]["waiting"] == 1, GONE_S)
    gpu.gate("go").set()
    holder.read_body()
    assert waiting[2].read_reply().text() == gpu.text
    assert [r.json().get("user") for r in gpu.posts()] == [None, "u2"], \
        "a request of a client that had left reached the worker"
    for client in (holder, waiting[2]):
        client.close()


def test_slots_are_a_limit_and_come_back(start_gateway, gpu, cpu):
    first, _ = one_slot(gpu, cpu, length=64)
    gateway = start_gateway(gateway_config({"chat": service(first)}))
    most = []
    lock = threading.Lock()
    state = {"now": 0}

    def answer(request):
        with lock:
            state["now"] += 1
            most.append(state["now"])

        async def serve():
            connection = request.connection
            try:
                await connection.run(stream("a", "b"))
            finally:
                with lock:
                    state["now"] -= 1
        return serve()

    gpu.route(CHAT, answer)
    replies = []
    threads = [threading.Thread(target=lambda n=n: replies.append(gateway.chat(stream=n % 2 == 0)))
               for n in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [r.status for r in replies] == [200] * 20
    assert max(most) == 1


def test_full_queue_goes_on_or_is_refused(start_gateway, gpu, cpu):
    first, second = one_slot(gpu, cpu, length=0)
    gateway = start_gateway(gateway_config({"chat": service(first, second)}))
    hold = [HEAD, {"role": True}, {"delta": "a"}, {"gate": "go"}, {"finish": "stop"},
            {"done": True}]
    gpu.script(CHAT, [hold])
    cpu.script(CHAT, [hold])
    one = gateway.start_chat()
    one.read_head()
    two = gateway.start_chat()
    assert two.read_head().tier == "cpu"
    reply = gateway.chat()
    assert reply.status == 503 and int(reply.get("Retry-After")) >= 1
    assert reply.error["retryable"] is True
    gpu.gate("go").set()
    cpu.gate("go").set()
    assert one.read_body().complete and two.read_body().complete
    one.close()
    two.close()


def test_probe_whose_client_leaves_is_given_back(start_gateway, gpu, cpu):
    """F76: a cancelled probe must not leave the worker half open for ever."""
    gateway = start_gateway(two_tiers(gpu, cpu, first_event_timeout="30s"))
    gpu.always(CHAT, [{"rst": True}])
    while gateway.tiers()["gpu"]["availability"] == "available":
        gateway.chat()
    gpu.always(CHAT, [{"silence": True}])
    seen = len(gpu.posts())
    probe = None

    def took():  # the hold has to pass before one request is let through
        nonlocal probe
        probe = gateway.start_chat()
        if eventually(lambda: len(gpu.posts()) > seen, 0.1):
            return True
        probe.close()
        return False

    assert eventually(took, 5)
    assert gateway.tiers()["gpu"]["availability"] == "probing"
    probe.close()
    gpu.wait_request(CHAT, seen + 1).wait_closed(GONE_S)
    gpu.route(CHAT, gpu._chat)
    assert eventually(lambda: gateway.chat().tier == "gpu", 3, 0.05)
    assert gateway.tiers()["gpu"]["availability"] == "available"


def test_stall_of_one_request_does_not_end_another(start_gateway, gpu, cpu):
    """Two streams on one worker: one stops making progress, the other goes on to its end."""
    gateway = start_gateway(two_tiers(gpu, cpu, first_event_timeout="700ms",
                                      stall_timeout="700ms"))
    slow = {"repeat": {"times": 12, "steps": [{"delta": "b"}, {"pause": 0.1}]}}
    gpu.script(CHAT, [[HEAD, {"role": True}, {"delta": "a"}, {"silence": True}],
                      [HEAD, {"role": True}, slow, {"finish": "stop"}, {"done": True}]])
    first = gateway.start_chat()
    first.read_head()
    second = gateway.start_chat()
    assert "error" in first.read_body().data()[-1]
    assert second.read_reply().text() == "b" * 12
    first.close()
    second.close()
