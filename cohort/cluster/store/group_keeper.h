// SPDX-License-Identifier: Apache-2.0
//
// Who keeps the shards of replicated parameter servers, decided where the job's store is: beside
// the program that trains, so a server is replaced while that is busy. Each group has a machine of
// replication/membership.h; what its servers say moves its time.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "cohort/base/mutex.h"
#include "cohort/replication/membership.h"

namespace cohort::internal::cluster {

inline constexpr const char* kGroupMethod = "store.group";
/// The membership service, as replicas call it. No server has this number.
inline constexpr replication::NodeId kGroupKeeper = ~replication::NodeId{0};

/// What a server tells the keeper of its group.
struct GroupQuestion {
  std::string group = {};
  std::chrono::milliseconds lease = {};  ///< Of all of the group's servers.
  replication::NodeId from = 0;
  replication::Message message = {};
};
std::string encode_group_question(const GroupQuestion& question);
/// Errors: DataLoss.
std::vector<replication::Message> decode_group_answer(const std::string& bytes);

/// Threads: thread-safe.
class GroupKeeper {
 public:
  using Now = std::function<replication::Time()>;
  /// `now`: of a clock that never goes back, and goes on while the machine is suspended. Empty:
  /// BootClock.
  explicit GroupKeeper(Now now = {});
  /// What is to be told to who asks; others hear it when they ask. Errors: DataLoss;
  /// FailedPrecondition for another lease than the group's, naming both.
  std::string ask(const std::string& question);

 private:
  struct Group {
    explicit Group(std::chrono::milliseconds of_servers);
    std::chrono::milliseconds lease;
    replication::Membership membership;
  };
  const Now now_;
  base::Mutex mutex_;
  std::map<std::string, Group> groups_ COHORT_GUARDED_BY(mutex_);
};

}  // namespace cohort::internal::cluster
