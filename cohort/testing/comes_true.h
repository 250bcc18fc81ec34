// SPDX-License-Identifier: Apache-2.0
//
// What other threads or processes will bring about sooner or later, also on a busy machine:
//
//   ASSERT_TRUE(comes_true([&] { return server.is_empty(); })) << "calls are left";
#pragma once

#include <chrono>
#include <thread>
#include <utility>

namespace cohort::testing {

/// Asks again and again until the answer is true. False: it was not within a minute.
template <class F>
[[nodiscard]] bool comes_true(F&& what) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (!what()) {
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

}  // namespace cohort::testing
