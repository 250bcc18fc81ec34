// SPDX-License-Identifier: Apache-2.0
//
// Samples, each between two probes of the machine, and what may be concluded from them.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "machine.h"
#include "statistics.h"

namespace cohort::bench {

struct Sample {
  int round = 0;
  std::int64_t steps = 0;
  double us = 0;  ///< per step
  Probe before, after;
  double other_load = 0;
  State state = State::kDegraded;
};

/// SAME_CCX where at least 10 samples (half of fewer) were in it, else likewise CROSS_CCX, else the
/// state that was seen most; none without samples.
std::optional<State> headline(const std::vector<Sample>& samples);

/// The times that were seen in a state; all of them, where there are none.
std::vector<double> times_in(const std::vector<Sample>& samples, State state);

/// Time of theirs / time of ours, for the samples of one round, of pairs that both saw the state. A
/// median of one or two pairs says nothing: then pairs whose halves saw the same state count, then
/// all.
std::vector<double> paired_ratios(const std::vector<Sample>& theirs,
                                  const std::vector<Sample>& ours, State state);

/// "na" for NaN.
std::string number(double value, const char* format);
/// "median [p10 - p90]".
std::string range(const Spread& spread, const char* format);
/// "SAME_CCX:11 DEGRADED:1".
std::string state_counts(const std::vector<Sample>& samples);

nlohmann::json to_json(const Spread& spread);
nlohmann::json to_json(const Sample& sample);
/// Medians of each state that was seen: what the headline leaves out is published as well.
nlohmann::json states_to_json(const std::vector<Sample>& samples);

/// What the JSON file says besides the samples.
struct RunFacts {
  std::string git;
  std::string started;
  std::string processor;
  std::vector<int> cores;
  int rounds = 0;
  double seconds = 0;
};
RunFacts facts_of_run(int rounds, double seconds);
nlohmann::json to_json(const RunFacts& facts);

}  // namespace cohort::bench
