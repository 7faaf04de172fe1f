"""Engines as the gateway meets them, played by a FakeUpstream: llama-server and Ollama.

The shapes (order of chunks, fields, error objects) were taken from real servers; what a test wants
to go wrong it scripts over these with FakeUpstream.script().
"""

import json

from fake_upstream import FakeUpstream

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
EMBEDDINGS = "/v1/embeddings"
RESPONSES = "/v1/responses"
MESSAGES = "/v1/messages"
TRANSCRIPTIONS = "/v1/audio/transcriptions"

HEAD = {"head": {"status": 200}}
USAGE = {"completion_tokens": 3, "prompt_tokens": 5, "total_tokens": 8}


def stream(*deltas, finish="stop", usage=True, role=True):
    """A whole chat stream as llama-server sends it."""
    steps = [HEAD]
    if role:
        steps.append({"role": True})
    steps += [{"delta": text} for text in deltas]
    steps.append({"finish": finish})
    if usage:
        steps.append({"usage": USAGE})
    return steps + [{"done": True}]


def loading(old=False):
    if old:
        return [{"reply": {"status": 503, "json": {"status": "loading model"}}}]
    return fault(503, "Loading model", "unavailable_error")


def fault(status, message, kind="server_error", headers=None, **extra):
    error = {"code": status, "message": message, "type": kind, **extra}
    return [{"reply": {"status": status, "json": {"error": error}, "headers": headers}}]


def chat_object(model, text, finish="stop"):
    return {
        "choices": [{
            "finish_reason": finish, "index": 0,
            "message": {"role": "assistant", "content": text},
        }],
        "created": 1700000000,
        "id": "chatcmpl-fake",
        "model": model,
        "object": "chat.completion",
        "system_fingerprint": "b1-fake",
        "usage": USAGE,
    }


class FakeLlama(FakeUpstream):
    """llama-server: answers in its own words, so that a test sees which worker spoke."""

    def __init__(self, says=("Hello", " from", " here"), embedding=(0.1, 0.2, 0.3), **options):
        super().__init__(**options)
        self.says = list(says)
        self.embedding = list(embedding)
        self.route("/health", {"json": {"status": "ok"}})
        self.route("/slots", {"json": [{"id": 0, "is_processing": False, "n_ctx": 4096}]})
        self.route("/props", {"json": {
            "default_generation_settings": {"n_ctx": 4096, "params": {
                "temperature": 0.8, "top_k": 40, "top_p": 0.95, "min_p": 0.05}},
            "total_slots": 4, "model_path": "/models/fake.gguf", "chat_template": "{{ messages }}",
            "build_info": "b1-fake", "modalities": {"vision": False, "audio": False},
        }})
        self.route("/v1/models", {"json": {"object": "list", "data": [
            {"id": self.model, "object": "model", "owned_by": "llamacpp", "meta": {}}]}})
        self.route(CHAT, self._chat)
        self.route(COMPLETIONS, self._completion)
        self.route(EMBEDDINGS, self._embeddings)
        self.route(MESSAGES, self._messages)
        self.route(RESPONSES, self._responses)
        self.route(TRANSCRIPTIONS, {"json": {"text": "".join(self.says)}})

    @property
    def text(self):
        return "".join(self.says)

    def _chat(self, request):
        if request.json().get("stream"):
            return stream(*self.says)
        return [{"reply": {"json": chat_object(self.model, self.text)}}]

    def _completion(self, request):
        def chunk(text, finish=None):
            return {"choices": [{"text": text, "index": 0, "logprobs": None,
                                 "finish_reason": finish}],
                    "created": 1700000000, "model": self.model, "object": "text_completion",
                    "id": "cmpl-fake"}
        if not request.json().get("stream"):
            return [{"reply": {"json": chunk(self.text, "stop") | {"usage": USAGE}}}]
        last = chunk("", "stop") | {"usage": USAGE}
        return [HEAD, *({"sse": chunk(t)} for t in self.says), {"sse": last}, {"done": True}]

    def _embeddings(self, request):
        given = request.json().get("input", "")
        count = len(given) if isinstance(given, list) else 1
        return [{"reply": {"json": {
            "object": "list", "model": self.model,
            "data": [{"object": "embedding", "index": i, "embedding": self.embedding}
                     for i in range(count)],
            "usage": {"prompt_tokens": 4, "total_tokens": 4}}}}]

    def _messages(self, request):
        message = {"id": "msg_fake", "type": "message", "role": "assistant", "model": self.model,
                   "content": [], "stop_reason": None, "stop_sequence": None,
                   "usage": {"input_tokens": 5, "output_tokens": 0}}
        if not request.json().get("stream"):
            whole = message | {"content": [{"type": "text", "text": self.text}],
                               "stop_reason": "end_turn",
                               "usage": {"input_tokens": 5, "output_tokens": 3}}
            return [{"reply": {"json": whole}}]
        events = [("message_start", {"message": message}),
                  ("content_block_start", {"index": 0,
                                           "content_block": {"type": "text", "text": ""}})]
        events += [("content_block_delta", {"index": 0,
                                            "delta": {"type": "text_delta", "text": t}})
                   for t in self.says]
        events += [("content_block_stop", {"index": 0}),
                   ("message_delta", {"delta": {"stop_reason": "end_turn", "stop_sequence": None},
                                      "usage": {"output_tokens": 3}}),
                   ("message_stop", {})]
        return [HEAD, *named_events(events), {"end": True}]

    def _responses(self, request):
        item = {"type": "message", "id": "msg_fake", "role": "assistant", "status": "completed",
                "content": [{"type": "output_text", "text": self.text, "annotations": []}]}
        whole = {"id": "resp_fake", "object": "response", "created_at": 1700000000,
                 "model": self.model, "status": "completed", "output": [item],
                 "usage": {"input_tokens": 5, "output_tokens": 3, "total_tokens": 8}}
        if not request.json().get("stream"):
            return [{"reply": {"json": whole}}]
        events = [("response.created", {"response": whole | {"status": "in_progress",
                                                             "output": []}}),
                  ("response.in_progress", {"response": whole | {"status": "in_progress",
                                                                 "output": []}})]
        events += [("response.output_text.delta", {"item_id": "msg_fake", "output_index": 0,
                                                   "content_index": 0, "delta": t})
                   for t in self.says]
        events += [("response.completed", {"response": whole})]
        return [HEAD, *named_events(events), {"end": True}]


