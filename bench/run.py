#!/usr/bin/env python3
"""The benchmark: failsoft against direct, nginx and HAProxy on the same fake upstream.

    bench/run.py --bin build/src/failsoft            everything, about six minutes
    bench/run.py --bin build/src/failsoft --quick    the same shortened, under a minute

Targets take turns within a round and the order turns from round to round, so that a busy machine
meets all of them alike. Judge ratios and CPU time per unit of work, not absolute times. Results go
to --out as JSON and as a Markdown table; the exit status is 1 when an answer was wrong, and with
--strict also when a bar was missed.
"""

import argparse
import json
import os
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import procstat
import report
from targets import Targets

ROOT = Path(__file__).resolve().parent.parent
# Small requests whole; the streams ask for 50 events/s each (1 and 50) or 10 events/s each (1,000).
# The ramps spread the streams over the interval, so that events do not come in one burst.
SCENARIOS = {
    "small": ["small", "--connections", "32", "--requests", "10000"],
    "one": ["small", "--connections", "1", "--requests", "1500"],
    "stream1": ["stream", "--connections", "1", "--requests", "10", "--events", "15",
                "--interval-us", "10000"],
    "stream50": ["stream", "--connections", "50", "--requests", "200", "--events", "30",
                 "--interval-us", "20000", "--ramp-ms", "990"],
    "stream1000": ["stream", "--connections", "1000", "--requests", "1000", "--events", "40",
                   "--interval-us", "100000", "--ramp-ms", "990"],
}
QUICK = {
    "small": ["small", "--connections", "32", "--requests", "3000"],
    "one": ["small", "--connections", "1", "--requests", "300"],
    "stream50": ["stream", "--connections", "50", "--requests", "50", "--events", "30",
                 "--interval-us", "20000", "--ramp-ms", "495"],
    "stream1000": ["stream", "--connections", "1000", "--requests", "1000", "--events", "12",
                   "--interval-us", "100000", "--ramp-ms", "495"],
}
OWN_TIME_MS = 20  # of a worker, where workers are killed
KILL_CYCLE_S = 8  # from one kill to the next: the gateway tries a suspended worker after 5 s


