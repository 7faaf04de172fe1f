"""Model files that are damaged, cut off, hostile, or no model at all (F128, F129, F131): the rows of
tests/cases/gguf_files.yaml. Whatever a file says, `failsoft plan` and `failsoft check` end by themselves
with a verdict in words, with no more memory than a good small file takes, and what cannot be read is
never predicted to be small."""

import fnmatch
import json
import os
import re

import pytest

from conftest import load_cases
from rig_gateway import is_sanitized
from rig_gguf import STRING, Gguf, config_of, pad, run, small_model

MEMORY = 48 << 20   # of the address space; a good file of a kilobyte needs 20 MiB, libraries included
AT_ONCE = 200       # files in one configuration
TOLD_AT_ONCE = 150  # `check` does not tell more than 200 problems


class Files:
    """The files of one row."""

    def __init__(self, row, folder):
        self.row, self.folder, self.made = row, folder, []

    def name(self):
        return self.folder / f"m{len(self.made)}.gguf"

    def add(self, raw=None, base=None, put=None, cut=None, add=0):
        path = self.name()
        if base is not None:
            base.write(path, put, cut, add)
        else:
            path.write_bytes(raw)
        if "size" in self.row:
            os.truncate(path, self.row["size"])
        self.made.append(path)

    def base(self):
        g = small_model()
        g.order, g.version = self.row.get("order", "<"), self.row.get("version", 3)
        g.head()
        return g


def damaged(base, put):
    """One set of changed fields for each file: all values of each field that a name matches."""
    if len(put) > 1:
        return [{mark: values[0] for mark, values in put.items()}]
    (pattern, values), = put.items()
    marks = [m for m in base.marks if fnmatch.fnmatchcase(m, pattern)]
    assert marks, f"no field {pattern}"
    return [{mark: value} for mark in marks for value in values]


def shards(files, row):
    """model-0000N-of-0000M.gguf with one tensor each."""
    spec, count = row["shards"], row["shards"]["count"]
    for said in spec.get("said", [count]):
        folder = files.folder / str(said)
        folder.mkdir()
        for n in range(1, count + 1):
            path = folder / f"model-{n:05}-of-{count:05}.gguf"
            g = Gguf()
            if n == 1:
                g.key("general.architecture", "llama").key("llama.block_count", 1)
                g.key("llama.embedding_length", 32).key("llama.attention.head_count", 1)
            g.key("split.no", n - 1).key("split.count", said)
            if not (n == 1 and spec.get("first_empty")):
                g.tensor(f"blk.0.part{n}.weight", (32, 32))
            if spec.get("page") == n:
                path.write_text("<!DOCTYPE html>")
            elif spec.get("without") != n:
                g.write(path, cut=g.size - 1 if spec.get("cut") == n else None)
        files.made.append(folder / f"model-{spec.get('name', 1):05}-of-{count:05}.gguf")


def make_files(row, folder):
    files = Files(row, folder)
    base = files.base()
    if "text" in row:
        files.add(raw=row["text"].encode("latin-1"))
    elif "hex" in row:
        files.add(raw=bytes.fromhex(row["hex"]))
    elif "put" in row:
        for put in damaged(base, row["put"]):
            files.add(base=base, put=put)
    elif "cut" in row:
        for n in range(row["from"], row["to"] + 1):
            files.add(base=base, cut=n)
    elif "add" in row:
        for n in row["add"]:
            files.add(base=base, add=n)
    elif "add_text" in row:
        for text in row["add_text"]:
            files.add(base=base)
            with open(files.made[-1], "ab") as f:
                f.write(text.encode("latin-1"))
    elif "flip" in row:
        whole = base.head() + bytes(base.size - len(base.head()))
        for at in range(len(base.head())):
            for mask in row["flip"]:
                raw = bytearray(whole)
                raw[at] ^= mask
                files.add(raw=bytes(raw))
    elif "shards" in row:
        shards(files, row)
    elif "folder" in row:
        files.name().mkdir()
        files.made.append(files.name())
    elif "pipe" in row:
        os.mkfifo(files.name())
        files.made.append(files.name())
    elif "missing" in row:
        files.made.append(files.name())
    else:
        files.add(base=base)
    return files.made


def limit():
    return None if is_sanitized() else MEMORY


def planned(files, folder):
    """[(file, plan entry)], from as few runs as a configuration's size allows, and the exit statuses."""
    entries, exits = [], set()
    for at in range(0, len(files), AT_ONCE):
        part = files[at:at + AT_ONCE]
        done = run("plan", "--config", config_of(folder / "c.yaml", part), "--json", memory=limit())
        exits.add(done.returncode)
        plans = json.loads(done.stdout)["plans"]
        assert [p["model"] for p in plans] == [str(f) for f in part]
        entries += zip(part, plans)
    return entries, exits