def named_events(events):
    """SSE events with an `event:` line, as the Anthropic and Responses dialects send them."""
    return [{"send": f"event: {name}\ndata: {json.dumps({'type': name} | data)}\n\n"}
            for name, data in events]


class FakeOllama(FakeUpstream):
    """Ollama: NDJSON on /api/chat and /api/generate, and its OpenAI routes."""

    def __init__(self, says=("Hello", " from", " ollama"), **options):
        options.setdefault("server_name", "")
        super().__init__(**options)
        self.says = list(says)
        self.route("/", {"text": "Ollama is running"})
        self.route("/api/version", {"json": {"version": "0.12.3"}})
        self.route("/api/tags", {"json": {"models": [{"name": self.model, "model": self.model}]}})
        self.route("/api/ps", {"json": {"models": []}})
        self.route("/v1/models", {"json": {"object": "list", "data": [
            {"id": self.model, "object": "model", "owned_by": "library"}]}})
        self.route("/api/chat", self._chat)
        self.route("/api/generate", self._generate)
        self.route(CHAT, lambda request: stream(*self.says, role=False)
                   if request.json().get("stream")
                   else [{"reply": {"json": chat_object(self.model, "".join(self.says))}}])

    def line(self, text, done=False, key="message"):
        value = {"role": "assistant", "content": text} if key == "message" else text
        out = {"model": self.model, "created_at": "2026-01-01T00:00:00Z", key: value, "done": done}
        if done:
            out |= {"done_reason": "stop", "prompt_eval_count": 5, "eval_count": 3}
        return out

    def _lines(self, request, key):
        if request.json().get("stream", True):
            return [{"head": {"status": 200, "type": "application/x-ndjson"}},
                    *({"nd": self.line(t, key=key)} for t in self.says),
                    {"nd": self.line("", True, key)}, {"end": True}]
        return [{"reply": {"json": self.line("".join(self.says), True, key)}}]

    def _chat(self, request):
        return self._lines(request, "message")

    def _generate(self, request):
        return self._lines(request, "response")


def vllm_metrics(usage="0.25", blocks="5080", block_size="16", **labels):
    more = "".join(f',{name}="{value}"' for name, value in labels.items())
    return "\n".join([
        "# HELP vllm:num_requests_running Number of requests in model execution batches.",
        "# TYPE vllm:num_requests_running gauge",
        'vllm:num_requests_running{engine="0",model_name="m"} 1.0',
        'vllm:num_requests_waiting{engine="0",model_name="m"} 0.0',
        f'vllm:kv_cache_usage_perc{{engine="0",model_name="m"}} {usage}',
        f'vllm:cache_config_info{{block_size="{block_size}",cache_dtype="auto",engine="0",'
        f'num_cpu_blocks="None",num_gpu_blocks="{blocks}"{more}}} 1.0', ""])


class FakeOpenai(FakeUpstream):
    """A server of the OpenAI API that answers no page but its list of models."""

    def __init__(self, max_model_len=None, **options):
        super().__init__(server_name="uvicorn", **options)
        model = {"id": self.model, "object": "model", "owned_by": "x"}
        if max_model_len is not None:
            model["max_model_len"] = max_model_len
        self.route("/v1/models", {"json": {"object": "list", "data": [model]}})
        self.route(CHAT, lambda request: stream("Hello") if request.json().get("stream")
                   else [{"reply": {"json": chat_object(self.model, "Hello")}}])

    def asked(self, path):
        return self.received(path, method="GET")


class FakeVllm(FakeOpenai):
    def __init__(self, **options):
        super().__init__(max_model_len=32768, **options)
        self.say()

    def say(self, **figures):
        self.route("/metrics", {"text": vllm_metrics(**figures)})
