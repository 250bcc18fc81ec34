// SPDX-License-Identifier: Apache-2.0
#include "ps_groups.h"

#include <signal.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <functional>
#include <thread>
#include <utility>

#include "cohort/base/strings.h"
#include "cohort/collectives/transports/tcp/socket.h"
#include "cohort/coordinator/parameters/group_client.h"
#include "cohort/coordinator/parameters/replica_host.h"

namespace cohort::bench {
namespace {

using internal::coordinator::ParameterHandle;
using internal::coordinator::ParameterServers;

constexpr int kCopies = 2;
constexpr std::int64_t kPushed = 1 << 18;  // numbers: 1 MB

// The longest time between two acknowledgements while `work` is done, in seconds.
double longest_pause(ParameterServers& servers, const ParameterHandle& to,
                     const std::function<void()>& work) {
  using Clock = std::chrono::steady_clock;
  std::atomic<bool> ends = false;
  double longest = 0;
  std::thread pusher([&] {
    const internal::coordinator::UpdateStep step{
        .rule = update_rules::SgdStep{0.01}, .how = {}, .slots = {}};
    const Tensor gradient = ones({kPushed});
    auto last = Clock::now();
    while (!ends) {
      ParameterServers::Push push(servers);
      push.dense(to, step, gradient);
      push.wait();
      const auto now = Clock::now();
      longest = std::max(longest, std::chrono::duration<double>(now - last).count());
      last = now;
    }
  });
  work();
  ends = true;
  pusher.join();
  return longest;
}

}  // namespace

PsGroups::PsGroups(const std::string& program, std::chrono::milliseconds lease) {
  addresses_.resize(kCopies);
  std::vector<internal::collectives::Socket> held;  // until all have a port
  for (std::string& address : addresses_)
    held.push_back(internal::collectives::listen_on_free_port(&address));
  held.clear();
  for (int task = 0; task < kCopies; ++task) {
    processes_.push_back(std::make_unique<ContenderProcess>(
        std::vector<std::string>{program, "--serve-group", str_cat(task), store_.address(),
                                 str_cat(lease.count()), addresses_[0], addresses_[1]},
        std::vector<std::string>{}, str_cat("serve-group-", task, ".log")));
  }
  for (const auto& each : processes_) each->receive(std::chrono::seconds(60));
}

std::shared_ptr<ParameterServers> PsGroups::connect() const {
  std::vector<std::shared_ptr<internal::rpc::RpcClient>> clients;
  std::vector<internal::rpc::RpcClientOptions> options;
  for (const std::string& address : addresses_) {
    options.push_back({.address = address});
    clients.push_back(std::make_shared<internal::rpc::RpcClient>(options.back()));
  }
  const auto out = std::make_shared<ParameterServers>(
      internal::coordinator::group_clients(clients, options, kCopies),
      internal::coordinator::ParameterServersOptions{.timeout = std::chrono::minutes(1),
                                                     .are_groups = true});
  out->begin(1);
  for (const auto& each : clients) {
    for (int i = 0; i < 1000 && !each->has_lane() && internal::rpc::lanes_are_allowed(); ++i) {
      each->start_in_lane("none", {}, {});
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  return out;
}

void PsGroups::kill(int task) const { ::kill(processes_[task]->process_group(), SIGKILL); }

int serve_group(const std::vector<std::string>& words) {
  const std::vector<std::string> addresses(words.begin() + 3, words.end());
  const int task = std::stoi(words[0]);
  internal::coordinator::ReplicaHosts hosts(
      {.spec = ClusterSpec({{"ps", addresses}}),
       .task = task,
       .store = words[1],
       .lease = std::chrono::milliseconds(std::stoi(words[2]))});
  internal::rpc::RpcServerOptions options{.address = addresses[static_cast<std::size_t>(task)]};
  options.lanes = internal::coordinator::ReplicaHosts::lanes();
  const internal::rpc::RpcServer server(std::move(options), hosts.methods());
  hosts.begin(kCopies, 1);
  std::printf("ready %d\n", server.port());
  std::fflush(stdout);
  while (std::getchar() != EOF) {
  }
  return 0;
}

int time_failovers(const std::string& program, int rounds, std::chrono::milliseconds lease) {
  std::vector<double> all;
  for (int round = 0; round < rounds; ++round) {
    const PsGroups groups(program, lease);
    const auto servers = groups.connect();
    const ParameterHandle to =
        servers->make_or_bind({.name = "pushed", .shape = {kPushed}},
                              [](std::int64_t, std::int64_t) { return zeros({kPushed}); });
    all.push_back(longest_pause(*servers, to, [&] {
      // Somewhere between two beats.
      std::this_thread::sleep_for(lease / 2 + lease * (round % 5) / 20);
      groups.kill(to.shards[0].place.server);
      std::this_thread::sleep_for(lease * 3);
    }));
    std::printf("ps_bench failover lease_ms=%lld pause_s=%.2f\n",
                static_cast<long long>(lease.count()), all.back());
    std::fflush(stdout);
  }
  std::sort(all.begin(), all.end());
  std::printf("ps_bench failovers rounds=%d lease_ms=%lld p50_s=%.2f max_s=%.2f\n", rounds,
              static_cast<long long>(lease.count()), all[all.size() / 2], all.back());
  return 0;
}

}  // namespace cohort::bench
