// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <thread>

#include "cohort/data/dataset.h"
#include "cohort/testing/expect_error.h"

namespace cohort {
namespace {

/// Counts the calls of a map function and lets a test wait for the n-th.
struct Counter {
  std::atomic<int64_t> calls{0};
  void count() {
    ++calls;
    calls.notify_all();
  }
  void wait_for(int64_t n) {
    for (int64_t now = calls; now < n; now = calls) calls.wait(now);
  }
};

TEST(Prefetch, DeliversEverythingInOrder) {
  auto ds = Dataset::range(1000).prefetch(3);
  int64_t expected = 0;
  for (const Element& e : ds) EXPECT_EQ(e.as<int64_t>(), expected++);
  EXPECT_EQ(expected, 1000);
}

TEST(Prefetch, RunsOnAnotherThreadAndReadsAheadByItsSize) {
  Counter counter;
  std::atomic<bool> elsewhere{true};
  const auto reader = std::this_thread::get_id();
  auto ds = Dataset::range(100)
                .map([&](const Tensor& x) {
                  if (std::this_thread::get_id() == reader) elsewhere = false;
                  counter.count();
                  return x;
                })
                .prefetch(4);
  auto it = ds.make_iterator();
  // Nobody has asked, and four are in the queue.
  counter.wait_for(4);
  EXPECT_EQ(counter.calls, 4);
  // With one core the thread is woken when all four are gone.
  for (int64_t i = 0; i < 4; ++i) EXPECT_EQ(it.next()->as<int64_t>(), i);
  counter.wait_for(5);
  EXPECT_TRUE(elsewhere);
  EXPECT_LE(counter.calls, 8);
}

TEST(Prefetch, GathersBatchesOnItsThread) {
  auto ds = Dataset::range(8).batch(4).prefetch(1);
  auto it = ds.make_iterator();
  Element batch = *it.next();
  EXPECT_EQ(to_vector<int64_t>(batch), (std::vector<int64_t>{0, 1, 2, 3}));
}

TEST(Prefetch, CancelsInTheMiddle) {
  Counter counter;
  for (int round = 0; round < 50; ++round) {
    auto it = Dataset::range(1)
                  .repeat()
                  .map([&](const Tensor& x) {
                    counter.count();
                    return x;
                  })
                  .prefetch(2)
                  .prefetch(2)
                  .make_iterator();
    for (int i = 0; i < round % 5; ++i) it.next();
  }
  // No thread outlives its iterator: nothing counts any more.
  const int64_t after = counter.calls;
  std::this_thread::yield();
  EXPECT_EQ(counter.calls, after);
}

TEST(Prefetch, ErrorsArriveInTheirPlace) {
  auto ds = Dataset::range(5)
                .map([](int64_t x) {
                  if (x == 2) throw DataLoss("bad record");
                  return x;
                })
                .prefetch(8);
  auto it = ds.make_iterator();
  EXPECT_EQ(it.next()->as<int64_t>(), 0);
  EXPECT_EQ(it.next()->as<int64_t>(), 1);
  EXPECT_EQ(testing::error_text<DataLoss>([&] { it.next(); }),
            "[dataset.map] element 2 of range.map: bad record");
  EXPECT_EQ(it.next()->as<int64_t>(), 3);
  EXPECT_EQ(it.next()->as<int64_t>(), 4);
  EXPECT_FALSE(it.next());
  EXPECT_FALSE(it.next());
}

TEST(Prefetch, EndsWithASourceThatAlwaysThrows) {
  auto ds = Dataset::from_generator(
                [] { return []() -> std::optional<Element> { throw InvalidArgument("no"); }; },
                TensorSpec{{}, kInt64})
                .prefetch(2);
  auto it = ds.make_iterator();
  EXPECT_THROW(it.next(), InvalidArgument);
  EXPECT_THROW(it.next(), InvalidArgument);
}

TEST(Prefetch, TwoIteratorsAreIndependent) {
  auto ds =
      Dataset::range(100).shuffle(10, {.seed = 1, .reshuffle_each_iteration = false}).prefetch(2);
  auto a = ds.make_iterator();
  auto b = ds.make_iterator();
  for (int i = 0; i < 100; ++i) EXPECT_EQ(a.next()->as<int64_t>(), b.next()->as<int64_t>());
  EXPECT_FALSE(a.next());
}

TEST(Prefetch, SizeZeroIsNoThread) {
  const auto reader = std::this_thread::get_id();
  auto ds = Dataset::range(3)
                .map([&](const Tensor& x) {
                  EXPECT_EQ(std::this_thread::get_id(), reader);
                  return x;
                })
                .prefetch(0);
  for (const Element& e : ds) EXPECT_TRUE(e.has_value());
  EXPECT_THROW(ds.prefetch(-2), InvalidArgument);
}

}  // namespace
}  // namespace cohort
