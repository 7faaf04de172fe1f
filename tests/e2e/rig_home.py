"""The home of examples/home.yaml: its configuration with a card of the test's own, its programs and models
as setup/services.sh puts them, made speech and made pictures."""

import os
import shutil
import subprocess
from pathlib import Path

import yaml

from rig_engine import CACHE, find_engine_files
from rig_gateway import ROOT

# What is needed, the variable that names it, and where the set-up puts it when none does.
FILES = {
    "programs": ("FAILSOFT_SERVICES", "venv/services/programs"),
    "speech": ("FAILSOFT_SPEECH_MODELS", "models/hub"),
}

# The services' own Python has what makes pictures and other containers of audio.
DRAW = """
import sys
from PIL import Image, ImageDraw, ImageFont
lines = sys.argv[2:]
image = Image.new("RGB", (400, 400), "white")  # the service enlarges the shorter side to 736
for number, line in enumerate(lines):
    ImageDraw.Draw(image).text((20, 30 + 80 * number), line, fill="black",
                               font=ImageFont.load_default(size=40))
image.save(sys.argv[1])
"""
CONVERT = """
import sys
import av
with av.open(sys.argv[1]) as source, av.open(sys.argv[2], "w") as target:
    stream = target.add_stream("libopus", rate=48000, layout="mono")
    resampler = av.AudioResampler(format="flt", layout="mono", rate=48000)
    for frame in source.decode(audio=0):
        for part in resampler.resample(frame):
            target.mux(stream.encode(part))
    for part in resampler.resample(None):
        target.mux(stream.encode(part))
    target.mux(stream.encode(None))
"""


def find_home_files():
    """({what: path}, [what is missing]), the engine's files among them."""
    files, missing = find_engine_files()
    for what, (variable, place) in FILES.items():
        path = Path(os.environ.get(variable) or CACHE / place)
        if path.is_dir():
            files[what] = str(path)
        else:
            missing.append(variable)
    if not shutil.which("espeak-ng"):
        missing.append("espeak-ng")
    return files, missing


class Home:
    """What a test says and shows, and the configuration that it runs."""

    def __init__(self, files, folder):
        self.files = files
        self.folder = Path(folder)
        self.python = Path(files["programs"]).parent / "bin/python"
        # As setup/run.sh sets them.
        self.env = {"PATH": os.pathsep.join([os.environ["PATH"], files["programs"]]),
                    "HF_HUB_CACHE": files["speech"]}

    def config(self, card, **device):
        """examples/home.yaml as it stands, but for the places of things on this machine."""
        config = yaml.safe_load((ROOT / "examples/home.yaml").read_text())
        config |= {"listen": "127.0.0.1:0", "engine": self.files["engine"], "shutdown_grace": "3s"}
        config["devices"]["gpu0"] |= {"card": card.name, "plugin": self.files["plugin"]} | device
        services = config["services"]
        services["chat"] |= {"model": self.files["chat"], "context": 1024}
        services["embed"] |= {"model": self.files["embed"], "context": 256}
        for service in services.values():
            for tier in service["tiers"]:
                tier |= {"first_event_timeout": "100s", "stall_timeout": "100s",
                         "restart": {"backoff": "500ms", "backoff_max": "2s"},
                         "availability": {"hold": "500ms", "hold_max": "1s"}}
                if "command" not in tier:
                    tier["threads"] = 1
        return config

    def say(self, text, kind="wav"):
        """A recording of a made voice; returns its path."""
        made = self.folder / f"{abs(hash(text)):x}.wav"
        subprocess.run(["espeak-ng", "-v", "en-us", "-s", "140", "-w", made, text], check=True,
                       timeout=30)
        return made if kind == "wav" else self._python(CONVERT, made, made.with_suffix("." + kind))

    def show(self, *lines):
        """A picture of text; returns its path."""
        return self._python(DRAW, self.folder / "picture.png", *lines, made=0)

    def _python(self, script, *args, made=-1):
        subprocess.run([self.python, "-c", script, *args], check=True, timeout=60)
        return args[made]

