// SPDX-License-Identifier: Apache-2.0
#include "cohort/coordinator/parameters/replica_host.h"

#include <malloc.h>

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <utility>
#include <vector>

#include "cohort/base/check.h"
#include "cohort/base/logging.h"
#include "cohort/base/mutex.h"
#include "cohort/coordinator/parameters/group_replica.h"
#include "cohort/coordinator/parameters/message.h"
#include "cohort/rpc/client.h"
#include "cohort/rpc/wire.h"

namespace cohort::internal::coordinator {
namespace {

constexpr const char* kHost = "[ps] ";
constexpr int kDecimal = 10;
constexpr int64_t kLeastLease = 100;
constexpr uint64_t kMostGroups = 1 << 16;
constexpr uint64_t kMostPieces = 1 << 16;
// Freed memory at an end of the heap that stays with the process, and the largest block of a heap.
constexpr int kKeptFree = 32 << 20;

// Calls lie in the log where they have arrived, are freed together, and come anew at once; pages
// that are fresh each time cost as much as the copies that they carry. Where one limit is set,
// glibc no longer adapts the other: from 128 KiB on, blocks would be mapped anew each time.
void keep_freed_pages() {
  ::mallopt(M_TRIM_THRESHOLD, kKeptFree);
  ::mallopt(M_MMAP_THRESHOLD, kKeptFree);
}

}  // namespace

std::chrono::milliseconds group_lease_from_environment() {
  const char* const text = std::getenv("COHORT_LEASE_MS");
  if (text == nullptr || *text == '\0' || std::string(text) == "0") return std::chrono::seconds(10);
  char* end = nullptr;
  const int64_t number = std::strtoll(text, &end, kDecimal);
  COHORT_CHECK_ARG(*end == '\0' && number >= kLeastLease, kHost, "expected COHORT_LEASE_MS to be ",
                   kLeastLease, " milliseconds or more, got \"", text, "\"");
  return std::chrono::milliseconds(number);
}

namespace {

rpc::Payload facts_payload(const GroupFacts& facts) {
  rpc::MessageWriter out;
  out.number(static_cast<uint64_t>(facts.replicas));
  out.number(facts.job);
  out.signed_number(facts.lease.count());
  return rpc::Payload(out.str());
}

GroupFacts read_facts(const rpc::Payload& payload) {
  const std::string text = payload.text();
  rpc::MessageReader in(kHost, text);
  GroupFacts out;
  out.replicas = static_cast<int>(in.number_up_to(kMostGroups));
  out.job = in.number();
  out.lease = std::chrono::milliseconds(in.signed_number());
  in.end();
  return out;
}

}  // namespace

GroupFacts group_facts_of(rpc::RpcClient& server, std::chrono::milliseconds timeout) {
  return read_facts(server.call("ps.replicas", rpc::Payload(), {.timeout = timeout}));
}

void tell_group_facts(rpc::RpcClient& server, const GroupFacts& facts,
                      std::chrono::milliseconds timeout) {
  server.call("ps.replicas", facts_payload(facts), {.timeout = timeout});
}

// A failover is a lease until another one is promoted, half of one until it works alone, and what
// both round up to; the last server that a call waits for may die in turn.
std::chrono::milliseconds group_timeout(std::chrono::milliseconds lease) {
  constexpr int kLeases = 6;
  return std::max<std::chrono::milliseconds>(std::chrono::minutes(1), lease * kLeases);
}

struct ReplicaHosts::Impl {
  explicit Impl(Options given) : options(std::move(given)) {}

  std::shared_ptr<rpc::RpcClient> client(const std::string& address,
                                         const std::string& name) const {
    return std::make_shared<rpc::RpcClient>(
        rpc::RpcClientOptions{.address = address,
                              .server_name = name,
                              .security = options.security,
                              .claims = {.task = str_cat("ps ", options.task)}});
  }

  void make_groups(int count, uint64_t job) COHORT_REQUIRES(mutex) {
    keep_freed_pages();
    lease = options.lease.count() > 0 ? options.lease : group_lease_from_environment();
    const int tasks = options.spec.num_tasks("ps");
    const std::shared_ptr<rpc::RpcClient> store = client(options.store, "the job's store");
    std::map<int, std::shared_ptr<rpc::RpcClient>> peers;
    for (int i = 0; i < tasks; ++i) {
      peers[i] = client(options.spec.task_address("ps", i), str_cat("ps ", i));
    }
    for (int back = 0; back < count; ++back) {
      const int group = (options.task + tasks - back) % tasks;
      groups[group] = std::make_shared<GroupReplica>(GroupReplicaOptions{.group = group,
                                                                         .job = job,
                                                                         .task = options.task,
                                                                         .is_first = back == 0,
                                                                         .copies = count,
                                                                         .lease = lease,
                                                                         .store = store,
                                                                         .peers = peers});
    }
  }

