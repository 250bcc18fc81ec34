// SPDX-License-Identifier: Apache-2.0
//
// Contenders at their default threads, alone and beside others who want the cores. The same
// processes train the same workload as in step_bench; here the load changes between the samples.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "process.h"
#include "roster.h"
#include "workload.h"

namespace cohort::bench {

/// What a sample is taken beside. Nothing of both: a quiet machine.
struct Load {
  int busy = 0;      ///< processes that compute
  double quota = 0;  ///< cores' time that a cgroup allows; 0: no limit

  bool quiet() const { return busy == 0 && quota == 0; }
  std::string name() const;  ///< "quiet", "busy:2", "quota:0.5"
};

/// Reads what name() writes. Errors: InvalidArgument.
Load parse_load(const std::string& text);

/// One contender's steps under one load.
struct Contended {
  std::vector<double> us;     ///< of a step, by round
  std::vector<double> cores;  ///< CPU time by wall time
};

struct ContentionEntry {
  ContenderSpec spec;
  std::string status = "ok";  ///< as Entry's
  std::string reason;
  std::int64_t steps = 0;
  std::map<std::string, Contended> by_load;
};

struct ContentionOptions {
  int rounds = 3;
  double seconds = 0.25;  ///< of a sample on a quiet machine
  int cores = 1;          ///< of the machine
  std::vector<Load> loads;
  std::string scratch;
  std::string logs;
  Images images;
};

struct ContentionResult {
  Case benchmark_case;
  std::vector<ContentionEntry> entries;
  std::map<std::string, std::string> skipped;  ///< loads that cannot be made here, and why
};

/// By how much a fair scheduler slows down who keeps `used` of the cores busy when it is alone:
///   (used + busy) / cores  beside busy processes,  used / quota  under a quota,  at least 1.
double explained_slowdown(const Load& load, double used, int cores);

/// Blocks: until all samples are taken.
ContentionResult run_contention(const Case& c, const std::vector<ContenderSpec>& roster,
                                const ContentionOptions& options);

/// The table, and one line per load for scripts. `cores` as ContentionOptions.
std::string contention_table(const ContentionResult& result, const ContentionOptions& options);
std::string contention_lines(const ContentionResult& result, const ContentionOptions& options);

}  // namespace cohort::bench
