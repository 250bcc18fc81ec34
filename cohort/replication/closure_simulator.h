// SPDX-License-Identifier: Apache-2.0
//
// A coordinator, workers and servers in one thread, in a world that a seed makes: messages are
// lost, late, in another order and twice; workers die, or are taken for dead and go on; servers
// fail over to who has their snapshot. The same seed gives the same run.
//
//   const ClosureOutcome outcome = ClosureSimulation<>(seed).run();
#pragma once

#include <algorithm>
#include <cstdio>
#include <map>
#include <queue>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cohort/base/error.h"
#include "cohort/base/strings.h"
#include "cohort/replication/closures.h"

namespace cohort::internal::replication {

struct ClosureOutcome {
  std::string wrong = {};  ///< Empty: all is as promised.
  int attempts = 0;        ///< Of all closures.
  int applied = 0;         ///< Effects.
  int refused = 0;         ///< Preparations that came too late.
};

/// What a worker waits for before it says that all is prepared: right, or a planted bug.
struct ByAllServers {
  static constexpr bool kWaits = true;
};

/// `Commits` and `Prepared`: the real machines, or ones with a bug; `Keeps`: what a failover
/// brings.
template <class Commits = ClosureCommits, class Prepared = PreparedEffects<uint64_t>,
          class Waits = ByAllServers>
class ClosureSimulation {
 public:
  using State = typename Prepared::State;
  /// What the next keeper of a server's state gets.
  using Snapshot = State (*)(const State&);

  explicit ClosureSimulation(uint64_t seed, Snapshot snapshot = nullptr, bool is_traced = false)
      : random_(seed), snapshot_(snapshot), is_traced_(is_traced) {
    servers_.resize(1 + pick(3));
    workers_.resize(2 + pick(2));
    for (ClosureId id = 1; id <= kClosures; ++id) {
      Plan& plan = plans_[id];
      plan.throws = chance(15);
      for (std::size_t n = pick(4); n > 0; --n) plan.effects.push_back(pick(servers_.size()));
      commits_.open(id);
      waiting_.push_back(id);
    }
    for (std::size_t w = 0; w < workers_.size(); ++w)
      push({.at = now_ + static_cast<int64_t>(pick(kTick)), .worker = w});
    push({.at = now_, .kind = Kind::kCoordinator});
  }

  ClosureOutcome run() {
    try {
      while (now_ < kStorm) step();
      is_calm_ = true;
      while (now_ < kStorm + kCalm && ended_.size() < kClosures) step();
      // What is still on its way comes, and is to change nothing.
      for (const int64_t until = now_ + 2 * kLate; now_ < until;) step();
      if (ended_.size() < kClosures) out_.wrong = "closures wait for ever";
    } catch (const Error& e) {
      out_.wrong = e.what();
    }
    if (out_.wrong.empty()) out_.wrong = first_violation();
    return out_;
  }

 private:
  static constexpr ClosureId kClosures = 12;
  static constexpr int64_t kTick = 10'000;  // microseconds
  static constexpr int64_t kResend = 30'000;
  static constexpr int64_t kLate = 400'000;
  static constexpr int64_t kStorm = 1'500'000;
  static constexpr int64_t kCalm = 4'000'000;

  enum class Kind {
    kWorkerTick,
    kCoordinator,
    kRun,
    kPrepare,
    kPrepared,
    kAnswer,
    kSettle,
    kSettled
  };
  struct Plan {
    std::vector<std::size_t> effects = {};  // the server of each
    bool throws = false;
  };
  struct Event {
    int64_t at = 0;
    uint64_t order = 0;
    Kind kind = Kind::kWorkerTick;
    std::size_t worker = 0;
    uint64_t life = 0;  // of the worker
    std::size_t server = 0;
    ClosureId closure = 0;
    uint64_t attempt = 0;
    uint64_t place = 0;  // or how many there are
    uint64_t effect = 0;
    ClosureId floor = 0;
    bool is_good = true;
    bool operator<(const Event& other) const {
      return std::pair(at, order) > std::pair(other.at, other.order);
    }
  };
  struct Job {
    ClosureId closure = 0;
    uint64_t attempt = 0;
    std::set<std::size_t> open = {};  // effects that are not acknowledged
    bool is_refused = false;
    bool is_sent = false;
    int64_t sent = 0;
  };
  struct Worker {
    uint64_t life = 1;
    std::map<std::pair<ClosureId, uint64_t>, Job> jobs = {};
    std::set<std::pair<ClosureId, uint64_t>> seen = {};
  };
  struct Server {
    Prepared prepared = {};
    std::vector<uint64_t> applied = {};
  };
  // What the coordinator knows of a closure that runs, or is being settled.
  struct Running {
    std::size_t worker = 0;
    uint64_t attempt = 0;
    int64_t begun = 0;
    int64_t sent = 0;
  };
  struct Settling {
    uint64_t attempt = 0;  // 0: dropped
    std::set<std::size_t> open = {};
    int64_t sent = 0;
  };

