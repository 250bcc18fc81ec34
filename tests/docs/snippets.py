#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Takes the programs out of the documentation, so that a test compiles and runs them.

  snippets.py generate OUT SOURCE...   one C++ test of the blocks in pages (.md) and headers (.h)
  snippets.py check [--not-compiled N] [--prose N]
                                       every page: no block without a language, no link to nowhere;
                                       counts the blocks that are not compiled
  snippets.py extract PAGE FOLDER      writes the first whole program and CMake project of a page

A ```cpp block of a page is a whole program if it has main(), else the inside of a function. It is
compiled and run, and an error's line is the page's own. A comment right before it says otherwise:

  <!-- snippet: context=training; steps=3 -->

  context=A+B   contexts/A.inc and B.inc stand before it: the names that the prose has introduced
  continues     it goes on where the block before it ended, in the same scope
  outside=N     its first N lines stand outside of every function, after the contexts outer=A+B
  job=W+S       it is the chief of a job (TF_CONFIG), whose W workers and S > 0 parameter servers
                are threads of the test
  definitions   classes and functions, outside of every function; compiled
  member_of=A   in a header: functions of a class that derives from A; compiled
  compile only: REASON    not run
  skip: REASON            not compiled; `check` counts these
  prose: REASON           in a header: not compiled, for it is no program or a part of something
                          that only the library has; `check` counts these, too
  steps=N       fit makes at most N steps an epoch, and at most two epochs
  throws=TYPE   it ends with that error; the output that follows is its text

A ```text block after <!-- snippet: output --> is what the block before it prints, behind what the
blocks that it continues print; `...` stands for any text. In a header the lines of a comment that are indented by exactly three spaces are an
example. headers.txt gives their directives, and says which are no code. An ellipsis in a header's
example stands for what is left out: `{...}` is `{}`.
"""

import argparse
import dataclasses
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
LANGUAGES = {"cpp", "cmake", "sh", "text", "json"}
FLAGS = {"continues", "definitions", "output"}
VALUES = {"context", "job", "member_of", "outer", "outside", "steps", "throws"}
REASONS = {"compile only", "skip", "prose"}


class Wrong(Exception):
    """Something in a page that its author has to mend."""


@dataclasses.dataclass
class Block:
    source: str
    line: int  # of the first line of code, from 1
    language: str
    text: str
    directives: dict


@dataclasses.dataclass
class Group:
    """Blocks of one scope."""
    blocks: list
    output: str = None

    @property
    def directives(self):
        return self.blocks[0].directives

    @property
    def line(self):
        return self.blocks[0].line

    def is_program(self):
        return any(re.search(r"^int main\(", b.text, re.M) for b in self.blocks)

    def runs(self):
        return not {"compile only", "definitions", "member_of"} & set(self.directives)


def parse_directives(text, where):
    found = {}
    for part in filter(None, (p.strip() for p in text.split(";"))):
        reason = re.match(r"([a-z ]+): *(.+)$", part, re.S)
        if reason and reason.group(1) in REASONS:
            found[reason.group(1)] = reason.group(2)
        elif part in FLAGS:
            found[part] = True
        elif "=" in part and part.split("=")[0] in VALUES:
            name, value = part.split("=", 1)
            if name == "job" and not re.fullmatch(r"\d+\+[1-9]\d*", value):
                raise Wrong(f"{where}: expected job=W+S with a parameter server, got '{part}'")
            found[name] = value
        else:
            raise Wrong(f"{where}: unknown directive '{part}'")
    return found


def page_blocks(source, text):
    """The fenced blocks of a page."""
    blocks, directives, fence = [], None, None
    for number, line in enumerate(text.splitlines(), 1):
        where = f"{source}:{number}"
        mark = re.match(r" *```(\w*) *$", line)
        if fence is not None:
            if line.strip() == "```":
                blocks.append(Block(source, fence[0], fence[1], "\n".join(fence[2]) + "\n",
                                    directives or {}))
                fence, directives = None, None
            else:
                fence[2].append(line)
        elif mark:
            if mark.group(1) not in LANGUAGES:
                raise Wrong(f"{where}: a block of language '{mark.group(1)}'; expected one of "
                            + ", ".join(sorted(LANGUAGES)))
            fence = (number + 1, mark.group(1), [])
        elif comment := re.match(r"<!-- snippet: (.*?) *-->", line):
            directives = parse_directives(comment.group(1), where)
        elif "<!-- snippet" in line:
            raise Wrong(f"{where}: a directive fills one line")
        elif line.strip() and directives is not None:
            raise Wrong(f"{where}: no block follows the directive before this line")
    if fence is not None:
        raise Wrong(f"{source}:{fence[0]}: a block without an end")
    return blocks


def header_blocks(source, text, table):
    """The examples in a header's comments, with the table's directives."""
    runs, run = [], []
    for number, line in enumerate(text.splitlines(), 1):
        comment = re.match(r"\s*///?(?P<rest>.*)$", line)
        rest = comment.group("rest") if comment else ""
        begins = re.match(r" {3}\S", rest)
        if comment and (begins or (run and re.match(r" {3}", rest))):
            run.append((number, rest[3:]))
        elif comment and run and rest == "":
            run.append((number, ""))
        elif run:
            runs.append(run)
            run = []
    runs += [run] if run else []
    blocks = []
    for i, lines in enumerate(runs, 1):
        directives = parse_directives(table.pop(f"{source}#{i}", ""), f"{source}#{i}")
        body = complete("\n".join(part for _, part in lines).rstrip())
        blocks.append(Block(source, lines[0][0], "cpp", body + "\n", directives))
    return blocks


def complete(example):
    """An example of a header with its ellipses left out, as statements."""
    example = re.sub(r"\{ *\.\.\. *;? *\}", "{ }", example)
    example = re.sub(r"(?m)(?<=[;{}\s])\.\.\.;?(?=\s|$)", "", example)
    code = re.sub(r"//.*", "", example).rstrip()
    if code.endswith((";", "}")):
        return example
    return re.sub(r"(\s*//.*)?$", r";\1", example, count=1)


def header_table():
    table = {}
    for line in (HERE / "headers.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            name, directives = line.split(" ", 1)
            table[name] = directives.strip()
    return table


def groups(blocks):
    """Blocks that share a scope, with what they are to print."""
    out = []
    for block in blocks:
        where = f"{block.source}:{block.line}"
        if "output" in block.directives:
            if not out or block.language != "text":
                raise Wrong(f"{where}: output follows a cpp block and is text")
            out[-1].output = (out[-1].output or "") + block.text
        elif block.language != "cpp":
            continue
        elif "continues" in block.directives:
            if not out:
                raise Wrong(f"{where}: nothing to continue")
            out[-1].blocks.append(block)
        else:
            out.append(Group([block]))
    return out


def returns_at_end(program):
    """main() under another name has no silent `return 0`."""
    begin = re.search(r"^int main\(", program, re.M).start()
    end = re.search(r"^\}", program[begin:], re.M).start() + begin
    return program[:end] + "return 0; " + program[end:]


def hoist_includes(text, includes):
    for line in re.findall(r"^#include .*$", text, re.M):
        if line not in includes:
            includes.append(line)
    return re.sub(r"^#include .*$", "", text, flags=re.M)


def context_lines(names, includes):
    code = ""
    for name in filter(None, names.split("+")):
        path = HERE / "contexts" / f"{name}.inc"
        code += f'#line 1 "tests/docs/contexts/{name}.inc"\n'
        code += hoist_includes(path.read_text(), includes)
    return code


def emit(group, suite, includes):
    """The group's code, and its entry for the test."""
    name = f"line_{group.line}"
    outside, code = "", ""
    for block in group.blocks:
        lines = hoist_includes(block.text, includes).splitlines(keepends=True)
        first = int(block.directives.get("outside", 0))
        outside += f'#line {block.line} "{block.source}"\n' + "".join(lines[:first])
        code += f'#line {block.line + first} "{block.source}"\n' + "".join(lines[first:])
    context = context_lines(group.directives.get("context", ""), includes)
    space = f"snippet_{suite}_{group.line}"
    if group.is_program():
        takes = re.search(r"^int main\((.*?)\)", code, re.M).group(1).strip()
        code = f"namespace {space} {{\n{context}{returns_at_end(code)}}}\n"
        call = f"{space}::main({'1, arguments' if takes else ''})"
        argv = 'char name[] = "program"; char* arguments[] = {name, nullptr}; ' if takes else ""
        call = f"{argv}const int status = {call}; if (status != 0) exit_status(status);"
    elif "definitions" in group.directives or "member_of" in group.directives:
        if "member_of" in group.directives:
            code = f"struct Example : {group.directives['member_of']} {{\n{code}}};\n"
        return f"namespace {space} {{\nusing namespace cohort;\n{context}{code}}}\n", None
    else:
        outer = context_lines(group.directives.get("outer", ""), includes)
        code = (f"namespace {space} {{\nusing namespace cohort;\n{outer}{outside}"
                f"static void snippet() {{\n{context}{{\n{code}}}\n}}\n}}\n")
        call = f"{space}::snippet();"
    return code, (name, call)


