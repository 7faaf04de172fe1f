#!/usr/bin/env python3
"""Runs the tests and closes with one plain line: `N passed, N failed`, and skipped ones if any.

    tools/run_tests.py unit        cmocka tests of build-asan, through meson
    tools/run_tests.py e2e         pytest in tests/e2e (FAILSOFT_PYTEST: the python to run it with)

Each cmocka test function and each pytest case counts as one. A test program that died without
saying what it ran counts as one failure, a part that ran nothing at all as well: a suite that
silently shrinks to nothing must never be green.
"""

import json
import os
import re
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CMOCKA_COUNT = re.compile(r"^\[  (PASSED|FAILED|SKIPPED) \s*\] (\d+) test\(s\)", re.MULTILINE)


class Count:
    """Passed, failed and skipped, and the names of what failed."""

    def __init__(self):
        self.passed = self.failed = self.skipped = 0
        self.names = []

    def add(self, other):
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped
        self.names += other.names

    def line(self):
        text = f"{self.passed} passed, {self.failed} failed"
        return text + (f", {self.skipped} skipped" if self.skipped else "")


def count_meson_test(entry):
    """One test program of meson's log: what cmocka said, checked against the exit status."""
    count = Count()
    output = (entry.get("stdout") or "") + "\n" + (entry.get("stderr") or "")
    for word, number in CMOCKA_COUNT.findall(output):
        attribute = word.lower()
        setattr(count, attribute, getattr(count, attribute) + int(number))
    if entry["result"] == "SKIP" and not count.passed:
        count.skipped = max(count.skipped, 1)
    elif entry["result"] not in ("OK", "EXPECTEDFAIL", "SKIP"):
        count.failed = max(count.failed, 1)
        count.names.append(f"{entry['name']} ({entry['result'].lower()})")
        print(f"\n--- {entry['name']}: {entry['result']}\n{output.strip()[-6000:]}\n", flush=True)
    elif count.passed + count.skipped == 0:
        count.passed = 1  # a test program that does not use cmocka
    return count


def run_unit():
    folder = os.path.join(ROOT, "build-asan")
    jobs = os.environ.get("FAILSOFT_JOBS") or str(os.cpu_count() or 2)
    log = os.path.join(folder, "meson-logs", "testlog.json")
    if os.path.exists(log):
        os.unlink(log)
    status = subprocess.run(
        ["meson", "test", "-C", folder, "--no-rebuild", "--num-processes", jobs,
         "--timeout-multiplier", "4"],
        stdin=subprocess.DEVNULL, check=False).returncode
    total = Count()
    if os.path.exists(log):
        with open(log, encoding="utf-8", errors="replace") as file:
            for line in file:
                total.add(count_meson_test(json.loads(line)))
    if total.passed + total.failed == 0:
        total.failed = 1
        total.names.append("unit: no test ran")
    elif status != 0 and total.failed == 0:
        total.failed = 1
        total.names.append(f"unit: meson test ended with status {status}")
    return total


def count_junit(path):
    count = Count()
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        kinds = {child.tag for child in case}
        if kinds & {"failure", "error"}:
            count.failed += 1
            count.names.append(f"{case.get('classname', '')}::{case.get('name', '')}")
        elif "skipped" in kinds:
            count.skipped += 1
        else:
            count.passed += 1
    return count


def run_e2e():
    python = os.environ.get("FAILSOFT_PYTEST", sys.executable)
    report = os.path.join(ROOT, "build", "e2e.xml")
    if os.path.exists(report):
        os.unlink(report)
    # The tests mostly wait, so twice as many at a time as there are cores. Which ones never run side
    # by side is said in tests/e2e/conftest.py.
    workers = os.environ.get("FAILSOFT_TEST_WORKERS") or str(min(8, 2 * (os.cpu_count() or 2)))
    status = subprocess.run(
        [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}",
         "-n", workers, "--dist", "loadscope",
         *os.environ.get("PYTEST_ARGS", "").split(), os.path.join(ROOT, "tests", "e2e")],
        stdin=subprocess.DEVNULL, cwd=ROOT, check=False,
        env=dict(os.environ, PYTHONDONTWRITEBYTECODE="1")).returncode
    total = count_junit(report) if os.path.exists(report) else Count()
    if total.passed + total.failed == 0:
        total.failed = 1
        total.names.append("e2e: no test ran")
    elif status != 0 and total.failed == 0:
        total.failed = 1
        total.names.append(f"e2e: pytest ended with status {status}")
    return total


PARTS = {"unit": run_unit, "e2e": run_e2e}


def main(arguments):
    unknown = [part for part in arguments if part not in PARTS]
    if unknown or not arguments:
        print(f"run_tests: say which: {', '.join(PARTS)}", file=sys.stderr)
        return 2
    total = Count()
    for part in arguments:
        started = time.monotonic()
        count = PARTS[part]()
        print(f"\n{part}: {count.line()} in {time.monotonic() - started:.0f} s\n", flush=True)
        total.add(count)
    for name in total.names:
        print(f"failed: {name}")
    print(total.line(), flush=True)
    return 1 if total.failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
