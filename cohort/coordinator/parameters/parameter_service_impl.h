// SPDX-License-Identifier: Apache-2.0
//
// What a parameter server is made of, for the sources that make it.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cohort/base/mutex.h"
#include "cohort/coordinator/parameters/call_memory.h"
#include "cohort/coordinator/parameters/directory.h"
#include "cohort/coordinator/parameters/generation_fence.h"
#include "cohort/coordinator/parameters/message.h"
#include "cohort/coordinator/parameters/parameter_service.h"
#include "cohort/coordinator/parameters/stored_parameter.h"
#include "cohort/coordinator/parameters/task_threads.h"
#include "cohort/replication/closures.h"
#include "cohort/runtime/topology.h"

namespace cohort::internal::coordinator {

// More threads wait for the same memory.
inline constexpr int kMostServiceThreads = 8;

/// With room behind it for the ids that follow.
uint64_t random_parameter_id();

struct ParameterService::Impl {
  explicit Impl(ParameterServiceOptions given) : options(given) {}

  using Stored = std::shared_ptr<StoredParameter>;
  struct Entry {
    Stored parameter;
    uint64_t generation = 0;
    bool is_ready = false;
  };
  using Name = std::pair<std::string, uint64_t>;  // and its generation

  // A message is read, in the order in which it stands, by one of these.
  rpc::Payload open(rpc::MessageReader& in, PayloadReader& data);
  rpc::Payload close(rpc::MessageReader& in, PayloadReader& data);
  rpc::Payload declare(rpc::MessageReader& in, PayloadReader& data);
  rpc::Payload find(rpc::MessageReader& in, PayloadReader& data);
  rpc::Payload forget(rpc::MessageReader& in, PayloadReader& data);
  rpc::Payload create(rpc::MessageReader& in, PayloadReader& data);
  rpc::Payload ready(rpc::MessageReader& in, PayloadReader& data);
  rpc::Payload drop(rpc::MessageReader& in, PayloadReader& data);
  rpc::Payload pull(rpc::MessageReader& in, PayloadReader& data);
  rpc::Payload pull_rows(rpc::MessageReader& in, PayloadReader& data);
  rpc::Payload write(rpc::MessageReader& in, PayloadReader& data);
  rpc::Payload scatter(rpc::MessageReader& in, PayloadReader& data);
  rpc::Payload make_slots(rpc::MessageReader& in, PayloadReader& data);
  rpc::Payload drop_slots(rpc::MessageReader& in, PayloadReader& data);
  rpc::Payload push(rpc::MessageReader& in, PayloadReader& data);
  rpc::Payload push_rows(rpc::MessageReader& in, PayloadReader& data);
  // Of steps that look at a variable as a whole (variables/whole_step.h).
  rpc::Payload statistics(rpc::MessageReader& in, PayloadReader& data);
  rpc::Payload push_whole(rpc::MessageReader& in, PayloadReader& data);
  // Of pushes that are one update with others (push_sum.h).
  rpc::Payload accumulate(rpc::MessageReader& in, PayloadReader& data);
  rpc::Payload accumulate_rows(rpc::MessageReader& in, PayloadReader& data);
  rpc::Payload count_push(rpc::MessageReader& in, PayloadReader& data);
  rpc::Payload complete_update(rpc::MessageReader& in, PayloadReader& data);
  rpc::Payload complete_count(rpc::MessageReader& in, PayloadReader& data);
  rpc::Payload push_step(rpc::MessageReader& in, PayloadReader& data);
  // Of variables whose rows belong to ids (stored_table.h).
  rpc::Payload make_table(rpc::MessageReader& in, PayloadReader& data);
  rpc::Payload see(rpc::MessageReader& in, PayloadReader& data);
  rpc::Payload pull_ids(rpc::MessageReader& in, PayloadReader& data);
  rpc::Payload push_ids(rpc::MessageReader& in, PayloadReader& data);
  rpc::Payload table(rpc::MessageReader& in, PayloadReader& data);
  rpc::Payload restore_table(rpc::MessageReader& in, PayloadReader& data);
  // Of functions that count once (transaction.h).
  rpc::Payload prepare(rpc::MessageReader& in, PayloadReader& data);
  rpc::Payload settle(rpc::MessageReader& in, PayloadReader& data);
  /// Blocks: while another thread applies the same function's changes. Gives what came of them.
  replication::ClosureFailure settle_one(const replication::Settlement& what, uint64_t floor);
  using Method = rpc::Payload (Impl::*)(rpc::MessageReader&, PayloadReader&);
  rpc::Payload do_it(Method method, PayloadReader& data);
  void reset();
  /// What has been done before gets the answer that it had.
  void do_once(Method method, const rpc::Payload& payload, const rpc::RpcReply& reply);
  /// Answers when the variable is ready.
  void bind(const rpc::Payload& payload, const rpc::RpcReply& reply);
  /// Errors: Unavailable until it is.
  rpc::Payload bind_now(rpc::MessageReader& in, PayloadReader& data);

  /// A change that waits: the message that would have brought it.
  struct PreparedEffect {
    std::string method = {};
    std::shared_ptr<const std::string> bytes = {};
    std::shared_ptr<void> counted = {};  ///< Of prepared_bytes, until it ends.
  };
  /// `failure`: the first one. Errors: what is none of Cohort's, with which it ends.
  void apply_prepared(const std::vector<PreparedEffect>& effects,
                      replication::ClosureFailure& failure);
  PreparedEffect counted(std::string method, std::string bytes);
  void save_prepared(rpc::MessageWriter& head, rpc::Payload& numbers) const;
  void load_prepared(rpc::MessageReader& in, PayloadReader& numbers);

  using Methods = std::map<std::string, Method>;
  /// What changes nothing; what does, and may be done twice; what is done once.
  static const Methods& reads();
  static const Methods& changes();
  static const Methods& changes_once();

  Stored at(uint64_t id);
  Stored read_id(rpc::MessageReader& in) { return at(in.number()); }
  static rpc::Payload answer_binding(uint64_t id, const StoredParameter& parameter);
  void set_ready(uint64_t id);
  /// 0: it is not there, or not ready.
  uint64_t ready_id(const Name& name) const COHORT_REQUIRES(mutex);

  const ParameterServiceOptions options;
  GenerationFence fence;
  Directory directory;
  CallMemory done{random_parameter_id()};  // it outlives a reset: what was done stays done
  // Of what waits. Owns: with the effects.
  const std::shared_ptr<std::atomic<std::size_t>> prepared_bytes =
      std::make_shared<std::atomic<std::size_t>>(0);
  mutable base::Mutex prepared_mutex;
  std::condition_variable_any applied;
  replication::PreparedEffects<PreparedEffect> prepared COHORT_GUARDED_BY(prepared_mutex);
  mutable base::Mutex mutex;
  // Of this server since it has begun, or was reset: what it had before is not mistaken for it.
  uint64_t next_id COHORT_GUARDED_BY(mutex) = random_parameter_id();
  std::map<uint64_t, Entry> entries COHORT_GUARDED_BY(mutex);
  std::map<std::string, uint64_t> ids COHORT_GUARDED_BY(mutex);
  std::map<Name, std::vector<rpc::RpcReply>> waiting COHORT_GUARDED_BY(mutex);
  TaskThreads threads{
      std::clamp(runtime::usable_cores(), 2, kMostServiceThreads)};  // last: it ends first
};

}  // namespace cohort::internal::coordinator