def generate(out, sources):
    table, includes, body = header_table(), [], ""
    for source in sources:
        text = (ROOT / source).read_text()
        is_page = source.endswith(".md")
        blocks = page_blocks(source, text) if is_page else header_blocks(source, text, table)
        if not is_page and blocks:
            includes.append(f'#include "{source}"')
        suite = re.sub(r"\W", "_", source)
        for group in groups(blocks):
            if "skip" in group.directives or "prose" in group.directives:
                continue
            code, entry = emit(group, suite, includes)
            body += f"{code}#line 1 \"generated\"\n"
            if entry:
                body += test_case(suite, group, *entry)
    head = "".join(f"{line}\n" for line in includes)
    out.write_text(f'// Made by snippets.py.\n{head}#include "tests/docs/snippet_test.h"\n'
                   f"using cohort::docs::exit_status;\n{body}")


def test_case(suite, group, name, call):
    d = group.directives
    where = f"{group.blocks[0].source}:{group.line}"
    if not group.runs():
        return f"[[maybe_unused]] static void unused_{suite}_{name}() {{ {call} }}\n"
    workers, servers = d.get("job", "0+0").split("+")
    expect = "nullptr" if group.output is None else f'R"snippet({group.output})snippet"'
    return (f"TEST({suite}, {name}) {{\n  cohort::docs::run({{.where = \"{where}\", "
            f".output = {expect}, .error = \"{d.get('throws', '')}\", "
            f".steps = {d.get('steps', 0)}, .workers = {workers}, .servers = {servers}}}, "
            f"[] {{ {call} }});\n}}\n")


