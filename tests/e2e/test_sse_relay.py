"""Section J of the field cases: events go through byte for byte, one by one, however they come."""

import json

import pytest

from conftest import load_cases
from fake_engines import CHAT, HEAD, stream
from rig_config import two_tiers
from rig_gateway import eventually, is_sanitized
from rig_http import Cut

FIRST = 'data: {"choices":[{"index":0,"delta":{"content":"<"}}]}⏎⏎'
LAST = ('data: {"choices":[{"index":0,"delta":{"content":">"}}]}⏎⏎'
        'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}⏎⏎')
DONE = "data: [DONE]⏎⏎"
ENDINGS = {"lf": "\n", "crlf": "\r\n", "cr": "\r"}
MIB = 1024 * 1024


def events_any_ending(body):
    """Data of the events of a stream whose lines end in LF, CRLF or CR."""
    text = body.decode().removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    out = []
    for block in text.split("\n\n"):
        lines = [line.removeprefix("data:").removeprefix(" ")
                 for line in block.split("\n") if line.startswith("data")]
        if lines:
            out.append("\n".join(lines))
    return out


def content(events):
    return "".join((c.get("delta") or {}).get("content") or "" for e in events if e != "[DONE]"
                   for c in json.loads(e).get("choices") or [])


def lines(text, end):
    """The text with its line endings, which the cases write as ⏎."""
    return text.replace("⏎", end)


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("case", load_cases("sse_blocks"))
def test_block_between_events(gateway, gpu, case, ending):
    end = ENDINGS[ending]
    first, block = lines(FIRST, end).encode(), lines(case["block"], end).encode()
    last = lines(LAST + DONE, end).encode()
    data = first + block + last
    kept = {"keep": data, "drop": first + last}.get(case["expect"])
    # Cut everywhere around the block; the events before and after are cut by the other cases.
    for cut in [None, *range(len(first) - 2, len(first) + len(block) + 3)]:
        steps = [{"send": data}] if cut is None else \
            [{"split": {"at": [cut], "steps": [{"send": data}]}}]
        gpu.script(CHAT, [[HEAD, *steps, {"end": True}]])
        reply = gateway.chat(stream=True, **case.get("body", {}))
        where = f"cut at {cut}: {reply.body!r}"
        assert reply.status == 200 and reply.complete and reply.tier == "gpu", where
        events = events_any_ending(reply.body)
        for event in events:
            assert event == "[DONE]" or json.loads(event), where
        if kept is None:
            assert "error" in events[-1] or events[-1] == "[DONE]", where
            continue
        if end == "\r\n" or case["expect"] == "keep":
            assert reply.body == kept, where
        else:
            assert events == events_any_ending(kept), where
        assert content(events) == "<" + case.get("text", "") + ">", where


@pytest.mark.parametrize("ending", ENDINGS)
def test_f84_whole_stream_cut_at_every_offset(gateway, gpu, ending):
    data = lines(FIRST + LAST + DONE, ENDINGS[ending]).encode()
    for cut in range(1, len(data)):
        gpu.script(CHAT, [[HEAD, {"split": {"at": [cut], "steps": [{"send": data}]}},
                           {"end": True}]])
        reply = gateway.chat(stream=True)
        assert reply.body == data, f"cut at {cut}"


def test_f84_mixed_endings(gateway, gpu):
    data = ('data: {"choices":[{"index":0,"delta":{"content":"a"}}]}\r\n\n'
            'data: {"choices":[{"index":0,"delta":{"content":"b"}}]}\n\r\n'
            'data: {"choices":[{"index":0,"delta":{"content":"c"}}]}\r\r\n'
            'data: {"choices":[{"index":0,"delta":{"content":"d"}}]}\n\r'
            'data: [DONE]\r\n\r\n').encode()
    for cut in range(1, len(data)):
        gpu.script(CHAT, [[HEAD, {"split": {"at": [cut], "steps": [{"send": data}]}},
                           {"end": True}]])
        events = events_any_ending(gateway.chat(stream=True).body)
        assert content(events) == "abcd" and len(events) == 5, f"cut at {cut}"


