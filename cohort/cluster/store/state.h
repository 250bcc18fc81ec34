// SPDX-License-Identifier: Apache-2.0
//
// What a job's store knows, and what it answers when: a machine of states without threads, sockets
// or a clock. Time is told, and answers are taken.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "cohort/cluster/store/messages.h"

namespace cohort::internal::cluster {

/// The most that a store holds, whoever asks.
struct StoreLimits {
  std::size_t key_bytes = 4 << 10;
  std::size_t value_bytes = 1 << 20;
  std::size_t all_bytes = 64 << 20;  ///< Of keys and values, those of requests that wait, too.
  std::size_t keys = 200'000;
  std::size_t members = 20'000;
  std::size_t waiting = 10'000;  ///< Requests that wait.
};

/// Threads: thread-compatible.
class StoreState {
 public:
  using Time = std::chrono::steady_clock::time_point;
  struct Answer {
    uint64_t ticket = 0;
    StoreReply reply = {};
  };

  explicit StoreState(StoreLimits limits = {}) : limits_(limits) {}

  /// Every ticket gets one answer, now or later.
  void ask(uint64_t ticket, const StoreRequest& request, Time now);
  /// Time has passed: waits and leases that are over end.
  void advance(Time now);
  /// The keeper itself did not run for so long, which the times told here leave out: nobody's
  /// lease is shorter for it. But tasks that did run meanwhile may have given the job up, so
  /// nobody may write until all have been heard again.
  void keeper_was_stopped(std::chrono::milliseconds time, Time now);
  /// Answers all who wait, and all who come, by this error.
  void close(const std::string& why);
  std::vector<Answer> take_answers();
  /// When advance() has something to do; Time::max(): never.
  Time next_event() const;
  /// Nobody waits, and nobody has a lease.
  bool is_idle() const;

 private:
  struct Member {
    StoreMember told = {};
    std::chrono::milliseconds lease{};
    Time heard = {};
    std::chrono::milliseconds keeper_stopped{};  ///< Since it was heard, beyond what times say.
    int64_t doubted_at = 0;  ///< A version_: who knows it has been answered since. 0: no doubt.
  };
  struct Waiter {
    StoreRequest request = {};
    Time until = {};
  };
  using Waiters = std::map<uint64_t, Waiter>;  // by ticket

  void answer(uint64_t ticket, StoreReply reply);
  void refuse(uint64_t ticket, ErrorCode code, const std::string& text);
  bool is_allowed(uint64_t ticket, const StoreRequest& request, Time now);
  bool fits(uint64_t ticket, const StoreRequest& request);
  void wait(uint64_t ticket, const StoreRequest& request, Time now);
  bool may_be_set(uint64_t ticket, const std::string& key, std::size_t bytes,
                  const std::string* before);
  bool has_room(uint64_t ticket, const std::string& key, std::size_t bytes, std::size_t before);
  void write(const std::string& key, const std::string& value);

  void get(uint64_t ticket, const StoreRequest& request, Time now);
  void change(uint64_t ticket, const StoreRequest& request);
  void add(uint64_t ticket, const StoreRequest& request);
  void meet(uint64_t ticket, const StoreRequest& request, Time now);
  void join(uint64_t ticket, const StoreRequest& request, Time now);
  void heartbeat(uint64_t ticket, const StoreRequest& request, Time now);
  void leave(uint64_t ticket, const StoreRequest& request, Time now);
  void may_write(uint64_t ticket, const StoreRequest& request, Time now);

  void note_asker(Time now);
  std::chrono::milliseconds quiet() const;
  std::string doubts(Time now) const;
  void settle_doubts(Time now);
  Waiters::iterator forget(Waiters::iterator waiter);
  void news(Time now);
  void fence(const Member& member);
  void fail_hopeless_meetings(Time now);
  void end_wait(uint64_t ticket, const Waiter& waiter, Time now);
  std::vector<StoreMember> members(Time now) const;
  std::string who_has_come(const std::string& key, Time now) const;

  const StoreLimits limits_;
  std::string closed_;  // why; empty: open
  std::map<std::string, std::string> values_;
  std::size_t bytes_ = 0;
  std::map<std::string, Member> members_;  // by task
  int64_t version_ = 0;                    // of members_
  Time asked_ = {};                        // when anybody did last
  Waiters waiters_;
  std::size_t waiting_bytes_ = 0;
  std::vector<Answer> answers_;
};

}  // namespace cohort::internal::cluster