class Bench:
    def __init__(self, options, folder):
        self.options = options
        self.targets = Targets(options.tools, options.bin, folder)
        self.load_path = str(Path(options.tools) / "bench-load")
        self.wrong = []
        self.results = {"speed": {}, "memory": {}, "body": {}, "start": {}, "kill": {}}

    def load(self, args, port, what):
        """Runs the load generator to its end; remembers wrong answers."""
        run = subprocess.run([self.load_path, args[0], "--port", str(port), *args[1:]],
                             stdout=subprocess.PIPE, check=True, timeout=180)
        result = json.loads(run.stdout)
        self.check(result, what)
        return result

    def check(self, result, what, held=False):
        bad = result["failed"] + (0 if held else result["unfinished"])
        if bad:
            self.wrong.append({"what": what, "failed": bad, "errors": result["errors"]})
            print(f"  WRONG: {what}: {bad} answers, {result['errors']}", file=sys.stderr)

    # ---- speed -------------------------------------------------------------------------------

    def speed(self, rounds):
        scenarios = QUICK if self.options.quick else SCENARIOS
        t = self.targets
        with t.upstream() as llama, t.upstream(openai=True) as openai:
            fleet = {
                "direct": None,
                "nginx": t.nginx(openai.port),
                "haproxy": t.haproxy(openai.port),
                "failsoft": t.failsoft(openai.port, openai.port, "openai"),
                "failsoft-llama": t.failsoft(llama.port, llama.port, "llama-server",
                                             "failsoft-llama"),
            }
            fleet = {k: v for k, v in fleet.items() if v or k == "direct"}
            running = [p for p in fleet.values() if p]
            try:
                for p in running:
                    p.start()
                    self.load(["small", "--connections", "8", "--requests", "400"], p.port,
                              f"warm-up {p.name}")
                for r in range(rounds):
                    self.speed_round(r, scenarios, fleet, openai.port)
            finally:
                for p in running:
                    p.stop()

    def speed_round(self, r, scenarios, fleet, direct_port):
        names = list(fleet)
        names = names[r % len(names):] + names[:r % len(names)]
        if r % 2:
            names.reverse()
        for scenario, args in scenarios.items():
            for name in names:
                started = time.monotonic()
                result = self.speed_one(fleet[name], args, direct_port, f"{scenario} {name}")
                self.results["speed"].setdefault(scenario, {}).setdefault(name, []).append(result)
                print(f"  round {r + 1} {scenario:11} {name:15} {result.get('cpu_us', 0):7.2f} µs"
                      f" CPU a unit, {time.monotonic() - started:5.1f} s", file=sys.stderr)

    def speed_one(self, process, args, direct_port, what):
        if process is None:
            return self.load(args, direct_port, what)
        pids = process.pids()
        before = procstat.cpu_ns(pids)
        result = self.load(args, process.port, what)
        used = procstat.cpu_ns(pids) - before
        result["cpu_us"] = used / 1000 / (result["events"] or result["ok"] or 1)
        return result

    # ---- memory ------------------------------------------------------------------------------

    def proxies(self, upstream, engine="llama-server"):
        t = self.targets
        made = [t.nginx(upstream.port), t.haproxy(upstream.port),
                t.failsoft(upstream.port, upstream.port, engine)]
        return [p for p in made if p]

    def memory(self, streams):
        """A process that has answered some requests, and the same with streams open."""
        with self.targets.upstream() as upstream:
            for p in self.proxies(upstream):
                row = {}
                for kind in ("idle", "active"):
                    with p:
                        self.load(["small", "--connections", "4", "--requests", "40"], p.port,
                                  f"warm-up {p.name}")
                        pids = p.pids()
                        base = procstat.pss_kib(pids)
                        row.setdefault("rss_kib", procstat.rss_kib(pids))
                        row.setdefault("pss_kib", base)
                        most = (self.hold_streams if kind == "idle" else self.active_streams)(
                            p, pids, streams)
                        row[f"{kind}_kib_per_stream"] = (most - base) / streams
                row["streams"] = streams
                self.results["memory"][p.name] = row
                print(f"  memory {p.name}: {row}", file=sys.stderr)

    def hold_streams(self, p, pids, streams):
        argv = [self.load_path, "idle", "--port", str(p.port), "--connections", str(streams)]
        with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as run:
            run.stdout.readline()  # "ready": every stream has had its first event
            time.sleep(0.3)
            kib = procstat.pss_kib(pids)
            out, _ = run.communicate("\n", timeout=60)
        self.check(json.loads(out.splitlines()[-1]), f"hold {p.name}", held=True)
        return kib

    def active_streams(self, p, pids, streams):
        seen, over = [], threading.Event()

        def watch():
            while not over.wait(0.2):
                seen.append(procstat.pss_kib(pids))

        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            self.load(["stream", "--connections", str(streams), "--requests", str(streams),
                       "--events", "25", "--interval-us", "100000", "--ramp-ms", "990"], p.port,
                      f"active {p.name}")
        finally:
            over.set()
            watcher.join()
        return max(seen)

    # ---- large body --------------------------------------------------------------------------

    def body(self):
        with self.targets.upstream(openai=True) as upstream:
            for p in self.proxies(upstream, "openai"):
                with p:
                    self.load(["small", "--connections", "2", "--requests", "20"], p.port,
                              f"warm-up {p.name}")
                    pids = p.pids()
                    procstat.reset_peak(pids)
                    before, cpu = procstat.rss_kib(pids), procstat.cpu_ns(pids)
                    result = self.load(["body", "--requests", "1"], p.port, f"body {p.name}")
                    self.results["body"][p.name] = {
                        "peak_growth_mib": (procstat.peak_rss_kib(pids) - before) / 1024,
                        "cpu_ms": (procstat.cpu_ns(pids) - cpu) / 1e6,
                        "latency_ms": result["latency_us"]["p50"] / 1000,
                    }
                print(f"  body {p.name}: {self.results['body'][p.name]}", file=sys.stderr)

    # ---- start -------------------------------------------------------------------------------

    def start(self, repeats):
        with self.targets.upstream() as upstream:
            for p in self.proxies(upstream):
                times, stops = [], []
                for _ in range(repeats):
                    with open(p.log, "ab") as log:
                        run = subprocess.run(
                            [self.load_path, "start", "--port", str(p.port), "--timeout-s", "10",
                             "--", *p.argv],
                            stdout=subprocess.PIPE, stderr=log, check=True, timeout=60)
                    line = json.loads(run.stdout.splitlines()[-1])
                    times.append(line["first_answer_ms"])
                    stops.append(line["stop_ms"])
                self.results["start"][p.name] = {"first_answer_ms": times, "stop_ms": stops}
                print(f"  start {p.name}: median {statistics.median(times):.1f} ms",
                      file=sys.stderr)

    # ---- a worker is killed ------------------------------------------------------------------

    def kill(self, kills):
        """20 requests a second, half of them streams; the first worker dies with one in flight."""
        t = self.targets
        with t.upstream() as first, t.upstream() as second:
            gateway = t.failsoft(first.port, second.port, "llama-server")
            if not gateway:
                return
            with gateway:
                self.load(["small", "--connections", "1", "--requests", "4"], gateway.port,
                          "warm-up failsoft")
                seconds = KILL_CYCLE_S * kills + 1
                argv = [self.load_path, "paced", "--port", str(gateway.port), "--rate", "20",
                        "--requests", str(20 * seconds), "--first-us", str(OWN_TIME_MS * 1000)]
                with subprocess.Popen(argv, stdout=subprocess.PIPE) as run:
                    died = sum(self.kill_once(first, run) for _ in range(kills))
                    out, _ = run.communicate(timeout=120)
        result = json.loads(out)
        self.check(result, "kill failsoft")
        result["kills"], result["own_ms"] = died, OWN_TIME_MS
        self.results["kill"]["failsoft"] = result
        print(f"  kill: {died} kills, {result['ok']} ok, {result['failed']} failed, slowest "
              f"{result['latency_us']['max'] / 1000:.1f} ms, {result['tiers']}", file=sys.stderr)


    def kill_once(self, worker, run):
        """Kills a worker that serves, starts it again; True when a request was in flight."""
        end = time.monotonic() + KILL_CYCLE_S
        time.sleep(0.5)
        worker.process.send_signal(signal.SIGUSR1)  # dies 10 ms into its next request
        try:
            worker.process.wait(KILL_CYCLE_S - 1)
            died = True
        except subprocess.TimeoutExpired:
            died = False  # the gateway did not come back to it in time
        if worker.process.poll() is not None:
            time.sleep(0.5)
            worker.start()
        time.sleep(max(0.0, end - time.monotonic()) if run.poll() is None else 0)
        return died


