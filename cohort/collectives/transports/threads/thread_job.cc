// SPDX-License-Identifier: Apache-2.0
#include "cohort/collectives/transports/threads/thread_job.h"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <map>
#include <numeric>
#include <optional>
#include <thread>
#include <utility>

#include "cohort/base/check.h"
#include "cohort/base/mutex.h"
#include "cohort/base/strings.h"
#include "cohort/runtime/intra_op.h"

namespace cohort::internal::collectives {

// Where the ranks' messages meet: one lock, and one bell for everything.
class ThreadMeeting {
 public:
  explicit ThreadMeeting(int size)
      : size_(size),
        all_(static_cast<std::size_t>(size)),
        ranks_(static_cast<std::size_t>(size)),
        boxes_(static_cast<std::size_t>(size) * static_cast<std::size_t>(size)) {
    std::iota(all_.begin(), all_.end(), 0);
  }

  int size() const { return size_; }
  void start(int rank, const Exchange& exchange);
  void finish(int rank, const Exchange& exchange, Deadline deadline);
  bool has_come(int rank, const Exchange& exchange);
  void withdraw(int rank, const Exchange& exchange) noexcept;
  void commit(int rank, uint64_t sequence, const CallSignature& signature, Deadline deadline);
  void abort(const Failure& failure) noexcept;
  bool failed() const;
  void check() const;
  void renew(int rank, Deadline deadline);
  void leave(int rank) noexcept;
  void silence(int rank);
  void set_hook(int rank, ThreadJob::Hook hook);
  void set_wait_hook(int rank, ThreadJob::Hook hook);
  // Where the failure of this generation came from, or -1.
  int failed_rank() const;

 private:
  struct Message {
    enum class State { kPosted, kCopying };
    CallSignature signature;
    ConstBytes bytes;
    State state = State::kPosted;
    std::vector<std::byte> kept = {};  // the bytes, once the sender's memory is its own again
  };
  struct Rank {
    ThreadJob::Hook hook = {};
    ThreadJob::Hook wait_hook = {};
    bool silent = false;
    bool left = false;
    bool renews = false;
    std::optional<std::pair<uint64_t, CallSignature>> commits = {};  // in the round that goes on
  };
  using Box = std::map<ExchangeKey, Message>;

  Box& box(int from, int to) COHORT_REQUIRES(mutex_) {
    return boxes_[static_cast<std::size_t>(from * size_ + to)];
  }
  Rank& of(int rank) COHORT_REQUIRES(mutex_) { return ranks_[static_cast<std::size_t>(rank)]; }
  void call_hook(int rank, const ExchangeKey& key, const CallSignature& signature);
  void check_failure() const COHORT_REQUIRES(mutex_);
  // Waits until `here(peer)` of each of the peers. Errors: the failure, Unavailable, the deadline.
  void wait_for(const std::vector<int>& peers, const std::function<bool(int peer)>& here,
                const std::string& what, Deadline deadline, bool heed_failure = true)
      COHORT_REQUIRES(mutex_);
  // What a rank begins has to fit what its peer is at: whoever comes second finds it.
  void check_peer(int rank, const ExchangeKey& key, const CallSignature& signature, int peer)
      COHORT_REQUIRES(mutex_);
  void take(int rank, const Exchange& exchange, const ExchangePart& part) COHORT_REQUIRES(mutex_);
  // The sender's memory is its own again: what was not taken is kept for the receiver, or lost.
  void let_go(int rank, const Exchange& exchange, bool keep) COHORT_REQUIRES(mutex_);
  std::string missing_text(const std::vector<int>& peers,
                           const std::function<bool(int peer)>& here) const;

