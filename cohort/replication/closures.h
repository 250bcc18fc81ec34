// SPDX-License-Identifier: Apache-2.0
//
// Effects that count once, of closures that may be run several times: machines of states without
// threads, sockets or clocks, which a simulator (closure_simulator.h) runs through as well.
//
// Whoever runs a closure has its effects prepared on the servers, where they change nothing yet,
// and tells the coordinator when all servers have acknowledged all of them. The coordinator decides
// for one attempt of each closure, once, and tells all servers, again and again until each has
// acknowledged: the attempt's effects are applied then, those of all others are dropped, and what
// comes later is refused.
//
//   ClosureCommits commits;                // the coordinator's
//   PreparedEffects<std::string> server;
//   commits.open(7);
//   const uint64_t attempt = commits.begin(7);
//   server.prepare(7, attempt, 0, "an effect");
//   if (commits.decide(7, attempt)) server.settle({7, attempt, 1}, commits.floor());  // gives it
//   commits.end(7);                        // all servers have said so
//
// Both messages may come twice, late and in another order.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cohort/base/check.h"

namespace cohort::internal::replication {

using ClosureId = uint64_t;

/// What a coordinator has decided of a closure, for one server.
struct Settlement {
  ClosureId closure = 0;
  uint64_t attempt = 0;  ///< Whose effects are applied; 0: none.
  uint64_t count = 0;    ///< How many effects of it this server has acknowledged.
};

/// What a server has met in applying a closure's effects. Nothing: code 0.
struct ClosureFailure {
  uint64_t code = 0;
  std::string text = {};
};

/// The coordinator's part. Threads: thread-compatible.
class ClosureCommits {
 public:
  virtual ~ClosureCommits() = default;

  /// Closures have ascending numbers, from 1. It may be run from here on.
  void open(ClosureId closure) {
    COHORT_CHECK(closure > last_, "closure ", closure, " behind ", last_);
    last_ = closure;
    open_[closure] = {};
  }
  /// It is handed to a worker: the number of this attempt. The one before is not waited for.
  uint64_t begin(ClosureId closure) {
    Open& one = open_.at(closure);
    COHORT_CHECK(!one.is_decided, "closure ", closure, " is run after it was decided");
    one.is_running = true;
    return ++one.attempts;
  }
  /// Its worker is lost, or gives it back: what it still answers does not count.
  void lose(ClosureId closure) {
    if (const auto found = open_.find(closure); found != open_.end()) {
      found->second.is_running = false;
    }
  }
  /// The attempt is over: its effects are all prepared, or are not wanted. True: it counts, and the
  /// closure is not to be run again, whatever happens.
  bool decide(ClosureId closure, uint64_t attempt) {
    const auto found = open_.find(closure);
    if (found == open_.end() || !is_current(found->second.is_running, found->second.attempts,
                                            attempt, found->second.is_decided)) {
      return false;
    }
    found->second.is_decided = true;
    return true;
  }
  bool is_decided(ClosureId closure) const {
    const auto found = open_.find(closure);
    return found != open_.end() && found->second.is_decided;
  }
  /// All servers have settled it, or nobody has begun it and nobody will.
  void end(ClosureId closure) { open_.erase(closure); }
  /// All closures before this one have ended.
  ClosureId floor() const { return open_.empty() ? last_ + 1 : open_.begin()->first; }

 protected:
  // A decision on which the promise rests; a test makes it wrong.
  virtual bool is_current(bool is_running, uint64_t current, uint64_t attempt,
                          bool is_decided) const {
    return is_running && current == attempt && !is_decided;
  }

 private:
  struct Open {
    uint64_t attempts = 0;
    bool is_running = false;
    bool is_decided = false;
  };
  ClosureId last_ = 0;
  std::map<ClosureId, Open> open_;
};

/// A server's part: effects that wait for what becomes of their closures. Its members are those of
/// the server's state, and belong to its snapshot. Threads: thread-compatible.
template <class Effect>
class PreparedEffects {
 public:
  /// All that is to outlive a server.
  struct State {
    struct Attempt {
      uint64_t number = 0;
      std::map<uint64_t, Effect> effects = {};  // by place
    };
    ClosureId floor = 1;                          // all before it have ended
    std::map<ClosureId, ClosureId> settled = {};  // ranges: the first, and the one behind the last
    std::map<ClosureId, Attempt> open = {};
    std::map<ClosureId, ClosureFailure> failed = {};  // of the settled ones
  };