def environment():
    model = next((line.split(":", 1)[1].strip() for line in
                  Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")),
                 "unknown")
    versions = {}
    for name, argv in {"nginx": ["/usr/sbin/nginx", "-v"],
                       "haproxy": ["/usr/sbin/haproxy", "-v"]}.items():
        if os.access(argv[0], os.X_OK):
            run = subprocess.run(argv, capture_output=True, text=True, check=False)
            versions[name] = (run.stdout + run.stderr).splitlines()[0]
    return {"cpu": model, "cores": os.cpu_count(), "kernel": os.uname().release,
            "versions": versions, "load_average": os.getloadavg()}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", help="the failsoft program; without it only the others are measured")
    parser.add_argument("--tools", help="folder of bench-upstream and bench-load")
    parser.add_argument("--out", help="folder for results.json and results.md")
    parser.add_argument("--doc", help="a Markdown file whose results are replaced by these")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--quick", action="store_true", help="one short round, under a minute")
    parser.add_argument("--only", default="speed,memory,body,start,kill",
                        help="parts to run, by comma")
    parser.add_argument("--strict", action="store_true", help="exit 1 when a bar is missed")
    options = parser.parse_args()
    if options.bin:
        options.bin = str(Path(options.bin).resolve())
        if not os.access(options.bin, os.X_OK):
            parser.error(f"{options.bin} is not a program")
    build = Path(options.bin).parent.parent if options.bin else ROOT / "build"
    options.tools = Path(options.tools or build / "bench").resolve()
    options.out = Path(options.out or build / "bench-results")
    if not os.access(options.tools / "bench-load", os.X_OK):
        parser.error(f"{options.tools} holds no bench-load: build it, or name --tools")
    return options


def main():
    options = arguments()
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit[1], limit[1]))
    parts = options.only.split(",")
    quick = options.quick
    with tempfile.TemporaryDirectory(prefix="failsoft-bench-") as folder:
        bench = Bench(options, folder)
        bench.results["environment"] = environment()
        began = time.monotonic()
        if "speed" in parts:
            bench.speed(options.rounds or (1 if quick else 5))
        if "memory" in parts:
            bench.memory(300 if quick else 1000)
        if "body" in parts:
            bench.body()
        if "start" in parts:
            bench.start(3 if quick else 15)
        if "kill" in parts:
            bench.kill(1 if quick else 5)
        bench.results["seconds"] = time.monotonic() - began
    bench.results["wrong"] = bench.wrong
    bars = report.bars(bench.results)
    bench.results["bars"] = bars
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "results.json").write_text(json.dumps(bench.results, indent=1))
    text = report.markdown(bench.results, bars)
    (options.out / "results.md").write_text(text)
    print(text)
    if options.doc:
        report.replace_in(Path(options.doc), text)
    missed = [bar for bar in bars if not bar["met"]]
    return 1 if bench.wrong or (options.strict and missed) else 0


if __name__ == "__main__":
    sys.exit(main())
