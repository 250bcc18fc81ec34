// SPDX-License-Identifier: Apache-2.0
//
// A parameter server whose callers have lanes, until it is killed, or ten minutes have passed:
//
//   lanes_program                              // "ready PORT", once it listens
//   lanes_program TASK STORE LEASE_MS ADDRESS...  // one of those that have copies
//
// LANES_NO_MEMORY_AT=N: it has no memory for its Nth update.
//
// In a "ps.push" the alone one says "torn" if what it was asked has changed behind the place
// "lanes.in_push", where tests make it stand still.
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "cohort/base/failpoint.h"
#include "cohort/cluster/cluster_spec.h"
#include "cohort/coordinator/parameters/parameter_service.h"
#include "cohort/coordinator/parameters/replica_host.h"
#include "cohort/rpc/server.h"

namespace {

using namespace cohort;
using namespace cohort::internal;

[[noreturn]] void serve_until_the_end(const rpc::RpcServer& server) {
  constexpr unsigned kLifetime = 600;
  ::alarm(kLifetime);
  std::printf("ready %d\n", server.port());
  std::fflush(stdout);
  for (;;) ::pause();
}

rpc::RpcHandler that_looks_twice(rpc::RpcHandler push) {
  return [push = std::move(push)](rpc::RpcRequest request, rpc::RpcReply reply) {
    const std::string before = request.payload.text();
    base::failpoint("lanes.in_push");
    if (request.payload.text() != before) std::printf("torn\n");
    std::fflush(stdout);
    push(std::move(request), std::move(reply));
  };
}

void serve_alone() {
  auto methods = coordinator::parameter_methods(std::make_shared<coordinator::ParameterService>());
  methods["ps.push"] = that_looks_twice(std::move(methods["ps.push"]));
  serve_until_the_end(
      rpc::RpcServer({.lanes = coordinator::parameter_lanes()}, std::move(methods)));
}

std::atomic<int> updates_to_come = 0;

void have_no_memory_at_last(const char* place) {
  if (std::string(place) == "ps.apply" && --updates_to_come == 0) throw std::bad_alloc();
}

void serve_copies(const std::vector<std::string>& words) {
  if (const char* const at = std::getenv("LANES_NO_MEMORY_AT")) {
    updates_to_come = std::atoi(at);
    base::g_failpoint_hook = &have_no_memory_at_last;
  }
  const int task = std::stoi(words[0]);
  const std::vector<std::string> addresses(words.begin() + 3, words.end());
  const ClusterSpec spec({{"ps", addresses}});
  coordinator::ReplicaHosts hosts({.spec = spec,
                                   .task = task,
                                   .store = words[1],
                                   .lease = std::chrono::milliseconds(std::stoi(words[2]))});
  const rpc::RpcServer server(
      {.address = spec.task_address("ps", task), .lanes = coordinator::ReplicaHosts::lanes()},
      hosts.methods());
  hosts.begin(spec.num_tasks("ps"), /*job=*/1);
  serve_until_the_end(server);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    argc < 2 ? serve_alone() : serve_copies({argv + 1, argv + argc});
  } catch (const std::exception& e) {
    std::printf("error: %s\n", e.what());
    return 1;
  }
}
