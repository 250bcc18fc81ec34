// SPDX-License-Identifier: Apache-2.0
//
// A job whose workers and parameter servers are threads of the test's process, and a strategy that
// a ClusterCoordinator takes.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cohort/base/strings.h"
#include "cohort/coordinator/cluster_coordinator.h"
#include "cohort/coordinator/internal/cluster_connection.h"
#include "cohort/coordinator/internal/coordinated.h"
#include "cohort/coordinator/server.h"
#include "cohort/strategy/local_strategy_extended.h"
#include "cohort/testing/ports.h"

namespace cohort::testing {

class CoordinatedExtended final : public LocalStrategyExtended,
                                  public internal::coordinator::Coordinated {
 public:
  explicit CoordinatedExtended(internal::coordinator::ClusterConnectionOptions options,
                               std::optional<int> staleness_bound = {})
      : LocalStrategyExtended({.name = "CoordinatedStrategy", .devices = {Device("CPU:0")}}),
        connection_(std::make_shared<internal::coordinator::ClusterConnection>(std::move(options))),
        staleness_bound_(staleness_bound) {}
  std::shared_ptr<internal::coordinator::ClusterConnection> connection() override {
    return connection_;
  }
  std::optional<int> staleness_bound() override { return staleness_bound_; }

 private:
  const std::shared_ptr<internal::coordinator::ClusterConnection> connection_;
  const std::optional<int> staleness_bound_;
};

struct CoordinatedStrategy : Strategy {
  explicit CoordinatedStrategy(internal::coordinator::ClusterConnectionOptions options,
                               std::optional<int> staleness_bound = {})
      : Strategy(std::make_shared<CoordinatedExtended>(std::move(options), staleness_bound)) {}
};

/// Free addresses for so many tasks.
inline ClusterSpec loopback_cluster(int workers, int servers) {
  const std::vector<int> ports = free_ports(workers + servers);
  ClusterSpec::Jobs jobs;
  for (std::size_t i = 0; i < ports.size(); ++i) {
    jobs[i < static_cast<std::size_t>(workers) ? "worker" : "ps"].push_back(
        str_cat("127.0.0.1:", ports[i]));
  }
  return ClusterSpec(jobs);
}

class TestCluster {
 public:
  explicit TestCluster(int workers = 2, int servers = 1)
      : spec_(loopback_cluster(workers, servers)) {
    for (int w = 0; w < workers; ++w) start("worker", w);
    for (int s = 0; s < servers; ++s) start("ps", s);
  }
  const ClusterSpec& spec() const { return spec_; }
  internal::coordinator::ClusterConnectionOptions options() const { return {.spec = spec_}; }
  /// A task begins (again) at its address.
  void start(const std::string& job, int index) {
    servers_[str_cat(job, index)] =
        std::make_unique<Server>(spec_, ServerOptions{.job_name = job, .task_index = index});
  }
  void stop(const std::string& job, int index) { servers_.erase(str_cat(job, index)); }

 private:
  const ClusterSpec spec_;
  std::map<std::string, std::unique_ptr<Server>> servers_;
};

}  // namespace cohort::testing
