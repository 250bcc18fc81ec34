#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds and runs the tests that are nearest to what differs from main (make test-fast).

Nearest are the test programs whose own sources differ, and those that stand in the folder of a
changed file (or, if there are none, in the closest folder above it that has tests). Programs of
other folders that only use a changed header are left to `make test`. The checks of sizes and
formatting always run, that of the floors where a source differs.

  tools/test_fast.py                  what differs from the merge base with main, uncommitted and
                                      untracked files too; on main itself: from the commit before
  tools/test_fast.py --base COMMIT    what differs from COMMIT
  tools/test_fast.py --list           only say which tests that would be
"""

import argparse
import json
import os
import subprocess
import sys

from default_base import default_base

ALWAYS = {"check_size", "check_format"}
SOURCES = (".h", ".cc", ".inc")


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def changed_files(base):
    differ = output("git", "diff", "--name-only", base).split("\n")
    untracked = output("git", "ls-files", "--others", "--exclude-standard").split("\n")
    return sorted({name for name in differ + untracked if name})


def registered_tests(build):
    """[(test's name, program relative to the build folder or None, folder of the sources)]"""
    listed = json.loads(output("ctest", "--test-dir", build, "--show-only=json-v1"))
    nodes = listed["backtraceGraph"]["nodes"]
    files = listed["backtraceGraph"]["files"]

    def folder_of(test):
        """Of the CMakeLists.txt that called what added the test; helpers in cmake/ are passed by."""
        node = nodes[test["backtrace"]]
        while node is not None:
            path = os.path.relpath(files[node["file"]])
            if os.path.basename(path) == "CMakeLists.txt":
                return os.path.dirname(path)
            node = nodes[node["parent"]] if "parent" in node else None
        return ""

    tests = []
    for test in listed["tests"]:
        program = os.path.relpath(test["command"][0], build) if "command" in test else None
        inside = program is not None and not program.startswith("..")
        tests.append((test["name"], program if inside else None, folder_of(test)))
    return tests


def nearest_tests(changed, tests):
    """Names of the tests that are nearest to the changed files. A file tests/x_test.cc that is a
    whole test program called x_test is that program alone."""
    names = {name for name, _, _ in tests}
    folders = {folder for _, _, folder in tests}
    wanted = set(ALWAYS & names)
    if any(name.endswith(SOURCES) for name in changed):
        wanted |= {"check_layers"} & names
    for path in changed:
        stem = os.path.splitext(os.path.basename(path))[0]
        if stem in names and path.startswith("tests/"):
            wanted.add(stem)
            continue
        folder = os.path.dirname(path)
        while folder and folder not in folders:
            folder = os.path.dirname(folder)
        wanted |= {name for name, _, of in tests if folder and of == folder}
    return wanted


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", help="the commit to compare with")
    parser.add_argument("--build", default="build/dev", help="the configured build folder")
    parser.add_argument("--jobs", default=str(os.cpu_count()))
    parser.add_argument("--list", action="store_true", help="only say which tests")
    options = parser.parse_args()
    os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

    changed = changed_files(options.base or default_base())
    tests = registered_tests(options.build)
    wanted = nearest_tests(changed, tests)
    print(f"test_fast: {len(changed)} files differ; {', '.join(sorted(wanted))}", flush=True)
    if options.list:
        return 0
    programs = sorted({program for name, program, _ in tests if name in wanted and program})
    if programs:
        subprocess.run(["ninja", "-C", options.build, "-j", options.jobs, "--quiet", *programs],
                       check=True)
    only = "^(" + "|".join(sorted(wanted)) + ")$"
    return subprocess.run(["ctest", "--test-dir", options.build, "--output-on-failure",
                           "-j", options.jobs, "-R", only]).returncode


if __name__ == "__main__":
    sys.exit(main())
