"""Pretended hardware for the gateway under test: a card by NVML (tests/fakes/stub_nvml.c, loaded like the
real library), a card by amdgpu's files, the host's files. What it says can be changed at any time; the
gateway finds it by the variables of docs/modules/device.md."""

import os
import subprocess
from pathlib import Path

from rig_gateway import ROOT

GiB, MiB, KiB = 1 << 30, 1 << 20, 1 << 10


def build_stub(folder, variant):
    """The stub library as a shared object; `old` has no calls of later versions."""
    path = Path(folder) / f"libstub-nvml-{variant}.so"
    if not path.exists():
        part = path.with_suffix(f".{os.getpid()}")
        subprocess.run([os.environ.get("CC", "cc"), "-shared", "-fPIC", "-std=gnu17",
                        "-fvisibility=hidden", *(["-DSTUB_NVML_OLD"] if variant == "old" else []),
                        f"-I{ROOT}", f"-I{ROOT}/src", str(ROOT / "tests/fakes/stub_nvml.c"),
                        "-lpthread", "-o", str(part)], check=True, timeout=60)
        part.rename(path)
    return path


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".new")
    temporary.write_bytes(text if isinstance(text, bytes) else text.encode())
    temporary.rename(path)  # nobody reads half a file


class NvidiaCard:
    """Facts are numbers by the names of stub_nvml.h, and `compute` and `graphics`: {pid: bytes}."""
    kind = "nvidia"

    def __init__(self, folder, library):
        self.orders = folder / "nvml-orders"
        self.library = library
        self.xids = 0
        self.facts = {"name": "NVIDIA GeForce RTX 3090", "bus_id": "00000000:06:00.0",
                      "total": 24 * GiB, "free": 24 * GiB, "used": 0}
        self.set()

    def env(self):
        return {"FAILSOFT_NVML_LIBRARY": str(self.library),
                "FAILSOFT_STUB_NVML_ORDERS": str(self.orders)}

    def set(self, **facts):
        if "xid" in facts:
            self.xids += 1
        self.facts |= facts
        lines = []
        for key, value in self.facts.items():
            if isinstance(value, dict):
                lines += [f"{key} {pid} {int(n)}" for pid, n in value.items()]
            elif key == "xid":
                lines.append(f"xid {value} {self.xids}")
            else:
                lines.append(f"{key} {value if isinstance(value, str) else int(value)}")
        write(self.orders, "\n".join(lines) + "\n")


class AmdCard:
    """Facts: vram_total, vram_used, gtt_total, gtt_used; `format`: 1 a card, 2 or 3 an APU; `gone`: no
    files at all. Bytes or any text."""
    kind = "amd"

    def __init__(self, folder, _library=None):
        self.sys = folder / "sys"
        self.device = self.sys / "class/drm/card0/device"
        self.set(vendor="0x1002", format=1, vram_total=16 * GiB, vram_used=0)
        write(self.device / "uevent", "DRIVER=amdgpu\nPCI_SLOT_NAME=0000:03:00.0\n")

    def env(self):
        return {"FAILSOFT_SYS": str(self.sys)}

    def set(self, **facts):
        for key, value in facts.items():
            text = value if isinstance(value, str) else str(int(value))
            if key == "vendor":
                write(self.device / "vendor", text + "\n")
            elif key == "format":
                write(self.device / "gpu_metrics", bytes([0x80, 0, int(value), 1, 0xff, 0xff]))
            elif key == "gone":
                for file in list(self.device.iterdir()):
                    file.unlink()
            else:
                write(self.device / f"mem_info_{key}", text + "\n")


class Host:
    """/proc and /sys/fs/cgroup. Facts: total, available (bytes, or None for no such line), psi; groups:
    {folder: (max, current, inactive_file)} of cgroup v2, the gateway in the last one."""

    def __init__(self, folder):
        self.proc, self.cgroup = folder / "proc", folder / "cgroup"
        self.cgroup.mkdir(parents=True)
        self.kmsg = folder / "kmsg"
        self.facts = {"total": 64 * GiB, "available": 48 * GiB}
        self.set()

    def env(self):
        return {"FAILSOFT_PROC": str(self.proc), "FAILSOFT_CGROUP": str(self.cgroup)}

    def set(self, **facts):
        self.facts |= facts
        f = self.facts
        text = f"MemTotal: {int(f['total']) // KiB} kB\nMemFree: 1024 kB\n"
        if f["available"] is not None:
            text += f"MemAvailable: {int(f['available']) // KiB} kB\n"
        write(self.proc / "meminfo", text)
        groups = f.get("groups", {})
        write(self.proc / "self/cgroup", f"0::{list(groups)[-1] if groups else '/'}\n")
        for group, (limit, current, inactive) in groups.items():
            at = self.cgroup / group.strip("/")
            write(at / "memory.max", f"{limit if isinstance(limit, str) else int(limit)}\n")
            write(at / "memory.current", f"{int(current)}\n")
            write(at / "memory.stat", f"anon 1\nfile 2\ninactive_file {int(inactive)}\n")
        if "psi" in f:
            write(self.proc / "pressure/memory", f"some avg10={f['psi']:.2f} avg60=0.00 avg300=0.00"
                  " total=1\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=1\n")


CARDS = {"nvidia": NvidiaCard, "amd": AmdCard}
