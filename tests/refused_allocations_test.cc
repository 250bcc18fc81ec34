// SPDX-License-Identifier: Apache-2.0
//
// A background thread of a pipeline that is refused memory hands that to the reader, wherever it is
// refused: every allocation of such threads fails once.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <limits>
#include <thread>
#include <vector>

#include "cohort/data/dataset.h"
#include "cohort/testing/allocation_hook.h"
#include "cohort/testing/deadline.h"

namespace cohort::proof {
namespace {

constexpr int64_t kElements = 60;

std::atomic<int64_t> left{0};
thread_local bool t_is_reader = false;

bool refuse() { return !t_is_reader && left.fetch_sub(1) == 0; }

/// Reads until the end or an error; true if an error came.
bool read(const Dataset& dataset, int64_t refused) {
  Iterator it = dataset.make_iterator();
  std::vector<int64_t> seen;
  seen.reserve(kElements);
  left = refused;
  testing::g_refuse_allocation = refuse;
  bool failed = false;
  try {
    while (const std::optional<Element> element = it.next()) {
      seen.push_back(element->tensor().item<int64_t>());
    }
  } catch (const std::exception&) {
    failed = true;
  }
  testing::g_refuse_allocation = nullptr;
  for (std::size_t i = 0; i < seen.size(); ++i) EXPECT_EQ(seen[i], static_cast<int64_t>(i));
  EXPECT_TRUE(failed || seen.size() == kElements) << "elements are missing in silence";
  return failed;
}

void refuse_each_allocation(const std::function<Dataset()>& pipeline) {
  if (COHORT_UNDER_SANITIZER) GTEST_SKIP() << "sanitizers have an operator new of their own";
  t_is_reader = true;
  int64_t errors = 0;
  testing::run_with_deadline(std::chrono::seconds(100), [&] {
    int quiet = 0;
    for (int64_t n = 0; quiet < 3; ++n) {
      errors += read(pipeline(), n) ? 1 : 0;
      // How many allocations there are depends on who comes first.
      quiet = left >= 0 ? quiet + 1 : 0;
    }
  });
  EXPECT_GT(errors, 0);
  EXPECT_FALSE(read(pipeline(), std::numeric_limits<int64_t>::max())) << "nothing stays broken";
}

TEST(RefusedAllocations, OfPrefetchReachTheReader) {
  refuse_each_allocation([] { return Dataset::range(kElements).prefetch(40); });
}

TEST(RefusedAllocations, OfMapReachTheReader) {
  refuse_each_allocation([] {
    return Dataset::range(kElements).map([](const Tensor& x) { return x + 0; },
                                         {.parallel_calls = 8});
  });
}

TEST(RefusedAllocations, OfInterleaveReachTheReader) {
  refuse_each_allocation([] {
    return Dataset::range(6).interleave(
        [](const Tensor& x) {
          const int64_t begin = 10 * x.item<int64_t>();
          return Dataset::range(begin, begin + 10);
        },
        {.cycle_length = 1, .parallel_calls = 3});
  });
}

}  // namespace
}  // namespace cohort::proof
