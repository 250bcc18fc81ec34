// SPDX-License-Identifier: Apache-2.0
//
// Measures what a strategy adds to the user's arithmetic: run and merge_call of nothing,
// all-reduces from 1 KB to 64 MB against two threads written by hand, packed against one by one,
// and the cross-device ops. docs/benchmarks.md says how samples are taken.
#include <cmath>

#include "cohort/base/strings.h"
#include "strategy_cases.h"

namespace cohort::bench {
namespace {

// us=... limit_us=... of_limit=... vs_<way>=...
std::string columns(const WaysCase&, const std::vector<WayResult>& results,
                    const WaysSummary& summary) {
  double limit_us = std::nan("");
  double of_limit = std::nan("");
  std::string others;
  for (std::size_t i = 1; i < results.size(); ++i) {
    if (results[i].name == "limit") {
      limit_us = summary.us[i].p50;
      of_limit = summary.ratio[i].p50;
    } else {
      others += str_cat(" vs_", results[i].name, "=", number(summary.ratio[i].p50, "%.2f"));
    }
  }
  return str_cat("us=", number(summary.us[0].p50, "%.2f"), " limit_us=", number(limit_us, "%.2f"),
                 " of_limit=", number(of_limit, "%.3f"), others);
}

}  // namespace
}  // namespace cohort::bench

int main(int argc, char** argv) {
  using namespace cohort::bench;
  return ways_main(argc, argv,
                   {.name = "strategy_bench",
                    .purpose = "Measures what a strategy adds to the arithmetic.",
                    .declare = {},
                    .cases = strategy_cases,
                    .columns = columns});
}
