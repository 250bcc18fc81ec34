// SPDX-License-Identifier: Apache-2.0
//
// How many empty functions a second a coordinator schedules and its workers run:
//
//   cohortrun --ps 1 --workers 2 --chief -- schedule_bench [--functions 20000 --rounds 7]
//
// Says the median of the rounds, and the fastest. With --once: of functions that add 1 to a
// variable, at least and exactly once, a round of the one behind a round of the other.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <vector>

#include "cli_main.h"
#include "cohort/cluster/environment.h"
#include "cohort/coordinator/cluster_coordinator.h"
#include "cohort/coordinator/parameter_server_strategy.h"
#include "cohort/coordinator/server.h"

using namespace cohort;

namespace {

void nothing() {}
void add_one(const Variable& v) { v.assign_add(scalar(1)); }
COHORT_REGISTER_FUNCTION(nothing);
COHORT_REGISTER_FUNCTION(add_one);

struct Options {
  int functions = 20000;
  int rounds = 7;
  bool once = false;
};

void declare(CLI::App& app, Options& options) {
  app.add_option("--functions", options.functions, "Functions of a round")
      ->check(examples::at_least(1));
  app.add_option("--rounds", options.rounds, "Rounds, after one that is not counted")
      ->check(examples::at_least(1));
  app.add_flag("--once", options.once,
               "Functions that change a variable, at least and exactly once");
}

template <class Schedule>
double rate_of_round(ClusterCoordinator& coordinator, int functions, const Schedule& schedule) {
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < functions; ++i) schedule();
  coordinator.join();
  return functions /
         std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void say(const char* what, std::vector<double> rates) {
  std::sort(rates.begin(), rates.end());
  std::printf("%.0f %s a second (the fastest round: %.0f)\n", rates[rates.size() / 2], what,
              rates.back());
}

void compare(ClusterCoordinator& coordinator, const Options& options) {
  const Variable v(scalar(0), {.name = "v"});
  const auto often = [&] { coordinator.schedule(add_one, v); };
  const auto once = [&] { coordinator.schedule_exactly_once(add_one, v); };
  std::vector<double> rates[2];
  for (int round = 0; round <= options.rounds; ++round) {
    const double first = rate_of_round(coordinator, options.functions, often);
    const double second = rate_of_round(coordinator, options.functions, once);
    if (round == 0) continue;
    rates[0].push_back(first);
    rates[1].push_back(second);
  }
  say("functions that count at least once", rates[0]);
  say("functions that count exactly once", rates[1]);
}

int run(const Options& options) {
  const auto resolver = std::make_shared<TFConfigClusterResolver>();
  if (run_task(*resolver)) return 0;
  const ParameterServerStrategy strategy({.cluster_resolver = resolver});
  ClusterCoordinator coordinator(strategy);
  const auto scope = strategy.scope();
  if (options.once) {
    compare(coordinator, options);
    return 0;
  }
  const auto schedule = [&] { coordinator.schedule(nothing); };
  rate_of_round(coordinator, options.functions, schedule);
  std::vector<double> rates;
  for (int round = 0; round < options.rounds; ++round) {
    rates.push_back(rate_of_round(coordinator, options.functions, schedule));
  }
  say("empty functions", rates);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return examples::run_cli<Options>(argc, argv, "Times the scheduling of empty functions.", declare,
                                    run);
}
