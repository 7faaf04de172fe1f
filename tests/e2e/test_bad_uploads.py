"""A file that is no sound or no picture: speech and picture servers answer HTTP 500 to it and live on.
Whose fault that is shows only when another worker gets the same request.

The servers are fakes that answer by what is in the file, as the real ones do.
"""

import threading

import pytest

from fake_engines import CHAT, HEAD, fault
from fake_upstream import FakeUpstream
from rig_config import gateway_config, service, tier, two_tiers
from rig_gateway import eventually

SPEECH = "/v1/audio/transcriptions"
OCR = "/ocr"
BAD, GOOD = b"this is no file of that kind", b"GOOD"
BOUNDARY = "xxBOUNDARYxx"


class Server(FakeUpstream):
    """Answers a good file; a bad one as `bad` says; every one so while it is sick."""

    def __init__(self, name, bad=None, **options):
        super().__init__(**options)
        self.name = name
        self.sick = False
        self.bad = bad or {"status": 500, "text": f"Internal Server Error of {name}"}
        self.route("/health", {"json": {"status": "ok"}})
        for path in (SPEECH, OCR):
            self.route(path, self.answer)

    def answer(self, request):
        if self.sick or GOOD not in request.body:
            return [{"reply": self.bad}]
        return [{"reply": {"json": {"text": f"{self.name} read it"}}}]


@pytest.fixture
def first(fakes):
    return fakes(lambda: Server("first"))


@pytest.fixture
def second(fakes):
    return fakes(lambda: Server("second"))


def two(start_gateway, first, second, **extra):
    return start_gateway(gateway_config({
        "speech": service(tier("gpu", first, engine="openai", **extra),
                          tier("cpu", second, engine="openai", **extra), kind="transcription"),
        "ocr": service(tier("gpu", first, engine="generic", **extra),
                       tier("cpu", second, engine="generic", **extra), kind="generic",
                       paths=[OCR])}))


def upload(gateway, name, file):
    if name == "ocr":
        return gateway.call("POST", OCR, file, [("Content-Type", "application/octet-stream")])
    head = (f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="model"\r\n\r\nspeech\r\n'
            f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n'
            f"Content-Type: audio/wav\r\n\r\n").encode()
    return gateway.call("POST", SPEECH, head + file + f"\r\n--{BOUNDARY}--\r\n".encode(),
                        [("Content-Type", f"multipart/form-data; boundary={BOUNDARY}")])


def untouched(gateway, name, tiers=("gpu", "cpu")):
    seen = gateway.tiers(name)
    for each in tiers:
        assert seen[each]["consecutive_failures"] == 0, seen[each]
        assert seen[each]["availability"] == "available", seen[each]


@pytest.mark.parametrize("name", ["speech", "ocr"])
def test_a_bad_file_is_nobodys_fault(start_gateway, first, second, name):
    gateway = two(start_gateway, first, second)
    for _ in range(6):  # more than `failures`
        reply = upload(gateway, name, BAD)
        assert (reply.status, reply.body) == (500, b"Internal Server Error of second")
        untouched(gateway, name)
    # A passing error earns one retry; the same from another worker none.
    assert (len(first.posts()), len(second.posts())) == (12, 6)
    reply = upload(gateway, name, GOOD)
    assert reply.status == 200 and reply.tier == "gpu"


@pytest.mark.parametrize("name", ["speech", "ocr"])
def test_a_sick_worker_is_suspended(start_gateway, first, second, name):
    """Every request is well with the second: a fault of the first each, however often it was tried."""
    gateway = two(start_gateway, first, second, availability={"hold": "30s", "hold_max": "30s"})
    first.sick = True
    for count in (1, 2, 3):
        reply = upload(gateway, name, GOOD)
        assert reply.status == 200 and reply.tier == "cpu"
        assert gateway.tiers(name)["gpu"]["consecutive_failures"] == count
    assert gateway.tiers(name)["gpu"]["availability"] == "suspended"
    assert len(first.posts()) == 6
    untouched(gateway, name, ["cpu"])


def test_it_counts_as_soon_as_the_second_has_output(start_gateway, gpu, cpu):
    """Not only when a long answer has come to its end."""
    gateway = start_gateway(two_tiers(gpu, cpu, stall_timeout="30s"))
    gpu.always(CHAT, fault(500, "something odd"))
    cpu.always(CHAT, [HEAD, {"delta": "a"}, {"gate": "go"}, {"finish": "stop"}, {"done": True}])
    with gateway.start_chat() as client:
        client.read_head()
        assert eventually(lambda: gateway.tiers()["gpu"]["consecutive_failures"] == 1, 3)
        cpu.gate("go").set()
        assert client.read_body().text() == "a"
    assert gateway.tiers()["gpu"]["consecutive_failures"] == 1


def test_a_client_that_leaves_in_doubt(gateway, gpu, cpu):
    gpu.always(CHAT, fault(500, "something odd"))
    cpu.always(CHAT, [HEAD, {"silence": True}])
    with gateway.start_chat():
        cpu.wait_request(CHAT)
        assert gateway.tiers()["gpu"]["consecutive_failures"] == 0
    assert eventually(lambda: gateway.tiers()["gpu"]["consecutive_failures"] == 1, 3)


