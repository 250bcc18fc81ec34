// SPDX-License-Identifier: Apache-2.0
#include "cohort/collectives/flight_recorder.h"

#include <algorithm>
#include <sstream>
#include <utility>

#include "cohort/base/strings.h"
#include "cohort/collectives/forwarding_transport.h"

namespace cohort::internal::collectives {
namespace {

std::string flight_seconds(std::chrono::steady_clock::duration time) {
  return str_cat(std::chrono::duration<double>(time).count(), " s");
}

/// Whose every wait is noted, and how it ended.
class RecordedTransport final : public ForwardingTransport {
 public:
  RecordedTransport(std::unique_ptr<Transport> real, std::shared_ptr<FlightRecorder> recorder)
      : ForwardingTransport(std::move(real)), recorder_(std::move(recorder)) {}

  void start(const Exchange& exchange) override {
    recorder_->started(exchange.key, exchange.signature);
    real().start(exchange);
  }
  void finish(const Exchange& exchange, Deadline deadline) override {
    noted(exchange.key, [&] { real().finish(exchange, deadline); });
  }
  void look(Exchange& exchange, Deadline deadline) override {
    noted(exchange.key, [&] { real().look(exchange, deadline); });
  }
  // Only the look waits; what fails before it was started.
  Deadline start_and_look(Exchange& exchange, std::chrono::milliseconds timeout) override {
    try {
      real().start(exchange);
    } catch (...) {
      recorder_->started(exchange.key, exchange.signature);
      throw;
    }
    const Deadline now = std::chrono::steady_clock::now();
    const Deadline deadline = deadline_in(timeout, now);
    recorder_->started_and_waits(exchange.key, exchange.signature, now);
    ended(exchange.key, [&] { real().look(exchange, deadline); });
    return deadline;
  }
  void await_readers(const Exchange& exchange, Deadline deadline) override {
    noted(exchange.key, [&] { real().await_readers(exchange, deadline); });
  }
  void commit(uint64_t sequence, const CallSignature& signature, Deadline deadline) override {
    const ExchangeKey key{.sequence = sequence};
    recorder_->started(key, signature);
    noted(key, [&] { real().commit(sequence, signature, deadline); });
  }

 private:
  template <class Wait>
  void noted(const ExchangeKey& key, const Wait& wait) {
    recorder_->waits(key);
    ended(key, wait);
  }
  template <class Wait>
  void ended(const ExchangeKey& key, const Wait& wait) {
    try {
      wait();
    } catch (...) {
      recorder_->ended(key, /*good=*/false);
      throw;
    }
    recorder_->ended(key, /*good=*/true);
  }

  const std::shared_ptr<FlightRecorder> recorder_;
};

}  // namespace

std::unique_ptr<Transport> recorded(std::unique_ptr<Transport> transport,
                                    std::shared_ptr<FlightRecorder> recorder) {
  return std::make_unique<RecordedTransport>(std::move(transport), std::move(recorder));
}

std::string Pace::text() const { return str_cat(window, " ", own.count(), " ", waited.count()); }

Pace Pace::of(const std::string& text) {
  std::istringstream in(text);
  Pace out;
  int64_t own = 0, waited = 0;
  if (!(in >> out.window >> own >> waited)) return {};
  out.own = std::chrono::nanoseconds(own);
  out.waited = std::chrono::nanoseconds(waited);
  return out;
}

// Of few that are under way; the newest are looked at first.
FlightRecorder::Call* FlightRecorder::find(const ExchangeKey& key) {
  for (uint64_t n = count_; n > 0 && n + kKept > count_; --n) {
    Call& call = calls_[n % kKept];
    if (call.key.channel == key.channel && call.key.sequence == key.sequence) return &call;
  }
  return nullptr;
}

void FlightRecorder::started(const ExchangeKey& key, const CallSignature& signature) {
  if (key.phase > 0) return;  // of one that was noted
  const auto now = Clock::now();
  const base::MutexLock lock(mutex_);
  add(key, signature, now);
}

FlightRecorder::Call& FlightRecorder::add(const ExchangeKey& key, const CallSignature& signature,
                                          Clock::time_point now) {
  ++count_;
  Call& call = calls_[count_ % kKept];
  call = {.number = count_, .step = steps_, .key = key, .signature = signature, .started = now};
  return call;
}

void FlightRecorder::started_and_waits(const ExchangeKey& key, const CallSignature& signature,
                                       Clock::time_point now) {
  const base::MutexLock lock(mutex_);
  Call& call = add(key, signature, now);
  call.state = State::kWaits;
  call.waits_from = now;
}

void FlightRecorder::waits(const ExchangeKey& key) {
  const auto now = Clock::now();
  const base::MutexLock lock(mutex_);
  Call* const call = find(key);
  if (call == nullptr) return;
  call->state = State::kWaits;
  call->waits_from = now;
}

void FlightRecorder::ended(const ExchangeKey& key, bool good) {
  const auto now = Clock::now();
  const base::MutexLock lock(mutex_);
  Call* const call = find(key);
  if (call == nullptr || call->state != State::kWaits) return;
  call->state = good ? State::kDone : State::kFailed;
  call->waited += now - call->waits_from;
  waited_in_window_ += now - call->waits_from;
}

void FlightRecorder::step_begins() {
  const auto now = Clock::now();
  const base::MutexLock lock(mutex_);
  const uint64_t done = steps_++;
  if (done % Pace::kSteps != 0) return;
  if (done > 0) {
    const auto all = now - window_began_;
    pace_ = {.window = pace_.window + 1,
             .own = (all - std::min(all, waited_in_window_)) / Pace::kSteps,
             .waited = waited_in_window_ / Pace::kSteps};
  }
  window_began_ = now;
  waited_in_window_ = {};
}

std::string FlightRecorder::waiting() const {
  const auto now = Clock::now();
  const base::MutexLock lock(mutex_);
  for (uint64_t n = count_; n > 0 && n + kKept > count_; --n) {
    const Call& call = calls_[n % kKept];
    if (call.state != State::kWaits) continue;
    return str_cat(signature_text(call.signature), " for ", flight_seconds(now - call.waits_from));
  }
  return {};
}

std::string FlightRecorder::line_of(const Call& call, Clock::time_point now) {
  constexpr std::array kStates = {"started", "waits", "done", "failed"};
  return str_cat("  call ", call.number, ", step ", call.step, ", ", signature_text(call.signature),
                 ": ", kStates[static_cast<std::size_t>(call.state)], ", begun ",
                 flight_seconds(now - call.started), " ago, waited ",
                 flight_seconds(call.state == State::kWaits ? now - call.waits_from : call.waited),
                 "\n");
}

std::string FlightRecorder::text(std::size_t most) const {
  const auto now = Clock::now();
  const base::MutexLock lock(mutex_);
  std::string out;
  const uint64_t kept = std::min<uint64_t>({count_, most, kKept});
  for (uint64_t i = 0; i < kept; ++i) out += line_of(calls_[(count_ - i) % kKept], now);
  return out;
}

Pace FlightRecorder::pace() const {
  const base::MutexLock lock(mutex_);
  return pace_;
}

}  // namespace cohort::internal::collectives
