#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The public names of Cohort: what programs may use of the headers that are installed.

Public is what a header declares that cohort.h or keras/torch_module.h reaches, outside of folders
and namespaces called internal: classes, functions, constants and aliases of namespaces, and of
classes the public member functions, types and aliases; of enumerations their values. Left out are
constructors, operators, what a class overrides (the base has it), hooks called do_..., and the
members that hold data: options and their like are named by their struct.

The headers are read as clang-format lays them out: the brace of a body has a space in front of it,
that of an initialiser has none, or an equals sign.
"""

import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
DOORS = ["cohort/cohort.h", "cohort/keras/torch_module.h"]
OPENING, CLOSING = "([{", ")]}"


def reached(door, seen):
    """`door` and the headers of Cohort's that it includes, directly or not, added to `seen`."""
    if door in seen or not (ROOT / door).exists():
        return seen
    seen.append(door)
    for include in re.findall(r'#include "(cohort/[^"]+)"', (ROOT / door).read_text()):
        reached(include, seen)
    return seen


def installed():
    headers = []
    for door in DOORS:
        reached(door, headers)
    return headers


def code_of(text):
    """The header without comments, texts, characters and preprocessor lines."""
    text = re.sub(r'R"\((?:.|\n)*?\)"|"(?:[^"\\\n]|\\.)*"', '""', text)
    text = re.sub(r"'(?:[^'\\\n]|\\.)'", "0", text)
    text = re.sub(r"//.*", "", text)
    return re.sub(r"^ *#(?:.*\\\n)*.*", "", text, flags=re.M)


def end_of_group(text, begin):
    """Behind the bracket that closes the one at `begin`."""
    depth = 0
    for at in range(begin, len(text)):
        depth += (text[at] in OPENING) - (text[at] in CLOSING)
        if depth == 0:
            return at + 1
    raise ValueError(f"no end of: {text[begin:begin + 80]}")


def statements(text):
    """Pairs of a declaration's head and, of one with a body, that body."""
    begin = at = 0
    while at < len(text):
        if text[at] == ";":
            yield " ".join(text[begin:at].split()), None
            begin = at = at + 1
        elif text[at] == "{" and text[at - 1].isspace() and not re.search(r"= *$", text[begin:at]):
            end = end_of_group(text, at)
            yield " ".join(text[begin:at].split()), text[at + 1:end - 1]
            begin = at = end
        else:
            at = end_of_group(text, at) if text[at] in OPENING else at + 1


def without_groups(head, opening, closing):
    """The head without what stands in brackets, which may be nested."""
    either = re.escape(opening + closing)
    pattern = re.compile(rf"{re.escape(opening)}[^{either}]*{re.escape(closing)}")
    while (shorter := pattern.sub("", head)) != head:
        head = shorter
    return head


def name_of(head):
    """What a declaration without a body, or a function, calls itself; None for what has no name of
    its own that programs use."""
    if alias := re.match(r"using (\w+) =", head):
        return alias.group(1)
    if constant := re.match(r"(?:static |inline )*constexpr (?!auto)[\w:<>]+ (k[A-Z]\w*)", head):
        return constant.group(1)
    plain = re.sub(r"\[\[.*?\]\] ?", "", head).replace("->", " ")
    while condition := re.search(r"requires ?\(", plain):
        end = end_of_group(plain, condition.end() - 1)
        plain = plain[:condition.start()] + plain[end:].removeprefix(" ")
    plain = re.sub(r"^(?:template ?)*", "", without_groups(plain, "<", ">"))
    plain = re.sub(r"^requires [\w:]+ (?:(?:&&|\|\|) [\w:]+ )*", "", plain)
    if re.match(r"(friend|using|static_assert|extern template|class|struct|enum|concept)\b", plain):
        return None
    function = re.match(r"([\w:&*,\[\] ]*[\w&*\] ])\b(\w+)\(", plain)
    if not function or "operator" in plain or re.search(r"\)[^()]*\b(override|final)\b", plain):
        return None
    kinds = set(function.group(1).split()) - {"explicit", "constexpr", "inline", "noexcept"}
    return function.group(2) if kinds and not function.group(2).startswith("do_") else None


def names_in(text, scope="", access="public"):
    """Public names of a text's declarations, members as Class::member."""
    for head, body in statements(text):
        while label := re.match(r"(public|protected|private) ?: ?", head):
            access, head = label.group(1), head[label.end():]
        plain = without_groups(re.sub(r"^(template ?<.*?> (?:requires .*? )?)?(?=class|struct)", "",
                                      head), "<", ">")
        space = re.match(r"(?:inline )?namespace ?([\w:]*)", head)
        opened = re.search(r"(?:^|[> ])(class|struct|enum class|enum) (?:\[\[\w+\]\] )?(\w+)"
                           r"(?: final)?(?: ?:[^:].*)?$", plain) if "(" not in plain else None
        if space and body is not None:
            if not re.search(r"internal|^std$|^$|^at$|^c10$|^torch$", space.group(1)):
                yield from names_in(body)
        elif access != "public":
            continue
        elif opened and body is not None:
            kind, name = opened.groups()
            yield scope + name
            if kind.startswith("enum"):
                for value in re.findall(r"(k[A-Z]\w*)[^,]*", body):
                    yield f"{scope}{name}::{value}"
            else:
                yield from names_in(body + ";", f"{scope}{name}::",
                                    "private" if kind == "class" else "public")
        elif (name := name_of(head)) and not scope.endswith(f"{name}::"):
            yield scope + name


def public_names():
    """{header: names in the order of the header}."""
    out = {}
    for header in installed():
        if "/internal/" not in header:
            out[header] = list(dict.fromkeys(names_in(code_of((ROOT / header).read_text()))))
    return out


if __name__ == "__main__":
    for header, names in public_names().items():
        print(f"{header}: {', '.join(names)}")
