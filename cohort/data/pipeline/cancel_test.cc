// SPDX-License-Identifier: Apache-2.0
//
// Iterators that are cancelled, or go, while something is being read: also where a step would never
// give another element. And inputs that throw: what they stand beside goes on with them.
#include <gtest/gtest.h>

#include <atomic>
#include <limits>
#include <thread>

#include "cohort/base/sanitizers.h"
#include "cohort/data/dataset.h"
#include "cohort/data/test_elements.h"

namespace cohort {
namespace {

using testing::Make;
using testing::rest_of;
using Texts = std::vector<std::string>;

constexpr int64_t kEndless = std::numeric_limits<int64_t>::max();

/// Numbers without end; says when the first one was read.
class Numbers {
 public:
  Dataset dataset() {
    return Dataset::range(kEndless).map([this](int64_t x) {
      begun_ = true;
      begun_.notify_all();
      return x;
    });
  }
  void wait() const { begun_.wait(false); }

 private:
  std::atomic<bool> begun_{false};
};

/// `step` makes a pipeline that never gets to its first element.
void expect_ends(const std::function<Dataset(const Dataset&)>& step) {
  {
    Numbers numbers;
    auto it = step(numbers.dataset()).make_iterator();
    std::thread reader([&] { EXPECT_THROW(it.next(), Cancelled); });
    numbers.wait();
    it.cancel();
    reader.join();
    EXPECT_THROW(it.next(), Cancelled);
  }
  Numbers numbers;
  const auto it = step(numbers.dataset()).prefetch(2).make_iterator();
  numbers.wait();  // Goes while its thread reads.
}

Dataset nothing(int64_t) { return Dataset::range(0); }
Tensor no_rows(int64_t) { return zeros({0}); }
int64_t zero(int64_t) { return 0; }

TEST(Cancel, EndsStepsThatLeaveEverythingOut) {
  expect_ends([](const Dataset& ds) { return ds.filter([](int64_t) { return false; }); });
  expect_ends([](const Dataset& ds) { return ds.map(zero).unique().skip(1); });
  expect_ends([](const Dataset& ds) { return ds.skip(kEndless - 1); });
  expect_ends([](const Dataset& ds) { return ds.shard(kEndless, kEndless - 1); });
  expect_ends([](const Dataset& ds) { return ds.take(1).repeat().skip(kEndless); });
  expect_ends([](const Dataset& ds) {
    return ds.map([](int64_t x) -> int64_t { throw DataLoss(std::to_string(x)); }).ignore_errors();
  });
  // Choices of what has ended, while another has not.
  expect_ends([](const Dataset& ds) {
    return Dataset::choose_from_datasets({nothing(0), Dataset::range(1)}, ds.map(zero),
                                         {.stop_on_empty_dataset = false});
  });
}

TEST(Cancel, EndsStepsOverElementsWithoutRows) {
  expect_ends([](const Dataset& ds) { return ds.map(no_rows).unbatch(); });
  expect_ends([](const Dataset& ds) { return ds.map(no_rows).rebatch(2); });
  expect_ends([](const Dataset& ds) { return ds.flat_map(nothing); });
  expect_ends([](const Dataset& ds) { return ds.interleave(nothing, {.parallel_calls = 2}); });
  expect_ends([](const Dataset& ds) {
    return ds.group_by_window(
        zero, [](int64_t, const Dataset& w) { return w.take(0); }, 2);
  });
}

TEST(Cancel, EndsStepsThatCollect) {
  expect_ends([](const Dataset& ds) { return ds.batch(kEndless); });
  expect_ends([](const Dataset& ds) { return ds.padded_batch(kEndless); });
  expect_ends([](const Dataset& ds) { return ds.shuffle(kEndless); });
  expect_ends([](const Dataset& ds) { return ds.window(kEndless - 1); });
}

/// After `read` elements, however far threads have read ahead, another process gets the rest.
void expect_rest(const Make& make) {
  const Texts all = testing::texts_of(make());
  for (std::size_t read = 0; read < all.size(); ++read) {
    auto it = make().make_iterator();
    for (std::size_t i = 0; i < read; ++i) it.next();
    it.cancel();
    auto resumed = make().make_iterator(it.save());
    EXPECT_EQ(rest_of(resumed), Texts(all.begin() + static_cast<int64_t>(read), all.end()));
  }
}

TEST(Cancel, IsNoPartOfAPosition) {
  const auto slow = [](const Tensor& x) { return (x + ones({300})).sum().to(kInt64); };
  const auto ahead = [=](int64_t n) { return Dataset::range(n).map(slow).prefetch(2); };
  const MapOptions two{.parallel_calls = 2};
  constexpr int kRounds = COHORT_UNDER_SANITIZER != 0 ? 3 : 10;
  for (int round = 0; round < kRounds; ++round) {
    expect_rest([&] { return ahead(9).take(8).prefetch(3); });
    expect_rest([&] { return Dataset::range(9).map(slow, two).shard(2, 1).prefetch(3); });
    expect_rest([&] { return Dataset::zip({ahead(9), Dataset::range(9).map(slow, two)}); });
    expect_rest([&] {
      return ahead(9).window(2).prefetch(3).flat_map([](const Dataset& w) { return w; });
    });
    expect_rest([&] { return ahead(9).batch(2).map([](const Tensor& x) { return x; }, two); });
    expect_rest([&] { return ahead(9).cache().shuffle(3, {.seed = 1}).repeat(2).prefetch(2); });
    expect_rest([&] {
      return ahead(5)
          .interleave([=](int64_t) { return ahead(3); }, {.cycle_length = 2, .parallel_calls = 2})
          .prefetch(2);
    });
  }
}

int64_t bad_third(int64_t x) {
  if (x % 5 == 2) throw DataLoss("bad record");
  return x;
}
Texts kept(const Dataset& ds) {
  return testing::texts_of(ds.ignore_errors({.log_warning = false}));
}

TEST(ErrorsOfInputs, LeavePairsTogether) {
  const Dataset source = Dataset::range(8).map(bad_third), whole = testing::on_elements(8);
  const Texts pairs = {"([0],[0],)", "([1],[1],)", "([3],[3],)",
                       "([4],[4],)", "([5],[5],)", "([6],[6],)"};
  EXPECT_EQ(kept(Dataset::zip({source, whole})), pairs);
  EXPECT_EQ(kept(Dataset::zip({whole, source})), pairs);
  testing::expect_resumes([&] { return Dataset::zip({source, whole.prefetch(2)}); });
}

TEST(ErrorsOfInputs, AreElementsOfTheirShard) {
  const Dataset source = Dataset::range(10).map(bad_third);
  EXPECT_EQ(kept(source.shard(3, 0)), (Texts{"[0]", "[3]", "[6]", "[9]"}));
  EXPECT_EQ(kept(source.shard(3, 1)), (Texts{"[1]", "[4]"}));
  EXPECT_EQ(kept(source.shard(3, 2)), (Texts{"[5]", "[8]"}));
  testing::expect_resumes([&] { return source.shard(3, 1).prefetch(2); });
}

TEST(ErrorsOfInputs, DoNotCountAsTaken) {  // As in TensorFlow.
  EXPECT_EQ(kept(Dataset::range(10).map(bad_third).take(4)), (Texts{"[0]", "[1]", "[3]", "[4]"}));
}

}  // namespace
}  // namespace cohort
