#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds includes and namespaces against the floors of docs/architecture.md.

Checks that every include of a Cohort file goes down (its own folder, or a lower floor; a test may
also use a neighbour), that private names are in their folder's namespace, that no public header
reaches a heavy header, and, given the include folders of LibTorch, what cohort.h costs a unit that
includes it.

    tools/check_layers.py [--include FOLDER]... [--compiler g++]
"""

import argparse
import pathlib
import re
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent

# Folders of cohort/, bottom first. Neighbours on one line never include each other.
FLOORS = [
    ["base"],
    ["runtime"],
    ["values", "checkpoint", "rpc", "update_rules", "replication"],
    ["data", "cluster", "reductions", "archive"],
    ["collectives", "summary"],
    ["cross_device_ops"],
    ["variables"],
    ["strategy", "autograd"],
    ["coordinator"],
    ["keras"],
    ["cuda"],  # a library beside the others, which none of them includes
]

# The floors inside cohort/keras: a file's stem, or a folder. What is not named is on the floor of
# the models. Logs and the base of callbacks are below them, because fit() takes callbacks.
KERAS_FLOORS = [
    ["config", "internal/unknown_fields"],
    ["fields"],
    ["internal", "dtype_policy", "serializable"],
    ["activations", "constraints", "initializers", "regularizers", "keras_tensor", "internal/tensor_functions"],
    ["internal/operation_shapes"],
    ["layer", "stft"],
    ["losses", "internal/call_node", "internal/operation"],
    ["metrics", "optimizers", "layers", "internal/graph"],
    ["callbacks/logs"],
    ["callbacks/callback"],
    ["models"],
    ["callbacks", "saving"],
    ["train_and_evaluate", "modules"],
    ["keras"],  # keras.h, which includes them all
]

# The floors inside cohort/data, in the same way; what is not named is on the floor of dataset.h. The
# formats stand beside each other on what they share.
DATA_FLOORS = [
    ["core"],
    ["dataset"],
    ["pipeline"],
    ["formats/internal"],
    ["formats/csv", "formats/example", "formats/fixed_length", "formats/idx", "formats/npy",
     "formats/text", "formats/tf_record"],
    ["image", "store"],
    ["catalog"],
]

# By folder: its floors, and the one of what is not named.
INNER_FLOORS = {"data": (DATA_FLOORS, "dataset"), "keras": (KERAS_FLOORS, "models")}

# For the tests of every floor; itself above all of them.
TESTING = "testing"

# What a public header must not reach (a header, or a folder with its slash), and why not.
HEAVY = {
    "torch/torch.h": "12 s a unit",
    "torch/all.h": "12 s a unit",
    "torch/types.h": "7 s a unit",
    "torch/nn/": "12 s a unit",
    "torch/nn.h": "12 s a unit",
    "torch/csrc/distributed/": "c10d is not used",
    "ATen/ATen.h": "6 s a unit",
    "iostream": "a static initialiser in every unit",
    "grpcpp/": "private to rpc",
    "gloo/": "private to collectives",
    "hdf5.h": "private to archive",
    "hdf5_hl.h": "private to archive",
    "nccl.h": "private to collectives",
    "google/protobuf/": "private to rpc and summary",
    "zip.h": "private to archive",
}
HEAVY_SUFFIX = {".pb.h": "private to rpc and summary"}
# The one public header that may reach some of them itself, and that no other header includes.
EXEMPT = {"cohort/keras/torch_module.h": ("torch/nn/",)}

# cohort.h, preprocessed (counted by g++ -E -P), and what its closure must not hold besides HEAVY.
COHORT_H_LINES = 150_000
COHORT_H_HEAVY = {"torch/csrc/autograd/": "9 s a unit", "nlohmann/": "2 s a unit"}

# Folders whose public namespace holds their private one (cohort::keras::internal); the private names
# of all others are in cohort::internal::<folder>.
OWN_INTERNAL = {"keras", "update_rules"}
# A block of private names (clang-format names its end), and what it may hold of another folder's.
PRIVATE_BLOCK = re.compile(
    r"^namespace ((?:cohort::)?internal(?:::\w+)*) \{$(.*?)^\}  // namespace \1$",
    re.MULTILINE | re.DOTALL)
FORWARD_DECLARATIONS = re.compile(r"(?:\s*(?:class|struct) \w+;)*\s*")

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)


def floor_of(path, floors, default=None):
    """The index of the floor that names a path ("callbacks/callback.h") or a folder of it."""
    parts = list(pathlib.PurePosixPath(path).with_suffix("").parts)
    while parts:
        name = "/".join(parts)
        for index, names in enumerate(floors):
            if name in names:
                return index, name
        parts.pop()
    return default


def inner_floor(folder, path):
    floors, unnamed = INNER_FLOORS[folder]
    default = next(i for i, names in enumerate(floors) if unnamed in names)
    return floor_of(path.removeprefix(f"cohort/{folder}/"), floors, (default, unnamed))


def is_test(path):
    """Tests, what they share in a folder (internal/test_group.h), and the folder testing."""
    is_shared = path.split("/")[-1].startswith("test_")
    return is_shared or path.endswith("_test.cc") or "/" + TESTING + "/" in path


def includes_of(text):
    """[(line, quoted, target)]"""
    return [
        (text.count("\n", 0, m.start(2)) + 1, m.group(1) == '"', m.group(2))
        for m in INCLUDE.finditer(text)
    ]


def may_include(source, target):
    """None, or why `source` must not include `target` (both "cohort/folder/file")."""
    from_folder, to_folder = source.split("/")[1], target.split("/")[1]
    if to_folder == TESTING:
        return None if is_test(source) else "only tests include cohort/testing"
    if target == "cohort/cohort.h":
        return "cohort.h is for programs, not for the library"
    if floor_of(to_folder, FLOORS) is None:
        return f"the folder {to_folder} has no floor in tools/check_layers.py"
    if from_folder == TESTING:
        return None
    if from_folder != to_folder:
        if "/internal/" in target and floor_of(to_folder, FLOORS) is not None:
            if not is_test(source) and source.endswith(".h") and "/internal/" not in source:
                return "a public header must not need another folder's internal/"
        here, there = floor_of(from_folder, FLOORS), floor_of(to_folder, FLOORS)
        if there[0] > here[0]:
            return f"{from_folder} (floor {here[0]}) is below {to_folder} (floor {there[0]})"
        if there[0] == here[0] and not is_test(source):
            return f"{from_folder} and {to_folder} are neighbours on floor {here[0]}"
        return None
    if from_folder in INNER_FLOORS and not is_test(source):
        here, there = inner_floor(from_folder, source), inner_floor(from_folder, target)
        if there[0] > here[0]:
            return f"{from_folder}: {here[1]} is below {there[1]}"
        if there[0] == here[0] and there[1] != here[1]:
            return f"{from_folder}: {here[1]} and {there[1]} are neighbours"
    return None


def check_namespaces(files):
    """Private names are in their folder's namespace; another's is opened to name classes only."""
    found = []
    for path, text in sorted(files.items()):
        folder = path.split("/")[1]
        for block in PRIVATE_BLOCK.finditer(text):
            name = block.group(1).removeprefix("cohort::")
            if folder in OWN_INTERNAL and not block.group(1).startswith("cohort::"):
                continue
            whose = name.split("::")[1] if "::" in name else None
            if whose == folder or (whose and FORWARD_DECLARATIONS.fullmatch(block.group(2))):
                continue
            where = f"{path}:{text.count(chr(10), 0, block.start()) + 1}: opens {block.group(1)}"
            own = f"{folder}::internal" if folder in OWN_INTERNAL else f"internal::{folder}"
            found.append(f"{where}: the private names of {folder} are in cohort::{own}")
    return found


def heavy(target):
    for prefix, why in HEAVY.items():
        if target == prefix or (prefix.endswith("/") and target.startswith(prefix)):
            return why
    for suffix, why in HEAVY_SUFFIX.items():
        if target.endswith(suffix):
            return why
    return None


def check_includes(files):
    """files: {path: text}, paths from the root. Returns the complaints."""
    found = []
    for path, text in sorted(files.items()):
        for line, quoted, target in includes_of(text):
            where = f"{path}:{line}: includes {target}"
            if target.startswith("cohort/") != quoted:
                found.append(f"{where}: Cohort's files in quotes from the root, all others in <>")
            elif quoted and target not in files:
                found.append(f"{where}: no such file")
            elif quoted and path.count("/") > 1:
                why = may_include(path, target)
                if why:
                    found.append(f"{where}: {why}")
    return found


def is_public(path):
    return path.endswith(".h") and "/internal/" not in path and f"/{TESTING}/" not in path


def check_heavy(files):
    """Follows each public header through Cohort's headers to the heavy ones."""
    found = []
    for header in sorted(filter(is_public, files)):
        allowed = EXEMPT.get(header, ())
        todo, seen = [(header, [header])], {header}
        while todo:
            path, way = todo.pop()
            for _, quoted, target in includes_of(files[path]):
                why = None if quoted else heavy(target)
                if why and not (path == header and target.startswith(allowed)):
                    found.append(f"{' -> '.join(way)} -> {target}: heavy ({why})")
                if quoted and target in files and target not in seen:
                    seen.add(target)
                    todo.append((target, way + [target]))
    return found


