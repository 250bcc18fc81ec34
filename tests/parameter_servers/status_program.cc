// SPDX-License-Identifier: Apache-2.0
//
// A job that is looked at while it works:
//
//   status_program PORT FILE
//
// The chief shows its state on a page at PORT. One function throws; then others change rows of a
// table, until there is a file FILE.
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <thread>

#include "cohort/coordinator/cluster_coordinator.h"
#include "cohort/coordinator/parameter_server_strategy.h"
#include "tests/parameter_servers/job_program.h"

using namespace cohort;
using cohort::testing::run_job;
using cohort::testing::TestProgram;

namespace {

void refuse() { throw InvalidArgument("<b>no</b> \x1b[31m& such"); }
void change_rows(const Variable& table) {
  table.assign_add(table.value());
  std::this_thread::sleep_for(std::chrono::milliseconds(10));
}
COHORT_REGISTER_FUNCTION(refuse);
COHORT_REGISTER_FUNCTION(change_rows);

void lead(const std::shared_ptr<ClusterResolver>& resolver, int port, const char* file) {
  const ParameterServerStrategy strategy(
      {.cluster_resolver = resolver, .status_page = StatusPageOptions{.port = port}});
  ClusterCoordinator coordinator(strategy);
  const auto scope = strategy.scope();
  const Variable table(zeros({100, 4}), {.name = "table"});
  coordinator.schedule(refuse);
  try {
    coordinator.join();
  } catch (const InvalidArgument&) {
    std::printf("refused\n");
    std::fflush(stdout);
  }
  while (::access(file, F_OK) != 0) {
    for (int i = 0; i < 20; ++i) coordinator.schedule(change_rows, table);
    coordinator.join();
  }
}

int run(int argc, char** argv) {
  if (argc != 3) return 2;
  return run_job([&](const auto& resolver) { lead(resolver, std::atoi(argv[1]), argv[2]); });
}
const TestProgram kProgram("status_program", run);

}  // namespace
