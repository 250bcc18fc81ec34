// SPDX-License-Identifier: Apache-2.0
//
// A benchmark of cases in which several ways to do one piece of work are timed in turns:
//
//   int main(int argc, char** argv) {
//     return ways_main(argc, argv, {.name = "strategy_bench", .cases = make_cases, ...});
//   }
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "samples.h"
#include "steps.h"

namespace CLI {
class App;
}

namespace cohort::bench {

/// One way to do a case's work. The first one of a case is the subject.
struct Way {
  std::string name;
  TimedWork time;
  int process_group = 0;     ///< Of the process that works; 0: this one does.
  std::string failure = {};  ///< Why it cannot take part, else empty.
};

struct WaysCase {
  std::string name;
  std::vector<std::pair<std::string, std::int64_t>> facts;  ///< replicas=2 bytes=1024
  /// Sets up what the ways need, for as long as they live.
  std::function<std::vector<Way>()> make;
};

/// What came of one way. One that failed has fewer samples, or none.
struct WayResult {
  std::string name;
  std::string failure;
  int process_group = 0;
  std::int64_t steps = 1;
  std::vector<Sample> samples;
};

/// Times and ratios of the ways of a case, in their order. Ratios pair the samples of one round.
struct WaysSummary {
  State state = State::kDegraded;  ///< The headline of the subject's samples.
  std::vector<Spread> us;
  std::vector<Spread> ratio;  ///< Time of the way / time of the subject.
};

struct WaysProgram {
  std::string name;     ///< Begins every line: "strategy_bench".
  std::string purpose;  ///< A sentence for --help.
  /// Adds flags of its own; may be empty.
  std::function<void(CLI::App& app)> declare;
  /// All cases; called once, when the options are read.
  std::function<std::vector<WaysCase>(const std::vector<int>& cores)> cases;
  /// What a case's last line says between its facts and its state.
  std::function<std::string(const WaysCase&, const std::vector<WayResult>&, const WaysSummary&)>
      columns;
};

/// Columns that fit most programs: "us=... vs_<way>=...", how many times as long the others take.
std::string columns_beside_others(const WaysCase& c, const std::vector<WayResult>& results,
                                  const WaysSummary& summary);

/// Reads flags, measures, prints a table and a line for each case, and writes every sample to a
/// JSON file. Returns the process's exit status: 2 for flags that it does not know.
int ways_main(int argc, char** argv, const WaysProgram& program);

}  // namespace cohort::bench
