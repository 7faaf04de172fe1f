"""`failsoft check`, `version`, `status` and the command line as a person meets them."""

import json
import os
import re
import socket
import subprocess
import threading
from pathlib import Path

import pytest

from rig_gateway import binary

ROOT = Path(__file__).resolve().parents[2]

BAD = """\
listen: 127.0.0.1
services:
  chat:
    kind: chta
    model: missing.gguf
    tiers:
      - { name: gpu, slots: 0 }
      - { name: cpu, queue: { wait: 30 } }
"""


def run(*args, cwd=None, env=None):
    return subprocess.run([binary(), *args], capture_output=True, text=True, timeout=20, cwd=cwd,
                          env={**os.environ, **(env or {})})


def test_every_problem_with_its_place(tmp_path):
    file = tmp_path / "bad.yaml"
    file.write_text(BAD)
    done = run("check", "--config", file)
    assert done.returncode == 1
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    for place, words in [("1:9", "`127.0.0.1` has no port"), ("4:11", "did you mean `chat`?"),
                         ("7:29", "`slots`: `0` is out of range"),
                         ("8:37", "`30` has no unit; write `30s`")]:
        assert any(line.startswith(f"{file}:{place}: error: ") and words in line
                   for line in lines), (place, done.stderr)
    assert re.fullmatch(r"\d+ errors, 0 warnings", lines[-1])


def test_json(tmp_path):
    file = tmp_path / "bad.yaml"
    file.write_text(BAD)
    done = run("check", "--json", file)
    assert done.returncode == 1
    page = json.loads(done.stdout)
    assert page["ok"] is False and page["errors"] == len(page["problems"])
    assert {"severity", "line", "column", "message"} == set(page["problems"][0])


def test_json_names_what_a_set_up_has_to_provide():
    """setup/run.sh reads it: simulated cards, programs, model files with `~` resolved."""
    done = run("check", "--json", "--no-files", ROOT / "examples/home.yaml", env={"HOME": "/h"})
    page = json.loads(done.stdout)
    assert page["devices"] == [{"name": "gpu0", "kind": "sim", "card": "gpu0"}]
    tiers = [tier for service in page["services"] for tier in service["tiers"]]
    assert {tier["program"] for tier in tiers} == {None, "agent-cli", "rapidocr_api"}
    assert tiers[0]["model"].startswith("/h/.cache/failsoft/models/")


def test_model_files(tmp_path):
    (tmp_path / "page.gguf").write_text("<!DOCTYPE html>")
    engine = tmp_path / "engine"
    engine.write_text("#!/bin/sh\n")
    engine.chmod(0o755)
    file = tmp_path / "f.yaml"
    file.write_text("engine: ./engine\nservices: { chat: { model: page.gguf } }\n")
    done = run("check", file)
    assert done.returncode == 1
    assert f"{file}:2:28: error: model file `{tmp_path}/page.gguf` is not a GGUF file: it begins " \
           "with `<!DO`" in done.stderr
    assert run("check", "--no-files", file).returncode == 0


def test_good_file_tells_what_it_would_do(tmp_path):
    file = tmp_path / "f.yaml"
    file.write_text("services: { a: { tiers: [{ name: cpu, url: 'http://h:1' }] } }\n")
    done = run("check", file)
    assert done.returncode == 0 and done.stderr == ""
    assert "no second way to run" in done.stdout and "http://h:1" in done.stdout


def test_default_file(tmp_path):
    text = "services: { a: { tiers: [{ name: cpu, url: 'http://h:1' }] } }\n"
    xdg = tmp_path / "xdg"
    (xdg / "failsoft").mkdir(parents=True)
    (xdg / "failsoft/failsoft.yaml").write_text(text)
    env = {"XDG_CONFIG_HOME": str(xdg), "HOME": str(tmp_path)}
    assert f"{xdg}/failsoft/failsoft.yaml: good" in run("check", cwd=tmp_path, env=env).stdout
    (tmp_path / "failsoft.yaml").write_text(text)
    assert run("check", cwd=tmp_path, env=env).stdout.startswith("./failsoft.yaml: good")


def test_no_file(tmp_path):
    missing = run("check", "--config", tmp_path / "none.yaml")
    assert missing.returncode == 3 and "No such file or directory" in missing.stderr
    env = {"XDG_CONFIG_HOME": str(tmp_path), "HOME": str(tmp_path)}
    none = run("check", cwd=tmp_path, env=env)
    assert none.returncode == 3 or Path("/etc/failsoft/failsoft.yaml").exists()


