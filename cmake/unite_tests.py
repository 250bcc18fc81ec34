# SPDX-License-Identifier: Apache-2.0
"""Writes several sources of tests into one, so that a compiler reads their headers once.

    unite_tests.py ROOT OUT SOURCE...

What stands in a source's anonymous namespace moves into a namespace of that source inside it: two
sources may call different things by one name. An error is told at its line in the source, which is
named by its place beneath ROOT: the text is the same in every checkout, for the compiler cache.
"""
import pathlib
import re
import sys


BEGIN, END = "\nnamespace {\n", "\n}  // namespace\n"


def united(place, text):
    """The text of the source at `place`, with its own namespace; line by line the same."""
    own = re.sub(r"\W", "_", place)
    *between, last = text.replace(BEGIN, f"\nnamespace {{ namespace {own} {{\n").split(END)
    # What follows the first of several anonymous namespaces uses what stands in it.
    text = f"\n}} using namespace {own}; }}  // namespace\n".join(between) + "\n}}  // namespace\n"
    return f'#line 1 "{place}"\n{text if between else ""}{last}'


def main():
    root, out = (pathlib.Path(a).resolve() for a in sys.argv[1:3])
    sources = [pathlib.Path(a).resolve() for a in sys.argv[3:]]
    out.write_text("".join(united(s.relative_to(root).as_posix(), s.read_text()) for s in sources))


if __name__ == "__main__":
    main()
