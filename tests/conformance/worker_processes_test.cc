// SPDX-License-Identifier: Apache-2.0
//
// Workers that are processes, one of which is killed: M04 and M05.
#include <memory>
#include <string>
#include <vector>

#include "cohort/testing/ports.h"
#include "cohort/testing/process.h"
#include "cohort/testing/workers.h"
#include "tests/conformance/trial.h"

namespace cohort::conformance {
namespace {

/// What stands behind `prefix` in its line of `text`; "nothing" without such a line.
Word said(const std::string& text, const std::string& prefix) {
  const std::size_t begin = text.find(prefix);
  if (begin == std::string::npos) return {"nothing"};
  const std::size_t from = begin + prefix.size();
  return {text.substr(from, text.find('\n', from) - from)};
}

/// What both workers of a job wrote behind "life N: ": each learns of the other's end by itself.
std::vector<Word> second_sums(const std::vector<std::string>& addresses, const std::string& life) {
  const auto started = [&](int worker) {
    return std::make_unique<testing::Process>(
        std::vector<std::string>{CONFORMANCE_WORKER},
        std::vector<std::string>{"COHORT_HEARTBEAT_MS=200", "COHORT_LEASE_MS=2000",
                                 "COHORT_RESTART_COUNT=" + life,
                                 testing::worker_config(addresses, worker)});
  };
  const std::unique_ptr<testing::Process> workers[] = {started(0), started(1)};
  std::vector<Word> out;
  for (const auto& worker : workers) {
    worker->wait();
    out.push_back(said(worker->text(), "life " + life + ": "));
  }
  return out;
}

CONFORMANCE(M04_TheSumAfterBothWereStartedAgain) {
  const auto addresses = testing::loopback_addresses(testing::free_ports(2));
  second_sums(addresses, "0");
  return show(second_sums(addresses, "1"));
}

CONFORMANCE(M05_WhoIsLeftInASumAndTheKilledOne) {
  return show(second_sums(testing::loopback_addresses(testing::free_ports(2)), "0"));
}

}  // namespace
}  // namespace cohort::conformance
