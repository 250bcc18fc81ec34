#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of snippets.py on small made-up pages."""

import unittest

import snippets


def blocks(text):
    return snippets.page_blocks("page.md", text)


class Pages(unittest.TestCase):
    def test_block_with_its_place(self):
        found = blocks("text\n\n```cpp\nint x = 1;\n```\n")
        self.assertEqual([("cpp", 4, "int x = 1;\n")],
                         [(b.language, b.line, b.text) for b in found])

    def test_language_is_needed(self):
        with self.assertRaisesRegex(snippets.Wrong, "page.md:1: a block of language ''"):
            blocks("```\nmake\n```\n")

    def test_end_is_needed(self):
        with self.assertRaisesRegex(snippets.Wrong, "without an end"):
            blocks("```cpp\nint x;\n")

    def test_directives(self):
        found = blocks("<!-- snippet: context=a+b; steps=3; compile only: no file -->\n"
                       "```cpp\nf();\n```\n")
        self.assertEqual({"context": "a+b", "steps": "3", "compile only": "no file"},
                         found[0].directives)

    def test_unknown_directive(self):
        with self.assertRaisesRegex(snippets.Wrong, "unknown directive 'skip'"):
            blocks("<!-- snippet: skip -->\n```cpp\nf();\n```\n")

    def test_job_has_a_parameter_server(self):
        for job in ["2+0", "2", "+1", "2+1+1", "a+b", ""]:
            with self.assertRaisesRegex(snippets.Wrong, "expected job=W.S with a parameter server"):
                blocks(f"<!-- snippet: job={job} -->\n```cpp\nf();\n```\n")
        found = blocks("<!-- snippet: job=0+1 -->\n```cpp\nf();\n```\n")
        self.assertEqual({"job": "0+1"}, found[0].directives)

    def test_directive_without_a_block(self):
        with self.assertRaisesRegex(snippets.Wrong, "no block follows"):
            blocks("<!-- snippet: steps=3 -->\ntext\n\n```cpp\nf();\n```\n")

    def test_scopes_and_output(self):
        found = snippets.groups(blocks(
            "```cpp\nint x = 1;\n```\n<!-- snippet: continues -->\n```cpp\nf(x);\n```\n"
            "<!-- snippet: output -->\n```text\n1\n```\n```cpp\ng();\n```\n"))
        self.assertEqual([2, 1], [len(g.blocks) for g in found])
        self.assertEqual(["1\n", None], [g.output for g in found])

    def test_output_of_what_continues(self):
        found = snippets.groups(blocks(
            "```cpp\nf();\n```\n<!-- snippet: output -->\n```text\n1\n```\n"
            "<!-- snippet: continues -->\n```cpp\ng();\n```\n"
            "<!-- snippet: output -->\n```text\n2\n```\n"))
        self.assertEqual(["1\n2\n"], [g.output for g in found])

    def emitted(self, directives, text):
        return snippets.emit(
            snippets.Group([snippets.Block("page.md", 4, "cpp", text, directives)]), "page_md", [])

    def test_outside_of_functions(self):
        code, (name, call) = self.emitted({"outside": "2"}, "int f() { return 1; }\nREGISTER(f);\n"
                                          "\nuse(f);\n")
        before, inside = code.split("static void snippet() {\n")
        self.assertIn('#line 4 "page.md"\nint f() { return 1; }\nREGISTER(f);\n', before)
        self.assertIn('#line 6 "page.md"\n\nuse(f);\n', inside)
        self.assertEqual(("line_4", "snippet_page_md_4::snippet();"), (name, call))

    def test_job(self):
        block = snippets.Block("page.md", 4, "cpp", "f();\n", {"job": "2+3"})
        self.assertIn(".workers = 2, .servers = 3",
                      snippets.test_case("page_md", snippets.Group([block]), "line_4", "f();"))
        block.directives = {}
        self.assertIn(".workers = 0, .servers = 0",
                      snippets.test_case("page_md", snippets.Group([block]), "line_4", "f();"))

    def test_main_returns(self):
        self.assertEqual("int main() {\n  f();\nreturn 0; }\n",
                         snippets.returns_at_end("int main() {\n  f();\n}\n"))

    def test_includes_go_to_the_top(self):
        includes = []
        text = snippets.hoist_includes("#include <map>\nint x;\n", includes)
        self.assertEqual(("\nint x;\n", ["#include <map>"]), (text, includes))


class Headers(unittest.TestCase):
    TEXT = ("// About.\n//\n//   f(x)   // why\n//\n//   g();\n//\n// More.\n"
            "  /// Errors: this\n  ///         and that.\n  ///   h();\n")

    def test_examples(self):
        table = {"a.h#2": "context=c"}
        found = snippets.header_blocks("a.h", self.TEXT, table)
        self.assertEqual([(3, "f(x)   // why\n\ng();\n"), (10, "h();\n")],
                         [(b.line, b.text) for b in found])
        self.assertEqual([{}, {"context": "c"}], [b.directives for b in found])
        self.assertEqual({}, table)

    def test_ellipses(self):
        self.assertEqual("model.compile({ });", snippets.complete("model.compile({...});"))
        self.assertEqual("for (;;) {\n  \n}", snippets.complete("for (;;) {\n  ...\n}"))
        self.assertEqual("f();  // x", snippets.complete("f()  // x"))

    def test_members_of_a_class(self):
        block = snippets.Block("a.h", 4, "cpp", "void f() {}\n", {"member_of": "Base"})
        code, entry = snippets.emit(snippets.Group([block]), "a_h", [])
        self.assertIn("struct Example : Base {\n#line 4 \"a.h\"\nvoid f() {}\n};", code)
        self.assertIsNone(entry)


class Links(unittest.TestCase):
    def test_they_lead_somewhere(self):
        self.assertEqual([], snippets.check_links("docs/tf_mapping.md", "[a](conformance.md#x) [b]("
                                                  "https://example.com) `[c](d)`"))
        self.assertEqual(["docs/a.md: a link to no.md, which is not there"],
                         snippets.check_links("docs/a.md", "[a](no.md)"))


class Commands(unittest.TestCase):
    def block(self, language, text):
        return snippets.Block("page.md", 1, language, text, {})

    def test_make_targets_exist(self):
        self.assertEqual([], snippets.check_sh(self.block("sh", "make test   # all\n")))
        self.assertEqual(1, len(snippets.check_sh(self.block("sh", "make coffee\n"))))

    def test_packages_are_found_as_the_consumer_does(self):
        self.assertEqual([], snippets.check_cmake(
            self.block("cmake", "find_package(cohort 0.1 REQUIRED)  # why\n")))
        self.assertEqual(1, len(snippets.check_cmake(
            self.block("cmake", "find_package(cohort 9 REQUIRED)\n"))))


if __name__ == "__main__":
    unittest.main()
