#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds the tree against its sizes: functions <= 60 lines, files <= 500, READMEs <= 30.

Functions are found by their braces, without a compiler: exact for code that clang-format has laid
out. A function's length is that of its body, from the line of { to the line of }.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDERS = ["cohort", "apps", "benchmarks", "examples", "tests"]

FUNCTION_LINES = 60
FILE_LINES = 500
README_LINES = 30

NOISE = re.compile(
    r"""//[^\n]*(?:\\\n[^\n]*)* | /\*.*?\*/
      | R"(?P<tag>[^()\s\\]*)\(.*?\)(?P=tag)"
      | "(?:\\.|[^"\\\n])*"
      | (?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'
      | ^[ \t]*\#(?:[^\n\\]|\\\n|\\.)*""",
    re.VERBOSE | re.DOTALL | re.MULTILINE)
TYPE = re.compile(r"^(?:\w+\s+)*?(?:inline\s+)?(namespace|class|struct|union|enum|extern)\b")
TEMPLATE = re.compile(r"^\s*template\s*<")
NAME = re.compile(r"([~\w:]+|operator\s*[^\s(]+)\s*\(")


def blank(match):
    """The same lines, but a quiet text: strings keep a value, all else is spaces."""
    text = match.group(0)
    return ('0' if text[0] in "\"'R" else "") + "\n" * text.count("\n")


def without_template(head):
    head = re.sub(r"\[\[.*?\]\]", " ", head).strip()
    while TEMPLATE.match(head):
        depth, parentheses = 0, 0
        for i, c in enumerate(head):
            parentheses += {"(": 1, ")": -1}.get(c, 0)
            if parentheses == 0:
                depth += {"<": 1, ">": -1}.get(c, 0)
            if c == ">" and depth == 0:
                break
        head = head[i + 1:].strip()
        if head.startswith("requires"):  # a constraint between template<> and a class
            match = re.search(r"\b(?:class|struct|union)\b[^()]*$", head)
            head = match.group(0) if match else head
    return head


def kind_of(head):
    """What a { opens, by the text before it: scope, function, or value (an initialiser)."""
    head = without_template(head)
    declarator = re.sub(r"alignas\s*\([^()]*\)", "", head)
    if TYPE.match(declarator) and not re.search(r"\)\s*(?:const|noexcept|\s)*$", declarator):
        return "scope"
    if head == "" or head.endswith(("public:", "private:", "protected:")):
        return "value"
    if "(" not in head or (head.endswith("=") and "operator" not in head):
        return "value"
    # A constructor's initialisers: b_{...} is a value; what follows ) or } is the body.
    if re.search(r"\)\s*(?:noexcept\s*)?:(?!:)", head) and re.search(r"[,:]\s*[\w:<>]+$", head):
        return "value"
    return "function"


def functions(text):
    """[(name, first line, lines)] of the functions of a C++ file."""
    text = NOISE.sub(blank, text)
    found, scopes, head = [], [], ""
    line, opened, depth = 1, None, 0
    for c in text:
        if c == "\n":
            line += 1
        if opened is not None:  # within a function or a value: only count braces
            depth += {"{": 1, "}": -1}.get(c, 0)
            if depth == 0:
                kind, name, first = opened
                if kind == "function":
                    found.append((name, first, line - first + 1))
                    head = ""
                else:
                    head += "}"
                opened = None
        elif c == "{":
            kind = kind_of(head)
            if kind == "scope":
                scopes.append(line)
                head = ""
            else:
                match = NAME.search(without_template(head))
                opened, depth = (kind, match.group(1) if match else "?", line), 1
        elif c == "}":
            if scopes:
                scopes.pop()
            head = ""
        elif c == ";" and head.count("(") <= head.count(")"):
            head = ""
        elif c == ":" and re.search(r"\b(public|private|protected)\s*$", head):
            head = ""
        else:
            head += c
    return found


def check_file(path, text):
    found = []
    lines = text.count("\n")
    if lines > FILE_LINES:
        found.append(f"{path}: {lines} lines, at most {FILE_LINES}")
    for name, first, length in functions(text):
        if length > FUNCTION_LINES:
            found.append(f"{path}:{first}: {name} has {length} lines, at most {FUNCTION_LINES}")
    return found


def check_readmes(root):
    found = []
    for folder in sorted(p for p in (root / "cohort").iterdir() if p.is_dir()):
        readme = folder / "README.md"
        name = readme.relative_to(root).as_posix()
        if not readme.exists():
            found.append(f"{name} is missing")
        elif readme.read_text().count("\n") > README_LINES:
            found.append(f"{name}: more than {README_LINES} lines")
    return found


def main():
    found, files, total = check_readmes(ROOT), 0, []
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in (".h", ".cc", ".inc") and path.is_file():
                files += 1
                name, text = path.relative_to(ROOT).as_posix(), path.read_text()
                found += check_file(name, text)
                total += [(lines, f"{name}:{first} {f}") for f, first, lines in functions(text)]
    print(*found, sep="\n")
    longest = "; ".join(f"{where} ({lines})" for lines, where in sorted(total, reverse=True)[:3])
    print(f"sizes: {files} files, {len(total)} functions, {len(found)} complaints; "
          f"longest functions: {longest}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
