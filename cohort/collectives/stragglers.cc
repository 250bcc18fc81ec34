// SPDX-License-Identifier: Apache-2.0
#include "cohort/collectives/stragglers.h"

#include <algorithm>
#include <cmath>

#include "cohort/base/strings.h"

namespace cohort::internal::collectives {
namespace {

// What the scheduler of a quiet machine may add to a step.
constexpr std::chrono::microseconds kNoise{200};
constexpr int kWindowsToTell = 2;

// Of the others, the lower of two.
Pace median_of_others(const std::vector<Pace>& paces, std::size_t rank) {
  std::vector<Pace> others;
  for (std::size_t r = 0; r < paces.size(); ++r) {
    if (r != rank && paces[r].window > 0) others.push_back(paces[r]);
  }
  if (others.empty()) return {};
  const auto middle = others.begin() + static_cast<std::ptrdiff_t>((others.size() - 1) / 2);
  std::nth_element(others.begin(), middle, others.end(),
                   [](const Pace& a, const Pace& b) { return a.own < b.own; });
  return *middle;
}

double straggler_ms(std::chrono::nanoseconds time) {
  constexpr double kTenth = 10;
  return std::round(std::chrono::duration<double, std::milli>(time).count() * kTenth) / kTenth;
}

}  // namespace

std::vector<std::string> Stragglers::look_at(const std::vector<Pace>& paces,
                                             const std::vector<std::string>& names) {
  std::vector<std::string> out;
  seen_.resize(paces.size());
  for (std::size_t r = 0; ratio_ > 0 && r < paces.size(); ++r) {
    const Pace& pace = paces[r];
    if (pace.window <= seen_[r].window) continue;
    seen_[r].window = pace.window;
    const Pace others = median_of_others(paces, r);
    if (others.window == 0) continue;
    const double ratio = static_cast<double>(pace.own.count()) /
                         static_cast<double>(std::max<int64_t>(others.own.count(), 1));
    if (ratio < ratio_ || pace.own - others.own < kNoise) {
      seen_[r].slow_windows = 0;
      continue;
    }
    if (++seen_[r].slow_windows != kWindowsToTell) continue;
    constexpr double kTenth = 10;
    out.push_back(str_cat(names[r], " is slow: of each step ", straggler_ms(pace.own),
                          " ms are its own, ", std::round(ratio * kTenth) / kTenth,
                          " times as many as the others' ", straggler_ms(others.own),
                          " ms (median); they wait ", straggler_ms(others.waited),
                          " ms of each step, it waits ", straggler_ms(pace.waited), " ms (steps ",
                          (pace.window - 1) * Pace::kSteps + 1, " to ", pace.window * Pace::kSteps,
                          "). Look at its machine, its data and what else runs there"));
  }
  return out;
}

}  // namespace cohort::internal::collectives
