#!/usr/bin/env python3
"""Checks the layer rule: a folder of src/ includes only folders named before it.

policy/ includes base/ alone, so that its decisions stay pure: the same code runs in the gateway and
under virtual time. sim/ is a program's neighbour, not a layer: it knows only itself.

    tools/check_layers.py [ROOT]      exit 0 good, 1 finding
"""

import os
import re
import sys

LAYERS = ["base", "http", "api", "model", "device", "policy", "config", "worker", "journal",
          "gateway", "admin", "drill", "cli"]
# sim/ is below everything: telemetry and `failsoft sim` read the card through its header.
OUTSIDE = {"sim": ["sim"]}
# Libraries that some folders must not know at all: pure code does no I/O and has no clock.
PURE_FORBIDDEN = {
    "policy": re.compile(r"^(uv|time|sys/.*|unistd|stdio|pthread|llhttp|yyjson|yaml)\.h$"),
    "api": re.compile(r"^(uv|time|sys/socket|unistd|pthread)\.h$"),
}
INCLUDE = re.compile(r'^\s*#\s*include\s+(?:"([^"]+)"|<([^>]+)>)')


def sources(folder):
    for where, _, names in os.walk(folder):
        for name in sorted(names):
            if name.endswith((".c", ".h")):
                yield os.path.join(where, name)


def includes(path):
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            match = INCLUDE.match(line)
            if match:
                yield number, match.group(1), match.group(2)


def allowed_for(folder):
    if folder in OUTSIDE:
        return OUTSIDE[folder]
    if folder == "policy":
        return ["base", "policy"]
    return LAYERS[:LAYERS.index(folder) + 1] + ["sim"]


def check_file(root, folder, path, findings):
    shown = os.path.relpath(path, root)
    allowed = allowed_for(folder)
    for number, quoted, angled in includes(path):
        forbidden = PURE_FORBIDDEN.get(folder)
        if angled and forbidden and forbidden.match(angled):
            findings.append(f"{shown}:{number}: {folder}/ is pure and must not include <{angled}>")
        if not quoted:
            continue
        if "/" not in quoted:
            # A header of the program is named from src/, so that a reader sees its folder. Only
            # sim/ is flat; generated headers have no folder either.
            if folder != "sim" and os.path.exists(os.path.join(os.path.dirname(path), quoted)):
                findings.append(f'{shown}:{number}: write "{folder}/{quoted}", not "{quoted}"')
            continue
        target = quoted.split("/")[0]
        if target in LAYERS + list(OUTSIDE) and target not in allowed:
            findings.append(f"{shown}:{number}: {folder}/ must not include {target}/ "
                            f"(allowed: {', '.join(allowed)})")
        elif target == "..":
            findings.append(f'{shown}:{number}: "{quoted}" climbs out of its folder')


def check(root):
    findings = []
    source = os.path.join(root, "src")
    for folder in sorted(os.listdir(source)):
        where = os.path.join(source, folder)
        if not os.path.isdir(where):
            continue
        if folder not in LAYERS:
            findings.append(f"src/{folder}: not a layer; the order is in tools/check_layers.py")
            continue
        for path in sources(where):
            check_file(root, folder, path, findings)
    for folder in OUTSIDE:
        if os.path.isdir(os.path.join(root, folder)):
            for path in sources(os.path.join(root, folder)):
                check_file(root, folder, path, findings)
    return findings


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.dirname(
        os.path.abspath(__file__)))
    findings = check(root)
    for finding in findings:
        print(finding)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
