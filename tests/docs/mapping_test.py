#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds docs/tf_mapping.md against the public headers, in both directions.

Every name of the Cohort column, and of the lists of names without a counterpart, is declared in a
header that programs reach; and every public name (public_names.py says what that is) stands in some
table.
"""

import pathlib
import re
import unittest

from public_names import installed, public_names

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
MAPPING = ROOT / "docs/tf_mapping.md"
# Words in the Cohort column that are no names of Cohort: C++, options' values, variables, endings.
WORDS = set("auto const for int main return std shared_ptr make_shared optional nullopt vector map "
            "true false at x y a b e ds fn loss_fn strategy scope model batch dataset tape scalar "
            "item double value cout CPU mse json safetensors svg".split())


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
        cls.names = [name for names in public_names().values() for name in names]
        cls.said = words_in_code(MAPPING.read_text())
        code = re.sub(r"//.*", "", "\n".join((ROOT / h).read_text() for h in installed()
                                             if "/internal/" not in str(h)))
        cls.everything = set(re.findall(r"\w+", code))  # a comment declares nothing

    def test_headers_were_understood(self):
        self.assertGreater(len(self.names), 2000)
        some = {"Dataset", "compute_average_loss", "kFloat32", "Dense", "Model::fit",
                "Conv1DOptions", "Strategy::run", "Variable::assign", "PerReplica::get",
                "ErrorCode::kOk", "CapturedContext::Guard", "DistributedIterator::next"}
        self.assertEqual(set(), some - set(self.names))
        hidden = {"Element::Tuple", "LayerBase::Stage", "StrategyExtended::do_run",
                  "Sequential::build", "Element::Element", "AdamOptions::learning_rate"}
        self.assertEqual(set(), hidden & set(self.names))

    def test_what_the_table_names_exists(self):
        """A name of the Cohort column stands in a header; "the same" takes TensorFlow's."""
        missing = []
        for cells in rows():
            ours = cells[0] if len(cells) == 2 else cells[1]
            for word in words_in_code(ours) - WORDS:
                if word not in self.everything:
                    missing.append(f"{word} in: {ours}")
            if "the same" in cells[1]:
                for word in words_in_code(cells[0]) - WORDS - THEIR_OWN:
                    if word not in self.everything:
                        missing.append(f"{word}, the same, in: {cells[0]}")
        self.assertEqual([], missing)

    def test_values_of_enumerations_stand_beside_them(self):
        declared = {}
        for name in self.names:
            if value := re.search(r"(\w+)::(k[A-Z]\w*)$", name):
                declared.setdefault(value.group(1), []).append(value.group(2))
        del declared["Sizes"]  # a constant of a class
        said = {}
        for cells in rows():
            if values := re.match(r"`(\w+)`: ((?:`k[A-Z]\w*`(?:, )?)+)$", cells[0]):
                said[values.group(1)] = re.findall(r"\w+", values.group(2))
        self.assertEqual(declared, said)

    def test_public_names_are_in_a_table(self):
        """Members by their own names: where a method is new, so is mostly its name."""
        self.assertEqual([], sorted(n for n in set(self.names)
                                    if n.split("::")[-1] not in self.said))


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
