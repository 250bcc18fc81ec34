// SPDX-License-Identifier: Apache-2.0
//
// What a job's store is asked, and what it answers: plain data, and how it travels.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/base/error.h"

namespace cohort::internal::cluster {

enum class StoreVerb : uint8_t {
  kGet,
  kSet,
  kInsert,
  kAdd,
  kErase,
  kMeet,
  kJoin,
  kHeartbeat,
  kLeave,
  kMembers,
  kMayWrite,
};
constexpr StoreVerb kStoreVerbs[] = {StoreVerb::kGet,     StoreVerb::kSet,       StoreVerb::kInsert,
                                     StoreVerb::kAdd,     StoreVerb::kErase,     StoreVerb::kMeet,
                                     StoreVerb::kJoin,    StoreVerb::kHeartbeat, StoreVerb::kLeave,
                                     StoreVerb::kMembers, StoreVerb::kMayWrite};
/// "get": also the method's name.
const char* store_verb_name(StoreVerb verb);

struct StoreRequest {
  StoreVerb verb = StoreVerb::kGet;
  std::string key = {};    ///< Of meet: the barrier's name.
  std::string value = {};  ///< Of join: the task's address; of heartbeat: what it is doing.
  std::string pace = {};   ///< Of heartbeat: the task's pace.
  /// Of add: what is added; of meet: how many come; of heartbeat: the last version that is known.
  int64_t number = 0;
  std::chrono::milliseconds wait{};   ///< The most that get, meet, heartbeat and may_write wait.
  std::chrono::milliseconds lease{};  ///< Of join.

  // Who asks: not in the message, but proved by it.
  std::string task = {};
  uint64_t generation = 0;
  bool is_keeper = false;  ///< The process that keeps the store: is no task, and may write.
};

/// A task that has joined.
struct StoreMember {
  enum class State : uint8_t { kAlive, kLeft, kDead };
  std::string task = {};
  std::string address = {};
  uint64_t generation = 0;  ///< Counts the processes that were this task, from 1 on.
  State state = State::kAlive;
  std::chrono::milliseconds silent{};  ///< Since it was heard last.
  std::string doing = {};              ///< As it said then.
  std::string pace = {};               ///< How fast it is, as it said then.
};

struct StoreReply {
  ErrorCode code = ErrorCode::kOk;
  std::string text = {};  ///< Of an error.
  bool yes = false;       ///< Found, exchanged, erased.
  std::string value = {};
  int64_t number = 0;  ///< Of join: the generation; of heartbeat and members: the version.
  std::map<std::string, std::string> all = {};  ///< Of meet: what each has brought.
  std::vector<StoreMember> members = {};  ///< Of members; of heartbeat where the version is new.
};

std::string encode(const StoreRequest& request);
std::string encode(const StoreReply& reply);
/// Errors: DataLoss. Errors of the reply are not in the message.
StoreRequest decode_store_request(StoreVerb verb, std::string_view bytes);
StoreReply decode_store_reply(std::string_view bytes);

}  // namespace cohort::internal::cluster