  const int size_;
  std::vector<int> all_;  // constant after construction
  mutable base::Mutex mutex_;
  std::condition_variable_any changed_;
  std::vector<Rank> ranks_ COHORT_GUARDED_BY(mutex_);
  std::vector<Box> boxes_ COHORT_GUARDED_BY(mutex_);  // [from * size + to]
  std::optional<Failure> failure_ COHORT_GUARDED_BY(mutex_);
  uint64_t generation_ COHORT_GUARDED_BY(mutex_) = 0;
  uint64_t commits_ COHORT_GUARDED_BY(mutex_) = 0;  // rounds that all ranks have passed
};

void ThreadMeeting::call_hook(int rank, const ExchangeKey& key, const CallSignature& signature) {
  ThreadJob::Hook hook;
  {
    const base::MutexLock lock(mutex_);
    hook = of(rank).hook;
  }
  if (hook) hook(key, signature);
}

void ThreadMeeting::check_failure() const {
  if (failure_) throw_failure(*failure_);
}

void ThreadMeeting::start(int rank, const Exchange& exchange) {
  call_hook(rank, exchange.key, exchange.signature);
  const base::MutexLock lock(mutex_);
  check_failure();
  if (of(rank).silent) return;
  for (const ExchangePart& part : exchange.parts) {
    if (!part.sends) continue;
    box(rank, part.peer)[exchange.key] = {.signature = exchange.signature, .bytes = part.to_peer};
  }
  changed_.notify_all();
  if (exchange.key.channel != ExchangeKey::Channel::kCollective) return;
  for (const ExchangePart& part : exchange.parts) {
    check_peer(rank, exchange.key, exchange.signature, part.peer);
  }
}

void ThreadMeeting::check_peer(int rank, const ExchangeKey& key, const CallSignature& signature,
                               int peer) {
  const auto& commits = of(peer).commits;
  if (commits && commits->first == key.sequence) {
    check_same_signature(signature, rank, commits->second, peer);
  }
  // A message stays where it is until its receiver has taken it.
  const Box& from = box(peer, rank);
  const auto found = from.find(key);
  if (found != from.end()) check_same_signature(signature, rank, found->second.signature, peer);
}

std::string ThreadMeeting::missing_text(const std::vector<int>& peers,
                                        const std::function<bool(int peer)>& here) const {
  std::string out;
  for (const int peer : peers) {
    if (!here(peer)) out += str_cat(out.empty() ? "rank " : ", rank ", peer);
  }
  return out;
}

void ThreadMeeting::wait_for(const std::vector<int>& peers,
                             const std::function<bool(int peer)>& here, const std::string& what,
                             Deadline deadline, bool heed_failure) {
  const auto all_here = [&] { return std::all_of(peers.begin(), peers.end(), here); };
  const auto somebody_left = [&]() COHORT_REQUIRES(mutex_) {
    return std::any_of(peers.begin(), peers.end(), [&](int peer) COHORT_REQUIRES(mutex_) {
      return of(peer).left && !here(peer);
    });
  };
  const bool in_time = changed_.wait_until(mutex_, deadline, [&]() COHORT_REQUIRES(mutex_) {
    return (heed_failure && failure_) || all_here() || somebody_left();
  });
  if (heed_failure) check_failure();
  if (!in_time) {
    throw DeadlineExceeded(str_cat("[communicator] expected every rank at ", what,
                                   " before the deadline, got none from ",
                                   missing_text(peers, here)));
  }
  if (!all_here()) {
    const std::string missing = missing_text(peers, here);
    throw Unavailable(str_cat("[communicator] expected every rank at ", what, ", got none from ",
                              missing, ", which has ended (see its output)"),
                      missing);
  }
}

// Copies without the lock; the sender's memory stays meanwhile (see let_go).
void ThreadMeeting::take(int rank, const Exchange& exchange, const ExchangePart& part) {
  Box& from = box(part.peer, rank);
  Message& message = from.at(exchange.key);
  check_same_signature(exchange.signature, rank, message.signature, part.peer);
  check_same_length(exchange.signature, rank, part.from_peer.size(), part.peer,
                    message.bytes.size());
  message.state = Message::State::kCopying;
  if (!message.bytes.empty()) {
    const base::MutexUnlock unlocked(mutex_);
    std::memcpy(part.from_peer.data(), message.bytes.data(), message.bytes.size());
  }
  from.erase(exchange.key);
  changed_.notify_all();
  check_failure();
}

void ThreadMeeting::finish(int rank, const Exchange& exchange, Deadline deadline) {
  ThreadJob::Hook hook;
  {
    const base::MutexLock lock(mutex_);
    hook = of(rank).wait_hook;
  }
  if (hook) hook(exchange.key, exchange.signature);
  const base::MutexLock lock(mutex_);
  try {
    std::vector<int> senders;
    for (const ExchangePart& part : exchange.parts) {
      if (part.receives) senders.push_back(part.peer);
    }
    const auto has_sent = [&](int peer) COHORT_REQUIRES(mutex_) {
      return !of(rank).silent && box(peer, rank).count(exchange.key) > 0;
    };
    wait_for(senders, has_sent, signature_text(exchange.signature), deadline);
    for (const ExchangePart& part : exchange.parts) {
      if (part.receives) take(rank, exchange, part);
    }
  } catch (...) {
    let_go(rank, exchange, /*keep=*/false);
    throw;
  }
  let_go(rank, exchange, /*keep=*/true);
}

bool ThreadMeeting::has_come(int rank, const Exchange& exchange) {
  const base::MutexLock lock(mutex_);
  return std::all_of(exchange.parts.begin(), exchange.parts.end(),
                     [&](const ExchangePart& part) COHORT_REQUIRES(mutex_) {
                       return !part.receives || box(part.peer, rank).count(exchange.key) > 0;
                     });
}

void ThreadMeeting::let_go(int rank, const Exchange& exchange, bool keep) {
  for (const ExchangePart& part : exchange.parts) {
    if (!part.sends) continue;
    Box& to = box(rank, part.peer);
    const auto is_copied = [&]() COHORT_REQUIRES(mutex_) {
      const auto found = to.find(exchange.key);
      return found != to.end() && found->second.state == Message::State::kCopying;
    };
    // A copy ends by itself, whatever has failed.
    changed_.wait(mutex_, [&]() COHORT_REQUIRES(mutex_) { return !is_copied(); });
    const auto found = to.find(exchange.key);
    if (found == to.end()) continue;
    if (!keep) {
      to.erase(found);
      continue;
    }
    Message& message = found->second;
    message.kept.assign(message.bytes.begin(), message.bytes.end());
    message.bytes = message.kept;
  }
}

void ThreadMeeting::withdraw(int rank, const Exchange& exchange) noexcept {
  const base::MutexLock lock(mutex_);
  let_go(rank, exchange, /*keep=*/false);
}

// Under one lock all have passed or none has.
void ThreadMeeting::commit(int rank, uint64_t sequence, const CallSignature& signature,
                           Deadline deadline) {
  const ExchangeKey key{.sequence = sequence};
  call_hook(rank, key, signature);
  const base::MutexLock lock(mutex_);
  check_failure();
  const uint64_t round = commits_;
  if (!of(rank).silent) {
    for (int peer = 0; peer < size_; ++peer) {
      if (peer != rank) check_peer(rank, key, signature, peer);
    }
    of(rank).commits = {sequence, signature};
  }
  const auto has_come = [&](int peer) COHORT_REQUIRES(mutex_) {
    return commits_ > round || of(peer).commits.has_value();
  };
  if (std::all_of(all_.begin(), all_.end(), has_come)) {
    ++commits_;
    for (Rank& each : ranks_) each.commits.reset();
    changed_.notify_all();
    return;
  }
  try {
    wait_for(all_, has_come, signature_text(signature), deadline);
  } catch (...) {
    if (commits_ > round) return;
    of(rank).commits.reset();
    throw;
  }
}

void ThreadMeeting::abort(const Failure& failure) noexcept {
  const base::MutexLock lock(mutex_);
  if (!failure_) failure_ = failure;
  changed_.notify_all();
}

bool ThreadMeeting::failed() const {
  const base::MutexLock lock(mutex_);
  return failure_.has_value();
}

void ThreadMeeting::check() const {
  const base::MutexLock lock(mutex_);
  check_failure();
}

void ThreadMeeting::renew(int rank, Deadline deadline) {
  const base::MutexLock lock(mutex_);
  const uint64_t before = generation_;
  of(rank).renews = true;
  const auto has_come = [&](int peer) COHORT_REQUIRES(mutex_) {
    return generation_ > before || of(peer).renews;
  };
  if (std::all_of(all_.begin(), all_.end(), has_come)) {
    ++generation_;
    failure_.reset();
    for (Box& each : boxes_) each.clear();
    for (Rank& each : ranks_) {
      each.commits.reset();
      each.renews = each.silent = false;
    }
    changed_.notify_all();
    return;
  }
  try {
    wait_for(all_, has_come, "renew", deadline, /*heed_failure=*/false);
  } catch (...) {
    of(rank).renews = false;
    throw;
  }
}

void ThreadMeeting::leave(int rank) noexcept {
  const base::MutexLock lock(mutex_);
  of(rank).left = true;
  changed_.notify_all();
}

int ThreadMeeting::failed_rank() const {
  const base::MutexLock lock(mutex_);
  return failure_ ? failure_->rank : -1;
}

void ThreadMeeting::silence(int rank) {
  const base::MutexLock lock(mutex_);
  of(rank).silent = true;
}

void ThreadMeeting::set_hook(int rank, ThreadJob::Hook hook) {
  const base::MutexLock lock(mutex_);
  of(rank).hook = std::move(hook);
}

void ThreadMeeting::set_wait_hook(int rank, ThreadJob::Hook hook) {
  const base::MutexLock lock(mutex_);
  of(rank).wait_hook = std::move(hook);
}

namespace {

class ThreadTransport final : public Transport {
 public:
  ThreadTransport(std::shared_ptr<ThreadMeeting> meeting, int rank)
      : meeting_(std::move(meeting)), rank_(rank) {}
  ~ThreadTransport() override { meeting_->leave(rank_); }