def test_f84_a_cr_at_the_end_of_a_read_delays_nothing_and_doubles_nothing(gateway, gpu):
    gpu.script(CHAT, [[
        HEAD, {"send": 'data: {"choices":[{"index":0,"delta":{"content":"a"}}]}\r\n\r'},
        {"gate": "lf"}, {"send": '\ndata: {"choices":[{"index":0,"delta":{"content":"b"}}]}\r\n\r\n'
                                 "data: [DONE]\r\n\r\n"}, {"end": True}]])
    with gateway.start_chat() as client:
        client.read_head()
        client.read_until(b'"a"', 2)  # the LF has not been sent yet
        gpu.gate("lf").set()
        body = client.read_body().body
    assert content(events_any_ending(body)) == "ab"
    assert body.count(b'"a"') == 1


def test_f84_byte_order_mark_at_the_start(gateway, gpu):
    data = b"\xef\xbb\xbf" + lines(FIRST + LAST + DONE, "\n").encode()
    for cut in (1, 2, 3, 4, 10):
        gpu.script(CHAT, [[HEAD, {"split": {"at": [cut], "steps": [{"send": data}]}},
                           {"end": True}]])
        body = gateway.chat(stream=True).body
        assert body.removeprefix(b"\xef\xbb\xbf") == data[3:], f"cut at {cut}"


@pytest.fixture
def patient(start_gateway, gpu, cpu):
    """A gateway that waits for streams that come byte by byte."""
    return start_gateway(two_tiers(gpu, cpu, first_event_timeout="30s", stall_timeout="30s"))


@pytest.mark.parametrize("level", ["body", "socket"])
def test_f81_whole_stream_in_one_byte_writes(patient, gpu, level):
    text = ["é", "ß阿", "🌍👨‍👩‍👧", "x"]
    gpu.script(CHAT, [[HEAD, {"split": {"every": 1, "level": level, "steps": stream(*text)[1:]}}]])
    reply = patient.chat(stream=True, stream_options={"include_usage": True})
    assert reply.text() == "".join(text)
    assert reply.body == bytes(gpu.posts()[0].sent)


def test_f81_not_streamed_in_one_byte_writes(patient, gpu):
    text = ["é", "ß阿", "🌍👨‍👩‍👧", "x"]
    gpu.script(CHAT, [[HEAD, {"split": {"every": 1, "steps": stream(*text)[1:]}}]])
    reply = patient.chat()
    assert reply.json()["choices"][0]["message"]["content"] == "".join(text)
    assert reply.json()["usage"]["total_tokens"] == 8


@pytest.mark.parametrize("asked", [False, True])
def test_f87_usage_chunk_when_asked_or_not(gateway, gpu, asked):
    gpu.script(CHAT, [stream("a", "b")])
    body = {"stream_options": {"include_usage": True}} if asked else {}
    reply = gateway.chat(stream=True, **body)
    assert reply.text() == "ab" and reply.events()[-1]["data"] == "[DONE]"
    usage = [c for c in reply.data() if c.get("usage")]
    if asked:
        assert len(usage) == 1 and usage[0]["choices"] == []


