"""What memory is reported to be, and who shares it: the rows of tests/cases/memory_reports.yaml and
sharing.yaml (F02, F09, F13, F18, F31, F34, F35, F37, F38, F39, F41, F44, F45, F46). The real gateway, its telemetry on
pretended hardware, managed workers on a pretended engine; a row says what the hardware says, and what
GET /failsoft/v1/status must say then. The words of a row are explained at the head of the files."""

import fcntl
import json
import os
import re
import signal
import termios
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from conftest import load_cases
from fake_engines import FakeLlama
from rig_config import gateway_config, service, tier
from rig_device import CARDS, GiB, Host, KiB, MiB, build_stub
from rig_gateway import ROOT, eventually
from rig_gguf import language_model, run

WAIT_S = 9
SAMPLES = 3  # that must agree before something is said to stay so; a row may want more
BASE_MODEL = {"layers": 2, "width": 512, "heads": 8}
WAITS = r"^(starting: )?(waits|nothing is known|gives the memory)"
AT_ONCE = 16
POLL_S = 0.07


def managed_on_cpu(spec):
    return spec.get("cpu") == "managed" or spec.get("only") == "cpu"


def gpu_waits():
    return {"stop_grace": "300ms",
            "restart": {"backoff": "100ms", "backoff_max": "200ms", "settled": "100ms"}}


