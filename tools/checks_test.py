#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of the checks and of test_fast.py on small made-up trees."""

import pathlib
import shutil
import tempfile
import unittest

import check_layers
import check_symbols
import check_size
import check_thread_safety
import failures
import test_fast


def long_body(lines):
    return "{\n" + "  f();\n" * (lines - 2) + "}\n"


class Layers(unittest.TestCase):
    def complaints(self, **files):
        """Keyword a__b_h is the file cohort/a/b.h."""
        tree = {"cohort/" + name.replace("__", "/").replace("_h", ".h").replace("_cc", ".cc"): text
                for name, text in files.items()}
        return (check_layers.check_includes(tree) + check_layers.check_namespaces(tree)
                + check_layers.check_heavy(tree))

    def test_down_and_within_is_allowed(self):
        self.assertEqual([], self.complaints(
            base__error_h="#include <string>\n",
            values__nest_h='#include "cohort/base/error.h"\n',
            values__nest_cc='#include "cohort/values/nest.h"\n'))

    def test_up_is_refused(self):
        found = self.complaints(base__error_h='#include "cohort/values/nest.h"\n',
                                values__nest_h="")
        self.assertIn("base (floor 0) is below values (floor 2)", found[0])
        self.assertIn("cohort/base/error.h:1", found[0])

    def test_neighbours_are_refused(self):
        found = self.complaints(values__nest_h='\n#include "cohort/rpc/a.h"\n', rpc__a_h="")
        self.assertEqual(1, len(found))
        self.assertIn("neighbours on floor 2", found[0])
        self.assertEqual([], self.complaints(
            values__nest_test_cc='#include "cohort/rpc/a.h"\n', rpc__a_h=""))

    def test_folder_without_a_floor(self):
        found = self.complaints(values__nest_h='#include "cohort/novel/a.h"\n', novel__a_h="")
        self.assertIn("has no floor", found[0])

    def test_missing_file_and_wrong_brackets(self):
        found = self.complaints(base__a_h='#include "cohort/base/none.h"\n#include "vector"\n'
                                          "#include <cohort/base/a.h>\n")
        self.assertIn("no such file", found[0])
        self.assertEqual(3, len(found))

    def test_keras_floors(self):
        self.assertEqual([], self.complaints(
            keras__layers__dense_h='#include "cohort/keras/layer.h"\n', keras__layer_h="",
            keras__model_h='#include "cohort/keras/layers/dense.h"\n'
                           '#include "cohort/keras/callbacks/callback.h"\n',
            keras__callbacks__callback_h="",
            keras__callbacks__stop_h='#include "cohort/keras/model.h"\n'))
        for source, target in [("layer_h", "model.h"), ("layers__a_h", "metrics/a.h"),
                               ("losses__a_h", "metrics/a.h"), ("model_h", "callbacks/stop.h")]:
            path = target.replace("/", "__").replace(".", "_")
            found = self.complaints(**{"keras__" + source: f'#include "cohort/keras/{target}"\n',
                                       "keras__" + path: ""})
            self.assertEqual(1, len(found), (source, target))

    def test_data_floors(self):
        self.assertEqual([], self.complaints(
            data__dataset_h='#include "cohort/data/core/element.h"\n', data__core__element_h="",
            data__formats__idx__idx_cc='#include "cohort/data/formats/internal/reader.h"\n',
            data__formats__internal__reader_h="",
            data__core__element_test_cc='#include "cohort/data/dataset.h"\n'))
        for source, target in [("core__a_h", "dataset.h"), ("pipeline__a_cc", "formats/idx/idx.h"),
                               ("formats__csv__a_cc", "formats/idx/idx.h"),
                               ("image__a_cc", "store/b.h")]:
            path = target.replace("/", "__").replace(".", "_")
            found = self.complaints(**{"data__" + source: f'#include "cohort/data/{target}"\n',
                                       "data__" + path: ""})
            self.assertEqual(1, len(found), (source, target))

    def test_private_names_are_in_their_folders_namespace(self):
        def block(name, body="void f();\n"):
            return f"namespace {name} {{\n{body}}}  // namespace {name}\n"

        self.assertEqual([], self.complaints(
            rpc__a_h=block("cohort::internal::rpc") + block("internal::rpc") + block("cohort"),
            keras__a_h=block("cohort::keras::internal") + block("internal"),
            runtime__a_h=block("internal::strategy", "class Step;\nstruct Undo;\n")))
        for folder, name, own in [("rpc", "cohort::internal", "cohort::internal::rpc"),
                                  ("rpc", "internal", "cohort::internal::rpc"),
                                  ("rpc", "internal::runtime", "cohort::internal::rpc"),
                                  ("keras", "cohort::internal", "cohort::keras::internal")]:
            found = self.complaints(**{folder + "__a_h": "\n" + block(name)})
            self.assertEqual(1, len(found), (folder, name))
            self.assertIn(f"cohort/{folder}/a.h:2: opens {name}: the private names of {folder} "
                          f"are in {own}", found[0])

    def test_only_tests_use_testing(self):
        text = '#include "cohort/testing/run.h"\n'
        self.assertEqual([], self.complaints(base__a_test_cc=text, testing__run_h=""))
        self.assertEqual([], self.complaints(base__test_rig_h=text, testing__run_h=""))
        self.assertEqual(1, len(self.complaints(base__a_cc=text, testing__run_h="")))

    def test_heavy_headers_are_found_through_others(self):
        found = self.complaints(base__a_h='#include "cohort/base/b.h"\n',
                                base__b_h="#include <torch/torch.h>\n",
                                base__c_cc="#include <ATen/ATen.h>\n")
        self.assertEqual(2, len(found))
        self.assertIn("cohort/base/a.h -> cohort/base/b.h -> torch/torch.h: heavy", found[0])
        self.assertEqual([], self.complaints(base__a_h="#include <ATen/ops/mm.h>\n"
                                                       "#include <ATen/core/Tensor.h>\n"))

    def test_only_torch_module_may_reach_torch_nn(self):
        module = "#include <torch/nn/module.h>\n"
        self.assertEqual([], self.complaints(keras__torch_module_h=module))
        found = self.complaints(keras__torch_module_h=module,
                                keras__model_h='#include "cohort/keras/torch_module.h"\n')
        self.assertEqual(1, len(found))
        self.assertIn("cohort/keras/torch_module.h -> torch/nn/module.h: heavy", found[0])
        self.assertEqual(1, len(self.complaints(
            keras__torch_module_h="#include <torch/torch.h>\n")))

    def test_heavy_prefixes(self):
        for name in ["torch/nn/module.h", "torch/nn.h", "gloo/context.h", "iostream", "a/b.pb.h"]:
            self.assertIsNotNone(check_layers.heavy(name), name)
        for name in ["istream", "torch/headeronly/version.h", "ATen/ATenPlus.h"]:
            self.assertIsNone(check_layers.heavy(name), name)


