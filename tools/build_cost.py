#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tells what a build compiles again when a header changes, and how long that took last time.

    tools/build_cost.py [--build build/dev] [--top 20] [HEADER...]
    tools/build_cost.py --floors [--at COMMIT]

Without headers: the most expensive ones of this tree. --floors: of each folder of cohort/ the public
header whose change costs most, as a table; --at counts beside it the sources that read the same
header in an older commit (by includes, each source an object). Seconds are those of one compiler at
a time, the least that ninja remembers of each object: CPU seconds where nothing else ran beside the
builds, else more, and only their shares say something. Objects that only ever came out of the
compiler cache count as much as the mean of the others; a build with CCACHE_RECACHE=1 has none.
"""
import argparse
import collections
import pathlib
import re
import subprocess
import sys

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


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "dev")
    parser.add_argument("--top", type=int, default=20, help="how many headers, without HEADER")
    parser.add_argument("--floors", action="store_true", help="a table: a header of each folder")
    parser.add_argument("--at", metavar="COMMIT", help="with --floors: beside an older commit")
    parser.add_argument("headers", nargs="*", metavar="HEADER")
    options = parser.parse_args()
    if not (options.build / ".ninja_log").exists():
        sys.exit(f"build_cost: nothing has been built in {options.build}")
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
