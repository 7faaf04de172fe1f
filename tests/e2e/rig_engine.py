"""The real engine for the tests that need one: where it is, and a simulated card of their own."""

import os
import subprocess
import time
import uuid
from pathlib import Path

from rig_gateway import ROOT, binary

CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "failsoft"

# ChatML with tools: the small model's own template knows none.
TEMPLATE = ROOT / "tests/cases/chatml_tools.jinja"

# What is needed, the variable that names it, and where the set-up puts it when none does.
FILES = {
    "engine": ("FAILSOFT_ENGINE", CACHE, "engine/*/llama-server"),
    "plugin": ("FAILSOFT_SIM_PLUGIN", ROOT, "build/sim/libggml-failsoft-sim.so"),
    "chat": ("FAILSOFT_CHAT_MODEL", CACHE, "models/SmolLM2-135M-Instruct-*.gguf"),
    "embed": ("FAILSOFT_EMBED_MODEL", CACHE, "models/all-MiniLM-L6-v2-*.gguf"),
}


def find_engine_files():
    """({what: path}, [what is missing])"""
    files, missing = {}, []
    for what, (variable, folder, pattern) in FILES.items():
        named = os.environ.get(variable)
        found = [Path(named)] if named else sorted(folder.glob(pattern))
        if found and found[-1].exists():
            files[what] = str(found[-1].resolve())
        else:
            missing.append(variable)
    return files, missing


class SimCard:
    """One simulated card, driven as a user would: by `failsoft sim`."""

    def __init__(self, capacity="2GiB", **settings):
        self.name = "e2e-" + uuid.uuid4().hex[:10]
        self.lost = False
        self.command("create", self.name, "--capacity", capacity, *self._settings(settings))

    @staticmethod
    def _settings(settings):
        return [f"{key.replace('_', '-')}={value}" for key, value in settings.items()]

    @staticmethod
    def command(*args):
        result = subprocess.run([str(binary()), "sim", *args], capture_output=True, text=True,
                                timeout=20, check=False)
        assert result.returncode == 0, f"failsoft sim {' '.join(args)}: {result.stderr}"
        return result.stdout

    def set(self, **settings):
        self.command("set", self.name, *self._settings(settings))

    def fail(self, *args):
        self.command("fail", self.name, *args)

    def stall(self, *args):
        self.command("stall", self.name, *args)

    def lose(self, *args):
        self.command("lose", self.name, *args)
        self.lost = True

    def reset(self):
        """As a driver reset: processes that are attached stay lost, new ones find a good card."""
        self.command("reset", self.name)
        self.lost = False

    def mend(self):
        """Ends every fault, whatever the test left."""
        self.fail("--off")
        self.stall("--off")
        self.set(slowdown="1", workspace="0", capacity="2GiB")
        if self.lost:
            self.reset()

    def destroy(self):
        deadline = time.monotonic() + 5
        while True:
            result = subprocess.run([str(binary()), "sim", "destroy", self.name, "--force"],
                                    capture_output=True, timeout=20, check=False)
            if result.returncode == 0 or time.monotonic() > deadline:
                return
            time.sleep(0.1)


def engine_config(files, card, **tier_options):
    """`chat` and `embed`, each managed on the simulated card and on the CPU."""
    waits = {"first_event_timeout": "12s", "stall_timeout": "4s", "stop_grace": "2s",
             # Long enough that a fault of a few seconds is not yet "never gets ready".
             "restart": {"backoff": "1s", "backoff_max": "4s", "settled": "1s"},
             "availability": {"hold": "300ms", "hold_max": "600ms"}} | tier_options
    gpu = {"name": "gpu", "device": "gpu0", "slots": 2, **waits}
    cpu = {"name": "cpu", "threads": 2, "slots": 2, **waits, "first_event_timeout": "60s",
           "stall_timeout": "60s"}
    return {
        "listen": "127.0.0.1:0",
        "engine": files["engine"],
        "shutdown_grace": "3s",
        "devices": {"gpu0": {"kind": "sim", "card": card.name, "plugin": files["plugin"]}},
        "services": {
            "chat": {"kind": "chat", "model": files["chat"], "context": 1024,
                     "tiers": [{**tier, "args": ["--chat-template-file", str(TEMPLATE)]}
                               for tier in (gpu, cpu)]},
            "embed": {"kind": "embeddings", "model": files["embed"], "context": 256,
                      "tiers": [gpu, cpu]},
        },
    }