  int rank() const override { return rank_; }
  int size() const override { return meeting_->size(); }
  void start(const Exchange& exchange) override { meeting_->start(rank_, exchange); }
  void finish(const Exchange& exchange, Deadline deadline) override {
    meeting_->finish(rank_, exchange, deadline);
  }
  bool has_come(const Exchange& exchange) override { return meeting_->has_come(rank_, exchange); }
  void withdraw(const Exchange& exchange) noexcept override { meeting_->withdraw(rank_, exchange); }
  void commit(uint64_t sequence, const CallSignature& signature, Deadline deadline) override {
    meeting_->commit(rank_, sequence, signature, deadline);
  }
  void abort(const Failure& failure) noexcept override { meeting_->abort(failure); }
  bool failed() const override { return meeting_->failed(); }
  void check() const override { meeting_->check(); }
  void renew(Deadline deadline) override { meeting_->renew(rank_, deadline); }

 private:
  const std::shared_ptr<ThreadMeeting> meeting_;
  const int rank_;
};

}  // namespace

ThreadJob::ThreadJob(int size, CommunicatorOptions options)
    : meeting_(std::make_shared<ThreadMeeting>(size)) {
  for (int rank = 0; rank < size; ++rank) {
    ranks_.push_back(
        std::make_shared<Communicator>(std::make_unique<ThreadTransport>(meeting_, rank), options));
  }
}

ThreadJob::~ThreadJob() = default;

std::vector<std::exception_ptr> try_on_ranks(
    std::span<const std::shared_ptr<Communicator>> ranks,
    base::FunctionRef<void(Communicator& communicator)> body) {
  std::vector<std::exception_ptr> errors(ranks.size());
  std::vector<std::jthread> threads;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    threads.emplace_back([&, rank, communicator = ranks[rank]] {
      if (!communicator) return;
      const runtime::IntraOpThreads threads_inside(1);
      try {
        body(*communicator);
      } catch (...) {
        errors[rank] = std::current_exception();
        communicator->abort(errors[rank], "run");
      }
    });
  }
  threads.clear();
  return errors;
}

void ThreadJob::run(base::FunctionRef<void(Communicator& communicator)> body) {
  const std::vector<std::exception_ptr> errors = try_run(body);
  const int first = meeting_->failed_rank();
  if (first >= 0 && errors[static_cast<std::size_t>(first)]) {
    std::rethrow_exception(errors[static_cast<std::size_t>(first)]);
  }
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

void ThreadJob::before_each(int rank, Hook hook) { meeting_->set_hook(rank, std::move(hook)); }
void ThreadJob::before_wait(int rank, Hook hook) { meeting_->set_wait_hook(rank, std::move(hook)); }
void ThreadJob::silence(int rank) { meeting_->silence(rank); }
void ThreadJob::leave(int rank) { ranks_[static_cast<std::size_t>(rank)].reset(); }

}  // namespace cohort::internal::collectives
