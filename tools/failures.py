#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What went wrong in runs of ctest, in a few lines each: tools/failures.py LOG...

Names every test that failed once, and whether it passed when it ran again, with the part of its
output that says why: the failed cases of GoogleTest, else the last lines.
"""

import re
import sys

HEAD = re.compile(r"^\s*(?:\d+/\d+ )?Test\s+#\d+: (\S+) \.*\s*(Passed|\*\*\*\S+|Skipped)")
START = re.compile(r"^\s+Start\s+\d+: ")
END = re.compile(r"^\d+% tests passed, ")
CASE = re.compile(r"^\[ RUN      \] ")
CASE_FAILED = re.compile(r"^\[  FAILED  \] .* \(\d+ ms\)$")
CASE_OVER = re.compile(r"^\[       OK \] ")
COMPLAINT = re.compile(r"^\S+:\d+: Failure$|C\+\+ exception|^Traceback|terminate called")
COMPLAINT_LINES = 7
MOST_LINES = 30
MOST_COLUMNS = 240


def runs(lines):
    """Yields (test, how it ended, its output)."""
    name, ended, output = None, "", []
    for line in lines:
        head = HEAD.match(line)
        if head or START.match(line) or END.match(line):
            if name:
                yield name, ended, output
            name, ended, output = (head[1], head[2], []) if head else (None, "", [])
        elif name:
            output.append(line)
    if name:
        yield name, ended, output


def told(case):
    """The complaints of a case, each with what follows it, and the case's last lines."""
    last = max(0, len(case) - MOST_LINES // 3)
    near, left = set(range(last, len(case))), 0
    for i, line in enumerate(case[:last]):
        left = COMPLAINT_LINES if COMPLAINT.search(line) else left - 1
        if left > 0:
            near.add(i)
    return [case[i] for i in sorted(near)][-MOST_LINES:]


def reasons(output):
    """The lines of the failed cases; the last case, if it did not end; else the last lines."""
    out, case = [], None
    for line in output:
        if CASE.match(line):
            case = []
        if case is not None:
            case.append(line)
        if CASE_FAILED.match(line) and case:
            out += case[:1] + told(case[1:])
        if CASE_FAILED.match(line) or CASE_OVER.match(line):
            case = None
    if not out:
        out = (case or [line for line in output if line.strip()])[-MOST_LINES:]
    return [line[:MOST_COLUMNS] for line in out]


def report(lines):
    failed, passed = {}, set()
    for name, ended, output in runs(lines):
        if ended.startswith("***"):
            failed[name] = (ended.strip("*"), reasons(output))
        elif name in failed:
            passed.add(name)
    out = []
    for name, (ended, why) in failed.items():
        again = "; passed when it ran again" if name in passed else ""
        out += [f"--- {name}: {ended}{again}", *why]
    return out


def main(paths):
    for path in paths:
        with open(path, encoding="utf-8", errors="replace") as log:
            for line in report(log.read().splitlines()):
                print(line)


if __name__ == "__main__":
    main(sys.argv[1:])