class Sizes(unittest.TestCase):
    def names(self, text):
        return [(name, lines) for name, _, lines in check_size.functions(text)]

    def test_plain_function(self):
        self.assertEqual([("f", 5)], self.names("int f(int a)\n" + long_body(5)))

    def test_members_in_nested_scopes(self):
        text = ("namespace a::b {\nnamespace {\nclass C final : public D {\n public:\n"
                "  int get() const { return x_; }\n  explicit C(int x);\n private:\n"
                "  std::vector<int> x_{1, 2};\n};\n}\nvoid C::g() noexcept " + long_body(7) + "}\n")
        self.assertEqual([("get", 1), ("C::g", 7)], self.names(text))

    def test_constructor_initialisers(self):
        text = "C::C(int a)\n    : D(a), b_{a}, c_{{1}, 2} " + long_body(9)
        self.assertEqual([("C::C", 9)], self.names(text))

    def test_templates_and_constraints(self):
        text = ("template <class T, int N = (1 < 2)>\nstruct S {\n  void f() {}\n};\n"
                "template <class T>\n  requires(sizeof(T) > 1)\nstruct U {\n  void g() {}\n};\n"
                "template <class T>\n  requires std::integral<T>\nT h(T a) " + long_body(4))
        self.assertEqual(["f", "g", "h"], [name for name, _ in self.names(text)])

    def test_braces_that_are_no_functions(self):
        text = ('constexpr int kTable[] = {1, 2};\nenum class E { kA, kB };\n'
                'const char* kText = "{ not a brace";\nchar kBrace = \'{\';\n// {\n/* { */\n'
                '#define M(x) {\nauto kRaw = R"({)";\nint n = 1\'000;\nvoid f() {}\n')
        self.assertEqual([("f", 1)], self.names(text))

    def test_blocks_count_for_their_function(self):
        text = "TEST(A, B) {\n  auto g = [&] {\n    f();\n  };\n  if (x) {\n  }\n}\nvoid h() {}\n"
        self.assertEqual([("TEST", 7), ("h", 1)], self.names(text))

    def test_complaints(self):
        self.assertEqual([], check_size.check_file("a.cc", "void f() " + long_body(60)))
        self.assertIn("a.cc:2: f has 61 lines",
                      check_size.check_file("a.cc", "\nvoid f() " + long_body(61))[0])
        self.assertIn("501 lines", check_size.check_file("a.cc", "\n" * 501)[0])