@pytest.mark.parametrize("file", sorted((ROOT / "examples").glob("*.yaml")), ids=lambda f: f.name)
def test_examples(file):
    done = run("check", "--no-files", file)
    assert (done.returncode, done.stderr) == (0, "")


def test_documentation_is_current():
    """The tables of docs/configuration.md come from the program: see the comment in it."""
    page = (ROOT / "docs/configuration.md").read_text()
    found = re.search(r"<!-- options:begin[^>]*-->\n(.*)<!-- options:end -->", page, re.S)
    assert found, "the markers are gone"
    assert found.group(1).strip() == run("check", "--help-options=markdown").stdout.strip()


def test_documented_examples_are_right(tmp_path):
    """Every YAML block of the page is a file that `check` takes."""
    page = (ROOT / "docs/configuration.md").read_text()
    blocks = re.findall(r"```yaml\n(.*?)```", page, re.S)
    assert len(blocks) >= 2
    for text in blocks:
        file = tmp_path / "doc.yaml"
        file.write_text(text)
        done = run("check", "--no-files", file)
        assert (done.returncode, done.stderr) == (0, ""), text


@pytest.mark.parametrize("args, code, words", [
    ([], 2, "usage: failsoft COMMAND"),
    (["chekc"], 2, "did you mean `check`?"),
    (["check", "--jsno"], 2, "did you mean `--json`?"),
    (["check", "a", "b"], 2, "one argument too many: `b`"),
    (["status", "--url", "https://h"], 2, "https, which is not supported yet"),
    (["status", "--url", "http://127.0.0.1:1"], 3, "nothing listens at"),
    (["help", "nope"], 2, "unknown command `nope`"),
])
def test_mistakes(args, code, words):
    done = run(*args)
    assert done.returncode == code, done
    assert words in done.stderr


@pytest.mark.parametrize("args", [["--help"], ["help"], ["check", "--help"], ["help", "check"],
                                  ["status", "-h"], ["version", "--help"]])
def test_help(args):
    done = run(*args)
    assert done.returncode == 0 and "usage: failsoft" in done.stdout and done.stderr == ""


def test_version():
    version = (ROOT / "VERSION").read_text().strip()
    assert run("version").stdout.startswith(f"failsoft {version}\n")
    page = json.loads(run("version", "--json").stdout)
    assert page["version"] == version
    assert {"libuv", "llhttp", "yyjson", "libyaml"} == set(page["libraries"])


def answer_once(reply):
    """A server for one connection that says `reply`, whatever is asked."""
    server = socket.create_server(("127.0.0.1", 0))
    server.settimeout(20)

    def serve():
        with server, server.accept()[0] as client:
            client.recv(65536)
            client.sendall(reply)

    thread = threading.Thread(target=serve)
    thread.start()
    return f"http://127.0.0.1:{server.getsockname()[1]}", thread


@pytest.mark.parametrize("reply, words", [
    (b"SSH-2.0-OpenSSH_9\r\n", "Protocol error"),
    (b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", "HTTP status 404"),
    (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n<html>hi!", "not as failsoft does"),
    (b"HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n{", "connection abort"),
    (b"", "connection abort"),
])
def test_status_of_something_else(reply, words):
    url, thread = answer_once(reply)
    done = run("status", "--url", url)
    thread.join()
    assert done.returncode == 3
    assert words in done.stderr.replace("Software caused c", "c")
    assert done.stdout == ""


def test_status_keeps_control_characters_from_the_terminal():
    body = json.dumps({"version": "1\x1b[2J", "state": "ready\x1b[2J", "config": {"error": "a\x1b[2J"},
                       "services": [{"name": "s\x1b[2J", "kind": "k\x1b[2J", "state": "s\x1b[2J", "tiers": [
                           {"name": "t\x1b[2J", "reason": "r\x1b[2J", "availability": "a\x1b[2J",
                            "worker": {"engine": "e\x1b[2J", "address": "h\x1b[2J"}}]}],
                       "requests": [{"id": "i\x1b[2J", "state": "s\x1b[2J", "tier": "t\x1b[2J"}]}).encode()
    url, thread = answer_once(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
    done = run("status", "--url", url)
    thread.join()
    assert "i?[2J" in done.stdout
    assert "\x1b" not in done.stdout + done.stderr
