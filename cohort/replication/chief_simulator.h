// SPDX-License-Identifier: Apache-2.0
//
// Chiefs of a job that follow each other with one journal, in a world that a seed makes: one dies,
// with or without what its disk has not taken yet, or stands still, is followed, and goes on;
// messages are lost, late, in another order and twice, and so functions of an earlier chief are
// still under way. Each function that the program has given an id is to count once.
//
//   const ChiefOutcome outcome = ChiefSimulation<>(seed).run();
#pragma once

#include <algorithm>
#include <deque>
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

struct ChiefOutcome {
  std::string wrong = {};  ///< Empty: all is as promised.
  int chiefs = 0;
  int taken_over = 0;  ///< Decisions of a chief that the next one has told servers.
  int refused = 0;     ///< Messages of chiefs that were followed.
};

/// What a chief, its journal and servers do: right, or with a planted bug.
struct RightChiefs {
  static constexpr bool kWaitsForDisk = true;  ///< What is decided is durable before it is told.
  static constexpr bool kFences = true;        ///< Servers refuse chiefs that were followed.
  static constexpr bool kSeesOthers = true;    ///< A journal refuses them, too.
};

template <class Rules = RightChiefs>
class ChiefSimulation {
 public:
  explicit ChiefSimulation(uint64_t seed) : random_(seed), servers_(1 + pick(3)) {
    for (uint64_t id = 1; id <= kIds; ++id) {
      for (std::size_t n = 1 + pick(3); n > 0; --n) plans_[id].push_back(pick(servers_.size()));
    }
    begin();
  }

  ChiefOutcome run() {
    try {
      while (now_ < kStorm) step();
      is_calm_ = true;
      if (std::none_of(chiefs_.begin(), chiefs_.end(), [](const Chief& c) { return c.lives; }))
        begin();
      while (now_ < kStorm + kCalm && !is_over()) step();
      for (const int64_t until = now_ + 2 * kLate; now_ < until;)
        step();  // what is still under way
      if (!is_over()) out_.wrong = "functions wait for ever";
    } catch (const Error& e) {
      out_.wrong = e.what();
    }
    if (out_.wrong.empty()) out_.wrong = first_violation();
    return out_;
  }

 private:
  static constexpr uint64_t kIds = 6;
  static constexpr uint64_t kRange = 1000;  // of a chief's functions' numbers
  static constexpr int64_t kTick = 10'000;  // microseconds
  static constexpr int64_t kResend = 30'000;
  static constexpr int64_t kLate = 400'000;
  static constexpr int64_t kStorm = 1'000'000;
  static constexpr int64_t kCalm = 4'000'000;

  enum class Kind {
    kTick,
    kHello,
    kHelloed,
    kPrepare,
    kPrepared,
    kSynced,
    kSettle,
    kSettled,
    kWrite
  };
  struct Event {
    int64_t at = 0;
    uint64_t order = 0;
    Kind kind = Kind::kTick;
    std::size_t chief = 0;
    std::size_t server = 0;
    Settlement what = {};  // of a preparation: its place instead of the count
    uint64_t effect = 0;
    ClosureId floor = 0;
    bool operator<(const Event& other) const {
      return std::pair(at, order) > std::pair(other.at, other.order);
    }
  };
  struct Record {
    ClosureId closure = 0;
    uint64_t attempt = 0;
    uint64_t id = 0;
    bool is_end = false;
  };
  struct Journal {
    uint64_t generation = 0;
    std::vector<Record> records = {};
    std::size_t durable = 0;
  };
  struct Server {
    PreparedEffects<uint64_t> prepared = {};
    uint64_t newest = 0;  // generation
    std::vector<uint64_t> applied = {};
  };
  /// An attempt of a function on a worker, which goes on whatever becomes of its chief.
  struct Job {
    uint64_t id = 0;
    uint64_t attempt = 0;
    std::set<std::size_t> open = {};  // effects that are not acknowledged
    int64_t begun = 0;
    int64_t sent = -kResend;
  };
  struct Settling {
    uint64_t attempt = 0;
    uint64_t id = 0;  // 0: only the floor
    std::size_t record = 0;
    bool is_durable = false;
    std::set<std::size_t> open = {};
    int64_t sent = -kResend;
  };
  struct Chief {
    uint64_t generation = 0;
    bool lives = true;
    bool stands_still = false;
    bool leads = false;
    std::set<std::size_t> greeted = {};  // servers that have not answered
    int64_t sent = -kResend;
    ClosureCommits commits = {};
    std::deque<uint64_t> waiting = {};  // ids
    std::map<ClosureId, Job> jobs = {};
    std::map<ClosureId, Settling> settling = {};
    std::set<uint64_t> ended = {};  // ids
    ClosureId last = 0;
  };

