// SPDX-License-Identifier: Apache-2.0
//
// A job whose parameter servers have copies of everything:
//
//   replicated_program COUNT REPLICAS
//
// The chief schedules COUNT functions. Each adds 1 to a count, to all of a vector, and to one row
// of a table; the chief says what has come of that.
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include "cohort/coordinator/cluster_coordinator.h"
#include "cohort/coordinator/parameter_server_strategy.h"
#include "tests/parameter_servers/job_program.h"

using namespace cohort;
using cohort::testing::run_job;
using cohort::testing::TestProgram;
using cohort::testing::timed;

namespace {

constexpr int64_t kRows = 10;
constexpr int64_t kWide = 1000;

int64_t add_ones(const Variable& count, const Variable& wide, const Variable& table, int64_t i) {
  wide.assign_add(full({kWide}, 1.0));
  table.scatter_add({.values = full({1, 4}, 1.0),
                     .indices = from_vector(std::vector<int64_t>{i % kRows}, {1}),
                     .dense_shape = {kRows, 4}});
  count.assign_add(scalar(1));
  return i;
}
COHORT_REGISTER_FUNCTION(add_ones);

// Of all numbers of the variable the least and the most.
void say(const char* name, const Variable& variable) {
  const Tensor value = variable.value();
  std::printf("%s %g to %g\n", name, value.min().item<double>(), value.max().item<double>());
}

void lead(const std::shared_ptr<ClusterResolver>& resolver, int scheduled, int replicas) {
  const ParameterServerStrategy strategy({.cluster_resolver = resolver, .replicas = replicas});
  ClusterCoordinator coordinator(strategy);
  const auto scope = strategy.scope();
  const Variable count(scalar(0), {.name = "count"});
  const Variable wide(full({kWide}, 0.0), {.name = "wide"});
  const Variable table(full({kRows, 4}, 0.0), {.name = "table"});
  std::vector<RemoteValue<int64_t>> all;
  for (int64_t i = 0; i < scheduled; ++i) {
    all.push_back(coordinator.schedule(add_ones, count, wide, table, i));
  }
  std::printf("scheduled\n");
  std::fflush(stdout);
  timed([&] { coordinator.join(); });
  std::printf("joined\n");
  say("wide", wide);
  say("table", table);
  std::printf("ended: %g added\n", count.value().item<double>());
}

int run(int argc, char** argv) {
  return run_job([&](const auto& resolver) {
    lead(resolver, argc > 1 ? std::atoi(argv[1]) : 100, argc > 2 ? std::atoi(argv[2]) : 2);
  });
}
const TestProgram kProgram("replicated_program", run);

}  // namespace
