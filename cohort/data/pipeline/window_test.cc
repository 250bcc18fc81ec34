// SPDX-License-Identifier: Apache-2.0
//
// window, and elements that are datasets. Expected values are those of tf.data.
#include <gtest/gtest.h>

#include "cohort/data/dataset.h"
#include "cohort/data/test_elements.h"
#include "cohort/data/test_files.h"

namespace cohort {
namespace {

using testing::both;
using testing::error_text;
using testing::expect_resumes;
using testing::texts_of;
using Texts = std::vector<std::string>;

Dataset whole(const Dataset& window) { return window.batch(100); }

void expect_windows(int64_t size, const WindowOptions& options, const Texts& expected) {
  for (const Dataset& source : both(7)) {
    const Dataset windows = source.window(size, options);
    EXPECT_EQ(texts_of(windows.flat_map(whole)), expected) << size;
    EXPECT_EQ(windows.cardinality(), static_cast<int64_t>(expected.size())) << size;
  }
}

TEST(Window, SizeShiftStrideAndRemainder) {
  expect_windows(3, {}, {"[0, 1, 2]", "[3, 4, 5]", "[6]"});
  expect_windows(3, {.drop_remainder = true}, {"[0, 1, 2]", "[3, 4, 5]"});
  expect_windows(3, {.shift = 1, .drop_remainder = true},
                 {"[0, 1, 2]", "[1, 2, 3]", "[2, 3, 4]", "[3, 4, 5]", "[4, 5, 6]"});
  expect_windows(
      3, {.shift = 1},
      {"[0, 1, 2]", "[1, 2, 3]", "[2, 3, 4]", "[3, 4, 5]", "[4, 5, 6]", "[5, 6]", "[6]"});
  expect_windows(3, {.shift = 1, .stride = 2, .drop_remainder = true},
                 {"[0, 2, 4]", "[1, 3, 5]", "[2, 4, 6]"});
  expect_windows(3, {.shift = 1, .stride = 2},
                 {"[0, 2, 4]", "[1, 3, 5]", "[2, 4, 6]", "[3, 5]", "[4, 6]", "[5]", "[6]"});
  expect_windows(2, {.shift = 5}, {"[0, 1]", "[5, 6]"});
  expect_windows(3, {.shift = 2, .stride = 3}, {"[0, 3, 6]", "[2, 5]", "[4]", "[6]"});
  expect_windows(10, {}, {"[0, 1, 2, 3, 4, 5, 6]"});
  expect_windows(10, {.drop_remainder = true}, {});
  EXPECT_EQ(Dataset::range(7).repeat().window(3).cardinality(), kInfiniteCardinality);
  EXPECT_EQ(Dataset::range(0).window(3).cardinality(), 0);
}

TEST(Window, ReadsNoFurtherThanItsWindow) {
  const Dataset endless = Dataset::range(5).repeat().window(4, {.shift = 3}).take(2);
  EXPECT_EQ(texts_of(endless.flat_map(whole)), (Texts{"[0, 1, 2, 3]", "[3, 4, 0, 1]"}));
}

TEST(Window, IsADatasetLikeAnyOther) {
  for (const Dataset& source : both(6)) {
    const Dataset shuffled = source.window(3).flat_map(
        [](const Dataset& w) { return w.shuffle(3, {.seed = 1}).repeat(2).skip(1).batch(2); });
    EXPECT_EQ(texts_of(shuffled).size(), 6U);
    const auto e = source.window(4).make_iterator().next();
    ASSERT_TRUE(e);
    ASSERT_TRUE(e->is_dataset());
    EXPECT_EQ(e->spec().to_string(), "dataset(int64[])");
    EXPECT_EQ(e->dataset().cardinality(), 4);
    EXPECT_EQ(texts_of(e->dataset().map([](int64_t x) { return 10 * x; })),
              (Texts{"[0]", "[10]", "[20]", "[30]"}));
    EXPECT_EQ(texts_of(e->as<Dataset>()), texts_of(e->dataset()));
    const Dataset sums = source.window(2).map([](const Dataset& w) {
      int64_t sum = 0;
      for (const Element& x : w) sum += x.as<int64_t>();
      return sum;
    });
    EXPECT_EQ(texts_of(sums), (Texts{"[1]", "[5]", "[9]"}));
  }
}

TEST(Window, ADatasetForEachComponent) {
  const Dataset pairs = Dataset::from_tensor_slices({arange(5), arange(5) + 10});
  for (const Dataset& source :
       {pairs, pairs.map([](int64_t a, int64_t b) { return std::tuple(a, b); })}) {
    const Dataset windows = source.window(2);
    EXPECT_EQ(windows.element_spec().to_string(), "(dataset(int64[]), dataset(int64[]))");
    const Dataset apart = windows.flat_map(
        [](const Dataset& a, const Dataset& b) { return a.batch(2).concatenate(b.batch(2)); });
    EXPECT_EQ(texts_of(apart), (Texts{"[0, 1]", "[10, 11]", "[2, 3]", "[12, 13]", "[4]", "[14]"}));
    const Dataset together = windows.flat_map([](const Dataset& w) { return w.batch(2); });
    EXPECT_EQ(texts_of(together),
              (Texts{"([0, 1],[10, 11],)", "([2, 3],[12, 13],)", "([4],[14],)"}));
    const Dataset zipped = windows.flat_map([](const Dataset& a, const Dataset& b) {
      return Dataset::zip({a, b});
    });
    EXPECT_EQ(texts_of(zipped), texts_of(source));
  }
}

TEST(Window, NamesAndNestsStay) {
  const Dataset nested = Dataset::from_tensor_slices(
      Element::named({{"x", {arange(4), Element(Texts{"a", "b", "c", "d"})}}, {"y", arange(4)}}));
  for (const Dataset& source : {nested, nested.map([](const Element& e) { return e; })}) {
    const Dataset again = source.window(3).flat_map([](const Dataset& w) { return w; });
    EXPECT_EQ(texts_of(again), texts_of(source));
    const auto e = again.make_iterator().next();
    ASSERT_TRUE(e);
    EXPECT_EQ((*e)["x"][1].string(), "a");
    const auto window = source.window(3).make_iterator().next();
    ASSERT_TRUE(window);
    EXPECT_EQ(texts_of((*window)["y"].dataset()), (Texts{"[0]", "[1]", "[2]"}));
  }
}

TEST(Window, OfUnlikeElements) {
  const Dataset growing = Dataset::range(1, 6).map([](int64_t n) { return arange(n); });
  const Dataset windows = growing.window(2);
  EXPECT_EQ(texts_of(windows.flat_map([](const Dataset& w) { return w.padded_batch(2); })),
            (Texts{"[0, 0, 0, 1]", "[0, 1, 2, 0, 0, 1, 2, 3]", "[0, 1, 2, 3, 4]"}));
  EXPECT_NE(error_text<InvalidArgument>([&] { texts_of(windows.flat_map(whole)); })
                .find("expected equal shapes and dtypes in a batch, got int64[1] and, as number 1, "
                      "int64[2]"),
            std::string::npos);
}

TEST(Window, OfWindows) {
  const Dataset pairs_of_pairs = Dataset::range(8).window(2).window(2);
  const auto join = [](const Dataset& w) { return w.batch(2); };
  EXPECT_EQ(texts_of(pairs_of_pairs.flat_map(
                [join](const Dataset& w) { return w.flat_map(join).batch(2); })),
            (Texts{"[0, 1, 2, 3]", "[4, 5, 6, 7]"}));
}

TEST(Window, FunctionsMayReturnDatasets) {
  const Dataset ranges = Dataset::range(1, 4).map([](int64_t n) { return Dataset::range(n); });
  EXPECT_EQ(ranges.element_spec().to_string(), "dataset(?)");
  EXPECT_EQ(texts_of(ranges.flat_map([](const Dataset& d) { return d; })),
            (Texts{"[0]", "[0]", "[1]", "[0]", "[1]", "[2]"}));
  auto it = ranges.shuffle(2).make_iterator();
  it.next();
  EXPECT_NE(error_text<Unimplemented>([&] { it.save(); }).find("] in an element"),
            std::string::npos);
}

TEST(Window, Refusals) {
  const Dataset ten = Dataset::range(10);
  EXPECT_THROW(ten.window(0), InvalidArgument);
  EXPECT_THROW(ten.window(2, {.shift = 0}), InvalidArgument);
  EXPECT_THROW(ten.window(2, {.stride = 0}), InvalidArgument);
  EXPECT_THROW(ten.window(int64_t{1} << 62, {.stride = 4}), InvalidArgument);
  EXPECT_EQ(error_text<InvalidArgument>([&] { ten.window(2).batch(2); }),
            "[dataset.batch] expected tensors and strings, got dataset(int64[]); flat_map makes "
            "elements of datasets");
  EXPECT_THROW(ten.window(2).padded_batch(2), InvalidArgument);
  EXPECT_THROW(ten.window(2).unbatch(), InvalidArgument);
  EXPECT_EQ(error_text<InvalidArgument>([&] { ten.map([](const Dataset& w) { return w; }); }),
            "[dataset.map] function takes a dataset, element is int64[]");
  const auto number = ten.make_iterator().next();
  ASSERT_TRUE(number);
  EXPECT_THROW(number->dataset(), InvalidArgument);
  EXPECT_THROW(static_cast<void>(number->as<Dataset>()), InvalidArgument);
}

TEST(Window, ResumesEverywhere) {
  const auto pairs = [](int64_t kind) {
    const Dataset rows = Dataset::from_tensor_slices({arange(9), arange(9) * 10});
    return kind == 0 ? rows : rows.map([](int64_t a, int64_t b) { return std::tuple(a, b); });
  };
  for (int64_t kind : {0, 1}) {
    expect_resumes([&] {
      return pairs(kind).window(3, {.shift = 2}).flat_map([](const Dataset& w) {
        return w.batch(2);
      });
    });
    expect_resumes([&] {
      return pairs(kind)
          .window(2, {.shift = 4, .stride = 2})
          .shuffle(2, {.seed = 4})
          .prefetch(1)
          .flat_map([](const Dataset& a, const Dataset& b) {
            return Dataset::zip({b, a});
          });
    });
    expect_resumes([&] {
      return pairs(kind).window(4).interleave(
          [](const Dataset& w) { return w.shuffle(4, {.seed = 2}); }, {.cycle_length = 2});
    });
  }
  expect_resumes([] {
    return Dataset::range(1, 6)
        .map([](int64_t n) { return std::tuple(n, arange(n)); })
        .window(2)
        .flat_map([](const Dataset& w) { return w; });
  });
}

}  // namespace
}  // namespace cohort
