// SPDX-License-Identifier: Apache-2.0
//
// A job of a chief, workers and parameter servers, whose roles TF_CONFIG says:
//
//   parameter_servers_program COUNT [join|fetch|schedule]
//
// The chief schedules COUNT functions, each of which adds 1 to a variable on the servers, waits in
// join(), in fetch() or by scheduling more, and says how many have been added at the end, or what
// it was told instead.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cohort/base/failpoint.h"
#include "cohort/coordinator/cluster_coordinator.h"
#include "cohort/coordinator/parameter_server_strategy.h"
#include "tests/parameter_servers/job_program.h"

using namespace cohort;
using cohort::testing::run_job;
using cohort::testing::TestProgram;
using cohort::testing::timed;

namespace {

Dataset make_numbers() { return Dataset::range(1000).repeat(); }
int64_t add_one(const Variable& count, DistributedIterator& numbers) {
  count.assign_add(scalar(1));
  return numbers.get_next().local().as<Tensor>().item<int64_t>();
}
COHORT_REGISTER_FUNCTION(make_numbers);
COHORT_REGISTER_FUNCTION(add_one);

// While it lives: the longest time in which none of the functions has ended.
class Standstill {
 public:
  Standstill(const std::vector<RemoteValue<int64_t>>& all, double& longest)
      : all_(all), longest_(longest), watch_([this](const std::stop_token& stop) {
          while (!stop.stop_requested()) look();
        }) {}

 private:
  using Clock = std::chrono::steady_clock;
  void look() {
    const auto ended = std::count_if(all_.begin(), all_.end(), [](const auto& each) {
      return each.status() != RemoteStatus::kNotReady;
    });
    const auto now = Clock::now();
    if (std::exchange(ended_, ended) != ended) since_ = now;
    longest_ = std::max(longest_, std::chrono::duration<double>(now - since_).count());
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }

  const std::vector<RemoteValue<int64_t>>& all_;
  double& longest_;
  std::ptrdiff_t ended_ = -1;
  Clock::time_point since_ = Clock::now();
  std::jthread watch_;  // the last: it uses the others
};

void lead(const std::shared_ptr<ClusterResolver>& resolver, int scheduled,
          const std::string& waits_in) {
  const ParameterServerStrategy strategy({.cluster_resolver = resolver});
  ClusterCoordinator coordinator(strategy);
  const auto scope = strategy.scope();
  const Variable count(scalar(0), {.name = "count"});
  const auto numbers =
      coordinator.make_iterator(coordinator.create_per_worker_dataset(make_numbers));
  internal::base::failpoint("program.idle");
  std::vector<RemoteValue<int64_t>> all;
  double longest = 0;
  for (int i = 0; i < scheduled; ++i) {
    longest = std::max(
        longest, timed([&] { all.push_back(coordinator.schedule(add_one, count, numbers)); }));
  }
  std::printf("scheduled\n");
  std::fflush(stdout);
  if (waits_in == "schedule") {
    timed([&] {
      while (true) coordinator.schedule(add_one, count, numbers);
    });
  }
  if (waits_in == "fetch") timed([&] { coordinator.fetch(all); });
  {
    const Standstill standstill(all, longest);
    timed([&] { coordinator.join(); });
  }
  internal::base::failpoint("program.fetching");
  int ready = 0;
  for (const auto& each : all) {
    longest = std::max(longest, timed([&] { ready += each.get() >= 0 ? 1 : 0; }));
  }
  std::printf("ended: %d ready, %g added\n", ready, count.value().item<double>());
  std::printf("longest wait: %d ms\n", static_cast<int>(longest * 1000));
}

int run(int argc, char** argv) {
  return run_job([&](const auto& resolver) {
    lead(resolver, argc > 1 ? std::atoi(argv[1]) : 100, argc > 2 ? argv[2] : "join");
  });
}
const TestProgram kProgram("parameter_servers_program", run);

}  // namespace
