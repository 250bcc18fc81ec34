// SPDX-License-Identifier: Apache-2.0
//
// What a run comes to: paired ratios, a table, JSON with every sample, and one line per case.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runner.h"
#include "statistics.h"

namespace cohort::bench {

/// A case seen from one contender, the subject. Ratios pair the samples of one round, and count
/// only rounds in which both were in the headline state (all rounds, where there are none).
struct Summary {
  Case benchmark_case;
  double limit_us = 0;
  std::optional<State> state;           ///< the headline; none without samples of the subject
  std::map<std::string, Spread> us;     ///< by contender
  std::map<std::string, Spread> ratio;  ///< contender's time / subject's time
  std::map<Family, std::string> best;   ///< the fastest contender of each family
  Spread of_limit;                      ///< of the subject
};

/// The headline is SAME_CCX where at least 10 samples of the subject (half the rounds of a shorter
/// run) were in it, else likewise CROSS_CCX, else the state that was seen most.
Summary summarise(const CaseResult& result, const std::string& subject);

/// The table of a case.
std::string table(const CaseResult& result, const Summary& summary, const std::string& subject);

/// "step_bench: model=mlp replicas=2 batch=32 us=... limit_us=... of_limit=... vs_libtorch=...
/// vs_jax=... vs_keras=... vs_torch=... state=..."; na where nothing was measured.
std::string summary_line(const Summary& summary, const std::string& subject);

/// What the JSON file says besides the samples.
struct RunFacts {
  std::string git;
  std::string started;
  std::string processor;
  std::vector<int> cores;
  int rounds = 0;
  double seconds = 0;
};

void write_json(const std::string& path, const RunFacts& facts,
                const std::vector<CaseResult>& results, const std::vector<Summary>& summaries);

}  // namespace cohort::bench
