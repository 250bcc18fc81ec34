// SPDX-License-Identifier: Apache-2.0
//
// Who may call a communicator of those that could, and what its failures end.
#include <cstdlib>
#include <fstream>
#include <string_view>
#include <thread>
#include <typeinfo>
#include <utility>

#include "cohort/base/check.h"
#include "cohort/base/logging.h"
#include "cohort/base/scope_exit.h"
#include "cohort/base/strings.h"
#include "cohort/collectives/communicator.h"
#include "cohort/runtime/replica_scope.h"

namespace cohort::internal::collectives {

namespace {

// What a turn of this thread has thrown last, and of which communicator it was.
struct ThrownByTurn {
  const Communicator* of = nullptr;
  std::exception_ptr error = {};
};
thread_local ThrownByTurn t_thrown;

bool misses_somebody(const Error& e) {
  return (e.code() == ErrorCode::kUnavailable || e.code() == ErrorCode::kDeadlineExceeded) &&
         std::string_view(e.what()).starts_with("[communicator]");
}

// Behind the text that all ranks have: what this one was at, and how long it has waited. Leases say
// so themselves.
[[noreturn]] void throw_with_place(const Error& e, const std::string& doing,
                                   const std::string& last_call) {
  const std::size_t begin = last_call.find_first_not_of(' ');
  const bool has_call = begin != std::string::npos;
  const std::string text = str_cat(
      e.what(), ". Here it was ", doing, has_call ? "; its newest " : "",
      has_call ? last_call.substr(begin, last_call.find_last_not_of('\n') + 1 - begin) : "");
  if (const auto* lost = dynamic_cast<const Unavailable*>(&e)) {
    throw Unavailable(text, lost->peer());
  }
  throw DeadlineExceeded(text);
}

}  // namespace

bool Communicator::has_turn() const {
  if (holder_.load(std::memory_order_relaxed) == std::this_thread::get_id()) return true;
  const runtime::ReplicaGroup* const here = runtime::enclosing_replica_group();
  return here != nullptr && here == run_.load(std::memory_order_relaxed);
}

// A failure that was not thrown here yet is what this turn is told of.
void Communicator::begin_turn() {
  if (!failed()) return;
  if (told_.exchange(true)) return renew();
  report_failure();
  try {
    check();
  } catch (const Error& agreed) {
    if (misses_somebody(agreed)) throw_with_place(agreed, doing(), recorder_->text(1));
    throw;
  }
}

void Communicator::take_turn(const char* operation, base::FunctionRef<void()> body,
                             const runtime::ReplicaGroup* run) {
  if (size_ == 1) return body();
  // A run computes in between, and takes turns of its own.
  if (has_turn()) return run != nullptr ? body() : turn_within(body);
  t_thrown = {};
  try {
    turn(operation, body, run);
  } catch (...) {
    t_thrown = {this, std::current_exception()};
    throw;
  }
}

void Communicator::turn(const char* operation, base::FunctionRef<void()> body,
                        const runtime::ReplicaGroup* run) {
  const base::MutexLock lock(turn_);
  begin_turn();
  holder_.store(std::this_thread::get_id(), std::memory_order_relaxed);
  run_.store(run, std::memory_order_relaxed);
  note_turn(operation, run != nullptr);
  const base::ScopeExit ended([this] {
    note_turn("", false);
    run_.store(nullptr, std::memory_order_relaxed);
    holder_.store({}, std::memory_order_relaxed);
  });
  try {
    body();
  } catch (...) {
    throw_agreed(std::current_exception(), operation);
  }
}

void Communicator::turn_within(base::FunctionRef<void()> body) {
  if (within_holder_.load(std::memory_order_relaxed) == std::this_thread::get_id()) return body();
  const base::MutexLock lock(within_);
  within_holder_.store(std::this_thread::get_id(), std::memory_order_relaxed);
  const base::ScopeExit ended([this] { within_holder_.store({}, std::memory_order_relaxed); });
  body();
}

bool Communicator::beside_turn(base::FunctionRef<void()> body) {
  if (run_.load(std::memory_order_relaxed) == nullptr || !within_.try_lock()) return false;
  const base::ScopeExit ended([this]() COHORT_REQUIRES(within_) { within_.unlock(); });
  body();
  return true;
}

// Without the brackets and spaces that names of operations have in errors.
void Communicator::note_turn(const char* operation, bool is_step) {
  const base::MutexLock lock(doing_mutex_);
  std::size_t size = 0;
  for (const char* c = operation; *c != '\0' && size + 1 < doing_.size(); ++c) {
    if (*c != '[' && *c != ']' && *c != ' ') doing_[size++] = *c;
  }
  doing_[size] = '\0';
  if (!is_step) return;
  ++steps_;
  recorder_->step_begins();
}

std::string Communicator::doing() const {
  const std::string waiting = recorder_ ? recorder_->waiting() : "";
  const base::MutexLock lock(doing_mutex_);
  return str_cat(doing_[0] == '\0' ? std::string("between two operations, after step ")
                                   : str_cat("in ", doing_.data(), ", step "),
                 steps_, waiting.empty() ? "" : ", waiting in ", waiting);
}

void Communicator::set_others_report(std::function<std::string()> others) {
  const base::MutexLock lock(doing_mutex_);
  others_report_ = std::move(others);
}

namespace {

constexpr std::size_t kCallsInLog = 4;

// Of ranks that do not meet; what a program throws is no riddle.
bool is_of_transport(const std::string& text) {
  return text.starts_with("[communicator]") || text.starts_with("[liveness]") ||
         text.starts_with("[store]");
}

void write_flight_record(const std::string& folder, int rank, const std::string& text) {
  const std::string path = str_cat(folder, "/flight_rank_", rank, ".txt");
  std::ofstream file(path, std::ios::app);
  file << text;
  file.flush();
  if (file.good()) {
    COHORT_LOG(kWarning, "[communicator] rank ", rank, " has written its last calls to ", path);
  } else {
    COHORT_LOG(kError, "[communicator] expected COHORT_FLIGHT_RECORDER to name a folder for ",
               "the last calls, got no file at ", path);
  }
}

}  // namespace

// Once for each generation, on each rank.
void Communicator::report_failure() const {
  if (!recorder_ || !failed()) return;
  std::string why;
  try {
    check();
  } catch (const std::exception& e) {
    why = e.what();
  }
  if (!is_of_transport(why)) return;
  std::function<std::string()> others;
  {
    const base::MutexLock lock(doing_mutex_);
    others = others_report_;
  }
  const std::string all = others ? others() : "";
  const std::string head = str_cat("[communicator] rank ", rank_, " of ", size_, " was ", doing(),
                                   "; its last calls, the newest first:\n");
  COHORT_LOG(kWarning, head, recorder_->text(kCallsInLog), all);
  const char* const folder = std::getenv("COHORT_FLIGHT_RECORDER");
  if (folder == nullptr || *folder == '\0') return;
  write_flight_record(folder, rank_, str_cat(why, "\n", head, recorder_->text(), all, "\n"));
}

void Communicator::check_lease() const {
  const auto now = base::BootClock::now().time_since_epoch().count();
  COHORT_CHECK_STATE(
      now < lease_end_.load(std::memory_order_relaxed), "[communicator] rank ", rank_, " of ",
      size_,
      " is too late: it was stopped, or cut off from the job's store, until its lease "
      "had ended. The others have gone on without it, and it must not write any more; "
      "end it, and start it again");
}

void Communicator::lose(std::span<const int> ranks, const Failure& failure) noexcept {
  if (transport_) transport_->lose(ranks, failure);
}

void Communicator::guard(const char* operation, base::FunctionRef<void()> body) {
  if (size_ == 1) return body();
  try {
    body();
  } catch (...) {
    const std::exception_ptr error = std::current_exception();
    if (t_thrown.of == this && t_thrown.error == error) throw;
    throw_agreed(error, operation);
  }
}

// What was thrown here where it is what all throw, but of a class that does not travel.
void Communicator::throw_agreed(const std::exception_ptr& mine, const char* operation) {
  abort(mine, operation);
  if (!told_.exchange(true)) report_failure();
  try {
    check();
  } catch (const Error& agreed) {
    try {
      std::rethrow_exception(mine);
    } catch (const std::exception& e) {
      const bool is_mine = std::string_view(agreed.what()).starts_with(e.what());
      if (is_mine && typeid(e) != typeid(agreed)) throw;
    }
    if (misses_somebody(agreed)) throw_with_place(agreed, doing(), recorder_->text(1));
    throw;
  }
  std::rethrow_exception(mine);
}

}  // namespace cohort::internal::collectives
