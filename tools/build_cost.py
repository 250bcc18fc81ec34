#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tells what a build compiles again when a header changes, and how long that took last time.

    tools/build_cost.py [--build build/dev] [--top 20] [HEADER...]

Without headers: the most expensive ones of this tree. Seconds are those of one compiler at a time, as
the last compilation of each object took them; objects that came out of the compiler cache count as
nothing, so ask after a build with CCACHE_RECACHE=1.
"""
import argparse
import collections
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent


def seconds_by_object(build):
    """What .ninja_log says; later lines replace earlier ones."""
    seconds = {}
    for line in (build / ".ninja_log").read_text().splitlines():
        fields = line.split("\t")
        if len(fields) == 5 and fields[3].endswith(".o"):
            seconds[fields[3]] = (int(fields[1]) - int(fields[0])) / 1000
    return seconds


def objects_by_header(build):
    """Which objects read which of this tree's headers, by ninja's own list."""
    objects = collections.defaultdict(set)
    listing = subprocess.run(["ninja", "-C", build, "-t", "deps"], check=True, text=True,
                             capture_output=True).stdout
    current = None
    for line in listing.splitlines():
        if line and not line.startswith(" "):
            current = line.split(":")[0]
        elif line.strip().endswith(".h"):
            path = pathlib.Path(build, line.strip()).resolve()
            if path.is_relative_to(ROOT) and not path.is_relative_to(ROOT / "build"):
                objects[str(path.relative_to(ROOT))].add(current)
    return objects


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "dev")
    parser.add_argument("--top", type=int, default=20, help="how many headers, without HEADER")
    parser.add_argument("headers", nargs="*", metavar="HEADER")
    options = parser.parse_args()
    if not (options.build / ".ninja_log").exists():
        sys.exit(f"build_cost: nothing has been built in {options.build}")
    seconds = seconds_by_object(options.build)
    objects = objects_by_header(options.build)
    for header in options.headers:
        if header not in objects:
            sys.exit(f"build_cost: no object reads {header}")
    rows = sorted(((sum(seconds.get(o, 0) for o in objects[h]), len(objects[h]), h)
                   for h in options.headers or objects), reverse=True)
    print(f"{len(seconds)} objects, {sum(seconds.values()):.0f} s of compiling in all")
    for cost, count, header in rows if options.headers else rows[:options.top]:
        print(f"{cost:8.0f} s {count:5d} objects  {header}")


if __name__ == "__main__":
    main()
