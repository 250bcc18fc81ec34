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
#include <exception>
#include <memory>
#include <thread>

#include "cohort/cluster/environment.h"
#include "cohort/coordinator/cluster_coordinator.h"
#include "cohort/coordinator/parameter_server_strategy.h"
#include "cohort/coordinator/server.h"

using namespace cohort;

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

}  // namespace

int main(int argc, char** argv) {
  const auto resolver = std::make_shared<TFConfigClusterResolver>();
  try {
    if (run_task(*resolver)) return 0;
    if (argc != 3) return 2;
    lead(resolver, std::atoi(argv[1]), argv[2]);
  } catch (const std::exception& e) {
    std::printf("error: %s\n", e.what());
    return 1;
  }
}
