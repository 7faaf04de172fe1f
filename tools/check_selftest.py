#!/usr/bin/env python3
"""The checkers, checked: each rule is broken once in a throw-away tree and has to be reported."""

import os
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True

import check_house  # noqa: E402
import check_layers  # noqa: E402

HEAD = "/* Why it exists. */\n"
PLACE = "/" + "home/somebody/thing"

# (file, its text, what the finding says); the file that has no finding says None.
LAYER_CASES = [
    ("src/http/a.c", HEAD + '#include "base/buf.h"\n#include "http/a.h"\n', None),
    ("src/http/b.c", HEAD + '#include "gateway/gateway.h"\n', "must not include gateway/"),
    ("src/policy/c.c", HEAD + '#include "http/a.h"\n', "must not include http/"),
    ("src/policy/d.c", HEAD + "#include <uv.h>\n", "is pure"),
    ("src/surprise/e.c", HEAD, "not a layer"),
    ("sim/f.c", HEAD + '#include "worker/worker.h"\n', "must not include worker/"),
    ("src/device/g.c", HEAD + '#include "sim/card.h"\n', None),
]
HOUSE_CASES = [
    ("src/base/a.c", HEAD + 'int f(char *s)\n{\n    return snprintf(s, 1, "atoi(1)");\n}\n', None),
    ("src/base/b.c", HEAD + "int f(char *s)\n{\n    return atoi(s);\n}\n", "atoi() is not used"),
    ("src/base/c.c", HEAD + "void f(void)\n{\n    sprintf(a, b);\n}\n", "sprintf() is not used"),
    ("src/base/d.c", HEAD + "int x;\n" * 801, "holds two ideas"),
    ("src/base/e.c", "int x;\n", "opens with a comment"),
    ("src/base/f.h", HEAD + "#pragma once\n", "#pragma once"),
    ("src/base/g.h", HEAD + "#ifndef WRONG_H\n#define WRONG_H\n#endif\n",
     "its include guard is FAILSOFT_BASE_G_H"),
    ("src/base/h.c", HEAD + f'const char *p = "{PLACE}";\n', "a path of one machine"),
    ("docs/i.md", "see " + PLACE + "\n", "a path of one machine"),
    ("docs/j.md", "see `.." + "/elsewhere/note.md`\n", "a path outside the repository"),
    ("docs/k.md", "TO" + "DO: write this\n", "an unfinished mark"),
    ("docs/l.md", "/var/lib/failsoft and ~/models/x.gguf are fine\n", None),
    ("docs/m.md", "x" * (check_house.MAX_FILE_BYTES + 1), "pinned packages"),
]


def failures_of(cases, check):
    failures = []
    with tempfile.TemporaryDirectory() as root:
        for name, text, _ in cases:
            path = os.path.join(root, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
        findings = check(root)
    for name, _, expected in cases:
        stem = name if expected is None or "layer" not in expected else os.path.dirname(name)
        mine = [finding for finding in findings if finding.startswith(stem)]
        if expected is None and mine:
            failures.append(f"{name}: wrongly reported: {mine[0]}")
        if expected is not None and not any(expected in finding for finding in mine):
            failures.append(f"{name}: not reported: '{expected}' (got: {mine})")
    return failures


def main():
    failures = failures_of(LAYER_CASES, check_layers.check)
    failures += failures_of(HOUSE_CASES, check_house.check)
    for failure in failures:
        print(failure)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