  virtual ~PreparedEffects() = default;
  PreparedEffects() = default;
  PreparedEffects(const PreparedEffects&) = default;
  PreparedEffects& operator=(const PreparedEffects&) = default;

  /// `place`: of the effect in its attempt, on this server. False: it is refused, for its closure
  /// is settled, or a later attempt has begun. The same effect twice is one.
  bool prepare(ClosureId closure, uint64_t attempt, uint64_t place, Effect effect) {
    if (is_settled(closure)) return false;
    auto& open = state_.open[closure];
    if (attempt < open.number) return false;
    if (attempt > open.number && drops_former()) open.effects.clear();
    open.number = attempt;
    open.effects.try_emplace(place, std::move(effect));
    return true;
  }
  /// What is to be applied, in the order of places; nothing, where it is settled. From here on its
  /// closure is, and so are all before `floor`. Behind the last effect note_applied() is called.
  /// Errors: Internal where there are not as many as were acknowledged, and nothing is changed.
  std::vector<Effect> settle(const Settlement& what, ClosureId floor) {
    std::vector<Effect> out;
    if (!is_settled(what.closure)) {
      const auto found = state_.open.find(what.closure);
      const bool has_any =
          found != state_.open.end() && what.attempt != 0 && found->second.number == what.attempt;
      const uint64_t count = has_any ? found->second.effects.size() : 0;
      COHORT_CHECK(count == what.count, "closure ", what.closure, ", attempt ", what.attempt, ": ",
                   what.count, " effects were acknowledged, ", count, " are there");
      if (has_any) {
        for (auto& [place, effect] : found->second.effects) out.push_back(std::move(effect));
        if (!out.empty()) applied_now_.insert(what.closure);
      }
      if (found != state_.open.end()) state_.open.erase(found);
      note_settled(what.closure);
    }
    raise_floor(floor);
    return out;
  }
  /// For who says so again: whether what settle() gave is still being applied.
  bool is_being_applied(ClosureId closure) const { return applied_now_.count(closure) > 0; }
  void note_applied(ClosureId closure, ClosureFailure failure) {
    if (applied_now_.erase(closure) == 0) return;  // another state was restored meanwhile
    if (failure.code != 0 && closure >= state_.floor) state_.failed[closure] = std::move(failure);
  }
  /// What came of it; kept until the floor has passed it.
  ClosureFailure failure_of(ClosureId closure) const {
    const auto found = state_.failed.find(closure);
    return found == state_.failed.end() ? ClosureFailure() : found->second;
  }
  /// All before it have ended, of which those that have thrown were not settled.
  void raise_floor(ClosureId floor) {
    if (floor <= state_.floor) return;
    state_.floor = floor;
    auto& ranges = state_.settled;
    while (!ranges.empty() && ranges.begin()->second <= floor) ranges.erase(ranges.begin());
    state_.open.erase(state_.open.begin(), state_.open.lower_bound(floor));
    state_.failed.erase(state_.failed.begin(), state_.failed.lower_bound(floor));
  }
  const State& state() const { return state_; }
  void restore(State state) {
    state_ = std::move(state);
    applied_now_.clear();
  }

 protected:
  virtual bool is_settled(ClosureId closure) const {
    if (closure < state_.floor) return true;
    const auto behind = state_.settled.upper_bound(closure);
    return behind != state_.settled.begin() && closure < std::prev(behind)->second;
  }
  virtual bool drops_former() const { return true; }

 private:
  // Ranges, for one that runs long keeps all behind it from the floor.
  void note_settled(ClosureId closure) {
    auto& all = state_.settled;
    ClosureId end = closure + 1;
    auto behind = all.upper_bound(closure);
    if (behind != all.end() && behind->first == end) {
      end = behind->second;
      behind = all.erase(behind);
    }
    if (behind != all.begin() && std::prev(behind)->second == closure) {
      std::prev(behind)->second = end;
    } else {
      all.emplace(closure, end);
    }
  }
  State state_;
  std::set<ClosureId> applied_now_;
};

}  // namespace cohort::internal::replication
