// SPDX-License-Identifier: Apache-2.0
//
// A contender trains a Workload step by step in a process of its own and is driven over a pipe,
// the same way whether it is Cohort, plain LibTorch or a Python peer (peers/peer.py has the
// protocol). This is the contender's side for C++:
//
//   int main() { return serve(*make_libtorch_contender(), "libtorch 2.15.0"); }
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "workload.h"

namespace cohort::bench {

/// What a run of steps took, and the last step's mean loss over the global batch.
struct StepTime {
  std::int64_t nanoseconds = 0;
  double loss = 0;
};

/// One way to do the training step. Threads: used by one thread.
class Contender {
 public:
  virtual ~Contender() = default;

  /// Builds the model for a workload, which lives until the next init, and warms up.
  virtual void init(const Workload& workload) = 0;

  /// Back to the initial weights, moments zero, first batch.
  virtual void reset() = 0;

  /// Trains on for `steps` batches; the time is that of the steps alone.
  virtual StepTime run(std::int64_t steps) = 0;

  /// Resets and does `steps` steps: the loss of the last.
  virtual double loss(std::int64_t steps) {
    reset();
    return run(steps).loss;
  }

  /// The largest difference between two replicas' weights.
  virtual double divergence() { return 0; }
};

/// torch::nn and torch::optim::Adam, as a user of LibTorch would write them; with more than one
/// replica a thread each and a sum of gradients tensor by tensor.
std::unique_ptr<Contender> make_libtorch_contender();
std::string libtorch_version();

/// Cohort under MirroredStrategy: a custom loop of run, tape and apply_gradients, if `alone` with
/// only the first replica of the workload; and `fit` as the README's program has it.
std::unique_ptr<Contender> make_cohort_contender(bool alone);
std::unique_ptr<Contender> make_cohort_fit_contender();
/// The custom loop under MultiWorkerMirroredStrategy: two processes of one replica each. Starts the
/// other process, so it comes before all threads.
std::unique_ptr<Contender> make_cohort_workers_contender();

/// Answers the harness on standard input and output until `quit` or the end of the pipe; what
/// libraries print goes to standard error. Returns the process's exit status.
int serve(Contender& contender, const std::string& versions);

}  // namespace cohort::bench
