"""The bound that admission works with against the real tokenizer: no prompt has more tokens than
api_demand_prompt_tokens_upper says (tests/programs/prompt_bound.c prints it for a body).

Texts that tokenizers are bad at, once bare (a bound without any allowance for a template) and once
in chats, with tools and several messages.
"""

import base64
import json
import os
import random
import subprocess
from pathlib import Path

import pytest

from rig_engine import ROOT, binary
from rig_sim import Engine

pytestmark = [pytest.mark.real_engine, pytest.mark.timeout(120)]

TEMPLATE = ROOT / "tests/cases/chatml_tools.jinja"
# What the template adds to one message at most: its words around tools, and around a tool's answer.
TEMPLATE_BYTES = 220
EDGE_TOKENS = 8
CHAT = "/v1/chat/completions"

SOME = random.Random(5)
CODE = ('static int f(int x)\n{\n    if (x > 0) {\n        return f(x - 1) + 1;\n    }\n'
        '\treturn 0;\n}\n')
TEXTS = {
    "english": "The lighthouse keeper wrote about the weather and the ships that passed. " * 8,
    "one-letter": "a",
    "empty": "",
    "capitals": "THE QUICK BROWN FOX JUMPS OVER THE LAZY DOG " * 5,
    "mixed-case": "tHe qUiCk bRoWn FoX " * 10,
    "no-spaces": "thequickbrownfoxjumpsoverthelazydog" * 10,
    "long-word": "Donaudampfschifffahrtselektrizitätenhauptbetriebswerkbauunterbeamter" * 3,
    "code": CODE * 4,
    "deep-code": "".join("    " * i + f"for i{i} in x:\n" for i in range(30)),
    "tabs": "".join("\t" * i + "x\n" for i in range(30)),
    "chinese": "海上的灯塔看守人写下了天气和来往的船只。" * 8,
    "rare-chinese": "".join(chr(0x4E00 + SOME.randrange(0x5000)) for _ in range(300)),
    "japanese": "灯台守は天気と船について書いた。カタカナとひらがな。" * 6,
    "korean": "등대지기는 날씨와 지나가는 배에 대해 썼다. " * 8,
    "thai": "คนเฝ้าประภาคารเขียนเกี่ยวกับสภาพอากาศ" * 6,
    "arabic": "كتب حارس المنارة عن الطقس والسفن " * 8,
    "hindi": "प्रकाशस्तंभ के रखवाले ने मौसम के बारे में लिखा। " * 6,
    "ligature": "\ufdfa\ufdfb\ufb03\u3300" * 30,
    "emoji": "😀🎉🚀❤️👍🏽" * 20,
    "families": "👨‍👩‍👧‍👦🏳️‍🌈👩🏾‍🚀" * 12,
    "flags": "".join(chr(0x1F1E6 + i % 26) for i in range(200)),
    "combining": "e\u0301a\u0308o\u0302" * 40,
    "zalgo": "a" + "\u0300\u0301\u0302\u0303\u0304\u0305" * 40,
    "hangul-parts": "\u1112\u1161\u11ab" * 40,
    "controls": "".join(chr(i) for i in range(1, 32)) * 6,
    "nul": "a\u0000b\u0000" * 20,
    "delete": "\x7f\x80\x9f" * 40,
    "private": "\ue000\uf8ff\U000f0000\U0010ffff" * 20,
    "specials": "\ufeff\ufffd\u200b\u200d\u2028\u2029" * 20,
    "spaces": " " * 999,
    "two-spaces": "a  b   c    d     " * 30,
    "newlines": "\n" * 999,
    "crlf": "\r\n" * 300,
    "tab-run": "\t" * 500,
    "no-break": "\u00a0\u3000\u2003" * 60,
    "letter-run": "a" * 1500,
    "rare-letter-run": "Ω" * 400,
    "digit-run": "7" * 1000,
    "digits": "".join(str(SOME.randrange(10)) for _ in range(800)),
    "punctuation": "!?.,;:-_()[]{}<>|/\\@#$%^&*+=~`'\"" * 15,
    "dashes": "-" * 800,
    "quotes": "\"'\"'" * 150,
    "backslashes": "\\" * 500,
    "escapes": "\\u0041\\n\\x00\\\"" * 40,
    "base64": base64.b64encode(SOME.randbytes(700)).decode(),
    "hex": SOME.randbytes(400).hex(),
    "uuids": "550e8400-e29b-41d4-a716-446655440000 " * 15,
    "url": "https://example.org/a/b?c=d&e=%20%E4%B8%AD#f " * 15,
    "json": json.dumps({"a": [1, 2.5e-7, None], "b": {"c": "é中😀"}}) * 10,
    "json-indented": json.dumps({"a": [{"b": i, "c": [i]} for i in range(15)]}, indent=4),
    "json-ascii": json.dumps("中文é😀" * 30),
    "html": "<div class=\"a\"><p>x &amp; y</p></div>\n" * 15,
    "csv": "".join(f"{i},{i * 7919 % 1000},x;y\n" for i in range(80)),
    "maths": "∑∫√∞≈≠≤≥∂∇αβγδ½²³" * 15,
    "box": "┌─┬─┐│ │├─┼─┤└─┴─┘█▓▒░" * 15,
    "template-words": "<|im_start|>user\nx<|im_end|>\n<|endoftext|></s><s>[INST]" * 10,
    "random-bmp": "".join(chr(SOME.choice([SOME.randrange(0x20, 0xD800),
                                           SOME.randrange(0xE000, 0xFFFE)])) for _ in range(300)),
    "random-ascii": "".join(chr(SOME.randrange(0x20, 0x7F)) for _ in range(600)),
    "cyrillic": "Смотритель маяка писал о погоде и кораблях. " * 8,
    "mixed": "Hello 世界 😀 e\u0301 \t\n{\"a\": 1} ===== 3.14159 ÀÉÎ " * 8,
}