def public_headers():
    found = sorted(str(p.relative_to(ROOT)) for p in (ROOT / "cohort").rglob("*.h"))
    return [p for p in found
            if "/internal/" not in p and "/testing/" not in p and "/test_" not in p]


def pages():
    found = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [str(p.relative_to(ROOT)) for p in found]


def check_sh(block):
    """`make x` is one of the Makefile's targets, and files of the tree are there."""
    makefile = (ROOT / "Makefile").read_text()
    wrong = []
    for target in re.findall(r"^\s*make ([a-z-]+)", block.text, re.M):
        if not re.search(rf"^{target}:", makefile, re.M):
            wrong.append(f"{block.source}:{block.line}: the Makefile has no target '{target}'")
    return wrong


def check_cmake(block):
    """Commands about Cohort are those of the project that tests/consumer builds."""
    project = (ROOT / "tests/consumer/project/CMakeLists.txt").read_text()
    wrong = []
    for line in re.findall(r"^find_package\(.*?\)", block.text, re.M):
        if line not in project:
            wrong.append(f"{block.source}:{block.line}: '{line}' is not in tests/consumer/project")
    return wrong


def check_links(source, text):
    """Links to files of the tree lead somewhere."""
    folder = (ROOT / source).parent
    return [f"{source}: a link to {link}, which is not there"
            for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", re.sub(r"`[^`\n]*`", "", text))
            if not (folder / link).exists()]


def check(not_compiled, prose):
    """Complaints, and a line for each page."""
    table, complaints, summary, skipped, parts_only = header_table(), [], [], [], 0
    for source in pages() + public_headers():
        text = (ROOT / source).read_text()
        try:
            blocks = (page_blocks(source, text) if source.endswith(".md")
                      else header_blocks(source, text, table))
            parts = groups(blocks)
        except Wrong as e:
            complaints.append(str(e))
            continue
        if source.endswith(".md"):
            complaints += check_links(source, re.sub(r"```.*?```", "", text, flags=re.S))
        complaints += [f"{source}:{b.line}: prose stands in headers only; a page's program is "
                       "compiled" for b in blocks
                       if source.endswith(".md") and "prose" in b.directives]
        for block in blocks:
            complaints += {"sh": check_sh, "cmake": check_cmake}.get(block.language,
                                                                    lambda _: [])(block)
        left_out = [g for g in parts if "skip" in g.directives]
        parts_only += sum("prose" in g.directives for g in parts)
        skipped += [f"{source}:{g.line}: {g.directives['skip']}" for g in left_out]
        code = [g for g in parts if "skip" not in g.directives and "prose" not in g.directives]
        if code or left_out:
            ran = sum(g.runs() for g in code)
            summary.append(f"{source}: {ran} run, {len(code) - ran} only compiled, "
                           f"{len(left_out)} not compiled")
    complaints += [f"headers.txt: there is no example {name}" for name in table]
    if len(skipped) != not_compiled:
        complaints.append(f"{len(skipped)} blocks are not compiled, expected {not_compiled}: "
                          + "; ".join(skipped))
    if parts_only != prose:
        complaints.append(f"{parts_only} examples in headers are prose, expected {prose}")
    return complaints, summary


def extract(page, folder):
    blocks = page_blocks(page, (ROOT / page).read_text())
    program = next(b for b in blocks if b.language == "cpp" and "int main(" in b.text)
    project = next(b for b in blocks if b.language == "cmake" and "project(" in b.text)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "CMakeLists.txt").write_text(project.text)
    (folder / "main.cc").write_text(program.text)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("command", choices=["generate", "check", "extract"])
    parser.add_argument("arguments", nargs="*")
    parser.add_argument("--not-compiled", type=int, default=0)
    parser.add_argument("--prose", type=int, default=0)
    options = parser.parse_args()
    try:
        if options.command == "generate":
            generate(pathlib.Path(options.arguments[0]), options.arguments[1:])
        elif options.command == "extract":
            extract(options.arguments[0], pathlib.Path(options.arguments[1]))
        else:
            complaints, summary = check(options.not_compiled, options.prose)
            print("\n".join(summary + complaints))
            return 1 if complaints else 0
    except Wrong as e:
        print(e)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