def test_bad_files_do_not_hide_a_sick_worker(start_gateway, first, second):
    """What was counted before a bad file stays counted after it."""
    gateway = two(start_gateway, first, second, availability={"hold": "30s", "hold_max": "30s"})
    first.sick = True
    for count in (1, 2, 3):
        if count < 3:
            assert upload(gateway, "ocr", BAD).status == 500
        assert upload(gateway, "ocr", GOOD).tier == "cpu"
        assert gateway.tiers("ocr")["gpu"]["consecutive_failures"] == count
    assert gateway.tiers("ocr")["gpu"]["availability"] == "suspended"


def test_a_bad_file_suspends_nobody_where_one_fault_is_enough(start_gateway, first, second):
    gateway = two(start_gateway, first, second,
                  availability={"failures": 1, "hold": "30s", "hold_max": "30s"})
    for _ in range(3):
        assert upload(gateway, "ocr", BAD).body == b"Internal Server Error of second"
        untouched(gateway, "ocr")
    assert upload(gateway, "ocr", GOOD).tier == "gpu"


def test_bad_files_at_the_same_time(start_gateway, first, second):
    gateway = two(start_gateway, first, second, availability={"hold": "30s", "hold_max": "30s"})
    seen = []

    def send():
        for _ in range(4):
            seen.append(upload(gateway, "speech", BAD).status)

    threads = [threading.Thread(target=send) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == 24 and set(seen) == {500}
    untouched(gateway, "speech")
    assert upload(gateway, "speech", GOOD).tier == "gpu"


def test_a_bad_file_as_the_probe_decides_nothing(start_gateway, first, second):
    gateway = two(start_gateway, first, second, availability={"hold": "300ms", "hold_max": "30s"})
    first.sick = True
    while gateway.tiers("ocr")["gpu"]["availability"] == "available":
        assert upload(gateway, "ocr", GOOD).tier == "cpu"
    first.sick = False
    before = len(first.posts())
    assert eventually(lambda: "to be probed" in gateway.tiers("ocr")["gpu"]["reason"], 5)
    reply = upload(gateway, "ocr", BAD)
    assert (reply.status, reply.body) == (500, b"Internal Server Error of second")
    assert len(first.posts()) == before + 1
    assert upload(gateway, "ocr", GOOD).tier == "gpu", "the next request is the probe"
    untouched(gateway, "ocr")


@pytest.mark.parametrize("says, forgiven", [
    ({"status": 400, "text": "no picture"}, True),
    ({"status": 422, "text": "no picture"}, True),
    ({"status": 401, "text": "who are you"}, False),
    ({"status": 404, "text": "no such page"}, False),
], ids=["400", "422", "401", "404"])
def test_another_worker_names_the_cause(start_gateway, fakes, first, says, forgiven):
    gateway = two(start_gateway, first, fakes(lambda: Server("second", says)))
    reply = upload(gateway, "speech", BAD)
    assert (reply.status, reply.body) == (says["status"], says["text"].encode())
    assert gateway.tiers("speech")["gpu"]["consecutive_failures"] == (0 if forgiven else 1)


@pytest.mark.parametrize("says, status, counted", [
    ({"status": 503, "text": "try later"}, 503, 0),
    ({"status": 500, "text": "CUDA error: out of memory"}, 500, 1),
    ({"status": 502, "text": "Bad Gateway"}, 502, 2),
    ({"status": 500, "text": ""}, 500, 2),
], ids=["busy", "memory", "proxy", "empty"])
def test_another_kind_of_fault_agrees_with_nothing(start_gateway, fakes, first, says, status,
                                                   counted):
    gateway = two(start_gateway, first, fakes(lambda: Server("second", says)))
    reply = upload(gateway, "speech", BAD)
    assert reply.status == status and reply.error["type"]
    assert gateway.tiers("speech")["gpu"]["consecutive_failures"] == 1
    assert gateway.tiers("speech")["cpu"]["consecutive_failures"] == counted


def test_the_only_worker_is_asked_once_more_and_counted_once(start_gateway, first):
    gateway = start_gateway(gateway_config({
        "ocr": service(tier("gpu", first, engine="generic"), kind="generic", paths=[OCR])}))
    for count in (1, 2):
        reply = upload(gateway, "ocr", BAD)
        assert reply.status == 500 and reply.error["type"]
        assert gateway.tiers("ocr")["gpu"]["consecutive_failures"] == count
        assert len(first.posts()) == 2 * count
    assert upload(gateway, "ocr", GOOD).status == 200
    untouched(gateway, "ocr", ["gpu"])


def test_two_sick_workers_do_not_hide_a_third(start_gateway, fakes, first, second):
    """Two that agree may be ill of the same: a tier that is left is asked before the client is told."""
    third = fakes(lambda: Server("third"))
    tiers = [tier(name, fake, engine="generic", availability={"hold": "30s", "hold_max": "30s"})
             for name, fake in (("gpu", first), ("hybrid", second), ("cpu", third))]
    gateway = start_gateway(gateway_config({
        "ocr": service(*tiers, kind="generic", paths=[OCR])}))
    assert upload(gateway, "ocr", BAD).body == b"Internal Server Error of third"
    assert [len(s.posts()) for s in (first, second, third)] == [2, 1, 1]
    untouched(gateway, "ocr", ["gpu", "hybrid", "cpu"])
    first.sick = second.sick = True
    for _ in range(3):
        assert upload(gateway, "ocr", GOOD).tier == "cpu"
    states = {n: t["availability"] for n, t in gateway.tiers("ocr").items()}
    assert states == {"gpu": "suspended", "hybrid": "suspended", "cpu": "available"}
