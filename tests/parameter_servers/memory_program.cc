// SPDX-License-Identifier: Apache-2.0
//
// A job whose servers keep a large table and Adam's slots for it:
//
//   memory_program MIB REPLICAS
//
// The chief makes a table of MIB MiB, pushes three gradients of all of it, and says when that is
// done; it ends where a test makes it stop.
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "cohort/base/failpoint.h"
#include "cohort/coordinator/cluster_coordinator.h"
#include "cohort/coordinator/parameter_server_strategy.h"
#include "cohort/keras/optimizers/optimizers.h"
#include "tests/parameter_servers/job_program.h"

using namespace cohort;
using cohort::testing::run_job;
using cohort::testing::TestProgram;

namespace {

constexpr int64_t kWidth = 256;  // a row is a KiB

void lead(const std::shared_ptr<ClusterResolver>& resolver, int64_t mib, int replicas) {
  const ParameterServerStrategy strategy({.cluster_resolver = resolver, .replicas = replicas});
  const auto scope = strategy.scope();
  const Shape shape = {mib << 10, kWidth};
  const Variable table(zeros(shape), {.name = "table"});
  const keras::Adam optimizer({.learning_rate = 0.01});
  for (int i = 0; i < 3; ++i) optimizer.apply_gradients({{Gradient(ones(shape)), table}});
  std::printf("pushed\n");
  std::fflush(stdout);
  internal::base::failpoint("program.pushed");
}

int run(int argc, char** argv) {
  if (argc != 3) return 2;
  return run_job(
      [&](const auto& resolver) { lead(resolver, std::atoi(argv[1]), std::atoi(argv[2])); });
}
const TestProgram kProgram("memory_program", run);

}  // namespace
