// SPDX-License-Identifier: Apache-2.0
//
// Iterators that are saved and restored: at every position, in a pipeline that was built anew.
#include <gtest/gtest.h>

#include "cohort/base/crc32c.h"
#include "cohort/data/core/internal/state.h"
#include "cohort/data/dataset.h"
#include "cohort/data/pipeline/internal/replica_nodes.h"
#include "cohort/data/test_elements.h"

namespace cohort {
namespace {

using testing::expect_resumes;
using testing::Make;
using testing::rest_of;

Dataset plain(int64_t n) {
  return Dataset::range(n).map([](const Tensor& x) { return x; });
}
Tensor twice(const Tensor& x) { return x * 2; }

TEST(IteratorState, OrderVerbsOnRowsAndOnElements) {
  for (const Make& source :
       {Make([] { return Dataset::range(11); }), Make([] { return plain(11); })}) {
    expect_resumes([&] { return source().take(5); });
    expect_resumes([&] { return source().skip(3); });
    expect_resumes([&] { return source().shard(3, 1); });
    expect_resumes([&] { return source().repeat(3); });
    expect_resumes([&] { return source().batch(4); });
    expect_resumes([&] { return source().shuffle(4, {.seed = 5}).repeat(3).batch(4); });
    expect_resumes([&] { return source().shuffle(100).batch(3).repeat(2); });
    expect_resumes([&] { return source().shuffle(6).shuffle(3).take(9).repeat(2); });
    expect_resumes(
        [&] { return source().shuffle(6, {.reshuffle_each_iteration = false}).repeat(3); });
  }
}

TEST(IteratorState, PassesAfterTheRestoredOneHaveTheirOwnOrders) {
  auto make = [] { return Dataset::range(8).shuffle(8).batch(8); };
  const Dataset original = make();
  original.make_iterator();  // Pass 0, not read.
  auto it = original.make_iterator();
  const std::string state = it.save();
  auto second = original.make_iterator();
  const Dataset resumed = make();
  auto same = resumed.make_iterator(state);
  EXPECT_EQ(rest_of(same), rest_of(it));
  auto same_second = resumed.make_iterator();
  EXPECT_EQ(rest_of(same_second), rest_of(second));
}

TEST(IteratorState, FunctionsAndSeveralInputs) {
  expect_resumes([] { return plain(9).filter([](int64_t x) { return x % 3 != 1; }); });
  expect_resumes([] { return Dataset::zip({plain(7), Dataset::range(9).shuffle(4)}); });
  expect_resumes([] { return plain(3).concatenate(Dataset::range(4)).enumerate(5); });
  expect_resumes([] { return Dataset::range(7).batch(3).unbatch(); });
  expect_resumes([] { return Dataset::from_tensors(scalar(3, kInt64)).repeat(3); });
  expect_resumes([] {
    return Dataset::from_tensor_slices(
               Element::named(
                   {{"text", std::vector<std::string>{"a", "b", ""}}, {"number", arange(3)}}))
        .map([](const Element& e) { return e; })
        .shuffle(2)
        .repeat(2);
  });
  expect_resumes([] {
    return Dataset::from_generator(
               [] {
                 return [i = 0]() mutable -> std::optional<Element> {
                   if (i == 6) return std::nullopt;
                   return scalar(i++, kInt64);
                 };
               },
               TensorSpec{{}, kInt64})
        .repeat(2);
  });
}

TEST(IteratorState, DrawsAndNumbersWithoutEnd) {
  expect_resumes([] { return Dataset::counter(3, 2).take(6); });
  for (bool each : {false, true}) {
    expect_resumes([&] {
      return Dataset::random({.seed = 7, .rerandomize_each_iteration = each}).take(4).repeat(2);
    });
    expect_resumes([&] {
      return Dataset::sample_from_datasets({plain(3), Dataset::range(10, 14)}, {1, 2},
                                           {.seed = 7, .rerandomize_each_iteration = each})
          .repeat(2);
    });
  }
  expect_resumes([] { return Dataset::random().take(5); });
  expect_resumes([] {
    const Dataset weights = Dataset::random({.seed = 1}).batch(2).take(9);
    return Dataset::sample_from_datasets({plain(4), Dataset::range(10, 14)}, weights);
  });
  for (const std::vector<double>& initial : {std::vector<double>{}, {0.7, 0.3}}) {
    expect_resumes([&] {
      return plain(20)
          .rejection_resample([](int64_t x) { return x % 3 == 0 ? 1 : 0; }, {0.5, 0.5},
                              {.initial_dist = initial, .seed = 4})
          .repeat(2);
    });
  }
  expect_resumes([] {
    return plain(9).group_by_window([](int64_t x) { return x % 2; },
                                    [](int64_t, const Dataset& w) { return w.batch(2); },
                                    [](int64_t key) { return key + 2; });
  });
}

TEST(IteratorState, ThreadsThatReadAheadLoseNothing) {
  expect_resumes([] { return Dataset::range(20).shuffle(5).prefetch(3); });
  expect_resumes([] { return plain(20).map(twice, {.parallel_calls = 3}).batch(3).prefetch(2); });
  expect_resumes([] { return plain(12).prefetch(2).shuffle(4).prefetch(2).repeat(2); });
}

TEST(IteratorState, ErrorsThatWereReadAheadArriveInTheirPlace) {
  auto bad = [](int64_t x) {
    if (x % 4 == 1) throw DataLoss("bad record");
    return x;
  };
  expect_resumes([&] { return Dataset::range(9).map(bad).prefetch(3); });
  expect_resumes([&] { return Dataset::range(9).map(bad, {.parallel_calls = 2}).prefetch(2); });
  expect_resumes([&] { return Dataset::range(9).map(bad).batch(2); });
}

TEST(IteratorState, CachesComeWithTheirElements) {
  expect_resumes([] { return plain(6).shuffle(6).cache().repeat(3); });
  // Another process does not read the source again.
  const Dataset first = plain(4).cache();
  for (const Element& e : first) static_cast<void>(e);
  auto it = first.make_iterator();
  it.next();
  const std::string state = it.save();
  int64_t calls = 0;
  const Dataset second = Dataset::range(4)
                             .map([&](const Tensor& x) {
                               ++calls;
                               return x;
                             })
                             .cache();
  auto resumed = second.make_iterator(state);
  EXPECT_EQ(rest_of(resumed), rest_of(it));
  EXPECT_EQ(calls, 0);
}

TEST(IteratorState, CachesAreKeptWhenTheirPassHasEnded) {
  // A buffer behind the cache still has elements then.
  expect_resumes([] { return plain(6).shuffle(6).cache().shuffle(4).repeat(3); });
}

TEST(IteratorState, GeneratorsThatThrewAreCalledAsOftenAgain) {
  const auto make = [](const Element& bad) {
    return Dataset::from_generator(
        [bad] {
          return [bad, i = 0]() mutable -> std::optional<Element> {
            const int now = i++;
            if (now == 8) return std::nullopt;
            if (now % 3 != 1) return scalar(now, kInt64);
            if (!bad.has_value()) throw DataLoss("bad record");
            return bad;
          };
        },
        TensorSpec{{}, kInt64});
  };
  expect_resumes([&] { return make({}); });
  expect_resumes([&] { return make({}).ignore_errors({.log_warning = false}).repeat(2); });
  expect_resumes([&] { return make(ones({2})).ignore_errors({.log_warning = false}); });
}

TEST(IteratorState, PassesOverOneShuffleThatAreOpenAtOnce) {
  const auto make = [] {
    const Dataset one = Dataset::range(9).shuffle(9, {.seed = 3});
    return Dataset::range(6).interleave([one](int64_t i) { return one.take(1 + 2 * (i % 3)); },
                                        {.cycle_length = 3});
  };
  for (std::size_t position = 0; position <= 18; ++position) {
    testing::expect_goes_on(make, position);
  }
  expect_resumes([] {
    const Dataset one = plain(5).shuffle(5);
    return Dataset::zip({one, one.take(2).concatenate(one.take(3))}).repeat(2);
  });
}

TEST(IteratorState, StepsOfReplicas) {
  using internal::data::SplitPlan;
  const auto split = [](const Dataset& ds, const SplitPlan& plan) {
    return Dataset(internal::data::make_split_node(ds.node(), plan, "[split]"));
  };
  for (const Make& source :
       {Make([] { return Dataset::range(11); }), Make([] { return plain(11); })}) {
    expect_resumes([&] { return split(source().shuffle(11).batch(4), {.replicas = 2}); });
    expect_resumes([&] { return split(source().batch(4).prefetch(2), {.replicas = 3}); });
    // Several steps a batch: a position within one.
    expect_resumes(
        [&] { return split(source().batch(7), {.replicas = 2, .pipelines = 3, .index = 1}); });
  }
  const auto rounds = [](const std::vector<Dataset>& inputs, bool fill) {
    std::vector<internal::data::NodePtr> nodes;
    for (const Dataset& ds : inputs) nodes.push_back(ds.node());
    return Dataset(internal::data::make_round_node(nodes, inputs[0].element_spec(), 2, fill));
  };
  expect_resumes([&] { return rounds({plain(9).batch(2).prefetch(2)}, true); });
  expect_resumes([&] { return rounds({plain(3).batch(2), plain(8).batch(2)}, true); });
  const auto bad = [](int64_t x) {
    if (x % 3 == 1) throw DataLoss("bad record");
    return x;
  };
  expect_resumes([&] { return rounds({Dataset::range(9).map(bad).batch(1)}, true); });
}

TEST(IteratorState, AnotherNumberOfReplicasGoesOnAtTheSameBatch) {
  const auto split = [](int replicas) {
    const auto batches = Dataset::range(12).shuffle(12, {.seed = 1}).batch(4);
    return Dataset(
        internal::data::make_split_node(batches.node(), {.replicas = replicas}, "[split]"));
  };
  auto two = split(2).make_iterator();
  two.next();
  auto three = split(3).make_iterator(two.save());
  const Element a = two.next().value_or(Element()), b = three.next().value_or(Element());
  EXPECT_EQ(a[0][0].tensor()[0].item<int64_t>(), b[0][0].tensor()[0].item<int64_t>());
  EXPECT_EQ(b.size(), 3U);
}

TEST(IteratorState, RowsInMemoryTakeNumbersNotElements) {
  const Dataset images = Dataset::from_tensor_slices(zeros({1000, 784})).shuffle(1000).batch(10);
  auto it = images.make_iterator();
  it.next();
  EXPECT_LT(it.save().size(), 4000U);
}

TEST(IteratorState, RefusesWhatItDidNotSave) {
  const Dataset ds = Dataset::range(10).shuffle(4).batch(2);
  auto it = ds.make_iterator();
  it.next();
  const std::string state = it.save();
  EXPECT_THROW(Dataset::range(10).batch(2).make_iterator(state), InvalidArgument);
  EXPECT_THROW(Dataset::range(9).shuffle(4).batch(2).make_iterator(state), InvalidArgument);
  EXPECT_THROW(it.restore(""), InvalidArgument);
  for (std::size_t i = 0; i < state.size(); ++i) {
    std::string changed = state;
    changed[i] = static_cast<char>(changed[i] ^ 4);
    EXPECT_THROW(it.restore(changed), Error);
    EXPECT_THROW(it.restore(state.substr(0, i)), Error);
  }
  auto fresh = ds.make_iterator(state);
  EXPECT_EQ(rest_of(it), rest_of(fresh));  // Refusals left the position alone.
}

/// The checksum is no secret: whatever stands before it, reading on gives elements or an Error.
TEST(IteratorState, ForgedPositionsHarmNobody) {
  const Dataset rows = Dataset::from_tensor_slices(ones({10, 4}));
  for (const Dataset& ds :
       {rows.shuffle(4).batch(2).repeat(2), rows.shuffle(4), rows.window(3, {.shift = 1}),
        rows.batch(3).unbatch().prefetch(2), rows.batch(4).rebatch({1, 0, 2}),
        Dataset::zip({plain(9).cache(), plain(9).map(twice, {.parallel_calls = 2}).shard(2, 1)}),
        plain(9).interleave([](int64_t x) { return plain(x).shuffle(3); }, {.cycle_length = 2})}) {
    auto it = ds.make_iterator();
    it.next();
    it.next();
    const std::string state = it.save();
    for (std::size_t i = 0; i < state.size() - 4; ++i) {
      for (const char* bytes : {"", "\x01", "\x7f", "\xff\xff\xff\x0f", "\x82\x80\x80\x80\x10"}) {
        std::string forged = state.substr(0, state.size() - 4).replace(i, 1, bytes);
        const uint32_t crc = internal::base::masked_crc32c(forged);
        for (int shift = 0; shift < 32; shift += 8) forged += static_cast<char>(crc >> shift);
        try {
          auto other = ds.make_iterator(forged);
          for (int n = 0; n < 30; ++n) {
            const auto e = other.next();
            if (!e) break;
            if (e->is_tensor()) e->materialize();
          }
        } catch (const Error&) {  // What is to be expected.
        }
      }
    }
  }
}

TEST(IteratorState, ElementsWithoutEndAreRefused) {
  internal::data::StateWriter one;
  one.put_element(Element({Element()}));
  std::string level = std::move(one).take();
  level.pop_back();  // A tuple of one part, which is still to come.
  std::string bytes;
  for (int i = 0; i < 1'000'000; ++i) bytes += level;
  EXPECT_THROW(internal::data::StateReader(bytes).get_element(), InvalidArgument);
  EXPECT_THROW(internal::data::StateReader(bytes).get_spec(), InvalidArgument);
  Element deep = scalar(1);
  for (int i = 0; i < 100; ++i) deep = Element({deep});
  internal::data::StateWriter out;
  out.put_element(deep);
  const std::string saved = std::move(out).take();
  EXPECT_EQ(internal::data::StateReader(saved).get_element().spec(), deep.spec());
}

TEST(IteratorState, TensorsThatCannotBeAreRefused) {
  const auto refuses = [](int64_t dtype, const Shape& shape) {
    internal::data::StateWriter out;
    out.put_element(scalar(1));
    std::string bytes = std::move(out).take().substr(0, 1);  // The kind of element.
    internal::data::StateWriter rest;
    rest.put_int(dtype);
    rest.put_int(static_cast<int64_t>(shape.size()));
    for (int64_t d : shape) rest.put_int(d);
    rest.put_text("");
    bytes += std::move(rest).take();
    EXPECT_THROW(internal::data::StateReader(bytes).get_element(), InvalidArgument);
  };
  refuses(static_cast<int64_t>(kFloat32), {int64_t{1} << 62, 4, 0});
  refuses(static_cast<int64_t>(kFloat32), {int64_t{1} << 62, 4});
  refuses(static_cast<int64_t>(DType::QInt8), {0});
  refuses(static_cast<int64_t>(DType::Undefined), {0});
}

}  // namespace
}  // namespace cohort