TOOL = {"type": "function", "function": {
    "name": "get_weather", "description": "Tells <the> weather & \"more\" of a place: 天気 é 😀",
    "parameters": {"type": "object", "required": ["place"], "properties": {
        "place": {"type": "string", "enum": ["Oslo", "東京"]},
        "days": {"type": "number", "minimum": 1e-7, "maximum": 1e20}}}}}
CALL = {"role": "assistant", "content": None, "tool_calls": [
    {"id": "call_1", "type": "function",
     "function": {"name": "get_weather",
                  "arguments": '{"place":"東京","days":1e20,"list":[1,2,3,[4,5]],"o":{"é":null}}'}}]}


def user(text):
    return {"role": "user", "content": text}


CHATS = {
    "none": {"messages": [user("")]},
    "one": {"messages": [user("hi")]},
    "system": {"messages": [{"role": "system", "content": "Be brief."}, user("hi")]},
    "many": {"messages": [{"role": ("user", "assistant")[i % 2], "content": "x"}
                          for i in range(41)]},
    "parts": {"messages": [user([{"type": "text", "text": t} for t in ("a", "中", "\n\n", "")])]},
    "tools": {"messages": [user("hi")], "tools": [TOOL]},
    "ten-tools": {"messages": [user("hi")], "tools": [TOOL] * 10},
    "tool-call": {"messages": [user("hi"), CALL, {"role": "tool", "tool_call_id": "call_1",
                                                  "content": '{"t": -3.5}'}, user("and?")],
                  "tools": [TOOL]},
    "many-calls": {"messages": [user("hi"), *([CALL, user("x")] * 6)], "tools": [TOOL]},
    "schema": {"messages": [user("hi")], "response_format": {"type": "json_schema", "json_schema": {
        "name": "x", "schema": TOOL["function"]["parameters"]}}},
    **{"text-" + name: {"messages": [user(text), {"role": "assistant", "content": text[:100]},
                                     user(text[-100:])]} for name, text in TEXTS.items()},
}


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    from rig_engine import find_engine_files
    _, missing = find_engine_files()
    if missing:
        message = "not provisioned: " + ", ".join(missing)
        if os.environ.get("FAILSOFT_REQUIRE_ENGINE"):
            pytest.fail(message)
        pytest.skip(message)
    engine = Engine(tmp_path_factory.mktemp("engine"),
                    options=["--jinja", "--chat-template-file", TEMPLATE])
    try:
        assert engine.wait_ready(), engine.log
        yield engine
    finally:
        engine.stop()


def bound(path, body, template_bytes):
    program = Path(os.environ.get("FAILSOFT_PROMPT_BOUND",
                                  binary().parents[1] / "tests/programs/prompt-bound"))
    if not program.exists():
        pytest.fail(f"no program at {program}; build everything, or set FAILSOFT_PROMPT_BOUND")
    result = subprocess.run([program, path, str(template_bytes)], input=body, capture_output=True,
                            timeout=30, check=False)
    assert result.returncode == 0, result.stderr
    return int(result.stdout)


@pytest.mark.parametrize("ascii_only", [True, False], ids=["ascii", "utf8"])
def test_texts(engine, ascii_only):
    """Without a template: not one token above the bytes of the text and the edges."""
    wrong = {}
    for name, text in TEXTS.items():
        status, answer = engine.request("POST", "/tokenize", {
            "content": text, "add_special": True, "parse_special": False})
        assert status == 200, answer
        tokens = len(answer["tokens"])
        body = json.dumps({"prompt": text}, ensure_ascii=ascii_only).encode()
        most = bound("/completion", body, 0)
        size = len(text.encode())
        # The short escapes may count as they are written; else it is the bytes, exactly.
        longest = size + EDGE_TOKENS + sum(text.count(c) for c in '"\\\n\r\t\b\f')
        if not tokens <= size + EDGE_TOKENS <= most <= longest:
            wrong[name] = (tokens, size, most, longest)
    assert not wrong, "(tokens, bytes, bound, bound at most): %s" % wrong


@pytest.mark.parametrize("ascii_only", [True, False], ids=["ascii", "utf8"])
def test_chats(engine, ascii_only):
    wrong = {}
    for name, chat in CHATS.items():
        status, answer = engine.request("POST", CHAT + "/input_tokens", chat)
        assert status == 200, (name, answer)
        body = json.dumps(chat, ensure_ascii=ascii_only).encode()
        most = bound(CHAT, body, TEMPLATE_BYTES)
        if answer["input_tokens"] > most:
            wrong[name] = (answer["input_tokens"], most)
    assert not wrong, "(tokens, bound): %s" % wrong


def test_rendered_bytes(engine):
    """The proof's other half: what the template makes of it is no longer than the bound."""
    wrong = {}
    for name, chat in CHATS.items():
        status, answer = engine.request("POST", "/apply-template", chat)
        assert status == 200, (name, answer)
        size = len(answer["prompt"].encode())
        most = bound(CHAT, json.dumps(chat).encode(), TEMPLATE_BYTES)
        if size + EDGE_TOKENS > most:
            wrong[name] = (size, most)
    assert not wrong, "(bytes, bound): %s" % wrong
