// SPDX-License-Identifier: Apache-2.0
#include "cohort/coordinator/parameters/replica_host.h"

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

namespace cohort::internal {
namespace {

constexpr const char* kHost = "[ps] ";
constexpr int kDecimal = 10;
constexpr int64_t kLeastLease = 100;
constexpr uint64_t kMostGroups = 1 << 16;

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

struct ReplicaHosts::Impl {
  explicit Impl(Options given) : options(std::move(given)) {}

  std::shared_ptr<RpcClient> client(const std::string& address, const std::string& name) const {
    return std::make_shared<RpcClient>(
        RpcClientOptions{.address = address,
                         .server_name = name,
                         .security = options.security,
                         .claims = {.task = str_cat("ps ", options.task)}});
  }

  void make_groups(int count) COHORT_REQUIRES(mutex) {
    const std::chrono::milliseconds lease =
        options.lease.count() > 0 ? options.lease : group_lease_from_environment();
    const int tasks = options.spec.num_tasks("ps");
    const std::shared_ptr<RpcClient> store = client(options.store, "the job's store");
    std::map<int, std::shared_ptr<RpcClient>> peers;
    for (int i = 0; i < tasks; ++i) {
      peers[i] = client(options.spec.task_address("ps", i), str_cat("ps ", i));
    }
    for (int back = 0; back < count; ++back) {
      const int group = (options.task + tasks - back) % tasks;
      groups[group] = std::make_shared<GroupReplica>(GroupReplicaOptions{.group = group,
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
    const MutexLock lock(mutex);
    const auto found = groups.find(static_cast<int>(index));
    return found == groups.end() ? nullptr : found->second;
  }

  const Options options;
  mutable Mutex mutex;
  int copies COHORT_GUARDED_BY(mutex) = 0;
  std::map<int, std::shared_ptr<GroupReplica>> groups COHORT_GUARDED_BY(mutex);
};

ReplicaHosts::ReplicaHosts(Options options) : impl_(std::make_shared<Impl>(std::move(options))) {}

ReplicaHosts::~ReplicaHosts() {
  std::map<int, std::shared_ptr<GroupReplica>> groups;
  {
    const MutexLock lock(impl_->mutex);
    groups.swap(impl_->groups);
  }
  for (const auto& [index, group] : groups) group->end();
}

int ReplicaHosts::replicas() const {
  const MutexLock lock(impl_->mutex);
  return impl_->copies;
}

void ReplicaHosts::begin(int replicas) {
  const MutexLock lock(impl_->mutex);
  if (impl_->copies == replicas) return;
  COHORT_CHECK_STATE(impl_->copies == 0, kHost, "expected ", impl_->copies,
                     " copies of each shard, as the coordinator before had, got ", replicas,
                     "; start the parameter servers anew");
  COHORT_CHECK_STATE(replicas == 1 || !impl_->options.store.empty(), kHost,
                     "expected COHORT_STORE, the address of the job's store, for several copies of "
                     "parameters, got none; start the job with cohortrun");
  COHORT_CHECK_ARG(replicas >= 1 && replicas <= impl_->options.spec.num_tasks("ps"), kHost,
                   "expected as many copies as there are parameter servers, or fewer, got ",
                   replicas);
  if (replicas > 1) impl_->make_groups(replicas);
  impl_->copies = replicas;
}

std::map<std::string, RpcHandler> ReplicaHosts::methods() {
  std::map<std::string, RpcHandler> out;
  // A number says how many copies there are; without one the answer tells.
  out["ps.replicas"] = [this](const RpcRequest& request, const RpcReply& reply) {
    const std::string text = request.payload.text();
    if (!text.empty())
      begin(static_cast<int>(MessageReader(kHost, text).number_up_to(kMostGroups)));
    MessageWriter answer;
    answer.number(static_cast<uint64_t>(replicas()));
    reply.send(Payload(answer.str()));
  };
  out["ps.group"] = [impl = impl_](RpcRequest request, const RpcReply& reply) {
    PayloadReader data(kHost, request.payload);
    const std::string header = data.header();
    MessageReader in(kHost, header);
    const auto group = impl->group(in.number());
    if (group == nullptr) return reply.send(group_answer(GroupStatus::kAgain));
    GroupReplica::Question question{.method = in.text(), .payload = {}, .reply = reply};
    in.end();
    question.payload = rest_of(request.payload, data.left());
    group->ask(std::move(question));
  };
  out["ps.member"] = [impl = impl_](const RpcRequest& request, const RpcReply& reply) {
    const std::string text = request.payload.text();
    reply.send(Payload());
    MessageReader in(kHost, text);
    const auto group = impl->group(in.number());
    if (group != nullptr) group->hear(in.number(), in);
  };
  return out;
}

}  // namespace cohort::internal
