#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tells what a build compiles again when a header changes, and how long that took last time.

    tools/build_cost.py [--build build/dev] [--top 20] [HEADER...]
    tools/build_cost.py --floors [--at COMMIT]
    tools/build_cost.py --compile N

Without headers: the most expensive ones of this tree. --floors: of each folder of cohort/ the public
header whose change costs most, as a table; --at counts beside it the sources that read the same
header in an older commit (by includes, each source an object). Seconds are those of one compiler at
a time, the least that ninja remembers of each object: CPU seconds where nothing else ran beside the
builds, else more, and only their shares say something. Objects that only ever came out of the
compiler cache count as much as the mean of the others; a build with CCACHE_RECACHE=1 has none.

--compile: compiles every Nth object of a build once more, beside it, one at a time and without the
compiler cache, and all precompiled headers, and tells the CPU seconds, user and system, of each kind
of target (N times those of the sample) and of the slowest. The processors may be busy meanwhile.
"""
import argparse
import collections
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

from check_layers import FLOORS

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Nothing of this tree compiles faster than this; the compiler cache mostly does.
CACHED_SECONDS = 1.0


def seconds_by_object(build):
    """What .ninja_log says of the objects that are there."""
    seconds, compiled = {}, {}
    for line in (build / ".ninja_log").read_text().splitlines():
        fields = line.split("\t")
        # Objects of custom commands are there twice, by their full paths, too.
        named = len(fields) == 5 and fields[3].endswith(".o") and not fields[3].startswith("/")
        if named and (build / fields[3]).exists():
            seconds[fields[3]] = took = (int(fields[1]) - int(fields[0])) / 1000
            if took >= CACHED_SECONDS:
                compiled[fields[3]] = min(took, compiled.get(fields[3], took))
    mean = sum(compiled.values()) / max(len(compiled), 1)
    return {o: compiled.get(o, mean) for o in seconds}, len(seconds) - len(compiled)


def objects_by_header(build, objects):
    """Which of the objects read which of this tree's headers, by ninja's own list."""
    readers = collections.defaultdict(set)
    listing = subprocess.run(["ninja", "-C", build, "-t", "deps"], check=True, text=True,
                             capture_output=True).stdout
    current = None
    for line in listing.splitlines():
        if line and not line.startswith(" "):
            current = line.split(":")[0]
        elif line.strip().endswith(".h") and current in objects:
            path = pathlib.Path(build, line.strip()).resolve()
            if path.is_relative_to(ROOT) and not path.is_relative_to(ROOT / "build"):
                readers[str(path.relative_to(ROOT))].add(current)
    return readers


def sources_by_header(commit):
    """Which sources read which headers of a commit, by their includes."""
    def git(*arguments):
        return subprocess.run(["git", "-C", ROOT, *arguments], check=True, text=True,
                              capture_output=True).stdout
    includes = collections.defaultdict(set)
    for line in git("grep", "-E", '^#include "(cohort|tests|examples)/', commit, "--", "*.cc",
                    "*.h", "*.inc").splitlines():
        file, text = line.removeprefix(f"{commit}:").split(":", 1)
        includes[file].add(re.search('"([^"]+)"', text).group(1))
    sources = [f for f in git("ls-tree", "-r", "--name-only", commit).splitlines()
               if f.endswith(".cc") and not f.startswith("benchmarks/")]
    readers = collections.defaultdict(set)
    for source in sources:
        seen, waiting = set(), [source]
        while waiting:
            for header in includes[waiting.pop()] - seen:
                seen.add(header)
                waiting.append(header)
                readers[header].add(source)
    return readers, len(sources)


def floors_table(seconds, readers, commit):
    """A line for each folder: the header of it that costs most."""
    def cost(header):
        return sum(seconds[o] for o in readers[header])
    old, sources = sources_by_header(commit) if commit else ({}, 0)
    head = "| a change of | objects | of all | seconds | of all |"
    print(head + (f" sources at {commit} |" if commit else ""))
    print("|---" * (head.count("|") - 1 + bool(commit)) + "|")
    total = sum(seconds.values())
    rows = [("nothing there (a clean build)", len(seconds), total, sources)]
    for folder in [f for floor in FLOORS for f in floor]:
        own = [h for h in readers if h.startswith(f"cohort/{folder}/") and "/internal/" not in h and
               not h.rpartition("/")[2].startswith("test_")]
        if own:
            header = max(own, key=cost)
            rows.append((f"`{header.removeprefix('cohort/')}`", len(readers[header]), cost(header),
                         len(old[header]) if header in old else "-"))
    for name, count, took, before in rows:
        print(f"| {name} | {count} | {count / len(seconds):.0%} | {took:.0f} | {took / total:.0%} |" +
              (f" {before} |" if commit else ""))


def kind_of(name):
    """Of what the object of this name is a part."""
    if name.endswith(".gch") or name.endswith(".pch"):
        return "precompiled headers"
    folder = re.search(r"(?:^|/)(examples|apps|benchmarks|fuzz)/", name)
    if folder and "_test.dir/" not in name:
        return folder.group(1)
    layer = re.search(r"cohort_\w+\.dir/", name) and not name.startswith("tests/")
    return "layers" if layer and "pch" not in name else "tests"


def compile_again(command, name, folder):
    """CPU seconds of a compile command, whose output goes into `folder`."""
    command = re.sub(r" && \S+ -E cmake_transform_depfile .*", "", command)
    for option, place in (("-o", "out"), ("-MF", "out.d")):
        command = re.sub(rf" {option} (\S+)", f" {option} {folder}/{place}", command)
    done = subprocess.Popen(command, shell=True, cwd=folder, env={**os.environ, "CCACHE_DISABLE": "1"})
    _, status, used = os.wait4(done.pid, 0)
    done.returncode = os.waitstatus_to_exitcode(status)
    if done.returncode != 0:
        sys.exit(f"build_cost: could not compile {name}")
    return used.ru_utime + used.ru_stime


def sample(build, step, top):
    """Compiles every step-th object and all precompiled headers, and prints what that took."""
    listing = json.loads(subprocess.run(["ninja", "-C", build, "-t", "compdb"], check=True, text=True,
                                        capture_output=True).stdout)
    commands = {os.path.relpath(os.path.join(c["directory"], c["output"]), build):
                f"cd {c['directory']} && {c['command']}"
                for c in listing if re.search(r"\.(o|[gp]ch)$", c["output"])}
    objects = sorted(n for n in commands if n.endswith(".o"))
    count, seconds, rows = collections.Counter(), collections.Counter(), []
    with tempfile.TemporaryDirectory() as folder:
        for name in sorted(set(commands) - set(objects)) + objects[step // 2::step]:
            took = compile_again(commands[name], name, folder)
            times = step if name.endswith(".o") else 1
            count[kind_of(name)] += 1
            seconds[kind_of(name)] += took * times
            rows.append((took, name))
    print(f"{len(objects)} objects, every {step}th compiled: about {sum(seconds.values()):.0f} s of CPU")
    for kind, took in seconds.most_common():
        print(f"{took:8.0f} s {kind} ({count[kind]} compiled)")
    for took, name in sorted(rows, reverse=True)[:top]:
        print(f"{took:8.1f} s {name}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "dev")
    parser.add_argument("--top", type=int, default=20, help="how many headers, without HEADER")
    parser.add_argument("--floors", action="store_true", help="a table: a header of each folder")
    parser.add_argument("--at", metavar="COMMIT", help="with --floors: beside an older commit")
    parser.add_argument("--compile", type=int, metavar="N", help="every Nth object once more")
    parser.add_argument("headers", nargs="*", metavar="HEADER")
    options = parser.parse_args()
    if not (options.build / ".ninja_log").exists():
        sys.exit(f"build_cost: nothing has been built in {options.build}")
    if options.compile:
        return sample(options.build.resolve(), options.compile, options.top)
    seconds, cached = seconds_by_object(options.build)
    readers = objects_by_header(options.build, seconds)
    if options.floors:
        return floors_table(seconds, readers, options.at)
    for header in options.headers:
        if header not in readers:
            sys.exit(f"build_cost: no object reads {header}")
    rows = sorted(((sum(seconds[o] for o in readers[h]), len(readers[h]), h)
                   for h in options.headers or readers), reverse=True)
    print(f"{len(seconds)} objects, {sum(seconds.values()):.0f} s of compiling in all "
          f"({cached} out of the compiler cache)")
    for cost, count, header in rows if options.headers else rows[:options.top]:
        print(f"{cost:8.0f} s {count:5d} objects  {header}")


if __name__ == "__main__":
    main()
