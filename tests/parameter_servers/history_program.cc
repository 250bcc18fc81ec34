// SPDX-License-Identifier: Apache-2.0
//
// A job whose clients push and read two registers, which are led by two servers with copies, and
// say what they did, and when:
//
//   history_program [BUG [REPLICAS [PAUSE]]]
//
// Workers push and read in turn, and pause for PAUSE milliseconds before each number; the chief
// reads meanwhile. A register is a vector of which each push adds 1 to an element of its own. There
// are REPLICAS (2) copies of each. BUG, a client's: "early" calls a push done that is still to be
// done; "stale" reads what it has read before; "twice" pushes again what was acknowledged.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "cohort/base/strings.h"
#include "cohort/coordinator/cluster_coordinator.h"
#include "cohort/coordinator/parameter_server_strategy.h"
#include "tests/parameter_servers/job_program.h"

using namespace cohort;
using cohort::testing::run_job;
using cohort::testing::TestProgram;

namespace {

constexpr int64_t kFunctions = 60;
constexpr int64_t kPushes = 5;  // of a function, to each register
constexpr int64_t kNumbers = kFunctions * kPushes;

/// The same for all processes of a machine.
int64_t microseconds() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

std::string seen_in(const Variable& variable) {
  const Tensor value = variable.value();
  const float* const counts = value.const_data_ptr<float>();
  std::string out;
  for (int64_t i = 0; i < kNumbers; ++i)
    out += static_cast<char>('0' + static_cast<int>(counts[i]));
  return out;
}
std::string read(int which, const Variable& variable) {
  const int64_t begun = microseconds();
  const std::string seen = seen_in(variable);
  return str_cat("read ", which, " ", begun, " ", microseconds(), " ", seen, "\n");
}
void add_one(const Variable& variable, int64_t number) {
  variable.scatter_add({.values = ones({1}),
                        .indices = from_vector(std::vector<int64_t>{number}, {1}),
                        .dense_shape = {kNumbers}});
}

std::string push_and_read(const Variable& first, const Variable& second, int64_t function,
                          const std::string& bug, int64_t pause) {
  std::string out;
  for (int64_t i = 0; i < kPushes; ++i) {
    const int64_t number = function * kPushes + i;
    std::this_thread::sleep_for(std::chrono::milliseconds(pause));
    for (int which = 0; which < 2; ++which) {
      const Variable& variable = which == 0 ? first : second;
      const std::string before = bug == "stale" ? seen_in(variable) : "";
      const int64_t begun = microseconds();
      if (bug != "early") add_one(variable, number);
      if (bug == "twice") add_one(variable, number);
      out += str_cat("pushed ", which, " ", begun, " ", microseconds(), " ", number, "\n");
      if (bug == "stale") {
        const int64_t now = microseconds();
        out += str_cat("read ", which, " ", now + 1, " ", now + 2, " ", before, "\n");
      } else {
        out += read(which, variable);
      }
      if (bug == "early") add_one(variable, number);
    }
  }
  return out;
}
COHORT_REGISTER_FUNCTION(push_and_read);

void lead(const std::shared_ptr<ClusterResolver>& resolver, const std::string& bug, int replicas,
          int64_t pause) {
  const ParameterServerStrategy strategy({.cluster_resolver = resolver, .replicas = replicas});
  ClusterCoordinator coordinator(strategy);
  const auto scope = strategy.scope();
  const Variable first(zeros({kNumbers}), {.name = "first"});
  const Variable second(zeros({kNumbers}), {.name = "second"});
  std::vector<RemoteValue<std::string>> all;
  for (int64_t i = 0; i < kFunctions; ++i) {
    all.push_back(coordinator.schedule(push_and_read, first, second, i, bug, pause));
  }
  int ended = 0;
  for (const RemoteValue<std::string>& each : all) {
    std::printf("%s%s%s", read(0, first).c_str(), read(1, second).c_str(), each.get().c_str());
    std::printf("ended: %d\n", ++ended);
    std::fflush(stdout);
  }
  coordinator.join();
  std::printf("%s%s", read(0, first).c_str(), read(1, second).c_str());
}

int run(int argc, char** argv) {
  return run_job([&](const auto& resolver) {
    lead(resolver, argc > 1 ? argv[1] : "", argc > 2 ? std::atoi(argv[2]) : 2,
         argc > 3 ? std::atoi(argv[3]) : 0);
  });
}
const TestProgram kProgram("history_program", run);

}  // namespace
