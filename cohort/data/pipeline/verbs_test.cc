// SPDX-License-Identifier: Apache-2.0
//
// flat_map, interleave, scan, mixed datasets, and batches of unlike elements. Expected values are
// those of tf.data's documentation where it has an example.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>

#include "cohort/data/dataset.h"
#include "cohort/data/test_files.h"
#include "cohort/testing/deadline.h"

namespace cohort {
namespace {

using testing::error_text;
using Numbers = std::vector<int64_t>;

Numbers rest_of(Iterator& it) {
  Numbers out;
  while (auto e = it.next()) {
    for (int64_t v : to_vector<int64_t>(e->tensor())) out.push_back(v);
  }
  return out;
}
Numbers values(const Dataset& dataset) {
  auto it = dataset.make_iterator();
  return rest_of(it);
}

/// What follows a restored position is what follows the saved one, everywhere.
void expect_resumes(const std::function<Dataset()>& make) {
  const Dataset original = make();
  for (std::size_t n = 0;; ++n) {
    auto it = original.make_iterator();
    std::size_t read = 0;
    while (read < n && it.next()) ++read;
    const std::string state = it.save();
    const Numbers expected = rest_of(it);
    auto resumed = make().make_iterator(state);
    EXPECT_EQ(rest_of(resumed), expected) << n;
    if (read < n) break;
  }
}

Dataset repeated(int64_t x, int64_t count) {
  return Dataset::from_tensors(scalar(static_cast<double>(x), kInt64)).repeat(count);
}

TEST(FlatMap, OneDatasetAfterTheOther) {
  const auto ds = Dataset::range(1, 4).flat_map([](int64_t x) { return Dataset::range(x); });
  EXPECT_EQ(values(ds), (Numbers{0, 0, 1, 0, 1, 2}));
  EXPECT_EQ(values(Dataset::range(3).flat_map([](const Tensor&) { return Dataset::range(0); })),
            Numbers{});
  expect_resumes([] {
    return Dataset::range(1, 5)
        .shuffle(3)
        .flat_map([](int64_t x) { return Dataset::range(x).shuffle(4, {.seed = 1}); })
        .repeat(2);
  });
}

TEST(Interleave, TheOrderOfTheDocumentation) {
  auto make = [](int parallel) {
    return Dataset::range(1, 6).interleave(
        [](int64_t x) { return repeated(x, 6); },
        {.cycle_length = 2, .block_length = 4, .parallel_calls = parallel});
  };
  const Numbers expected = {1, 1, 1, 1, 2, 2, 2, 2, 1, 1, 2, 2, 3, 3, 3,
                            3, 4, 4, 4, 4, 3, 3, 4, 4, 5, 5, 5, 5, 5, 5};
  EXPECT_EQ(values(make(1)), expected);
  EXPECT_EQ(values(make(2)), expected);
  EXPECT_EQ(values(make(kAutotune)), expected);
  expect_resumes([&] { return make(1); });
  expect_resumes([&] { return make(2); });
  const auto uneven = Dataset::range(4).interleave([](int64_t x) { return repeated(x, 4 - x); },
                                                   {.cycle_length = 3});
  EXPECT_EQ(values(uneven), (Numbers{0, 1, 2, 0, 1, 2, 0, 1, 0, 3}));
}

TEST(Interleave, ErrorsNameElementAndNode) {
  auto throwing = [](int64_t x) {
    if (x == 1) throw DataLoss("oops");
    return repeated(x, 1);
  };
  const auto ds = Dataset::range(3).interleave(throwing, {.cycle_length = 1});
  auto it = ds.make_iterator();
  EXPECT_EQ(it.next()->as<int64_t>(), 0);
  EXPECT_EQ(error_text<DataLoss>([&] { it.next(); }),
            "[dataset.interleave] element 1 of range.interleave: oops");
  EXPECT_EQ(it.next()->as<int64_t>(), 2);
  const auto wrong = Dataset::range(3).flat_map([](int64_t x) { return repeated(x, 1); },
                                                ElementSpec(TensorSpec{{2}, kInt64}));
  EXPECT_EQ(wrong.element_spec().to_string(), "int64[2]");
  EXPECT_THROW(values(wrong), InvalidArgument);
  EXPECT_THROW(Dataset::range(1).interleave(throwing, {.cycle_length = 0}), InvalidArgument);
  EXPECT_THROW(Dataset::range(1).interleave(throwing, {.block_length = 0}), InvalidArgument);
  EXPECT_THROW(Dataset::range(1).interleave(throwing, {.parallel_calls = 0}), InvalidArgument);
}

TEST(Scan, HandsTheStateOn) {
  auto make = [] {
    return Dataset::range(10).scan(scalar(0, kInt64), [](const Element& sum, const Element& x) {
      const Tensor next = sum.tensor() + x.tensor();
      return std::pair<Element, Element>(next, next);
    });
  };
  EXPECT_EQ(values(make()), (Numbers{0, 1, 3, 6, 10, 15, 21, 28, 36, 45}));
  expect_resumes([&] { return make().repeat(2); });
  EXPECT_EQ(error_text<Error>([] {
              values(Dataset::range(2).scan(
                  scalar(0), [](const Element&, const Element&) -> std::pair<Element, Element> {
                    throw std::runtime_error("oops");
                  }));
            }),
            "[dataset.scan] element 0 of range.scan: oops");
}

TEST(SampleFromDatasets, DrawsByWeight) {
  auto make = [](std::vector<double> weights, SampleOptions options) {
    return Dataset::sample_from_datasets({repeated(0, 3000), repeated(1, 3000)}, std::move(weights),
                                         options);
  };
  const Numbers drawn = values(make({3, 1}, {.seed = 1, .stop_on_empty_dataset = true}));
  const auto ones = static_cast<double>(std::count(drawn.begin(), drawn.end(), 1));
  EXPECT_NEAR(ones / static_cast<double>(drawn.size()), 0.25, 0.05);  // Five deviations: 0.034.
  EXPECT_LT(drawn.size(), 6000U);
  EXPECT_EQ(values(make({}, {.seed = 1})).size(), 6000U);
  EXPECT_EQ(make({}, {}).cardinality(), 6000);
  EXPECT_EQ(values(make({1, 1}, {.seed = 4})), values(make({1, 1}, {.seed = 4})));
  EXPECT_EQ(values(make({0, 1}, {})), Numbers(3000, 1));
  EXPECT_THROW(make({1}, {}), InvalidArgument);
  EXPECT_THROW(make({0, 0}, {}), InvalidArgument);
  EXPECT_THROW(make({-1, 2}, {}), InvalidArgument);
  EXPECT_THROW(Dataset::sample_from_datasets({}), InvalidArgument);
  expect_resumes([] {
    return Dataset::sample_from_datasets({Dataset::range(5), Dataset::range(10, 18).shuffle(3)});
  });
}

TEST(ChooseFromDatasets, FollowsTheChoices) {
  auto parts = [] {
    return std::vector<Dataset>{repeated(10, 2), repeated(11, 1), repeated(12, 5)};
  };
  const auto choices = Dataset::range(3).repeat(3);
  EXPECT_EQ(values(Dataset::choose_from_datasets(parts(), choices)), (Numbers{10, 11, 12, 10}));
  EXPECT_EQ(
      values(Dataset::choose_from_datasets(parts(), choices, {.stop_on_empty_dataset = false})),
      (Numbers{10, 11, 12, 10, 12, 12}));
  EXPECT_THROW(values(Dataset::choose_from_datasets(parts(), Dataset::range(3, 4))),
               InvalidArgument);
  expect_resumes([&] {
    return Dataset::choose_from_datasets(parts(), choices, {.stop_on_empty_dataset = false});
  });
}

TEST(ChooseFromDatasets, EndsWithItsLastInputHoweverManyChoicesAreLeft) {
  const auto endless = Dataset::range(2).repeat();
  const ChooseOptions all{.stop_on_empty_dataset = false};
  testing::run_with_deadline(std::chrono::seconds(20), [&] {
    EXPECT_EQ(values(Dataset::choose_from_datasets({repeated(1, 3), repeated(2, 1)}, endless, all)),
              (Numbers{1, 2, 1, 1}));
    EXPECT_EQ(values(Dataset::choose_from_datasets({repeated(1, 0), repeated(2, 0)}, endless, all)),
              Numbers{});
  });
}

/// [1], [2, 2], [3, 3, 3], ...
Dataset growing(int64_t n) {
  return Dataset::range(1, n + 1).map(
      [](int64_t x) { return full({x}, static_cast<double>(x), kInt64); },
      {.spec = ElementSpec(TensorSpec{{kUnknownDim}, kInt64})});
}

TEST(PaddedBatch, ToTheLongestOrToAShape) {
  const auto ds = growing(4).padded_batch(2);
  EXPECT_EQ(ds.element_spec().to_string(), "int64[?,?]");
  EXPECT_EQ(values(ds), (Numbers{1, 0, 2, 2, 3, 3, 3, 0, 4, 4, 4, 4}));
  const auto fixed = growing(3).padded_batch(2, {{5}}, {.padding_values = {-1}});
  EXPECT_EQ(fixed.element_spec().to_string(), "int64[?,5]");
  EXPECT_EQ(values(fixed), (Numbers{1, -1, -1, -1, -1, 2, 2, -1, -1, -1, 3, 3, 3, -1, -1}));
  const auto whole = growing(3).padded_batch(2, {}, {.drop_remainder = true});
  EXPECT_EQ(values(whole), (Numbers{1, 0, 2, 2}));
  EXPECT_EQ(whole.element_spec().to_string(), "int64[2,?]");
  EXPECT_EQ(whole.cardinality(), 1);
  EXPECT_EQ(error_text<InvalidArgument>([] { values(growing(3).padded_batch(3, {{2}})); }),
            "[dataset.padded_batch] expected elements that fit in [2], got int64[3] as number 2 of "
            "the batch");
  EXPECT_THROW(growing(3).padded_batch(3, {{2, 2}}), InvalidArgument);
  EXPECT_THROW(growing(3).padded_batch(3, {{2}, {2}}), InvalidArgument);
  EXPECT_THROW(growing(3).padded_batch(0), InvalidArgument);
  expect_resumes([] { return growing(5).padded_batch(2).repeat(2); });
}

TEST(PaddedBatch, EachComponentItsOwn) {
  const auto ds = growing(2).map([](const Tensor& x) {
    return std::tuple(x, std::string("s"), full({2, x.size(0)}, 1));
  });
  const Element e = *ds.padded_batch(2, {{3}, {}, {2, kUnknownDim}}, {.padding_values = {7, 0, 9}})
                         .make_iterator()
                         .next();
  EXPECT_EQ(to_vector<int64_t>(e[0].tensor()), (Numbers{1, 7, 7, 2, 2, 7}));
  EXPECT_EQ(e[1].strings(), (std::vector<std::string>{"s", "s"}));
  EXPECT_EQ(to_vector<float>(e[2].tensor()), (std::vector<float>{1, 9, 1, 9, 1, 1, 1, 1}));
}

TEST(RaggedBatch, ValuesAndRowSplits) {
  const Element e = *growing(3).ragged_batch(3).make_iterator().next();
  EXPECT_EQ(to_vector<int64_t>(e["values"].tensor()), (Numbers{1, 2, 2, 3, 3, 3}));
  EXPECT_EQ(to_vector<int64_t>(e["row_splits"].tensor()), (Numbers{0, 1, 3, 6}));
}

TEST(BucketBySequenceLength, LikeLengthsTogether) {
  auto length = [](const Tensor& x) { return x.size(0); };
  auto make = [&](bool to_boundary) {
    return growing(4).repeat(2).bucket_by_sequence_length(length,
                                                          {.bucket_boundaries = {3, 5},
                                                           .bucket_batch_sizes = {3, 2, 1},
                                                           .pad_to_bucket_boundary = to_boundary});
  };
  EXPECT_EQ(values(make(false)), (Numbers{3, 3, 3, 0, 4, 4, 4, 4,  // lengths 3 and 4
                                          1, 0, 2, 2, 1, 0,        // 1, 2 and 1
                                          3, 3, 3, 0, 4, 4, 4, 4, 2, 2}));
  EXPECT_EQ(values(make(true)), values(make(false)));  // 2 and 4 are also the longest here.
  const auto short_ones = growing(1).bucket_by_sequence_length(
      length,
      {.bucket_boundaries = {4}, .bucket_batch_sizes = {2, 2}, .pad_to_bucket_boundary = true});
  EXPECT_EQ(values(short_ones), (Numbers{1, 0, 0}));
  expect_resumes([&] { return make(false); });
}

TEST(BucketBySequenceLength, Errors) {
  auto length = [](const Tensor& x) { return x.size(0); };
  auto bucketed = [&](BucketOptions options) {
    return growing(5).bucket_by_sequence_length(length, std::move(options));
  };
  const auto too_long = bucketed({.bucket_boundaries = {3, 5},
                                  .bucket_batch_sizes = {1, 1, 1},
                                  .pad_to_bucket_boundary = true});
  EXPECT_EQ(error_text<InvalidArgument>([&] { values(too_long); }),
            "[dataset.bucket_by_sequence_length] element 4 of range.map.bucket_by_sequence_length: "
            "expected a length below the last boundary, to which buckets are padded, got 5");
  EXPECT_THROW(bucketed({.bucket_boundaries = {3}, .bucket_batch_sizes = {1}}), InvalidArgument);
  EXPECT_THROW(bucketed({.bucket_boundaries = {3, 3}, .bucket_batch_sizes = {1, 1, 1}}),
               InvalidArgument);
  EXPECT_THROW(bucketed({.bucket_boundaries = {3}, .bucket_batch_sizes = {1, 0}}), InvalidArgument);
}

}  // namespace
}  // namespace cohort