def words_of(plan):
    return "; ".join(plan.get("reasons", [])) + plan.get("problem", "")


def is_read(plan):
    return "problem" not in plan and not any("cannot be read" in r for r in plan["reasons"])


def check_plan(row, file, plan):
    words = words_of(plan)
    if row.get("good") is True or (row.get("good") == "maybe" and is_read(plan)):
        assert is_read(plan), f"{file}: {words}"
        return
    assert re.search(row["says"], words), f"{file}: {words}"
    assert words.isprintable(), repr(words)
    if "problem" in plan:
        return
    # What cannot be read is not small.
    assert plan["confidence"] == "low"
    assert plan["host"]["total"]["upper_bytes"] >= os.path.getsize(file)
    if row.get("needs_more"):
        match = re.search(r"needs (\d+) bytes, has (\d+)", words)
        if match:
            need, have = map(int, match.groups())
            assert have == os.path.getsize(file) < need <= small_model().size


def check_check(row, files, folder):
    """One error for each bad file, at its place in the configuration."""
    for at in range(0, len(files), TOLD_AT_ONCE):
        part = files[at:at + TOLD_AT_ONCE]
        done = run("check", "--config", config_of(folder / "c.yaml", part), memory=limit())
        told = {}
        for line in (done.stdout + done.stderr).splitlines():
            match = re.search(r"model file `(.*?)` (.*)", line)
            if match:
                told[match.group(1)] = match.group(2)
        wanted = row.get("check", row.get("says", ""))
        for file in part:
            words = told.get(str(file), "")
            if row.get("good") is True or wanted == "":
                assert words == "", f"{file}: {words}"
            elif row.get("good") != "maybe" or words:
                assert re.search(wanted, words), f"{file}: {words!r} in {done.stdout[:500]}"
        assert done.returncode == (1 if told else 0)


@pytest.mark.parametrize("row", load_cases("gguf_files"))
def test_a_file_that_is_no_good_model(row, tmp_path):
    files = make_files(row, tmp_path)
    assert files
    entries, exits = planned(files, tmp_path)
    for file, plan in entries:
        check_plan(row, file, plan)
    if row.get("good") != "maybe":
        assert exits == {0 if row.get("good") else 1}
    check_check(row, files, tmp_path)
    # The same by name, for one of them: `plan --model`, as text and with its own exit status.
    one = run("plan", "--model", files[-1], memory=limit())
    if row.get("good") != "maybe":
        assert one.returncode == (0 if row.get("good") else row.get("exit", 1))
        if not row.get("good"):
            assert re.search(row["says"], " ".join((one.stdout + one.stderr).split()))


def test_a_good_file_is_the_measure(tmp_path):
    """The limit on memory is one that a good file keeps."""
    good = small_model().write(tmp_path / "good.gguf")
    assert run("plan", "--model", good, memory=limit()).returncode == 0
    assert run("check", "--config", config_of(tmp_path / "c.yaml", [good]),
               memory=limit()).returncode == 0


def test_a_header_of_40_GB_is_read_in_2_MiB(tmp_path):
    """256 k tokens and 1200 tensors: what is read is the header, what is held is less than 2 MiB, so that
    a limit of 8 MiB more than a small file needs is no trouble."""
    g = Gguf()
    g.key("general.architecture", "llama").key("llama.block_count", 80)
    g.key("llama.embedding_length", 8192).key("llama.attention.head_count", 64)
    g.key("llama.attention.head_count_kv", 8).key("llama.context_length", 8192)
    g.key("tokenizer.ggml.tokens", [f"token{i}" for i in range(256_000)])
    for i in range(1200):
        g.tensor(f"blk.{i % 80}.ffn_up{i}.weight", (8192, 2048))
    file = g.write(tmp_path / "large.gguf")
    assert os.path.getsize(file) > 40e9
    done = run("plan", "--model", file, "--json", memory=None if is_sanitized() else 28 << 20)
    plan = json.loads(done.stdout)["plans"][0]
    assert plan["header_read_bytes"] <= pad(len(g.head()), 65536)
    assert plan["device"]["weights"]["bytes"] == 1200 * 8192 * 2048 * 2


def test_texts_of_a_file_do_not_reach_the_terminal(tmp_path):
    """Names from a file are only what the terminal may see."""
    g = small_model()
    g.entries[0] = ("general.architecture", (STRING, b"\x1b[31m\xff\"\\evil"))
    file = g.write(tmp_path / "m.gguf")
    done = run("plan", "--model", file)
    assert "\x1b" not in done.stdout + done.stderr
    plan = json.loads(run("plan", "--model", file, "--json").stdout)["plans"][0]
    assert plan["confidence"] == "low"
