// SPDX-License-Identifier: Apache-2.0
//
// A parameter server's variables as a state that several servers have (cohort/replication): what
// changes them is an entry of the log. Rates and steps stand in the calls, so the same entries give
// the same bits on every server of one instruction set.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cohort/coordinator/parameters/parameter_service.h"
#include "cohort/replication/replica.h"
#include "cohort/rpc/client.h"

namespace cohort::internal::coordinator {

/// What stands ahead of an answer of a group's server: kDone, or one of the others.
enum class GroupStatus : uint64_t { kDone = 0, kNotPrimary = 1, kAgain = 2, kError = 3 };

/// Some bytes of a payload, where they lie.
rpc::Payload part_of(const rpc::Payload& payload, std::size_t first, std::size_t count);
/// The last ones.
rpc::Payload rest_of(const rpc::Payload& payload, std::size_t bytes);

/// A call of this chief's (generation_fence.h), with its message behind its name. Owns: a share of
/// a large message.
replication::Bytes group_call(uint64_t generation, const std::string& method,
                              const rpc::Payload& message);

/// Threads: thread-compatible.
class ReplicatedParameters final : public replication::ReplicatedState {
 public:
  ReplicatedParameters();
  /// A GroupStatus, and then the answer's bytes; of an error its code and text.
  /// Errors: std::bad_alloc, which other copies need not have.
  std::string apply(const replication::Bytes& update) override;
  /// Errors: std::bad_alloc.
  std::string read(const std::string& query) const override;
  std::shared_ptr<const replication::StateSnapshot> snapshot() override;
  void restore(std::vector<replication::Bytes> pieces) override;
  /// Before the call is an update. Errors: std::bad_alloc where it would not get its memory now.
  void check_room(const std::string& method, const rpc::Payload& payload) const {
    service_.check_room(method, payload);
  }

 private:
  struct Call;
  /// "ps.begin": another coordinator has come, whose variables are other ones, unless these began
  /// in the session `origin`. True: they did. It may be said again, and without an origin then.
  bool begin(uint64_t session, uint64_t origin);
  /// Errors: FailedPrecondition for a chief that another one has followed.
  void check_newest(uint64_t generation) const;
  mutable ParameterService service_;
  uint64_t generation_ = 0;  // the newest chief's
  uint64_t origin_ = 0;      // the session in which the variables began; 0: in none yet
  uint64_t origins_ = 0;     // how many there were
};

/// In what a member of a group answers: the status's number.
rpc::Payload group_answer(GroupStatus status, std::string_view bytes = {});
/// The payload or the error; `status` says which. Cost: no copy.
rpc::RpcResult read_group_answer(const rpc::Payload& answer, GroupStatus& status, uint64_t& hint);

}  // namespace cohort::internal::coordinator
