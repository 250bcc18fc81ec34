#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Formats the C++ files (--fix), or says which are not formatted. Uses clang-format 14, because
versions differ in their taste.
"""

import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDERS = ["cohort", "apps", "benchmarks", "examples", "tests"]
VERSION = "14"


def clang_format():
    for name in (f"clang-format-{VERSION}", "clang-format"):
        if shutil.which(name):
            said = subprocess.run([name, "--version"], capture_output=True, text=True).stdout
            if re.search(rf"version {VERSION}\.", said):
                return name
    sys.exit(f"clang-format {VERSION} not found; tools/setup installs it")


def main():
    fix = sys.argv[1:] == ["--fix"]
    files = [str(p.relative_to(ROOT)) for folder in FOLDERS
             for p in sorted((ROOT / folder).rglob("*"))
             if p.suffix in (".h", ".cc", ".inc") and ".venv" not in p.parts]
    mode = ["-i"] if fix else ["--dry-run", "-Werror", "--ferror-limit=1"]
    result = subprocess.run([clang_format(), *mode, *files], cwd=ROOT, capture_output=True,
                            text=True)
    complaints = [l for l in result.stderr.splitlines() if ": error:" in l]
    print(*complaints, sep="\n")
    print(f"format: {len(files)} files, {len(complaints)} to be formatted (make format)"
          if not fix else f"format: {len(files)} files formatted")
    return result.returncode


if __name__ == "__main__":
    sys.exit(main())
