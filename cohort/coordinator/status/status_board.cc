// SPDX-License-Identifier: Apache-2.0
#include "cohort/coordinator/status/status_board.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <nlohmann/json.hpp>
#include <utility>

namespace cohort::internal::coordinator {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::chrono::seconds kRateWindow{5};
// Counts come at least as often as this while anything happens.
constexpr std::chrono::milliseconds kSamplePause{100};

double seconds_between(StatusBoard::Time from, StatusBoard::Time to) {
  return std::max(0.0, std::chrono::duration<double>(to - from).count());
}

const char* state_word(StatusBoard::State state) {
  switch (state) {
    case StatusBoard::State::kAwaited:
      return "awaited";
    case StatusBoard::State::kAlive:
      return "alive";
    case StatusBoard::State::kLost:
      return "lost";
    case StatusBoard::State::kGone:
      return "gone";
  }
  return "";
}

std::string utc_text(std::chrono::system_clock::time_point at) {
  const std::time_t seconds = std::chrono::system_clock::to_time_t(at);
  std::tm parts{};
  ::gmtime_r(&seconds, &parts);
  std::array<char, 32> out{};
  std::strftime(out.data(), out.size(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return out.data();
}

std::string host_name() {
  std::array<char, 256> out{};
  return ::gethostname(out.data(), out.size() - 1) == 0 ? out.data() : "";
}

}  // namespace

// One in kSamplePause is kept, and the last one before the window: so little that many fit.
void StatusBoard::Rates::add(Time now, uint64_t first, uint64_t second) {
  const bool is_soon = samples_.size() > 1 && now < samples_[samples_.size() - 2].at + kSamplePause;
  if (is_soon) {
    samples_.back() = {now, first, second};
  } else {
    samples_.push_back({now, first, second});
  }
  while (samples_.size() > 2 && samples_[1].at + kRateWindow <= now) samples_.pop_front();
}

std::pair<double, double> StatusBoard::Rates::at(Time now) const {
  if (samples_.size() < 2) return {};
  // The last one before the window begins: what came behind it belongs to the window.
  auto from = samples_.begin();
  while (std::next(from) != samples_.end() && std::next(from)->at + kRateWindow <= now) ++from;
  const Sample& last = samples_.back();
  const double seconds = seconds_between(std::max(from->at, now - kRateWindow), now);
  if (seconds <= 0) return {};
  return {static_cast<double>(last.first - from->first) / seconds,
          static_cast<double>(last.second - from->second) / seconds};
}

StatusBoard::Task* StatusBoard::find(const std::string& name) {
  const auto found = std::find_if(tasks_.begin(), tasks_.end(),
                                  [&](const Task& each) { return each.name == name; });
  return found == tasks_.end() ? nullptr : &*found;
}

void StatusBoard::add_task(const std::string& name, const std::string& address) {
  const base::MutexLock lock(mutex_);
  Task& task = tasks_.emplace_back();
  task.name = name;
  task.address = address;
}

void StatusBoard::found(const std::string& name, uint64_t incarnation, Time now) {
  const base::MutexLock lock(mutex_);
  Task* const task = find(name);
  if (task == nullptr) return;
  if (task->incarnation != incarnation) {
    task->incarnation = incarnation;
    ++task->starts;
    task->alive_since = now;
    task->report = {};
    task->rows.clear();
  }
  task->state = State::kAlive;
  task->heard = now;
}

void StatusBoard::heard(const std::string& name, const TaskReport& report, Time now) {
  const base::MutexLock lock(mutex_);
  Task* const task = find(name);
  if (task == nullptr || report.incarnation != task->incarnation) return;  // greeted since
  // One answer may have been on its way when it died.
  if (task->state == State::kLost && ++task->heard_since_lost > 1) task->state = State::kAlive;
  task->heard = now;
  task->report = report;
  task->rows.add(now, report.rows_read, report.rows_changed);
}

void StatusBoard::missed(const std::string& name, State state, const std::string& what, Time now) {
  const base::MutexLock lock(mutex_);
  Task* const task = find(name);
  if (task == nullptr || task->state == state || task->state == State::kGone) return;
  task->state = state;
  task->heard_since_lost = 0;
  keep(name, what, now);
}

void StatusBoard::ended(const std::string& name, const Ended& count, Time now) {
  const base::MutexLock lock(mutex_);
  if (Task* const task = find(name)) task->done += count.done;
  // A first count is one of nothing before.
  if (ended_.done + ended_.failed == 0) rates_.add(now - kSamplePause, 0, 0);
  ended_.done += count.done;
  ended_.failed += count.failed;
  ended_.again += count.again;
  rates_.add(now, ended_.done, ended_.failed);
}

void StatusBoard::note_error(const std::string& name, const std::string& what, Time now) {
  const base::MutexLock lock(mutex_);
  keep(name, what, now);
}

void StatusBoard::keep(const std::string& name, const std::string& what, Time now) {
  errors_.push_front({.at = now,
                      .clock = std::chrono::system_clock::now(),
                      .name = name,
                      .text = what.substr(0, kMostErrorBytes)});
  if (errors_.size() > kKeptErrors) errors_.pop_back();
}

void StatusBoard::set_replicas(int replicas) {
  const base::MutexLock lock(mutex_);
  replicas_ = replicas;
}

void StatusBoard::set_queue(std::function<Queue()> queue) {
  const base::MutexLock lock(queue_mutex_);
  queue_ = std::move(queue);
}

struct StatusBoard::Writer {
  static Json task(const Task& task, const Queue& queue, Time now) {
    const auto running = queue.running.find(task.name);
    const auto [read, changed] = task.rows.at(now);
    Json out = {{"task", task.name},
                {"address", task.address},
                {"state", state_word(task.state)},
                {"starts", task.starts}};
    if (task.state != State::kAwaited) {
      out["alive_s"] = task.state == State::kAlive ? seconds_between(task.alive_since, now) : 0.0;
      out["heard_s"] = seconds_between(task.heard, now);
      out["memory_bytes"] = task.report.memory_bytes;
    }
    if (task.name.rfind("worker", 0) == 0) {
      out["running"] = running == queue.running.end() ? 0 : running->second;
      out["done"] = task.done;
      return out;
    }
    const bool is_alive = task.state == State::kAlive;
    out["rows_read_per_second"] = is_alive ? read : 0.0;
    out["rows_changed_per_second"] = is_alive ? changed : 0.0;
    out["groups"] = Json::array();
    for (const GroupReport& each : task.report.groups) {
      out["groups"].push_back({{"group", each.group},
                               {"role", each.is_primary ? "primary" : "backup"},
                               {"epoch", each.epoch},
                               {"backups", each.backups},
                               {"lag", each.lag}});
    }
    return out;
  }
  static Json functions(const Queue& queue, const Ended& ended, const Rates& rates, Time now) {
    uint64_t running = 0;
    for (const auto& [name, count] : queue.running) running += count;
    return {{"scheduled", queue.scheduled},
            {"queued", queue.waiting},
            {"running", running},
            {"done", ended.done},
            {"failed", ended.failed},
            {"again", ended.again},
            {"per_second", rates.at(now).first}};
  }
};

std::string StatusBoard::json(Time now) const {
  Queue queue;
  {
    const base::MutexLock lock(queue_mutex_);
    if (queue_) queue = queue_();
  }
  static const std::string host = host_name();
  const base::MutexLock lock(mutex_);
  Json out = {{"host", host},
              {"pid", ::getpid()},
              {"up_s", seconds_between(begun_, now)},
              {"replicas", replicas_},
              {"functions", Writer::functions(queue, ended_, rates_, now)}};
  double read = 0;
  double changed = 0;
  Json tasks = Json::array();
  for (const Task& each : tasks_) {
    tasks.push_back(Writer::task(each, queue, now));
    read += tasks.back().value("rows_read_per_second", 0.0);
    changed += tasks.back().value("rows_changed_per_second", 0.0);
  }
  out["rows"] = {{"read_per_second", read}, {"changed_per_second", changed}};
  out["tasks"] = std::move(tasks);
  out["errors"] = Json::array();
  for (const Note& each : errors_) {
    out["errors"].push_back({{"time", utc_text(each.clock)},
                             {"ago_s", seconds_between(each.at, now)},
                             {"task", each.name},
                             {"text", each.text}});
  }
  // Texts of others' errors may be no UTF-8.
  return out.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace cohort::internal::coordinator