  uint64_t pick(uint64_t below) { return random_() % below; }
  bool chance(uint64_t percent) { return pick(100) < percent; }
  void push(Event event) {
    event.order = ++order_;
    events_.push(event);
  }
  void send(Event event) {
    int copies = !is_calm_ && chance(loss_) ? 0 : 1;
    if (!is_calm_ && chance(12)) ++copies;
    for (; copies > 0; --copies) {
      const bool is_late = !is_calm_ && chance(6);
      event.at = now_ + static_cast<int64_t>(is_late ? pick(kLate) : 500 + pick(3'000));
      push(event);
    }
  }
  static uint64_t effect_of(ClosureId closure, uint64_t place) { return closure * 100 + place; }
  uint64_t place_on_server(const Plan& plan, std::size_t index) const {
    return static_cast<uint64_t>(std::count(plan.effects.begin(),
                                            plan.effects.begin() + static_cast<int64_t>(index),
                                            plan.effects[index]));
  }

  void step() {
    const Event event = events_.top();
    events_.pop();
    now_ = event.at;
    if (!is_calm_ && now_ >= weather_at_) change_weather();
    switch (event.kind) {
      case Kind::kWorkerTick:
        return work(event.worker);
      case Kind::kCoordinator:
        return coordinate();
      case Kind::kRun:
        return take_run(event);
      case Kind::kPrepare:
        return prepare(event);
      case Kind::kPrepared:
        return take_prepared(event);
      case Kind::kAnswer:
        return take_answer(event);
      case Kind::kSettle:
        return settle(event);
      case Kind::kSettled:
        return take_settled(event);
    }
  }

  void coordinate() {
    push({.at = now_ + kTick, .kind = Kind::kCoordinator});
    while (!waiting_.empty() && running_.size() < workers_.size() * 2) {
      const ClosureId id = waiting_.front();
      waiting_.erase(waiting_.begin());
      running_[id] = {
          .worker = pick(workers_.size()), .attempt = commits_.begin(id), .begun = now_};
      ++out_.attempts;
      say("begins", id, running_[id].attempt);
      send_run(id);
    }
    for (auto it = running_.begin(); it != running_.end();) {
      // Taken for dead, rightly or not.
      const bool is_lost =
          now_ > it->second.begun + (is_calm_ ? 600'000 : 12'000) && (is_calm_ || chance(20));
      if (!is_lost) {
        if (now_ > it->second.sent + kResend) send_run(it->first);
        ++it;
        continue;
      }
      say("is lost", it->first, it->second.attempt);
      commits_.lose(it->first);
      waiting_.push_back(it->first);
      it = running_.erase(it);
    }
    for (auto& [id, settling] : settling_) {
      if (now_ > settling.sent + kResend) send_settle(id, settling);
    }
  }
  void send_run(ClosureId id) {
    Running& one = running_.at(id);
    one.sent = now_;
    send({.kind = Kind::kRun, .worker = one.worker, .closure = id, .attempt = one.attempt});
  }
  void take_answer(const Event& event) {
    if (!commits_.decide(event.closure, event.attempt)) return;
    say(event.is_good ? "is to be committed" : "has thrown", event.closure, event.attempt);
    running_.erase(event.closure);
    waiting_.erase(std::remove(waiting_.begin(), waiting_.end(), event.closure), waiting_.end());
    Settling& one = settling_[event.closure];
    one.attempt = event.is_good ? event.attempt : 0;
    for (std::size_t s = 0; s < servers_.size(); ++s) one.open.insert(s);
    send_settle(event.closure, one);
  }
  void send_settle(ClosureId id, Settling& one) {
    one.sent = now_;
    const Plan& plan = plans_.at(id);
    for (const std::size_t s : one.open) {
      const auto count =
          static_cast<uint64_t>(std::count(plan.effects.begin(), plan.effects.end(), s));
      send({.kind = Kind::kSettle,
            .server = s,
            .closure = id,
            .attempt = one.attempt,
            .place = one.attempt == 0 ? 0 : count,
            .floor = commits_.floor()});
    }
  }
  void take_settled(const Event& event) {
    const auto found = settling_.find(event.closure);
    if (found == settling_.end()) return;
    found->second.open.erase(event.server);
    if (!found->second.open.empty()) return;
    settling_.erase(found);
    commits_.end(event.closure);
    ended_.insert(event.closure);
  }

  void take_run(const Event& event) {
    Worker& worker = workers_[event.worker];
    const std::pair key(event.closure, event.attempt);
    if (!worker.seen.insert(key).second) return;
    Job job{.closure = event.closure, .attempt = event.attempt};
    for (std::size_t i = 0; i < plans_.at(event.closure).effects.size(); ++i) job.open.insert(i);
    worker.jobs[key] = std::move(job);
  }
  // Sends what is not acknowledged, and the answer again and again, until it dies.
  void work(std::size_t index) {
    push({.at = now_ + kTick, .worker = index});
    Worker& worker = workers_[index];
    for (auto& [key, job] : worker.jobs) {
      if (job.is_refused || (job.sent > 0 && now_ < job.sent + kResend)) continue;
      job.sent = now_;
      const Plan& plan = plans_.at(job.closure);
      for (const std::size_t i : job.open) {
        send({.kind = Kind::kPrepare,
              .worker = index,
              .life = worker.life,
              .server = plan.effects[i],
              .closure = job.closure,
              .attempt = job.attempt,
              .place = place_on_server(plan, i),
              .effect = effect_of(job.closure, i)});
      }
      if (job.open.empty() || !Waits::kWaits) {
        send({.kind = Kind::kAnswer,
              .closure = job.closure,
              .attempt = job.attempt,
              .is_good = !plan.throws});
      }
    }
  }
  void take_prepared(const Event& event) {
    Worker& worker = workers_[event.worker];
    const auto job = worker.jobs.find({event.closure, event.attempt});
    if (worker.life != event.life || job == worker.jobs.end()) return;
    if (!event.is_good) job->second.is_refused = true;
    job->second.open.erase(event.effect % 100);
    if (job->second.open.empty()) job->second.sent = 0;
  }

  void prepare(const Event& event) {
    Event answer = event;
    answer.kind = Kind::kPrepared;
    answer.is_good = servers_[event.server].prepared.prepare(event.closure, event.attempt,
                                                             event.place, event.effect);
    out_.refused += answer.is_good ? 0 : 1;
    send(answer);
  }
  void settle(const Event& event) {
    Server& server = servers_[event.server];
    for (const uint64_t effect : server.prepared.settle(
             {.closure = event.closure, .attempt = event.attempt, .count = event.place},
             event.floor)) {
      server.applied.push_back(effect);
      ++out_.applied;
    }
    Event answer = event;
    answer.kind = Kind::kSettled;
    send(answer);
  }

  void change_weather() {
    weather_at_ = now_ + 20'000 + static_cast<int64_t>(pick(100'000));
    switch (pick(4)) {
      case 0:
        loss_ = pick(40);
        return;
      case 1: {
        Worker& dies = workers_[pick(workers_.size())];
        dies.jobs.clear();
        ++dies.life;
        return;
      }
      default: {
        Server& server = servers_[pick(servers_.size())];
        State next = server.prepared.state();
        if (snapshot_ != nullptr) next = snapshot_(next);
        server.prepared = Prepared();
        server.prepared.restore(std::move(next));
        return;
      }
    }
  }

