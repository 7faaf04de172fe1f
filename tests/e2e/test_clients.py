"""The libraries that people use, against fakes: what they raise and what they see."""

import anthropic
import openai
import pytest

from fake_engines import CHAT, HEAD, fault

ASK = {"model": "chat", "messages": [{"role": "user", "content": "hi"}]}


@pytest.fixture
def client(gateway):
    with openai.OpenAI(base_url=gateway.url + "/v1", api_key="none", max_retries=0,
                       timeout=10) as client:
        yield client


@pytest.fixture
def claude(gateway):
    with anthropic.Anthropic(base_url=gateway.url, api_key="none", max_retries=0,
                             timeout=10) as client:
        yield client


def test_chat(client, gpu):
    assert client.chat.completions.create(**ASK).choices[0].message.content == gpu.text
    chunks = list(client.chat.completions.create(**ASK, stream=True,
                                                 stream_options={"include_usage": True}))
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == gpu.text
    assert chunks[-1].usage.total_tokens == 8
    assert {m.id for m in client.models.list()} == {"chat", "embed"}
    assert client.models.retrieve("chat").id == "chat"


def test_other_routes(client, gpu):
    assert client.completions.create(model="chat", prompt="x").choices[0].text == gpu.text
    text = "".join(c.choices[0].text for c in
                   client.completions.create(model="chat", prompt="x", stream=True))
    assert text == gpu.text
    vector = client.embeddings.create(model="embed", input="x", encoding_format="float")
    assert vector.data[0].embedding == gpu.embedding
    answer = client.responses.create(model="chat", input="x")
    assert answer.output_text == gpu.text
    deltas = [e.delta for e in client.responses.create(model="chat", input="x", stream=True)
              if e.type == "response.output_text.delta"]
    assert "".join(deltas) == gpu.text


def test_cut_stream_raises(client, gpu):
    gpu.always(CHAT, [HEAD, {"role": True}, {"delta": "a"}, {"rst": True}])
    seen = ""
    with pytest.raises(openai.APIError) as caught:
        for chunk in client.chat.completions.create(**ASK, stream=True):
            seen += chunk.choices[0].delta.content or ""
            assert chunk.choices[0].finish_reason is None
    assert seen == "a" and caught.value.body["code"]


@pytest.mark.parametrize("status, kind", [
    (400, openai.BadRequestError), (401, openai.AuthenticationError),
    (422, openai.UnprocessableEntityError),
])
def test_errors_of_the_request(client, gpu, status, kind):
    gpu.always(CHAT, fault(status, "no", "invalid_request_error"))
    for streamed in (True, False):
        with pytest.raises(kind):
            client.chat.completions.create(**ASK, stream=streamed)


def test_no_capacity(client, gpu, cpu):
    gpu.stop()
    cpu.stop()
    with pytest.raises(openai.InternalServerError) as caught:
        client.chat.completions.create(**ASK)
    assert caught.value.status_code in (502, 503)


def test_unknown_model(client, claude):
    with pytest.raises(openai.NotFoundError):
        client.chat.completions.create(**ASK | {"model": "nope"})
    with pytest.raises(anthropic.NotFoundError):
        claude.messages.create(**ASK | {"model": "nope"}, max_tokens=9)


def test_messages(claude, gpu):
    answer = claude.messages.create(**ASK, max_tokens=9)
    assert answer.content[0].text == gpu.text and answer.stop_reason == "end_turn"
    with claude.messages.stream(**ASK, max_tokens=9) as stream:
        assert "".join(stream.text_stream) == gpu.text


def test_messages_cut(claude, gpu):
    gpu.always("/v1/messages", [HEAD, {"send": (
        'event: message_start\ndata: {"type":"message_start","message":{"id":"m","type":"message",'
        '"role":"assistant","model":"x","content":[],"stop_reason":null,"stop_sequence":null,'
        '"usage":{"input_tokens":1,"output_tokens":0}}}\n\n'
        'event: content_block_start\ndata: {"type":"content_block_start","index":0,'
        '"content_block":{"type":"text","text":""}}\n\n'
        'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,'
        '"delta":{"type":"text_delta","text":"a"}}\n\n')}, {"rst": True}])
    seen = ""
    with pytest.raises(anthropic.APIError):
        with claude.messages.stream(**ASK, max_tokens=9) as stream:
            for text in stream.text_stream:
                seen += text
    assert seen == "a"
