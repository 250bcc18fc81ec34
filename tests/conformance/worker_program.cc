// SPDX-License-Identifier: Apache-2.0
//
// A worker of two, of cases M04 and M05: sums 1.0 over both, twice. In its first life worker 1 is
// killed ahead of the second sum, while worker 0 waits for it there. Writes what worker 0, and each
// worker that was started again, sees of the second: "life 1: 2".
#include <signal.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "cohort/strategy/multi_worker_mirrored.h"
#include "cohort/strategy/replica_context.h"
#include "tests/conformance/show.h"

using namespace cohort;

int main() {
  const char* const restarts = std::getenv("COHORT_RESTART_COUNT");
  const int life = restarts == nullptr ? 0 : std::atoi(restarts);
  const MultiWorkerMirroredStrategy strategy;
  const auto sum = [&] {
    const auto summed = strategy.run(
        [] { return get_replica_context().all_reduce(ReduceOp::kSum, tensor({1.0})); });
    return strategy.local_results(summed).at(0);
  };
  sum();
  if (life == 0 && strategy.extended().layout().worker() == 1) raise(SIGKILL);
  const std::string seen = conformance::outcome(sum).text;
  std::printf("life %d: %s\n", life, seen.c_str());
  return seen == "2" ? 0 : 1;
}
