#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds docs/tf_mapping.md against the public headers, in both directions.

Every name of the Cohort column is declared in a header that cohort.h reaches (or torch_module.h),
and every public class, function, enumeration and constant of those headers, and every member
function of the handles in HANDLES, stands in some table or in the list of names without a
counterpart. XOptions is the option struct of X, XLayer the class behind the handle X, XConfig what
that is made with: they need no line.
"""

import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
MAPPING = ROOT / "docs/tf_mapping.md"
DOORS = ["cohort/cohort.h", "cohort/keras/torch_module.h"]
# Classes whose member functions are what programs call.
HANDLES = {"Strategy", "StrategyExtended", "ReplicaContext", "DistributedDataset",
           "DistributedIterator", "Variable", "GradientTape", "Dataset", "Iterator", "Model",
           "Sequential", "LayerBase", "Loss", "Metric", "Optimizer", "CallbackBase", "Logs",
           "Checkpoint", "CheckpointManager", "PerReplica", "Mirrored", "CrossDeviceOps"}
# Words in the Cohort column that are no names of Cohort: C++, options' values, variables, endings.
WORDS = set("auto const for int main return std shared_ptr make_shared optional nullopt vector map "
            "true false at x y a b e ds fn loss_fn strategy scope model batch dataset tape scalar "
            "item double value cout CPU mse json safetensors svg".split())


def reached(door, seen):
    if door in seen or not (ROOT / door).exists():
        return seen
    seen.append(door)
    for include in re.findall(r'#include "(cohort/[^"]+)"', (ROOT / door).read_text()):
        reached(include, seen)
    return seen


def declared(text):
    """Public (names, members of handles) of a header that clang-format has laid out.

    Declarations of namespaces begin in column 0, those of classes in column 2.
    """
    names, members, spaces, of, public = set(), set(), [], None, True
    for number, line in enumerate(text.splitlines()):
        if line.startswith("}  // namespace") or (
                line == "}" and spaces and number - spaces[-1][1] < 4):
            spaces.pop()
        line = re.sub(r"\s*//.*", "", line)
        if space := re.match(r"namespace ([\w:]*) *\{", line):
            spaces.append((space.group(1), number))
        if any("internal" in name or name in ("", "std") for name, _ in spaces):
            continue
        if opened := re.match(r"(?:class|struct|enum class) (?:\[\[\w+\]\] )?(\w+)[^;]*$", line):
            of, public = opened.group(1), not line.startswith("class")
            names.add(of)
        elif line.startswith("};"):
            of = None
        elif access := re.match(r" (public|protected|private):", line):
            public = access.group(1) == "public"
        elif constant := re.match(r"inline constexpr [\w:]+ (k\w+)", line):
            names.add(constant.group(1))
        elif alias := re.match(r"using (\w+) =", line):
            names.add(alias.group(1))
        elif function := re.match(r"(?!template|requires|using|return|inline constexpr|[}#])"
                                  r"\w[\w:<>,*& ]*?[\w>*&] [*&]?(\w+)\(", line):
            names.add(function.group(1))
        elif of in HANDLES and public:
            if method := re.match(r"  (?!template|return|explicit|using|friend|if|for|requires)"
                                  r"\w[\w:<>,*&\[\] ]*?[\w>*&] [*&]?(\w+)\(", line):
                if not method.group(1).startswith(("operator", "do_")):
                    members.add(f"{of}::{method.group(1)}")
    return names, members


def all_declared():
    names, members = set(), set()
    for door in DOORS:
        for header in reached(door, []):
            if "/internal/" not in header:
                more, of = declared((ROOT / header).read_text())
                names |= more
                members |= of
    return names, members


def rows():
    """The cells of all tables' rows, without heads."""
    for line in MAPPING.read_text().splitlines():
        if line.startswith("|") and not re.match(r"\|[-| ]*$", line):
            yield [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def words_in_code(text):
    return set(re.findall(r"[A-Za-z_]\w*", " ".join(re.findall(r"`([^`]*)`", text))))


# Words of TensorFlow's column that a row with "the same" does not promise.
THEIR_OWN = {"tf", "distribute", "io", "ctx", "iter", "ds", "h5", "map_structure", "resize",
             "RaggedTensor", "per_worker_dataset", "as_dict"}


class Mapping(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.names, cls.members = all_declared()
        text = MAPPING.read_text()
        cls.said = words_in_code(text)
        headers = {h: (ROOT / h).read_text() for door in DOORS for h in reached(door, [])}
        code = re.sub(r"//.*", "", "\n".join(headers.values()))  # a comment declares nothing
        cls.everything = set(re.findall(r"\w+", code))

    def test_headers_were_understood(self):
        self.assertGreater(len(self.names), 200)
        self.assertTrue({"Dataset", "compute_average_loss", "kFloat32", "Dense"} <= self.names)
        self.assertTrue({"Model::fit", "Strategy::run", "Variable::assign"} <= self.members)

    def test_what_the_table_names_exists(self):
        """A name of the Cohort column stands in a header; "the same" takes TensorFlow's."""
        missing = []
        for cells in rows():
            for word in words_in_code(cells[1]) - WORDS:
                if word not in self.everything:
                    missing.append(f"{word} in: {cells[1]}")
            if "the same" in cells[1]:
                for word in words_in_code(cells[0]) - WORDS - THEIR_OWN:
                    if word not in self.everything:
                        missing.append(f"{word}, the same, in: {cells[0]}")
        self.assertEqual([], missing)

    def test_public_names_are_in_the_table(self):
        behind = {handle + end for handle in self.names for end in ("Layer", "Config")}
        self.assertEqual([], sorted(n for n in self.names if n not in self.said | behind
                                    and not n.endswith("Options")))

    def test_members_of_handles_are_in_the_table(self):
        self.assertEqual([], sorted(m for m in self.members
                                    if m.split("::")[1] not in self.said))


class Guides(unittest.TestCase):
    """docs/guide/from_tensorflow.md has a section for every snippet of TensorFlow's five texts."""

    SNIPPETS = {"A": 22, "B": 7, "C": 16, "D": 24, "E": 8}

    def test_no_snippet_is_left_out(self):
        text = (ROOT / "docs/guide/from_tensorflow.md").read_text()
        found = {letter: [] for letter in self.SNIPPETS}
        for letter, first, last in re.findall(
                r"^### ([A-E])(\d+)(?: (?:to|and) [A-E](\d+))?\.", text, re.M):
            found[letter] += range(int(first), int(last or first) + 1)
        self.assertEqual({letter: list(range(1, n + 1)) for letter, n in self.SNIPPETS.items()},
                         found)


if __name__ == "__main__":
    unittest.main()