class Case:
    """One row: hardware, configuration, gateway, and the names that formulas may use."""

    def __init__(self, row, folder, libraries, cpu):
        self.row, self.folder, self.cpu = row, folder, cpu
        folder.mkdir()
        self.kmsg = folder / "kmsg"
        os.mkfifo(self.kmsg)
        self.names = {"GiB": GiB, "MiB": MiB, "KiB": KiB, "min": min, "max": max}
        self.gateway = None
        library = "/none/libnvidia-ml.so" if row.get("library") == "none" else \
            build_stub(libraries, row.get("library", "new"))
        self.card = CARDS[row.get("kind", "nvidia")](folder, library)
        self.host = Host(folder) if "host" in row else None
        self.set_host(row.get("host", {}))
        self.config = self.make_config()
        self.set_card(row.get("card", {}))

    def first_config(self):
        """Without the services that a later `reload` adds."""
        later = self.row.get("later", [])
        services = {n: s for n, s in self.config["services"].items() if n not in later}
        return self.config | {"services": services}

    # --- formulas

    def value(self, formula):
        if isinstance(formula, str):
            return eval(formula, dict(self.names))
        return formula

    def text_or_value(self, formula):
        """Files of sysfs may say anything: what is no formula is text."""
        try:
            return self.value(formula)
        except (NameError, SyntaxError):
            return formula

    # --- configuration

    def make_config(self):
        row = self.row
        device = {"kind": self.card.kind, "back_after": "300ms"} | row.get("device", {})
        device = {k: {True: "on", False: "off"}[v] if isinstance(v, bool) else
                  f"{v}MiB" if k == "reserve" and isinstance(v, int) else v
                  for k, v in device.items()}
        services = {}
        for name, spec in row["services"].items():
            spec = spec if isinstance(spec, dict) else {"need": spec}
            services[name] = self.service_of(name, spec)
        config = gateway_config(
            services, engine=str(ROOT / "tests/fakes/fake_engine.py"),
            state_dir=str(self.folder / "state"), devices={"gpu0": device},
            **row.get("options", {}))
        for name, spec in row["services"].items():
            self.size_model(config, name, spec if isinstance(spec, dict) else {"need": spec})
        return config

    def service_of(self, name, spec):
        orders = {"env": {"FAKE_ENGINE": json.dumps(spec["engine"])}} if "engine" in spec else {}
        gpu = {"name": "gpu", "device": "gpu0", **gpu_waits(), **orders,
               **({"args": spec["args"]} if "args" in spec else {}), **spec.get("tier", {})}
        if "mmproj" in spec:
            path = language_model(size=int(self.value(spec["mmproj"]))).write(
                self.folder / f"{name}-mmproj.gguf")
            gpu["args"] = gpu.get("args", []) + ["--mmproj", str(path)]
        cpu = {"name": "cpu", "threads": 1, **gpu_waits()} if managed_on_cpu(spec) else \
            tier("cpu", self.cpu)
        tiers = [gpu] * (spec.get("only") != "cpu") + [cpu] * (spec.get("only") != "gpu")
        options = {k: spec[k] for k in ("context", "kind", "memory_wait", "shrink",
                                        "flash_attention") if k in spec}
        return service(*tiers, model=str(self.folder / f"{name}.gguf"), **options)

    def predicted(self, config, name, spec):
        """Bytes on the device, or on the host for a service that has no device."""
        on, side = ("cpu", "host") if spec.get("only") == "cpu" else ("gpu", "device")
        path = self.folder / "plan.json"
        path.write_text(json.dumps(config))  # JSON is YAML
        done = run("plan", "--config", path, "--json")
        plan = next(p for p in json.loads(done.stdout)["plans"]
                    if (p["service"], p["tier"]) == (name, on))
        return plan[side]["total"]["upper_bytes"]

    def size_model(self, config, name, spec):
        """A model whose predicted need on the device is the row's, by one more matrix."""
        path = self.folder / f"{name}.gguf"
        parts = BASE_MODEL | spec.get("model", {})
        small = language_model(**parts)
        small.write(path)
        if "need" in spec:
            need = int(self.value(spec["need"]))
            more = need - self.predicted(config, name, spec)
            assert more >= 0, f"{name} needs {need - more:,} at least"
            language_model(**parts, size=small.bytes_of("*") + more // 256 * 256).write(path)
        self.names[name] = self.predicted(config, name, spec)

    # --- the world

    def set_card(self, facts):
        out = {}
        for key, value in facts.items():
            if key in ("compute", "graphics"):
                out[key] = {self.pid_of(who): self.value(n) for who, n in value.items()}
            elif key in ("name", "bus_id"):
                out[key] = value
            else:
                out[key] = self.text_or_value(value)
        self.card.set(**out)

    def set_host(self, facts):
        if self.host:
            self.host.set(**{k: {g: tuple(self.value(x) for x in level) for g, level in v.items()}
                             if k == "groups" else self.value(v) for k, v in facts.items()})

    def pid_of(self, who):
        if isinstance(who, int):
            return who
        found = {}
        if who == "the_ready":
            who = next(n for n in self.row["services"]
                       if self.gateway.tiers(n)["gpu"]["state"] == "ready")
        name, _, on = who.partition("/")

        def there():
            found.update(self.gateway.tiers(name)[on or "gpu"])
            return found["pid"] > 0

        assert eventually(there, WAIT_S, 0.02), found
        return found["pid"]

    def env(self):
        return {**self.card.env(), **(self.host.env() if self.host else {}),
                "FAILSOFT_KMSG": str(self.kmsg), "FAKE_ENGINE": "{}"}


# --- what status must say


def number_is(found, wanted, case):
    """A formula, or one with a comparison in front: `<= 3*GiB`."""
    match = re.fullmatch(r"(<=|>=|<|>|!=)?(.*)", str(wanted), re.S)
    value = case.value(match[2]) if isinstance(wanted, str) else wanted
    return {"<=": found <= value, ">=": found >= value, "<": found < value, ">": found > value,
            "!=": found != value, None: abs(found - value) <= 4096}[match[1]]


def worker_is(worker, wanted):
    state = worker["state"]
    if wanted == "waits":
        return state == "starting" and worker["pid"] == 0 and bool(re.search(WAITS, worker["reason"]))
    if wanted == "gone":
        return worker["pid"] == 0
    return state == wanted


def disagreement(case, status, want):
    """The first thing that is not as wanted, or None."""
    tiers = {f"{s['name']}/{t['name']}".removesuffix("/gpu"): {**t, **t["worker"]}
             for s in status["services"] for t in s["tiers"]}
    for key, wanted in want.items():
        device = status["devices"][0]
        if key.startswith("host."):
            device, key = status["host"], key.removeprefix("host.")
        name, _, what = key.partition(".")
        if name.partition("/")[0] in case.config["services"] and name not in tiers:
            return f"{name} is not in the status"
        if name in tiers:
            worker = tiers[name]
            good = {"": lambda: worker_is(worker, wanted),
                    "says": lambda: bool(re.search(wanted, worker["reason"])),
                    "restarts": lambda: worker["restarts"] == wanted,
                    "availability": lambda: worker["availability"] == wanted}[what]()
            found = {k: worker[k] for k in ("state", "pid", "reason", "restarts", "availability")}
        elif key == "waiting.says":
            found = [w["reason"] for w in tiers.values() if worker_is(w, "waits")]
            good = any(re.search(wanted, reason) for reason in found)
        elif key == "one_ready":
            states = sorted(worker_is(tiers[n], "ready") for n in wanted)
            good, found = states == [False] * (len(wanted) - 1) + [True], \
                [(tiers[n]["state"], tiers[n]["reason"]) for n in wanted]
        elif key == "claims":
            found = {c["owner"]: c for c in device["claims"]}
            good = found.keys() == wanted.keys() and all(
                number_is(found[o]["bytes"], n, case) for o, n in wanted.items())
        elif key in ("trust", "pressure"):
            found, good = device[key], re.fullmatch(wanted, device[key])
        elif key == "reason":
            found, good = device[key], re.search(wanted, device[key])
        else:
            found = device[key + "_bytes"]
            good = number_is(found, wanted, case)
        if not good:
            return f"{key}: wanted {wanted}, found {found}"
    return None


def adds_up(device):
    parts = ("reserve", "foreign", "settled", "unsettled", "releasing", "headroom")
    return sum(device[p + "_bytes"] for p in parts) == device["total_bytes"]


class Runner:
    def __init__(self, case):
        self.case, self.gateway = case, case.gateway
        self.pool, self.running = ThreadPoolExecutor(2), []

    def status(self):
        status = self.gateway.status()
        for ledger in status["devices"] + [status["host"]]:
            assert adds_up(ledger), ledger
        return status

    def wait(self, want):
        told = []

        def agrees():
            told.append(disagreement(self.case, self.status(), want))
            return told[-1] is None

        if not eventually(agrees, self.case.row.get("patience", WAIT_S), POLL_S):
            raise AssertionError(told[-1])

    def stays(self, want):
        """True now, and until three more samples were taken (or as long as they would take)."""
        samples = self.case.row.get("samples", SAMPLES)
        seen, age, end = 0, None, time.monotonic() + 0.1 + samples / 2
        while seen < samples and time.monotonic() < end:
            status = self.status()
            told = disagreement(self.case, status, want)
            if told:
                raise AssertionError(told)
            now = status["devices"][0]["age_ms"]
            seen += age is not None and now < age
            age = now
            time.sleep(POLL_S)

    def set(self, facts):
        self.case.set_card(facts)

    def set_host(self, facts):
        self.case.set_host(facts)

    def kernel(self, lines):
        """Records of the kernel's log, one read each."""
        fd = os.open(self.case.kmsg, os.O_RDWR | os.O_NONBLOCK)
        try:
            for number, line in enumerate(lines if isinstance(lines, list) else [lines]):
                os.write(fd, f"4,{number + 1},{number + 100},-;{line}\n".encode())
                assert eventually(lambda: unread(fd) == 0, WAIT_S), "nobody reads the kernel's log"
        finally:
            os.close(fd)

    def kill(self, name):
        """The worker's process dies; what the card says stays, but for the list of processes."""
        pid = self.case.pid_of(name)
        os.kill(pid, signal.SIGKILL)
        left = {p: n for p, n in self.case.card.facts.get("compute", {}).items() if p != pid}
        self.case.card.set(compute=left)
        service, _, on = name.partition("/")
        assert eventually(lambda: self.gateway.tiers(service)[on or "gpu"]["pid"] != pid, WAIT_S,
                          POLL_S)

    def log(self, pattern):
        self.gateway.wait_log(pattern, WAIT_S)

    def give_back(self, for_ms):
        """By hand, as `failsoft yield`; 0 ends it."""
        reply = self.gateway.call("POST", f"/failsoft/v1/devices/gpu0/yield?for_ms={for_ms}")
        assert reply.status == 200, reply

    def ask(self, want):
        self.judge(want, self.send(want))

    def begin(self, want):
        """A request that is left running; `answered` says what it must have come to."""
        self.running.append(self.pool.submit(self.send, want))

    def answered(self, want):
        self.judge(want, self.running.pop(0).result(20))

    def reload(self, changes):
        """The configuration with other options of its services, and with those of `later`, by SIGHUP."""
        for name, options in changes.items():
            self.case.config["services"][name] |= options
        self.gateway.reload(self.case.config)

    def send(self, want):
        body = {"model": want.get("service", "chat"), "max_tokens": want.get("max_tokens", 8),
                "messages": [{"role": "user", "content": "hello " * want.get("words", 1)}]}
        body |= want.get("body", {})
        return self.gateway.call("POST", "/v1/chat/completions", body, timeout=20)

    @staticmethod
    def judge(want, reply):
        assert reply.status == want.get("status", 200), reply
        if "tier" in want:
            assert reply.tier == want["tier"], (reply, reply.get("X-Failsoft-Reason"))
        if "reason" in want:
            assert re.search(want["reason"], reply.get("X-Failsoft-Reason") or ""), reply
        if "says" in want:
            assert re.search(want["says"], reply.body.decode()), reply

    def step(self, step):
        (what, argument), = step.items()
        getattr(self, what)(argument)


@pytest.fixture(scope="session")
def libraries(tmp_path_factory):
    return tmp_path_factory.mktemp("stub")


def unread(fd):
    """Bytes that nobody has read from a pipe."""
    return int.from_bytes(fcntl.ioctl(fd, termios.FIONREAD, bytes(4)), "little")


def failure_of(case):
    """None, or what went wrong in this row."""
    runner = Runner(case)
    not_yet = case.row.get("not_yet")
    for number, step in enumerate(case.row["steps"], 1):
        try:
            runner.step(step)
        except Exception as problem:  # told with the others'
            return None if not_yet else \
                f"{case.row['id']}, step {number} {step}: {type(problem).__name__}: {problem}"
    return f"{case.row['id']} works now: take `not_yet` out of it" if not_yet else None


@pytest.fixture
def run_rows(tmp_path, libraries, fakes, start_gateway):
    """The rows at the same time, each with a gateway of its own: what takes time is waiting for samples."""
    def run_rows(rows):
        cpu = fakes(FakeLlama, says=["C"], model="fake-cpu")
        made = []
        for row in rows:
            case = Case(row, tmp_path / row["id"], libraries, cpu)
            case.gateway = start_gateway(case.first_config(), expect_children=None, env=case.env())
            case.gateway.idle_descriptors = None
            case.gateway.allow_log(r"(gpu|cpu|worker|chat|embed|device)")
            made.append(case)
        with ThreadPoolExecutor(AT_ONCE) as pool:
            failures = [f for f in pool.map(failure_of, made) if f]
        assert not failures, "\n".join(failures)
    return run_rows


def by_field_case(name):
    """The rows of a file in tests of at most sixteen, named by the field cases in them; those of one case
    are together as long as they fit."""
    cases = {}
    for parameter in load_cases(name):
        row, = parameter.values
        cases.setdefault(row["id"].split("-")[0], []).append(row)
    packs = []
    for case, rows in cases.items():
        for at in range(0, len(rows), AT_ONCE):
            part = rows[at:at + AT_ONCE]
            if not packs or len(packs[-1][1]) + len(part) > AT_ONCE:
                packs.append(([], []))
            packs[-1][0].append(case)
            packs[-1][1].extend(part)
    return [pytest.param(rows, id="-".join(names)) for names, rows in packs]


@pytest.mark.parametrize("rows", by_field_case("sharing"))
def test_who_shares_it(run_rows, rows):
    run_rows(rows)


@pytest.mark.parametrize("rows", by_field_case("memory_reports"))
def test_what_memory_is_reported_to_be(run_rows, rows):
    run_rows(rows)


@pytest.mark.parametrize("rows", by_field_case("device_events"))
def test_what_happens_to_a_device(run_rows, rows):
    run_rows(rows)