def test_f90_long_lines_pass_whole(gateway, gpu):
    for size in (129 * 1024, MIB + 100 * 1024):
        gpu.script(CHAT, [[HEAD, {"role": True}, {"delta": "a"}, {"delta": "x" * size},
                           {"delta": "z"}, {"finish": "stop"}, {"done": True}]])
        reply = gateway.chat(stream=True)
        assert reply.text() == "a" + "x" * size + "z"
        assert reply.events()[-1]["data"] == "[DONE]"


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize("first", [False, True])
def test_f90_a_64_mib_line_costs_bounded_memory(start_gateway, gpu, cpu, first, streamed):
    if is_sanitized():
        pytest.skip("a sanitizer's idea of memory is another")
    config = two_tiers(gpu, cpu, limits={"event": "1MiB", "response": "4MiB"},
                       first_event_timeout="20s", stall_timeout="20s")
    gateway = start_gateway(config)
    start = '{"choices":[{"index":0,"delta":{"content":"'
    gpu.script(CHAT, [[HEAD, *([] if first else [{"delta": "a"}]),
                       {"send": "data: " + start}, {"fill": {"byte": "x", "bytes": 64 * MIB}},
                       {"send": '"}}]}\n\n'}, {"finish": "stop"}, {"done": True}]])
    before = gateway.memory_bytes()
    reply = gateway.chat(stream=streamed, timeout=30)
    assert gateway.memory_bytes("VmHWM") - before < 24 * MIB
    if not streamed:
        # Too large to be put together: the next tier, or an error that says so.
        assert (reply.status == 200 and reply.tier == "cpu") or \
            (reply.status >= 500 and reply.error["message"])
    elif reply.tier == "cpu":
        assert first and reply.text() == cpu.text
    elif b"[DONE]" in reply.body:
        assert len(reply.body) > 64 * MIB  # passed raw, whole
    else:
        assert json.loads(events_any_ending(reply.body)[-1])["error"]["message"]
    assert gateway.chat().status == 200


@pytest.mark.parametrize("streamed", [True, False])
def test_f90_endless_stream_of_comments_is_no_progress(gateway, gpu, streamed):
    gpu.always(CHAT, [HEAD, {"role": True},
                      {"repeat": {"times": 3000, "steps": [{"send": ": ping\n\n"},
                                                          {"pause": 0.01}]}},
                      {"silence": True}])
    reply = gateway.chat(stream=streamed)
    assert reply.status == 200 and reply.tier == "cpu"


def test_f109_each_event_is_flushed_before_the_next_exists(gateway, gpu):
    count = 20
    steps = [HEAD, {"role": True}]
    for number in range(count):
        steps += [{"gate": f"e{number}"}, {"delta": f"<{number}>"}]
    gpu.script(CHAT, [[*steps, {"finish": "stop"}, {"done": True}]])
    with gateway.start_chat() as client:
        for number in range(count):
            gpu.gate(f"e{number}").set()
            if number == 0:
                reply = client.read_head()
            client.read_until(f"<{number}>".encode(), 2)
        reply = client.read_body()
    assert reply.get("X-Accel-Buffering") == "no"
    assert "no-cache" in reply.get("Cache-Control")
    assert reply.get("Content-Type").startswith("text/event-stream")
    assert len(reply.data()) == count + 2


def test_events_that_come_together_leave_together(gateway, gpu):
    gpu.script(CHAT, [[HEAD, {"send": lines(FIRST * 50 + LAST + DONE, "\n")}, {"end": True}]])
    with gateway.start_chat() as client:
        client.read_head()
        assert eventually(lambda: gpu.posts() and gpu.posts()[0]._answered.is_set())
        pieces = 0
        while client.read_piece():
            pieces += 1
    assert pieces < 10, "50 events that arrived in one read were written one by one"


def test_upstream_without_chunking(gateway, gpu):
    """A worker that ends its stream by closing: allowed, when the stream itself was ended."""
    body = lines(FIRST + LAST + DONE, "\n")
    gpu.script(CHAT, [[{"head": {"status": 200, "framing": "close"}}, {"send": body},
                       {"fin": True}]])
    assert gateway.chat(stream=True).body == body.encode()


def test_invalid_utf8_after_output(gateway, gpu):
    """Either passed as bytes or a typed error; never hung, never joined with another answer."""
    gpu.script(CHAT, [[HEAD, {"delta": "a"},
                       {"hex": b'data: {"choices":[{"index":0,"delta":{"content":"\xff\xfe"}}]}\n\n'
                        .hex()}, {"delta": "b"}, {"finish": "stop"}, {"done": True}]])
    try:
        reply = gateway.chat(stream=True)
    except Cut:
        pytest.fail("cut without an error event")
    assert reply.complete
    if b"[DONE]" not in reply.body:
        assert json.loads(events_any_ending(reply.body)[-1])["error"]["message"]