@unittest.skipUnless(shutil.which("clang++-14"), "clang++-14 is not installed")
class ThreadSafety(unittest.TestCase):
    def complaints(self, member):
        text = ('#include "cohort/base/mutex.h"\nusing namespace cohort::internal::base;\n'
                f"struct A {{ {member} Mutex m; int x COHORT_GUARDED_BY(m) = 0; }};\n")
        with tempfile.TemporaryDirectory() as folder:
            source = pathlib.Path(folder) / "a.cc"
            source.write_text(text)
            return "".join(check_thread_safety.check("clang++-14", [], [[source]]))

    def test_who_holds_the_mutex_touches_what_it_guards(self):
        self.assertEqual("", self.complaints("void f() { const MutexLock lock(m); ++x; }"))
        self.assertEqual("", self.complaints("void f() COHORT_REQUIRES(m) { ++x; }"))

    def test_nobody_else_does(self):
        for member in ["void f() { ++x; }",
                       "void f() { MutexLock lock(m); lock.unlock(); ++x; }",
                       "void f() COHORT_REQUIRES(m) { const MutexUnlock unlocked(m); ++x; }",
                       "void g() COHORT_REQUIRES(m); void f() { g(); }"]:
            self.assertIn("requires holding mutex", self.complaints(member), member)

    def test_mutexes_that_clang_does_not_know_say_why(self):
        refused = ["  std::mutex mutex_;", "static std::recursive_mutex m;",
                   "  mutable std::shared_timed_mutex m;"]
        refused += ["  std::mutex a, b;", "  std::mutex m{};", "std::mutex m[4];"]
        taken = ["  std::mutex mutex_;  // orders calls, guards no member", "  Mutex mutex_;",
                 "void f(std::mutex& m);", "std::mutex a, b;  // as above", "f(std::mutex m);", ""]
        self.assertEqual([1, 3, 5, 7, 9, 11], check_thread_safety.unexplained(
            "\n".join(line for pair in zip(refused, taken) for line in pair)))

    def test_sources_with_annotations_are_found(self):
        found = check_thread_safety.units(check_thread_safety.ROOT)
        names = {source.name for sources in found.values() for source in sources}
        self.assertTrue({"map_stream.cc", "arena.cc", "restore_session.cc"} <= names)


class Symbols(unittest.TestCase):
    def test_code_from_outside_is_refused(self):
        calls = ["dlopen", "system@GLIBC_2.2.5", "torch::jit::load(std::string)",
                 "torch::pickle_load(std::vector<char>)", "torch::jit::Unpickler::parse_ivalue()",
                 "at::empty(long)", "systematic()", "write"]
        self.assertEqual(5, len(check_symbols.complaints("cohort_keras", calls)))

    def test_the_device_library_may_be_loaded(self):
        self.assertEqual([], check_symbols.complaints("cohort_runtime", ["dlopen", "dlsym"]))


class NearestTests(unittest.TestCase):
    TESTS = [("base_test", "b", "cohort/base"), ("keras_fit_test", "f", "cohort/keras"),
             ("keras_layers_test", "l", "cohort/keras"), ("resume_test", "r", "tests"),
             ("api_test", "a", "tests"), ("docs_mapping", None, "tests/docs"),
             ("check_size", None, "tools"), ("check_layers", None, "tools")]

    def nearest(self, *changed):
        return test_fast.nearest_tests(list(changed), self.TESTS) - test_fast.ALWAYS

    def test_those_of_the_closest_folder_with_tests(self):
        self.assertEqual({"base_test", "check_layers"}, self.nearest("cohort/base/error.h"))
        self.assertEqual({"keras_fit_test", "keras_layers_test", "check_layers"},
                         self.nearest("cohort/keras/layers/internal/kernels.inc"))

    def test_a_program_of_its_own_is_that_program(self):
        self.assertEqual({"resume_test", "check_layers"}, self.nearest("tests/resume_test.cc"))

    def test_sizes_and_formatting_always(self):
        self.assertEqual({"check_size"}, test_fast.nearest_tests(["README.md"], self.TESTS))


class Failures(unittest.TestCase):
    def test_tells_failed_cases_and_what_ran_again(self):
        log = """
        Start  21: some_test
 1/2 Test  #21: some_test ................***Failed   66.62 sec
[ RUN      ] A.holds
[       OK ] A.holds (3 ms)
[ RUN      ] A.breaks
a_test.cc:7: Failure
[  FAILED  ] A.breaks (3 ms)
[ RUN      ] A.holds_too
[       OK ] A.holds_too (3 ms)
        Start  21: some_test
    Test  #21: some_test ................   Passed    0.01 sec
 2/2 Test  #22: other ....................***Timeout 240.02 sec
[ RUN      ] B.hangs
waits
        Start  23: third

100% tests passed, 0 tests failed out of 2
""".splitlines()
        self.assertEqual(["--- some_test: Failed; passed when it ran again",
                          "[ RUN      ] A.breaks", "a_test.cc:7: Failure",
                          "[  FAILED  ] A.breaks (3 ms)",
                          "--- other: Timeout", "[ RUN      ] B.hangs", "waits"],
                         failures.report(log))

    def test_says_nothing_of_a_good_run(self):
        self.assertEqual([], failures.report([" 1/1 Test  #1: a ....   Passed    0.01 sec"]))


if __name__ == "__main__":
    unittest.main()