  /// Null: it has not been said that there are groups.
  std::shared_ptr<GroupReplica> group(uint64_t index) {
    const base::MutexLock lock(mutex);
    const auto found = groups.find(static_cast<int>(index));
    return found == groups.end() ? nullptr : found->second;
  }

  const Options options;
  mutable base::Mutex mutex;
  int copies COHORT_GUARDED_BY(mutex) = 0;
  uint64_t of_job COHORT_GUARDED_BY(mutex) = 0;
  std::chrono::milliseconds lease COHORT_GUARDED_BY(mutex) = {};
  std::map<int, std::shared_ptr<GroupReplica>> groups COHORT_GUARDED_BY(mutex);
};

ReplicaHosts::ReplicaHosts(Options options) : impl_(std::make_shared<Impl>(std::move(options))) {}

ReplicaHosts::~ReplicaHosts() { end(); }

void ReplicaHosts::end() {
  std::map<int, std::shared_ptr<GroupReplica>> groups;
  {
    const base::MutexLock lock(impl_->mutex);
    groups.swap(impl_->groups);
  }
  for (const auto& [index, group] : groups) group->end();
}

GroupFacts ReplicaHosts::facts() const {
  const base::MutexLock lock(impl_->mutex);
  return {.replicas = impl_->copies, .job = impl_->of_job, .lease = impl_->lease};
}

std::vector<GroupReport> ReplicaHosts::reports() const {
  std::vector<GroupReport> out;
  const base::MutexLock lock(impl_->mutex);
  for (const auto& [index, group] : impl_->groups) out.push_back(group->report());
  return out;
}

void ReplicaHosts::begin(int replicas, uint64_t job) {
  const base::MutexLock lock(impl_->mutex);
  if (impl_->copies == replicas && impl_->of_job == job) return;
  COHORT_CHECK_STATE(impl_->copies == 0, kHost, "expected ", impl_->copies,
                     " copies of each shard, of the same job, as the coordinator before had, got ",
                     replicas, "; start the parameter servers anew");
  COHORT_CHECK_STATE(replicas == 1 || !impl_->options.store.empty(), kHost,
                     "expected COHORT_STORE, the address of the job's store, for several copies of "
                     "parameters, got none; start the job with cohortrun");
  COHORT_CHECK_ARG(replicas >= 1 && replicas <= impl_->options.spec.num_tasks("ps"), kHost,
                   "expected as many copies as there are parameter servers, or fewer, got ",
                   replicas);
  if (replicas > 1) impl_->make_groups(replicas, job);
  impl_->copies = replicas;
  impl_->of_job = job;
}

std::map<std::string, rpc::RpcHandler> ReplicaHosts::methods() {
  std::map<std::string, rpc::RpcHandler> out;
  // Facts are told; without them the answer tells.
  out["ps.replicas"] = [this](const rpc::RpcRequest& request, const rpc::RpcReply& reply) {
    if (request.payload.size() > 0) {
      const GroupFacts told = read_facts(request.payload);
      begin(told.replicas, told.job);
    }
    reply.send(facts_payload(facts()));
  };
  out["ps.group"] = [impl = impl_](rpc::RpcRequest request, const rpc::RpcReply& reply) {
    PayloadReader data(kHost, request.payload);
    const std::string header = data.header();
    rpc::MessageReader in(kHost, header);
    const auto group = impl->group(in.number());
    if (group == nullptr) return reply.send(group_answer(GroupStatus::kAgain));
    GroupReplica::Question question{.generation = request.caller.generation,
                                    .method = in.text(),
                                    .payload = {},
                                    .reply = reply};
    in.end();
    question.payload = rest_of(request.payload, data.left());
    group->ask(std::move(question));
  };
  out["ps.member"] = [impl = impl_](const rpc::RpcRequest& request, const rpc::RpcReply& reply) {
    constexpr std::size_t kHeadBytes = 5 * sizeof(uint64_t);
    const std::size_t size = request.payload.size();
    const std::string head = part_of(request.payload, 0, kHeadBytes).text();
    rpc::MessageReader in(kHost, head);
    const auto group = impl->group(in.number());
    const replication::NodeId from = in.number();
    GroupReplica::Place place{.message = in.number()};
    place.count = in.number_up_to(kMostPieces);
    place.index = in.number_up_to(kMostPieces);
    in.end();
    if (group != nullptr) group->hear(from, place, rest_of(request.payload, size - kHeadBytes));
    reply.send(rpc::Payload());  // it has arrived: what comes now is behind it
  };
  return out;
}

}  // namespace cohort::internal::coordinator
