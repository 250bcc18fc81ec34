// SPDX-License-Identifier: Apache-2.0
//
// How many empty functions a second a coordinator schedules and its workers run:
//
//   cohortrun --ps 1 --workers 2 --chief -- schedule_bench [--functions 20000 --rounds 7]
//
// Says the median of the rounds, and the fastest.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <vector>

#include "cohort/cluster/environment.h"
#include "cohort/coordinator/cluster_coordinator.h"
#include "cohort/coordinator/parameter_server_strategy.h"
#include "cohort/coordinator/server.h"
#include "flags.h"

using namespace cohort;

namespace {

void nothing() {}
COHORT_REGISTER_FUNCTION(nothing);

struct Options {
  int functions = 20000;
  int rounds = 7;
};

void declare(CLI::App& app, Options& options) {
  app.add_option("--functions", options.functions, "Functions of a round")
      ->check(examples::at_least(1));
  app.add_option("--rounds", options.rounds, "Rounds, after one that is not counted")
      ->check(examples::at_least(1));
}

double seconds_of_round(ClusterCoordinator& coordinator, int functions) {
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < functions; ++i) coordinator.schedule(nothing);
  coordinator.join();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

int run(const Options& options) {
  const auto resolver = std::make_shared<TFConfigClusterResolver>();
  if (run_task(*resolver)) return 0;
  const ParameterServerStrategy strategy({.cluster_resolver = resolver});
  ClusterCoordinator coordinator(strategy);
  seconds_of_round(coordinator, options.functions);
  std::vector<double> rates;
  for (int round = 0; round < options.rounds; ++round) {
    rates.push_back(options.functions / seconds_of_round(coordinator, options.functions));
  }
  std::sort(rates.begin(), rates.end());
  std::printf("%.0f empty functions a second (the fastest round: %.0f)\n", rates[rates.size() / 2],
              rates.back());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return examples::run_main<Options>(argc, argv, "Times the scheduling of empty functions.",
                                     declare, run);
}
