// SPDX-License-Identifier: Apache-2.0
//
// Numbers without end, draws and choices: counter, random, sample_from_datasets,
// rejection_resample; zip with names, windows of unlike sizes, get_single_element. Expected values
// are those of tf.data where they are not drawn.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "cohort/data/dataset.h"
#include "cohort/data/test_elements.h"
#include "cohort/data/test_files.h"
#include "cohort/data/test_values.h"

namespace cohort {
namespace {

using testing::both;
using testing::error_text;
using testing::expect_resumes;
using testing::on_elements;
using testing::texts_of;
using Texts = std::vector<std::string>;
using testing::Numbers;
using testing::values;

Dataset repeated(int64_t x, int64_t count) {
  return Dataset::from_tensors(scalar(static_cast<double>(x), kInt64)).repeat(count);
}

TEST(Counter, GoesOnWithoutEnd) {
  EXPECT_EQ(values(Dataset::counter().take(3)), (Numbers{0, 1, 2}));
  EXPECT_EQ(values(Dataset::counter(5, -2).skip(1).take(3)), (Numbers{3, 1, -1}));
  EXPECT_EQ(values(Dataset::counter(4, 0).take(2)), (Numbers{4, 4}));
  EXPECT_EQ(Dataset::counter().cardinality(), kInfiniteCardinality);
  EXPECT_EQ(Dataset::counter().element_spec().to_string(), "int64[]");
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(values(Dataset::counter(kMost).take(2)), (Numbers{kMost, -kMost - 1}));
  EXPECT_EQ(texts_of(Dataset::zip({Dataset::counter(7), on_elements(2)})),
            (Texts{"([7],[0],)", "([8],[1],)"}));
}

TEST(Random, FollowsFromTheSeed) {
  const auto make = [](const RandomOptions& options) { return Dataset::random(options).take(5); };
  EXPECT_EQ(values(make({.seed = 3})), values(make({.seed = 3})));
  EXPECT_NE(values(make({.seed = 3})), values(make({.seed = 4})));
  EXPECT_NE(values(make({})), values(make({})));
  EXPECT_EQ(Dataset::random().cardinality(), kInfiniteCardinality);
  EXPECT_EQ(Dataset::random().element_spec().to_string(), "int64[]");
  const Numbers twice = values(make({.seed = 3}).repeat(2));
  EXPECT_TRUE(std::equal(twice.begin(), twice.begin() + 5, twice.begin() + 5));
  const Dataset each = make({.seed = 3, .rerandomize_each_iteration = true});
  const Numbers first = values(each), second = values(each);
  EXPECT_NE(first, second);
  EXPECT_EQ(values(make({.seed = 3, .rerandomize_each_iteration = true}).repeat(2)), [&] {
    Numbers out = first;
    out.insert(out.end(), second.begin(), second.end());
    return out;
  }());
}

TEST(Random, NumbersAreSpreadOver32Bits) {
  const Numbers drawn = values(Dataset::random({.seed = 1}).take(4000));
  EXPECT_GE(*std::min_element(drawn.begin(), drawn.end()), 0);
  EXPECT_LT(*std::max_element(drawn.begin(), drawn.end()), int64_t{1} << 32);
  const double mean = std::accumulate(drawn.begin(), drawn.end(), 0.0) / 4000;
  EXPECT_NEAR(mean / 4294967296.0, 0.5, 0.023);  // Five deviations.
  EXPECT_GT(*std::max_element(drawn.begin(), drawn.end()), 4290000000);
}

TEST(SampleFromDatasets, CountsNothingOfWhatIsNeverDrawn) {
  const Dataset chosen = Dataset::sample_from_datasets(
      {Dataset::range(5), Dataset::range(7).repeat()}, std::vector<double>{1, 0});
  EXPECT_EQ(chosen.cardinality(), 5);
  EXPECT_EQ(values(chosen).size(), 5U);
}

TEST(SampleFromDatasets, WeightsOfEachDraw) {
  const auto parts = [] { return std::vector<Dataset>{repeated(0, 3), repeated(1, 2)}; };
  const auto weights = [](const std::vector<float>& rows) {
    return Dataset::from_tensor_slices(
        from_vector(rows, {static_cast<int64_t>(rows.size()) / 2, 2}));
  };
  const Dataset chosen =
      Dataset::sample_from_datasets(parts(), weights({0, 1, 1, 0, 1, 0, 0, 1, 0, 1, 1, 0}));
  EXPECT_EQ(values(chosen), (Numbers{1, 0, 0, 1, 0}));  // The fifth draw finds nothing left.
  EXPECT_EQ(chosen.cardinality(), kUnknownCardinality);
  EXPECT_EQ(values(Dataset::sample_from_datasets(parts(), weights({0, 1, 0, 1, 0, 1, 1, 0}),
                                                 {.stop_on_empty_dataset = true})),
            (Numbers{1, 1}));
  EXPECT_EQ(values(Dataset::sample_from_datasets(parts(), weights({1, 1}).repeat())).size(), 5U);
  EXPECT_EQ(error_text<InvalidArgument>(
                [&] { Dataset::sample_from_datasets(parts(), Dataset::range(3)); }),
            "[dataset.sample_from_datasets] expected weights [2], one for each dataset, got "
            "elements int64[]");
  EXPECT_EQ(error_text<InvalidArgument>([&] {
              values(Dataset::sample_from_datasets(parts(), weights({1, -1})));
            }),
            "[dataset.sample_from_datasets] expected weights of at least 0, got [1, -1]");
  EXPECT_THROW(Dataset::sample_from_datasets({}, weights({1, 1})), InvalidArgument);
}

TEST(SampleFromDatasets, DrawsAnewInEachPassIfAsked) {
  const auto make = [](bool anew) {
    return Dataset::sample_from_datasets({repeated(0, 20), repeated(1, 20)}, {},
                                         {.seed = 5, .rerandomize_each_iteration = anew});
  };
  const Dataset same = make(false), anew = make(true);
  const Numbers first = values(same);
  EXPECT_EQ(values(same), first);
  EXPECT_EQ(values(anew), first);
  EXPECT_NE(values(anew), first);
}

/// 0, 0, 0, 1 again and again, with a number.
Dataset mostly_zeros(int64_t n) {
  return Dataset::range(n).map([](int64_t i) { return std::tuple(i % 4 == 3 ? 1 : 0, i); });
}

Numbers counts_of(const Dataset& resampled) {
  Numbers counts(2);
  for (const Element& e : resampled) ++counts.at(static_cast<std::size_t>(e[0].as<int64_t>()));
  return counts;
}

TEST(RejectionResample, GivesTheDistributionAskedFor) {
  const auto kind = [](int64_t label, int64_t) { return label; };
  for (const std::vector<double>& initial : {std::vector<double>{0.75, 0.25}, {}}) {
    const Dataset even = mostly_zeros(4000).rejection_resample(
        kind, {0.5, 0.5}, {.initial_dist = initial, .seed = 1});
    const Numbers counts = counts_of(even);
    EXPECT_EQ(counts[1], 1000);                              // The rarer class stays whole.
    EXPECT_NEAR(static_cast<double>(counts[0]), 1000, 160);  // Of 3000 a third: six deviations.
  }
  const Dataset one = mostly_zeros(400).rejection_resample(kind, {0, 1}, {.seed = 1});
  EXPECT_EQ(counts_of(one), (Numbers{0, 100}));
  const Dataset all =
      mostly_zeros(400).rejection_resample(kind, {3, 1}, {.initial_dist = {0.75, 0.25}, .seed = 1});
  EXPECT_EQ(counts_of(all), (Numbers{300, 100}));
  const Element e = one.make_iterator().next().value_or(Element());
  EXPECT_EQ(testing::text_of(e), "([1],([1],[3],),)");
  EXPECT_EQ(Dataset::range(3)
                .rejection_resample([](int64_t) { return 0; }, {1})
                .element_spec()
                .to_string(),
            "(int64[], int64[])");
  EXPECT_EQ(all.cardinality(), kUnknownCardinality);
}

TEST(RejectionResample, DrawsAnewInEachPassAndTheSameFromOneSeed) {
  const auto make = [] {
    return mostly_zeros(200).rejection_resample([](int64_t label, int64_t) { return label; },
                                                {0.5, 0.5}, {.seed = 9});
  };
  const Dataset a = make(), b = make();
  const Texts first = texts_of(a.take(50)), second = texts_of(a.take(50));
  EXPECT_NE(first, second);
  EXPECT_EQ(texts_of(b.take(50)), first);
  EXPECT_EQ(texts_of(b.take(50)), second);
}

TEST(RejectionResample, Errors) {
  const auto same = [](int64_t x) { return x; };
  EXPECT_EQ(error_text<InvalidArgument>([&] {
              values(Dataset::range(3).rejection_resample(same, {1, 1}).map([](const Element& e) {
                return e[0];
              }));
            }),
            "[dataset.rejection_resample] element 2 of range.rejection_resample: expected a class "
            "in [0, 2), got 2");
  const auto make = [&](const std::vector<double>& target, const std::vector<double>& initial) {
    return Dataset::range(3).rejection_resample(same, target, {.initial_dist = initial});
  };
  EXPECT_THROW(make({}, {}), InvalidArgument);
  EXPECT_THROW(make({0, 0}, {}), InvalidArgument);
  EXPECT_THROW(make({1, -1}, {}), InvalidArgument);
  EXPECT_THROW(make({1, 1}, {1}), InvalidArgument);
  EXPECT_THROW(make({1, 1}, {1, 0}), InvalidArgument);
  make({1, 0}, {1, 0});
}

TEST(Zip, WithNames) {
  const Dataset ds = Dataset::zip({{"x", Dataset::range(3)}, {"y", on_elements(2).batch(2)}});
  EXPECT_EQ(ds.element_spec().names(), (Texts{"x", "y"}));
  EXPECT_EQ(ds.cardinality(), 1);
  EXPECT_EQ(texts_of(ds), Texts{"([0],[0, 1],)"});
  const Element nest = {Element::named({{"a", Dataset::range(2)}}), Dataset::range(5, 9)};
  EXPECT_EQ(texts_of(nest.dataset()), (Texts{"(([0],),[5],)", "(([1],),[6],)"}));
}

TEST(GroupByWindow, SizesByKey) {
  const Dataset ds = Dataset::range(10).group_by_window(
      [](int64_t x) { return x % 2; }, [](int64_t, const Dataset& w) { return w.batch(10); },
      [](int64_t key) { return key + 2; });
  EXPECT_EQ(texts_of(ds), (Texts{"[0, 2]", "[1, 3, 5]", "[4, 6]", "[8]", "[7, 9]"}));
  const Dataset none = Dataset::range(2).group_by_window(
      [](int64_t x) { return x; }, [](int64_t, const Dataset& w) { return w; },
      [](int64_t) { return 0; });
  EXPECT_EQ(error_text<InvalidArgument>([&] { texts_of(none); }),
            "[dataset.group_by_window] window of key 0 of range.group_by_window: expected windows "
            "of at least 1 element, got 0");
}

TEST(BucketBySequenceLength, WithoutPadding) {
  const Dataset rows = Dataset::range(1, 9).map(
      [](int64_t x) { return full({x % 2 + 1}, static_cast<double>(x), kInt64); },
      {.spec = TensorSpec{{kUnknownDim}, kInt64}});
  const auto length = [](const Tensor& x) { return x.size(0); };
  const auto make = [&](std::vector<int64_t> boundaries, std::vector<int64_t> sizes) {
    return rows.bucket_by_sequence_length(length, {.bucket_boundaries = std::move(boundaries),
                                                   .bucket_batch_sizes = std::move(sizes),
                                                   .no_padding = true});
  };
  EXPECT_EQ(texts_of(make({2}, {3, 2})),
            (Texts{"[1, 1, 3, 3]", "[2, 4, 6]", "[5, 5, 7, 7]", "[8]"}));
  EXPECT_EQ(make({2}, {3, 2}).element_spec().to_string(), "int64[?,?]");
  EXPECT_EQ(error_text<InvalidArgument>([&] {
              texts_of(make({5}, {2, 2}));
            }).substr(0, 76),
            "[dataset.bucket_by_sequence_length] expected equal shapes and dtypes in a ba");
  EXPECT_THROW(rows.bucket_by_sequence_length(length, {.bucket_boundaries = {2},
                                                       .bucket_batch_sizes = {1, 1},
                                                       .pad_to_bucket_boundary = true,
                                                       .no_padding = true}),
               InvalidArgument);
}

TEST(GetSingleElement, IsTheOnlyOne) {
  EXPECT_EQ(Dataset::range(10).batch(10).get_single_element().rows(), 10);
  EXPECT_EQ(error_text<InvalidArgument>([] { Dataset::range(0).get_single_element(); }),
            "[dataset.get_single_element] expected one element, got none");
  EXPECT_EQ(error_text<InvalidArgument>([] { Dataset::range(2).get_single_element(); }),
            "[dataset.get_single_element] expected one element, got more");
}

TEST(Shuffle, BeforeAndAfterRepeat) {
  for (const Dataset& source : both(6)) {
    // Before: every epoch is whole, and in another order.
    const Numbers before = values(source.shuffle(6, {.seed = 2}).repeat(3));
    std::vector<Numbers> epochs;
    for (std::size_t i = 0; i < before.size(); i += 6) {
      epochs.emplace_back(before.begin() + static_cast<int64_t>(i),
                          before.begin() + static_cast<int64_t>(i) + 6);
      Numbers sorted = epochs.back();
      std::sort(sorted.begin(), sorted.end());
      EXPECT_EQ(sorted, (Numbers{0, 1, 2, 3, 4, 5}));
    }
    ASSERT_EQ(epochs.size(), 3U);
    EXPECT_FALSE(epochs[0] == epochs[1] && epochs[1] == epochs[2]);
    // After: epochs mix, and every element comes as often.
    Numbers after = values(source.repeat(3).shuffle(18, {.seed = 2}));
    EXPECT_NE(Numbers(after.begin(), after.begin() + 6), epochs[0]);
    std::sort(after.begin(), after.end());
    EXPECT_EQ(after, (Numbers{0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4, 5, 5, 5}));
  }
}

TEST(Nests, SlicesAndConcatenation) {
  const Element nest = Element::named(
      {{"x", {arange(4), arange(8).reshape({4, 2})}}, {"name", Texts{"a", "b", "c", "d"}}});
  const Dataset ds = Dataset::from_tensor_slices(nest);
  EXPECT_EQ(ds.element_spec().to_string(), "(x (int64[], int64[2]), name string[])");
  EXPECT_EQ(texts_of(ds.skip(3)), Texts{"(([3],[6, 7],),d,)"});
  const Dataset mixed = Dataset::range(2).batch(2).concatenate(Dataset::range(3).batch(3));
  EXPECT_EQ(texts_of(mixed), (Texts{"[0, 1]", "[0, 1, 2]"}));
  EXPECT_EQ(Dataset::range(2)
                .batch(2, {.drop_remainder = true})
                .concatenate(Dataset::range(3).batch(3, {.drop_remainder = true}))
                .element_spec()
                .to_string(),
            "int64[?]");
  EXPECT_THROW(Dataset::range(2).concatenate(Dataset::from_tensors(scalar(1))), InvalidArgument);
  EXPECT_THROW(ds.concatenate(Dataset::range(2)), InvalidArgument);
}

}  // namespace
}  // namespace cohort
