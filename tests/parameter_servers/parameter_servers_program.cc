// SPDX-License-Identifier: Apache-2.0
//
// A job of a chief, workers and parameter servers, whose roles TF_CONFIG says:
//
//   parameter_servers_program COUNT
//
// The chief schedules COUNT functions, each of which adds 1 to a variable on the servers, and says
// how many have been added at the end, or what it was told instead.
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "cohort/coordinator/cluster_coordinator.h"
#include "cohort/coordinator/parameter_server_strategy.h"
#include "tests/parameter_servers/job_program.h"

using namespace cohort;
using cohort::testing::run_job;
using cohort::testing::TestProgram;

namespace {

Dataset make_numbers() { return Dataset::range(1000).repeat(); }
int64_t add_one(const Variable& count, DistributedIterator& numbers) {
  count.assign_add(scalar(1));
  return numbers.get_next().local().as<Tensor>().item<int64_t>();
}
COHORT_REGISTER_FUNCTION(make_numbers);
COHORT_REGISTER_FUNCTION(add_one);

void lead(const std::shared_ptr<ClusterResolver>& resolver, int scheduled) {
  const ParameterServerStrategy strategy({.cluster_resolver = resolver});
  ClusterCoordinator coordinator(strategy);
  const auto scope = strategy.scope();
  const Variable count(scalar(0), {.name = "count"});
  const auto numbers =
      coordinator.make_iterator(coordinator.create_per_worker_dataset(make_numbers));
  std::vector<RemoteValue<int64_t>> all;
  for (int i = 0; i < scheduled; ++i) all.push_back(coordinator.schedule(add_one, count, numbers));
  std::printf("scheduled\n");
  std::fflush(stdout);
  coordinator.join();
  int ready = 0;
  for (const auto& each : all) ready += each.get() >= 0 ? 1 : 0;
  std::printf("ended: %d ready, %g added\n", ready, count.value().item<double>());
}

int run(int argc, char** argv) {
  return run_job(
      [&](const auto& resolver) { lead(resolver, argc > 1 ? std::atoi(argv[1]) : 100); });
}
const TestProgram kProgram("parameter_servers_program", run);

}  // namespace
