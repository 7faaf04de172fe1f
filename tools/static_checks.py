#!/usr/bin/env python3
"""Every check that looks at the code without running the gateway. One line a check, then a summary.

    tools/static_checks.py                 all but fuzz; build/ and build-clang/ have to be there
    tools/static_checks.py layers tidy     only these
    tools/static_checks.py fuzz            every target of build-fuzz/ for FUZZ_SECONDS (60)

The last line is `static checks: N passed, N failed`. Exit 0 good, 1 finding.
"""

import concurrent.futures
import glob
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
JOBS = int(os.environ.get("FAILSOFT_JOBS") or os.cpu_count() or 2)
SOURCE_FOLDERS = ["src", "sim", "bench", "tests"]


def clang_program(name):
    """Debian numbers clang's programs. 14 first for the formatter: others lay out differently."""
    for candidate in [f"{name}-14", name] + [f"{name}-{number}" for number in range(15, 23)]:
        path = shutil.which(candidate)
        if path:
            return path
    raise FileNotFoundError(f"{name} is not installed; run: setup/packages.sh lint")


def run(command, **options):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, errors="replace", cwd=ROOT,
                          check=False, **options)
    return done.returncode == 0, done.stdout


def sources(suffixes=(".c", ".h")):
    found = []
    for folder in SOURCE_FOLDERS:
        for where, _, names in os.walk(os.path.join(ROOT, folder)):
            found += [os.path.join(where, name) for name in names if name.endswith(suffixes)]
    return sorted(found)


def check_build(folder):
    return run(["ninja", "-C", folder, "-j", str(JOBS), "--quiet"])


def check_format():
    return run([clang_program("clang-format"), "--dry-run", "-Werror", "--ferror-limit=3",
                *[os.path.relpath(path, ROOT) for path in sources()]])


def check_tidy():
    """clang-tidy on every file of src/ and sim/ that build-clang compiles."""
    tidy = clang_program("clang-tidy")
    with open(os.path.join(ROOT, "build-clang", "compile_commands.json"), encoding="utf-8") as file:
        paths = {os.path.normpath(os.path.join(entry["directory"], entry["file"]))
                 for entry in json.load(file)}
    wanted = sorted(path for path in paths
                    if os.path.relpath(path, ROOT).split(os.sep)[0] in ("src", "sim"))
    with concurrent.futures.ThreadPoolExecutor(JOBS) as pool:
        results = list(pool.map(
            lambda path: run([tidy, "--quiet", "-p", "build-clang", path]), wanted))
    return (bool(results) and all(good for good, _ in results),
            "\n".join(output for good, output in results if not good))


def check_shell():
    """bash reads every script; shellcheck as well where it is installed."""
    scripts = glob.glob(os.path.join(ROOT, "setup", "*.sh")) + [os.path.join(ROOT, ".ci", "run")]
    good, output = run(["bash", "-n", *scripts])
    for script in scripts:
        one, text = run(["bash", "-n", script])
        good, output = good and one, output + text
    if good and shutil.which("shellcheck"):
        return run(["shellcheck", "-x", "-P", os.path.join(ROOT, "setup"), "-S", "warning", *scripts])
    return good, output


def fuzz_target(path, seconds):
    """One target with its own copy of the corpus, so that what it finds never lands in the tree."""
    name = os.path.basename(path)
    corpus = os.path.join(ROOT, "tests", "fuzz", "corpus", name)
    keep = os.path.join(ROOT, "build-fuzz", "found")
    os.makedirs(keep, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="fuzz-") as work:
        folders = [work] + ([corpus] if os.path.isdir(corpus) else [])
        good, output = run(
            [path, f"-max_total_time={seconds}", "-timeout=10", "-rss_limit_mb=1024",
             "-max_len=16384", "-print_final_stats=1", f"-artifact_prefix={keep}/{name}-", *folders],
            env=dict(os.environ, ASAN_OPTIONS="detect_leaks=1", UBSAN_OPTIONS="halt_on_error=1"))
    return good, output


def fuzz_checks():
    """(name, function) for each built target; none at all is a failure of its own."""
    seconds = int(os.environ.get("FUZZ_SECONDS") or 60)
    targets = [path for path in sorted(glob.glob(os.path.join(
        ROOT, "build-fuzz", "tests", "fuzz", "fuzz_*"))) if os.path.isfile(path) and
        os.access(path, os.X_OK)]
    if not targets:
        return [("fuzz", lambda: (False, "no fuzz target in build-fuzz/tests/fuzz"))]
    return [(os.path.basename(path), lambda path=path: fuzz_target(path, seconds))
            for path in targets]


def script(name):
    return lambda: run([sys.executable, os.path.join("tools", name)])


CHECKS = {
    "layers": script("check_layers.py"),
    "house": script("check_house.py"),
    "checkers": script("check_selftest.py"),
    "shell": check_shell,
    "gcc": lambda: check_build("build"),
    "clang": lambda: check_build("build-clang"),
    "format": check_format,
    "tidy": check_tidy,
}


def report(name, function):
    started = time.monotonic()
    try:
        good, output = function()
    except (OSError, ValueError) as error:
        good, output = False, str(error)
    took = time.monotonic() - started
    text = f"{'ok  ' if good else 'FAIL'} {name} ({took:.0f} s)"
    if not good:
        text += "\n" + output.strip()[-8000:]
    print(text, flush=True)
    return good


def main(arguments):
    wanted = arguments or list(CHECKS)
    unknown = [name for name in wanted if name not in CHECKS and name != "fuzz"]
    if unknown:
        print(f"static_checks: unknown check '{unknown[0]}'; one of: {', '.join(CHECKS)}, fuzz",
              file=sys.stderr)
        return 2
    results = [report(name, CHECKS[name]) for name in wanted if name in CHECKS]
    if "fuzz" in wanted:
        # A fuzzer uses one core; as many at a time as there are cores.
        with concurrent.futures.ThreadPoolExecutor(JOBS) as pool:
            results += list(pool.map(lambda pair: report(*pair), fuzz_checks()))
    failed = results.count(False)
    print(f"static checks: {len(results) - failed} passed, {failed} failed", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
