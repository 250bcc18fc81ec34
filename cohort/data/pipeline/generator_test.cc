// SPDX-License-Identifier: Apache-2.0
//
// Generators and ranges of any kind, and the verbs take_while, unique, reduce, group_by_window.
// Expected values are those of tf.data.
#include <gtest/gtest.h>

#include <list>
#include <map>
#include <ranges>
#include <sstream>

#include "cohort/data/dataset.h"
#include "cohort/data/test_elements.h"
#include "cohort/data/test_files.h"

namespace cohort {
namespace {

using testing::error_text;
using testing::expect_resumes;
using testing::texts_of;
using Texts = std::vector<std::string>;

struct Point {
  int64_t x = 0;
  std::string name;
};

TEST(FromGenerator, AFunctionOfOptionals) {
  const auto ds = Dataset::from_generator([i = int64_t{0}]() mutable -> std::optional<int64_t> {
    if (i == 3) return std::nullopt;
    return i++;
  });
  EXPECT_EQ(ds.element_spec().to_string(), "int64[]");
  EXPECT_EQ(ds.cardinality(), kUnknownCardinality);
  EXPECT_EQ(texts_of(ds.repeat(2)), (Texts{"[0]", "[1]", "[2]", "[0]", "[1]", "[2]"}));
}

TEST(FromGenerator, AFunctionThatMakesSuchFunctionsOrRanges) {
  const auto functions = Dataset::from_generator([] {
    return [i = 0]() mutable -> std::optional<std::tuple<int64_t, std::string>> {
      if (i == 2) return std::nullopt;
      ++i;
      return std::tuple(int64_t{i}, std::string("n"));
    };
  });
  EXPECT_EQ(functions.element_spec().to_string(), "(int64[], string[])");
  EXPECT_EQ(texts_of(functions.repeat(2)), (Texts{"([1],n,)", "([2],n,)", "([1],n,)", "([2],n,)"}));
  int64_t passes = 0;
  const auto ranges = Dataset::from_generator([&passes] {
    return std::vector<int64_t>{++passes, 10};
  });
  EXPECT_EQ(texts_of(ranges.repeat(2)), (Texts{"[1]", "[10]", "[2]", "[10]"}));
}

TEST(FromGenerator, ASpecIsChecked) {
  const auto ds = Dataset::from_generator(
      [i = int64_t{0}]() mutable -> std::optional<Tensor> { return arange(++i); },
      TensorSpec{{1}, kInt64});
  auto it = ds.make_iterator();
  EXPECT_EQ(it.next()->spec().to_string(), "int64[1]");
  EXPECT_EQ(error_text<InvalidArgument>([&] { it.next(); }),
            "[dataset.from_generator] element 1: expected int64[1], got int64[2]");
}

TEST(FromRange, Containers) {
  const auto vector = Dataset::from_range(std::vector<float>{1, 2});
  EXPECT_EQ(vector.element_spec().to_string(), "float32[]");
  EXPECT_EQ(vector.cardinality(), 2);
  EXPECT_EQ(texts_of(vector.repeat(2).batch(3)), (Texts{"[1, 2, 1]", "[2]"}));
  EXPECT_EQ(texts_of(Dataset::from_range(std::list<std::string>{"a", "b"})), (Texts{"a", "b"}));
  EXPECT_EQ(texts_of(Dataset::from_range(std::vector<bool>{true, false})), (Texts{"[1]", "[0]"}));
  const std::vector<Point> points = {{1, "one"}, {2, "two"}};
  const auto structs = Dataset::from_range(points);
  EXPECT_EQ(structs.element_spec().to_string(), "(int64[], string[])");
  EXPECT_EQ(texts_of(structs), (Texts{"([1],one,)", "([2],two,)"}));
  EXPECT_EQ(texts_of(Dataset::from_range(std::vector<int64_t>{})), Texts{});
}

// Clang reads libstdc++'s views from version 16 on.
#if !defined(__clang__) || __clang_major__ >= 16
TEST(FromRange, Views) {
  const auto odd = Dataset::from_range(std::views::iota(int64_t{0}, int64_t{9}) |
                                       std::views::filter([](int64_t i) { return i % 2 == 1; }) |
                                       std::views::transform([](int64_t i) { return i * i; }));
  EXPECT_EQ(texts_of(odd.repeat(2)),
            (Texts{"[1]", "[9]", "[25]", "[49]", "[1]", "[9]", "[25]", "[49]"}));
  EXPECT_EQ(odd.cardinality(), kUnknownCardinality);
  const auto endless = Dataset::from_range(std::views::iota(int64_t{5}));
  EXPECT_EQ(texts_of(endless.take(2)), (Texts{"[5]", "[6]"}));
}

TEST(FromRange, OneThatCanBeReadOnce) {
  std::istringstream text("3 1 2");
  const auto ds = Dataset::from_range(std::ranges::istream_view<int>(text));
  EXPECT_EQ(texts_of(ds), (Texts{"[3]", "[1]", "[2]"}));
  EXPECT_NE(error_text<FailedPrecondition>([&] { texts_of(ds); }).find("can be read once"),
            std::string::npos);
}
#endif

TEST(FromRange, Resumes) {
  expect_resumes([] { return Dataset::from_range(std::vector<int64_t>{4, 5, 6}).repeat(2); });
  expect_resumes([] { return Dataset::from_generator([] { return std::vector<int64_t>{1, 2}; }); });
}

TEST(TakeWhile, UpToTheFirstThatFails) {
  const auto below = [](int64_t x) { return x % 7 < 5; };
  EXPECT_EQ(texts_of(Dataset::range(20).take_while(below)),
            (Texts{"[0]", "[1]", "[2]", "[3]", "[4]"}));
  EXPECT_EQ(texts_of(Dataset::range(3).repeat().take_while([i = 0](const Tensor&) mutable {
              return ++i < 5;
            })).size(),
            4U);
  EXPECT_EQ(Dataset::range(3).take_while(below).cardinality(), kUnknownCardinality);
  EXPECT_EQ(error_text<DataLoss>([] {
              for (const Element& e : Dataset::range(3).take_while([](int64_t x) -> bool {
                     if (x == 1) throw DataLoss("bad");
                     return true;
                   })) {
                static_cast<void>(e);
              }
            }),
            "[dataset.take_while] element 1 of range.take_while: bad");
  expect_resumes([&] { return Dataset::range(20).take_while(below).repeat(2); });
}

TEST(Unique, TheFirstOfEach) {
  const auto numbers = Dataset::from_range(std::vector<int64_t>{1, 37, 2, 37, 2, 1});
  EXPECT_EQ(texts_of(numbers.unique()), (Texts{"[1]", "[37]", "[2]"}));
  EXPECT_EQ(texts_of(Dataset::from_range(Texts{"b", "a", "b", ""}).unique()),
            (Texts{"b", "a", ""}));
  EXPECT_EQ(numbers.unique().cardinality(), kUnknownCardinality);
  expect_resumes([&] { return numbers.unique().repeat(2); });
}

TEST(Reduce, FoldsAllElements) {
  const Dataset five = Dataset::range(5);
  EXPECT_EQ(five.reduce(int64_t{0}, [](int64_t s, int64_t x) { return s + x; }), 10);
  EXPECT_EQ(five.reduce(0, [](int count, const Tensor&) { return count + 1; }), 5);
  EXPECT_EQ(Dataset::range(0).reduce(7, [](int s, const Tensor&) { return s + 1; }), 7);
  const Dataset pairs = Dataset::from_tensor_slices({arange(3), arange(3) * 10});
  EXPECT_EQ(pairs.reduce(int64_t{0}, [](int64_t s, int64_t a, int64_t b) { return s + a * b; }),
            50);
  EXPECT_EQ(five.reduce(std::string(),
                        [](std::string s, const Element& e) { return s + testing::text_of(e); }),
            "[0][1][2][3][4]");
  EXPECT_THROW(five.reduce(0, [](int s, const Tensor&, const Tensor&) { return s; }),
               InvalidArgument);
}

TEST(GroupByWindow, AWindowOfEachKeyAtATime) {
  const auto make = [](int64_t n, int64_t keys, int64_t size, int64_t batch) {
    return Dataset::range(n).group_by_window(
        [keys](int64_t x) { return x % keys; },
        [batch](int64_t, const Dataset& window) { return window.batch(batch); }, size);
  };
  EXPECT_EQ(texts_of(make(10, 2, 5, 5)), (Texts{"[0, 2, 4, 6, 8]", "[1, 3, 5, 7, 9]"}));
  EXPECT_EQ(texts_of(make(11, 3, 3, 2)),
            (Texts{"[0, 3]", "[6]", "[1, 4]", "[7]", "[2, 5]", "[8]", "[9]", "[10]"}));
  const auto keys = Dataset::range(4).group_by_window(
      [](int64_t x) { return -x; },
      [](int64_t key, const Dataset& window) {
        return window.map([key](int64_t x) { return 100 * key + x; });
      },
      2);
  EXPECT_EQ(texts_of(keys), (Texts{"[-297]", "[-198]", "[-99]", "[0]"}));
  EXPECT_THROW(make(4, 2, 0, 1), InvalidArgument);
  EXPECT_NE(error_text<InvalidArgument>([&] { texts_of(make(4, 2, 1, 0)); })
                .find("[dataset.group_by_window] window of key 0 of range.group_by_window: "
                      "[dataset.batch] expected a size of at least 1"),
            std::string::npos);
  expect_resumes([&] { return make(11, 3, 3, 2).repeat(2); });
  expect_resumes([&] {
    return Dataset::range(9)
        .map([](int64_t x) { return x; })
        .group_by_window(
            [](int64_t x) { return x % 2; },
            [](int64_t, const Dataset& window) { return window.shuffle(3, {.seed = 1}); }, 3);
  });
}

}  // namespace
}  // namespace cohort