def read_tree(root):
    paths = [p for p in (root / "cohort").rglob("*") if p.suffix in (".h", ".cc", ".inc")]
    return {p.relative_to(root).as_posix(): p.read_text() for p in paths}


def check_umbrella(root, compiler, include_folders):
    """Compiles cohort.h alone. Returns (complaints, a line to print)."""
    flags = [compiler, "-std=c++20", "-x", "c++", f"-I{root}"]
    flags += [flag for folder in include_folders for flag in ("-isystem", folder)]
    with tempfile.TemporaryDirectory() as folder:
        unit = pathlib.Path(folder) / "unit.cc"
        unit.write_text("#include <cohort/cohort.h>\n")

        def run(*more):
            return subprocess.run([*flags, *more, str(unit)], capture_output=True, text=True)

        closure = run("-M")
        if closure.returncode != 0:
            return [f"cohort/cohort.h does not stand alone:\n{closure.stderr}"], ""
        lines = run("-E", "-P").stdout.count("\n")
        start = time.monotonic()
        compiled = run("-fsyntax-only")
        seconds = time.monotonic() - start
    found = []
    if compiled.returncode != 0:
        found.append(f"cohort/cohort.h does not compile alone:\n{compiled.stderr}")
    forbidden = {**HEAVY, **COHORT_H_HEAVY}
    del forbidden["iostream"]  # LibTorch's own cheap door includes it
    for name in closure.stdout.replace("\\\n", " ").split():
        for prefix, why in forbidden.items():
            # A path in the closure: .../include/torch/csrc/autograd/variable.h
            if f"/{prefix}" in name and not name.startswith(str(root)):
                if prefix[-1] == "/" or name.endswith("/" + prefix):
                    found.append(f"cohort.h reaches {name}: {why}")
    if lines > COHORT_H_LINES:
        found.append(f"cohort.h: {lines} preprocessed lines, at most {COHORT_H_LINES}")
    return found, f"cohort.h: {lines} lines preprocessed, {seconds:.1f} s to compile"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--include", action="append", default=[], metavar="FOLDER",
                        help="an include folder of LibTorch; with it cohort.h is compiled")
    parser.add_argument("--compiler", default="g++")
    arguments = parser.parse_args()
    files = read_tree(ROOT)
    found = check_includes(files) + check_namespaces(files) + check_heavy(files)
    if arguments.include and "cohort/cohort.h" in files:
        more, line = check_umbrella(ROOT, arguments.compiler, arguments.include)
        found += more
        print(line)
    print(*found, sep="\n")
    print(f"layers: {len(files)} files, {len(found)} complaints")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
