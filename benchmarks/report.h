// SPDX-License-Identifier: Apache-2.0
//
// What a run comes to: paired ratios, a table, JSON with every sample, and one line per case.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runner.h"
#include "samples.h"
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

/// The headline is that of the subject's samples.
Summary summarise(const CaseResult& result, const std::string& subject);

/// The table of a case.
std::string table(const CaseResult& result, const Summary& summary, const std::string& subject);

/// "step_bench: model=mlp replicas=2 batch=32 us=... limit_us=... of_limit=... vs_libtorch=...
/// vs_jax=... vs_keras=... vs_torch=... state=..."; na where nothing was measured.
std::string summary_line(const Summary& summary, const std::string& subject);

void write_json(const std::string& path, const RunFacts& facts,
                const std::vector<CaseResult>& results, const std::vector<Summary>& summaries);

}  // namespace cohort::bench
