"""What the kernel says about a process and its children: CPU time in ns, memory in KiB.

CPU time comes from schedstat of every task (nanoseconds, unlike the 10 ms ticks of /proc/PID/stat).
Memory is the proportional set size (Pss): pages shared by nginx's master and worker count once.
"""

import os
from pathlib import Path


def tree(pid):
    """The process and its descendants, by pid."""
    found, todo = [], [pid]
    while todo:
        one = todo.pop()
        found.append(one)
        try:
            for task in os.listdir(f"/proc/{one}/task"):
                todo += map(int, Path(f"/proc/{one}/task/{task}/children").read_text().split())
        except FileNotFoundError:
            found.remove(one)
    return found


def cpu_ns(pids):
    total = 0
    for pid in pids:
        for task in os.listdir(f"/proc/{pid}/task"):
            total += int(Path(f"/proc/{pid}/task/{task}/schedstat").read_text().split()[0])
    return total


def _field_kib(path, name):
    for line in Path(path).read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1])
    raise KeyError(name)


def pss_kib(pids):
    return sum(_field_kib(f"/proc/{pid}/smaps_rollup", "Pss") for pid in pids)


def rss_kib(pids):
    return sum(_field_kib(f"/proc/{pid}/status", "VmRSS") for pid in pids)


def peak_rss_kib(pids):
    return sum(_field_kib(f"/proc/{pid}/status", "VmHWM") for pid in pids)


def reset_peak(pids):
    """Lets VmHWM start again from what is resident now."""
    for pid in pids:
        Path(f"/proc/{pid}/clear_refs").write_text("5")
