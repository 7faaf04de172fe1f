"""Many clients, workers that break at random (seeded), reloads in between: every client gets its own
answer, whole and from one worker, or one that says that it was cut; and nothing is left over."""

import json
import random
import signal
import threading
import time

import pytest

from fake_engines import CHAT, HEAD, fault, stream
from rig_config import two_tiers
from rig_http import Cut, finish_reasons

CLIENTS = 12
REQUESTS_EACH = 25
SEED = 20260101


def run_threads(work, count):
    problems = []

    def guarded(number):
        try:
            work(number)
        except BaseException as problem:  # told by the main thread
            problems.append(f"client {number}: {problem!r}")

    threads = [threading.Thread(target=guarded, args=(n,)) for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems, "\n".join(problems[:5])


def echo(name, request, rng):
    """An answer that names the worker and the request, broken in a way that the dice choose."""
    user = request.json()["messages"][0]["content"]
    whole = stream(f"[{name}:{user}]", *"abcdefgh")
    kind = rng.randrange(12)
    if kind == 0:
        return [{"rst": True}]
    if kind == 1:
        return [HEAD, {"role": True}, {"fin": True}]
    if kind == 2:
        return fault(500, "CUDA error: out of memory")
    if kind == 3:
        return whole[:rng.randrange(3, 8)] + [{rng.choice(["fin", "rst"]): True}]
    if kind == 4:
        return whole[:4] + [{"error": {"message": "Compute error.", "code": 500}}, {"end": True}]
    if kind == 5:
        return [HEAD, {"split": {"every": rng.randrange(1, 90), "steps": whole[1:]}}]
    return whole


@pytest.fixture
def storm(start_gateway, gpu, cpu):
    rng = random.Random(SEED)
    lock = threading.Lock()

    def answer(fake, name, breaks):
        def choose(request):
            with lock:
                if breaks:
                    return echo(name, request, rng)
                return stream(f"[{name}:{request.json()['messages'][0]['content']}]", *"abcdefgh")
        fake.route(CHAT, choose)

    answer(gpu, "gpu", True)
    answer(cpu, "cpu", False)
    return start_gateway(two_tiers(gpu, cpu, first_event_timeout="5s", stall_timeout="5s",
                                   availability={"failures": 1000}))


def check(reply, user, streamed):
    """One voice: every part of the answer comes from the worker that the header names."""
    own = f"[{reply.tier}:{user}]"
    if not streamed:
        assert reply.status == 200, repr(reply)
        assert reply.json()["choices"][0]["message"]["content"] == own + "abcdefgh"
        return "whole"
    chunks = reply.data()
    text = reply.text()
    assert text.startswith(own) and (own + "abcdefgh").startswith(text), text
    if "error" in chunks[-1]:
        assert reply.tier == "gpu" and finish_reasons(chunks) == []
        assert b"[DONE]" not in reply.body
        return "cut"
    assert text == own + "abcdefgh" and finish_reasons(chunks) == ["stop"]
    return "whole"


def test_every_client_gets_its_own_answer(storm):
    seen = []

    def client(number):
        rng = random.Random(SEED + number)
        for request in range(REQUESTS_EACH):
            user, streamed = f"{number}-{request}", rng.random() < 0.6
            reply = storm.chat(stream=streamed, messages=[{"role": "user", "content": user}])
            seen.append((check(reply, user, streamed), reply.tier))

    run_threads(client, CLIENTS)
    assert len(seen) == CLIENTS * REQUESTS_EACH
    assert {("whole", "gpu"), ("whole", "cpu"), ("cut", "gpu")} <= set(seen), "the dice were kind"


def test_kept_connections_and_clients_that_leave(storm):
    """Answers on kept connections never get mixed with those of clients that left."""
    def client(number):
        rng = random.Random(SEED * 2 + number)
        connection = storm.client()
        for request in range(REQUESTS_EACH):
            user = f"{number}-{request}"
            body = {"model": "chat", "stream": True,
                    "messages": [{"role": "user", "content": user}]}
            connection.request("POST", CHAT, body)
            if rng.random() < 0.3:
                connection.read_head()
                if rng.random() < 0.5:
                    connection.read_piece()
                rng.choice([connection.close, connection.abort])()
                connection = storm.client()
                continue
            check(connection.read_reply(), user, True)
        connection.close()

    run_threads(client, CLIENTS)


def test_reloads_and_a_worker_that_comes_and_goes(storm, gpu, cpu):
    """No client sees that the configuration was swapped or the worker restarted."""
    ended = threading.Event()

    def disturb():
        number = 0
        while not ended.is_set():
            number += 1
            storm.write_config(two_tiers(gpu, cpu, first_event_timeout=f"{5000 + number}ms",
                                         stall_timeout="5s", availability={"failures": 1000}))
            storm.process.send_signal(signal.SIGHUP)
            time.sleep(0.02)
            gpu.stop()
            time.sleep(0.02)
            gpu.start()
            time.sleep(0.02)

    disturber = threading.Thread(target=disturb)
    disturber.start()
    cuts = []

    def client(number):
        for request in range(REQUESTS_EACH):
            user = f"{number}-{request}"
            reply = storm.chat(stream=request % 2 == 0,
                               messages=[{"role": "user", "content": user}])
            cuts.append(check(reply, user, request % 2 == 0))

    try:
        run_threads(client, CLIENTS)
    finally:
        ended.set()
        disturber.join()
    assert len(cuts) == CLIENTS * REQUESTS_EACH


def test_random_bytes_are_refused_in_peace(storm, gpu):
    """Mutations of a good request: answered with an error, or closed, and never a crash."""
    good = (b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n")
    body = json.dumps({"model": "chat", "messages": [{"role": "user", "content": "x"}]}).encode()
    good += b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)

    def client(number):
        rng = random.Random(SEED * 3 + number)
        for _ in range(120):
            data = bytearray(good)
            for _ in range(rng.randrange(1, 6)):
                at = rng.randrange(len(data))
                what = rng.randrange(3)
                if what == 0:
                    data[at] = rng.randrange(256)
                elif what == 1:
                    del data[at:at + rng.randrange(1, 9)]
                else:
                    data[at:at] = rng.choice([b"\r\n", b"\n", b"\0", b":", b" ", b"\r", b"A" * 50])
            with storm.client(timeout=3) as connection:
                connection.send_or_refused(bytes(data))
                connection.sock.shutdown(1)
                try:
                    reply = connection.read_reply(3)
                    assert reply.status in (200, 400, 404, 405, 408, 411, 413, 414, 415, 417, 426,
                                            431, 500, 501, 502, 503, 505), repr(reply)
                except (Cut, ConnectionResetError, OSError):
                    pass

    run_threads(client, 8)
    assert storm.chat().status == 200