  std::string first_violation() const {
    for (const auto& [id, plan] : plans_) {
      for (std::size_t i = 0; i < plan.effects.size(); ++i) {
        const std::vector<uint64_t>& all = servers_[plan.effects[i]].applied;
        const auto times = std::count(all.begin(), all.end(), effect_of(id, i));
        const int wanted = plan.throws ? 0 : 1;
        if (times != wanted) {
          return str_cat("effect ", i, " of closure ", id, " counts ", times, " times, not ",
                         wanted);
        }
      }
    }
    for (const Server& each : servers_) {
      const State& left = each.prepared.state();
      if (left.settled.size() > kClosures) return "a server forgets nothing";
    }
    return {};
  }
  void say(const char* what, ClosureId id, uint64_t attempt) const {
    if (!is_traced_) return;
    std::printf("%8.3f ms  closure %llu, attempt %llu %s\n", static_cast<double>(now_) / 1000,
                static_cast<unsigned long long>(id), static_cast<unsigned long long>(attempt),
                what);
  }

  std::mt19937_64 random_;
  const Snapshot snapshot_;
  const bool is_traced_;
  int64_t now_ = 0;
  uint64_t order_ = 0;
  uint64_t loss_ = 10;
  int64_t weather_at_ = 50'000;
  bool is_calm_ = false;
  std::priority_queue<Event> events_;
  std::map<ClosureId, Plan> plans_;
  std::vector<ClosureId> waiting_;
  std::map<ClosureId, Running> running_;
  std::map<ClosureId, Settling> settling_;
  std::set<ClosureId> ended_;
  Commits commits_;
  std::vector<Worker> workers_;
  std::vector<Server> servers_;
  ClosureOutcome out_;
};

}  // namespace cohort::internal::replication
