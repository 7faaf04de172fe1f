#!/usr/bin/env python3
"""Checks the house rules that a compiler does not know:

  - banned functions (no sprintf, strcpy, strcat, strtok, atoi, system, popen, alloca)
  - a source file has at most 800 lines, no line is endless
  - include guards are named after the path; no #pragma once
  - a file of the program opens with a comment that says why it exists
  - no absolute path of somebody's machine, no unfinished marks, no conflict marks
  - nothing big or binary: third-party code and data come from pinned packages

    tools/check_house.py [ROOT]      exit 0 good, 1 finding
"""

import os
import re
import subprocess
import sys

BANNED = ["sprintf", "vsprintf", "strcpy", "strcat", "strncat", "strncpy", "strtok", "atoi", "atol",
          "atoll", "atof", "gets", "system", "popen", "alloca", "tmpnam", "mktemp"]
BANNED_CALL = re.compile(r"(?<![\w.>])(" + "|".join(BANNED) + r")\s*\(")
# Folders that only exist on a particular machine. Written so that this file is not a finding itself.
PRIVATE_PATH = re.compile(
    r"(?<![\w.$}])/(?:home/(?!\w+/\.{3})[a-z]\w*/|Users/\w+/|root/|work/|farm/)")
PARENT_REFERENCE = re.compile(r"(?:^|[\s`'\"(])\.\./(?!src|tests|docs|setup|tools|sim|bench|web)\w+/")
UNFINISHED = re.compile(r"\b(?:" + "TO" + "DO|FIX" + "ME|XX" + r"X)\b")
CONFLICT = re.compile(r"^(?:<{7} |>{7} |={7}$)")
COMMENT_OR_STRING = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.DOTALL)
MAX_LINES = 800
MAX_COLUMNS = 140  # code is held to 100 by clang-format; this is for comments and tables
MAX_FILE_BYTES = 400 * 1024


def tracked(root):
    """What git knows or would add: build folders and caches are not ours to judge."""
    output = subprocess.run(
        ["git", "-C", root, "ls-files", "--cached", "--others", "--exclude-standard"],
        capture_output=True, text=True, check=False)
    if output.returncode == 0:
        names = output.stdout.splitlines()
    else:  # an unpacked archive
        names = [os.path.relpath(os.path.join(where, name), root)
                 for where, folders, files in os.walk(root) for name in files
                 if not any(part.startswith(("build", ".")) for part in where.split(os.sep))]
    return sorted(name for name in set(names) if os.path.isfile(os.path.join(root, name)))


def blank_out(match):
    """A comment or string, replaced by nothing but its line ends."""
    return re.sub(r"[^\n]", " ", match.group(0))


def guard_of(name):
    inner = name[len("src/"):] if name.startswith("src/") else name
    return "FAILSOFT_" + re.sub(r"[^A-Za-z0-9]", "_", inner).upper()


def check_c(name, text, findings):
    lines = text.split("\n")
    if len(lines) > MAX_LINES + 1:
        findings.append(f"{name}: {len(lines) - 1} lines; above {MAX_LINES} it holds two ideas")
    for number, line in enumerate(lines, 1):
        if len(line) > MAX_COLUMNS:
            findings.append(f"{name}:{number}: {len(line)} columns, at most {MAX_COLUMNS}")
    code = COMMENT_OR_STRING.sub(blank_out, text)
    for number, line in enumerate(code.split("\n"), 1):
        match = BANNED_CALL.search(line)
        if match:
            findings.append(f"{name}:{number}: {match.group(1)}() is not used here")
        if re.match(r"\s*#\s*pragma\s+once", line):
            findings.append(f"{name}:{number}: include guards, not #pragma once")
    if not text.lstrip().startswith("/*"):
        findings.append(f"{name}:1: a file opens with a comment that says why it exists")
    if name.endswith(".h") and name.startswith(("src/", "sim/")):
        guard = guard_of(name)
        if f"#ifndef {guard}\n#define {guard}\n" not in text:
            findings.append(f"{name}:1: its include guard is {guard}")


def check_text(name, text, findings):
    for number, line in enumerate(text.split("\n"), 1):
        for pattern, what in ((PRIVATE_PATH, "a path of one machine"),
                              (PARENT_REFERENCE, "a path outside the repository"),
                              (UNFINISHED, "an unfinished mark"),
                              (CONFLICT, "a conflict mark")):
            match = pattern.search(line)
            if match:
                findings.append(f"{name}:{number}: {what}: '{match.group(0).strip()}'")


def check(root):
    findings = []
    for name in tracked(root):
        path = os.path.join(root, name)
        with open(path, "rb") as file:
            data = file.read()
        if len(data) > MAX_FILE_BYTES:
            findings.append(f"{name}: {len(data) // 1024} KiB; data comes from pinned packages")
            continue
        if "/corpus/" in name or name.startswith("tests/cases/"):
            continue  # inputs, broken on purpose
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError:
            if b"\0" in data:
                findings.append(f"{name}: binary")
            else:
                findings.append(f"{name}: not UTF-8")
            continue
        check_text(name, text, findings)
        if name.endswith((".c", ".h")):
            check_c(name, text, findings)
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