  uint64_t pick(uint64_t below) { return random_() % below; }
  bool chance(uint64_t percent) { return pick(100) < percent; }
  void push(Event event) {
    event.order = ++order_;
    events_.push(event);
  }
  void send(Event event) {
    int copies = !is_calm_ && chance(10) ? 0 : 1;
    if (!is_calm_ && chance(12)) ++copies;
    for (; copies > 0; --copies) {
      const bool is_late = !is_calm_ && chance(6);
      event.at = now_ + static_cast<int64_t>(is_late ? pick(kLate) : 500 + pick(3'000));
      push(event);
    }
  }
  std::set<std::size_t> all_servers() const {
    std::set<std::size_t> out;
    for (std::size_t s = 0; s < servers_.size(); ++s) out.insert(s);
    return out;
  }
  uint64_t place_on_server(uint64_t id, std::size_t index) const {
    const auto& plan = plans_.at(id);
    return static_cast<uint64_t>(
        std::count(plan.begin(), plan.begin() + static_cast<int64_t>(index), plan[index]));
  }
  bool is_over() const {
    return std::any_of(chiefs_.begin(), chiefs_.end(),
                       [](const Chief& each) { return each.lives && each.ended.size() == kIds; });
  }

  // Reads what is there, and writes that it has begun, before any server hears of it.
  void begin() {
    ++out_.chiefs;
    Chief next{.generation = ++journal_.generation, .greeted = all_servers()};
    std::map<ClosureId, Record> open;
    for (const Record& each : journal_.records) {
      if (each.is_end) {
        open.erase(each.closure);
      } else {
        open[each.closure] = each;
      }
      next.ended.insert(each.id);
    }
    journal_.durable = journal_.records.size();
    for (const auto& [closure, record] : open) {
      next.ended.erase(record.id);
      next.settling[closure] = {
          .attempt = record.attempt, .id = record.id, .is_durable = true, .open = all_servers()};
      ++out_.taken_over;
    }
    next.last = next.generation * kRange;
    next.settling[next.last] = {.is_durable = true,
                                .open = all_servers()};  // all before it is over
    for (uint64_t id = 1; id <= kIds; ++id) {
      const bool is_open = std::any_of(open.begin(), open.end(),
                                       [id](const auto& each) { return each.second.id == id; });
      if (!is_open && next.ended.count(id) == 0) next.waiting.push_back(id);
    }
    chiefs_.push_back(std::move(next));
    push({.at = now_, .chief = chiefs_.size() - 1});
  }

  void step() {
    const Event event = events_.top();
    events_.pop();
    now_ = event.at;
    Chief& chief = chiefs_[event.chief];
    switch (event.kind) {
      case Kind::kTick:
        return tick(event.chief);
      case Kind::kHello:
        return greet(event, chief);
      case Kind::kHelloed:
        chief.greeted.erase(event.server);
        if (chief.greeted.empty()) begun_ = std::max(begun_, chief.generation);
        return;
      case Kind::kSynced:
        return take_synced(event, chief);
      case Kind::kPrepared:
        if (const auto job = chief.jobs.find(event.what.closure);
            job != chief.jobs.end() && job->second.attempt == event.what.attempt) {
          job->second.open.erase(event.effect % 100);
        }
        return;
      case Kind::kSettled:
        return take_settled(event, chief);
      default:
        return serve(event, chief);
    }
  }

  // A server's part in what carries its chief's generation.
  void serve(const Event& event, Chief& chief) {
    Server& server = servers_[event.server];
    if (Rules::kFences && chief.generation < server.newest) {
      ++out_.refused;
      chief.lives = false;  // it is told so, soon
      return;
    }
    Event answer = event;
    if (event.kind == Kind::kWrite) {
      if (chief.generation < begun_) out_.wrong = "a chief that was followed has changed something";
      return;
    }
    if (event.kind == Kind::kPrepare) {
      answer.kind = Kind::kPrepared;
      if (!server.prepared.prepare(event.what.closure, event.what.attempt, event.what.count,
                                   event.effect)) {
        return;
      }
      return send(answer);
    }
    answer.kind = Kind::kSettled;
    for (const uint64_t effect : server.prepared.settle(event.what, event.floor)) {
      server.applied.push_back(effect);
    }
    send(answer);
  }
  void greet(const Event& event, const Chief& chief) {
    Server& server = servers_[event.server];
    if (chief.generation < server.newest) return;
    server.newest = chief.generation;
    Event answer = event;
    answer.kind = Kind::kHelloed;
    send(answer);
  }

  void tick(std::size_t index) {
    change_weather(index);
    Chief& chief = chiefs_[index];
    if (!chief.lives && chief.jobs.empty()) return;
    push({.at = now_ + kTick, .chief = index});
    work(index);
    if (!chief.lives || chief.stands_still) return;
    if (!chief.greeted.empty()) {
      if (now_ < chief.sent + kResend) return;
      chief.sent = now_;
      for (const std::size_t s : chief.greeted)
        send({.kind = Kind::kHello, .chief = index, .server = s});
      return;
    }
    for (auto& [closure, one] : chief.settling) send_settle(index, closure, one);
    if (!chief.leads) return;
    if (chance(30)) send({.kind = Kind::kWrite, .chief = index, .server = pick(servers_.size())});
    while (!chief.waiting.empty() && chief.jobs.size() < 3) {
      const uint64_t id = chief.waiting.front();
      chief.waiting.pop_front();
      chief.commits.open(++chief.last);
      start(chief, chief.last, id);
    }
    decide_some(index);
  }
  void start(Chief& chief, ClosureId closure, uint64_t id) {
    Job job{.id = id, .attempt = chief.commits.begin(closure), .begun = now_};
    for (std::size_t i = 0; i < plans_.at(id).size(); ++i) job.open.insert(i);
    chief.jobs[closure] = std::move(job);
  }
  // Of a chief that is no more, too: until its worker hears of the next one.
  void work(std::size_t index) {
    Chief& chief = chiefs_[index];
    for (auto it = chief.jobs.begin(); it != chief.jobs.end();) {
      auto& [closure, job] = *it;
      if (!chief.lives && now_ > job.begun + kLate) {
        it = chief.jobs.erase(it);
        continue;
      }
      if (now_ >= job.sent + kResend) {
        job.sent = now_;
        for (const std::size_t i : job.open) {
          send({.kind = Kind::kPrepare,
                .chief = index,
                .server = plans_.at(job.id)[i],
                .what = {.closure = closure,
                         .attempt = job.attempt,
                         .count = place_on_server(job.id, i)},
                .effect = job.id * 100 + i});
        }
      }
      ++it;
    }
  }
  void decide_some(std::size_t index) {
    Chief& chief = chiefs_[index];
    std::vector<std::pair<ClosureId, Job>> done;
    for (auto& [closure, job] : chief.jobs) {
      if (job.open.empty()) {
        done.emplace_back(closure, job);
      } else if (now_ > job.begun + (is_calm_ ? 600'000 : 60'000)) {
        chief.commits.lose(closure);  // and it runs again
        start(chief, closure, job.id);
      }
    }
    for (const auto& [closure, job] : done) {
      chief.jobs.erase(closure);
      if (!chief.commits.decide(closure, job.attempt)) continue;
      if (!append(chief, {.closure = closure, .attempt = job.attempt, .id = job.id})) return;
      Settling& one = chief.settling[closure];
      one = {.attempt = job.attempt,
             .id = job.id,
             .record = journal_.records.size(),
             .is_durable = !Rules::kWaitsForDisk,
             .open = all_servers()};
      push({.at = now_ + static_cast<int64_t>(pick(2 * kTick)),
            .kind = Kind::kSynced,
            .chief = index,
            .what = {.closure = closure}});
    }
  }
  bool append(Chief& chief, const Record& record) {
    if (Rules::kSeesOthers && journal_.generation != chief.generation) {
      chief.lives = false;
      ++out_.refused;
      return false;
    }
    journal_.records.push_back(record);
    return true;
  }
  void take_synced(const Event& event, Chief& chief) {
    const auto found = chief.settling.find(event.what.closure);
    if (!chief.lives || chief.stands_still || found == chief.settling.end()) return;
    found->second.is_durable = true;
    if (journal_.generation != chief.generation) return;
    journal_.durable = std::max(journal_.durable, found->second.record);
  }
  void send_settle(std::size_t index, ClosureId closure, Settling& one) {
    if (!one.is_durable || now_ < one.sent + kResend) return;
    Chief& chief = chiefs_[index];
    one.sent = now_;
    // All that was decided before this chief, and then that the rest is refused.
    const bool is_floor = one.id == 0;
    if (is_floor && chief.settling.begin()->first != closure) return;
    const ClosureId floor = is_floor ? closure + 1 : 1;
    for (const std::size_t s : one.open) {
      uint64_t count = 0;
      if (!is_floor) {
        const auto& plan = plans_.at(one.id);
        count = static_cast<uint64_t>(std::count(plan.begin(), plan.end(), s));
      }
      send({.kind = Kind::kSettle,
            .chief = index,
            .server = s,
            .what = {.closure = closure, .attempt = one.attempt, .count = count},
            .floor = floor});
    }
  }
  void take_settled(const Event& event, Chief& chief) {
    const auto found = chief.settling.find(event.what.closure);
    if (!chief.lives || chief.stands_still || found == chief.settling.end()) return;
    found->second.open.erase(event.server);
    if (!found->second.open.empty()) return;
    const Settling one = found->second;
    chief.settling.erase(found);
    if (one.id == 0) {
      chief.leads = true;
      return;
    }
    if (!append(chief, {.closure = event.what.closure, .id = one.id, .is_end = true})) return;
    chief.commits.end(event.what.closure);
    chief.ended.insert(one.id);  // the program is told
  }

  void change_weather(std::size_t index) {
    if (is_calm_) {
      chiefs_[index].stands_still = false;
      return;
    }
    if (index + 1 < chiefs_.size()) {
      if (chance(10)) chiefs_[index].stands_still = false;
      return;
    }
    if (!chance(5)) return;
    const bool dies = chance(60);
    if (dies && chance(50)) journal_.records.resize(journal_.durable);  // its machine, too
    chiefs_[index].lives = !dies;
    chiefs_[index].stands_still = !dies && chance(70);
    begin();
  }

  std::string first_violation() const {
    for (const auto& [id, plan] : plans_) {
      for (std::size_t i = 0; i < plan.size(); ++i) {
        const auto& all = servers_[plan[i]].applied;
        const auto times = std::count(all.begin(), all.end(), id * 100 + i);
        if (times != 1)
          return str_cat("effect ", i, " of function ", id, " counts ", times, " times");
      }
    }
    return {};
  }

  std::mt19937_64 random_;
  int64_t now_ = 0;
  uint64_t order_ = 0;
  bool is_calm_ = false;
  uint64_t begun_ = 0;  // the newest chief that all servers have heard of
  std::priority_queue<Event> events_;
  std::map<uint64_t, std::vector<std::size_t>> plans_;  // the server of each effect
  Journal journal_;
  std::vector<Server> servers_;
  std::deque<Chief> chiefs_;
  ChiefOutcome out_;
};

}  // namespace cohort::internal::replication
