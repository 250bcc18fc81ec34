// SPDX-License-Identifier: Apache-2.0
//
// Runs the contenders of one case in turns: in each round everyone trains for a moment, in shuffled
// order, between two probes of the machine. Times of one round are comparable, times of
// different minutes are not.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "process.h"
#include "roster.h"
#include "samples.h"
#include "workload.h"

namespace cohort::bench {

struct RunOptions {
  int rounds = 12;
  double seconds = 0.5;  ///< of each sample, at most 2
  std::string scratch;   ///< folder for workload files
  std::string logs;      ///< folder for what contenders print
  Images images;
};

/// A contender in one case. `status`: "ok", "missing" (no environment), "failed" (an error or
/// no answer), "mismatch" (other losses than plain LibTorch, so not the same work).
struct Entry {
  ContenderSpec spec;
  std::string process;
  std::string status = "ok";
  std::string reason;
  std::string versions;
  double loss = 0;        ///< after proof_steps steps
  double loss_error = 0;  ///< relative to the reference
  double divergence = 0;  ///< of the replicas' weights
  std::int64_t steps = 0;
  std::vector<Sample> samples;
};

/// The physical limit of a case's step.
struct Limit {
  double flops = 0;         ///< of the products, all replicas
  double fma_gflops = 0;    ///< measured, all replicas' threads together
  double update_bytes = 0;  ///< of Adam, per thread
  double copy_gbytes = 0;   ///< measured, per thread
  double us() const;
};

struct CaseResult {
  Case benchmark_case;
  Limit limit;
  std::vector<Entry> entries;
};

/// Steps of the proof that all do the same work. Adam with a small epsilon turns last bits of
/// float32 into steps of full size: after 11 steps losses differ by up to 1.4e-4 (XLA at 256 rows).
/// Other work (another rate, epsilon, or weights) shows in the second or third digit. In "large"
/// the sixth digit is the same after 2 steps and none after 11, so that 3 have to do.
inline int proof_steps(const Case& c) { return c.model == "large" ? 3 : 11; }
inline constexpr double kProofTolerance = 5e-4;

/// Starts contenders as cases need them, keeps them running from case to case.
class Runner {
 public:
  Runner(std::vector<ContenderSpec> roster, RunOptions options);

  /// Starts everyone whom the cases need at once, so that slow imports overlap.
  void start(const std::vector<Case>& cases);

  /// Blocks: rounds * contenders * (seconds + 20 ms), and what set-up takes.
  CaseResult run(const Case& c);

 private:
  struct Running {
    std::unique_ptr<ContenderProcess> process;
    std::string versions;
    std::string failure;
  };

  void launch(const ContenderSpec& spec, int replicas);
  Entry enter(const ContenderSpec& spec, int replicas);
  void prepare(const Case& c, std::vector<Entry>& entries);
  void prove_same_work(const Case& c, std::vector<Entry>& entries);
  void calibrate(std::vector<Entry>& entries);
  void measure(CaseResult& result);
  Sample sample(Entry& entry, const Probe& before);
  void guarded(Entry& entry, const std::function<void(ContenderProcess&)>& talk);

  std::vector<ContenderSpec> roster_;
  RunOptions options_;
  std::vector<int> cores_;
  std::map<std::string, Running> running_;
};

}  // namespace cohort::bench
