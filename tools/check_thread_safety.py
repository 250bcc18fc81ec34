#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Lets clang check the annotations of cohort/base/mutex.h (-Wthread-safety).

Compiles, without making code, the sources that include cohort/base/mutex.h or whose own header does,
those of a folder of cohort/ as one unit. A mutex of the standard library, of which clang knows
nothing, has a comment behind it that says why.

    tools/check_thread_safety.py [--include FOLDER]... [--compiler clang++-14] [FILE...]
"""

import argparse
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
DOOR = '#include "cohort/base/mutex.h"'
# The last one is for clang 14 with the libstdc++ of GCC 13 (cmake/CohortTargets.cmake).
FLAGS = ["-std=c++20", "-Wthread-safety", "-Wthread-safety-beta", "-Werror", "-Dconsteval=constexpr"]
# Of LibTorch and the standard library, read once for all units.
HEADERS = ["ATen/core/Tensor.h", "algorithm", "functional", "map", "memory", "optional", "string", "vector"]


def guards(source):
    """Whether a source, its own header, or that header in internal/, uses the annotated mutex."""
    headers = [source.with_suffix(".h"), source.parent / "internal" / (source.stem + ".h")]
    return any(f.exists() and DOOR in f.read_text() for f in [source, *headers])


def units(root):
    """{folder of cohort/: its sources}; a header that no source belongs to stands for itself."""
    found = {}
    for path in sorted((root / "cohort").rglob("*")):
        if path.is_relative_to(root / "cohort" / "cuda"):
            continue  # needs CUDA's headers
        if path.suffix == ".cc" and not path.name.endswith("_test.cc"):
            takes = guards(path)
        else:
            takes = path.suffix == ".h" and DOOR in path.read_text()
        if takes:
            found.setdefault(path.relative_to(root).parts[1], []).append(path)
    return found


def unexplained(text):
    """The lines that declare a mutex of the standard library and do not say why."""
    return [number for number, line in enumerate(text.splitlines(), 1)
            if re.search(r"\bstd::(?:recursive_|shared_|timed_)*mutex\s+\w+[^;()]*;(?!\s*//)", line)]


def check_plain(root):
    """Complaints about mutexes of the standard library outside of sources of tests."""
    return [f"{path.relative_to(root)}:{number}: take Mutex of cohort/base/mutex.h, or say why not"
            for path in sorted((root / "cohort").rglob("*.*"))
            if path.suffix in (".h", ".cc") and not path.name.endswith("_test.cc")
            and path.relative_to(root) != pathlib.Path("cohort/base/mutex.h")
            for number in unexplained(path.read_text())]


def precompile(command, folder):
    """What makes the compiler begin with HEADERS; nothing where it does not find them."""
    header = pathlib.Path(folder) / "headers.h"
    header.write_text("".join(f"#include <{name}>\n" for name in HEADERS))
    made = subprocess.run([*command, "-x", "c++-header", header, "-o", f"{header}.pch"], capture_output=True)
    return ["-include-pch", f"{header}.pch"] if made.returncode == 0 else []


def check(compiler, include_folders, groups):
    """Compiles each group of sources as one unit. Returns clang's complaints, a text for each such unit."""
    command = [compiler, *FLAGS, f"-I{ROOT}"]
    command += [flag for folder in include_folders for flag in ("-isystem", folder)]
    found = []
    with tempfile.TemporaryDirectory() as folder:
        command += precompile(command, folder)
        unit = pathlib.Path(folder) / "unit.cc"
        for sources in groups:
            unit.write_text("".join(f'#include "{source}"\n' for source in sources))
            done = subprocess.run([*command, "-fsyntax-only", unit], capture_output=True, text=True)
            found += [done.stderr] if done.returncode != 0 else []
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--include", action="append", default=[], metavar="FOLDER",
                        help="an include folder of LibTorch")
    parser.add_argument("--compiler", default="clang++-14")
    parser.add_argument("files", nargs="*", type=pathlib.Path)
    arguments = parser.parse_args()
    chosen = {"files": [f.resolve() for f in arguments.files]} if arguments.files else units(ROOT)
    found = check(arguments.compiler, arguments.include, chosen.values())
    plain = check_plain(ROOT)
    print(*found, *plain, sep="\n")
    print(f"thread safety: {sum(map(len, chosen.values()))} files, "
          f"{len(found)} of {len(chosen)} units with complaints, "
          f"{len(plain)} mutexes that clang does not know")
    return 1 if found or plain else 0


if __name__ == "__main__":
    sys.exit(main())
