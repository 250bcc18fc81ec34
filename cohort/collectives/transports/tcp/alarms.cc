// SPDX-License-Identifier: Apache-2.0
#include "cohort/collectives/transports/tcp/alarms.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "cohort/base/check.h"

namespace cohort::internal::collectives {
namespace {

// How long a rank that decides may take to answer before the next one is asked. It answers at once
// unless it is stopped or cut off.
constexpr std::chrono::seconds kAnswerWithin{3};

Socket new_bell() {
  Socket bell(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!bell) {
    throw Error(ErrorCode::kResourceExhausted,
                str_cat("[communicator] expected an event descriptor, got: ", error_text(errno)));
  }
  return bell;
}

void ring_bell(const Socket& bell) {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(bell.fd(), &one, sizeof one);
}

}  // namespace

TcpAlarms::TcpAlarms(int rank, std::vector<Line> lines)
    : rank_(rank),
      bell_(new_bell()),
      stop_bell_(new_bell()),
      lines_(std::move(lines)),
      read_(lines_.size()),
      standings_(lines_.size()) {
  thread_.emplace("cohort_alarms", [this](const std::stop_token& stop) { watch(stop); });
}

TcpAlarms::~TcpAlarms() {
  {
    const base::MutexLock lock(mutex_);
    for (std::size_t peer = 0; peer < lines_.size(); ++peer) {
      tell(peer, {.kind = AlarmHeader::Kind::kGoodbye, .generation = generation_}, {});
    }
  }
  thread_->request_stop();
  ring_bell(stop_bell_);
  thread_.reset();
}

void TcpAlarms::also_ring(std::function<void()> bell) {
  const base::MutexLock lock(mutex_);
  other_bell_ = std::move(bell);
}

bool TcpAlarms::is_away(int peer) const {
  const base::MutexLock lock(mutex_);
  return standings_[at(peer)].is_away();
}

bool TcpAlarms::is_lost(int peer) const {
  const base::MutexLock lock(mutex_);
  return standings_[at(peer)].lost;
}

bool TcpAlarms::misses_ranks() const {
  const auto misses = [](const Failure& failure) {
    return failure.code == ErrorCode::kUnavailable || failure.code == ErrorCode::kDeadlineExceeded;
  };
  const base::MutexLock lock(mutex_);
  if (verdict_ ? misses(verdict_->failure) : proposed_ && misses(*proposed_)) return true;
  return std::any_of(standings_.begin(), standings_.end(),
                     [](const Standing& peer) { return peer.gone || peer.suspect; });
}

std::string TcpAlarms::name_of(int rank) const {
  return str_cat("rank ", rank, " (", lines_[at(rank)].address, ")");
}

// The lowest rank that can answer.
int TcpAlarms::judge() const {
  for (int r = 0; r < static_cast<int>(lines_.size()); ++r) {
    if (r == rank_ || (listens(at(r)) && !standings_[at(r)].suspect)) return r;
  }
  return rank_;
}

void TcpAlarms::tell(std::size_t peer, AlarmHeader header, const std::string& text) {
  if (!listens(peer)) return;
  header.text_bytes =
      static_cast<uint32_t>(std::min<std::size_t>(text.size(), AlarmHeader::kLongestText));
  std::vector<std::byte> bytes(sizeof header + header.text_bytes);
  std::memcpy(bytes.data(), &header, sizeof header);
  std::memcpy(bytes.data() + sizeof header, text.data(), header.text_bytes);
  // A line is empty but for its one or two failures: what does not fit, nobody reads any more.
  Socket& socket = lines_[peer].socket;
  if (socket.has_begun_to_send()) return;
  std::string why;
  const std::array<iovec, 1> all = {{{bytes.data(), bytes.size()}}};
  socket.send(all, &why);
}

void TcpAlarms::tell_failure(std::size_t peer, AlarmHeader::Kind kind, uint64_t generation,
                             const Verdict& verdict) {
  tell(peer,
       {.kind = kind,
        .code = static_cast<uint8_t>(verdict.failure.code),
        .rank = verdict.failure.rank,
        .generation = generation,
        .committed = verdict.committed},
       verdict.failure.text);
}

void TcpAlarms::tell_settled() {
  has_settled_ = true;
  for (std::size_t peer = 0; peer < lines_.size(); ++peer) {
    tell(peer,
         {.kind = AlarmHeader::Kind::kSettling, .generation = generation_, .committed = committed_},
         {});
  }
}

void TcpAlarms::ring() {
  ring_bell(bell_);
  if (other_bell_) other_bell_();
  changed_.notify_all();
}

void TcpAlarms::propose_locked(const Failure& failure) {
  if (verdict_) return;
  if (!proposed_) proposed_ = failure;
  failed_.store(true, std::memory_order_release);
  const int judging = judge();
  if (judging == rank_) {
    decide(*proposed_);
  } else {
    tell_failure(at(judging), AlarmHeader::Kind::kProposal, generation_, {.failure = *proposed_});
  }
  ring();
}

void TcpAlarms::decide(const Failure& failure) {
  verdict_ = Verdict{.failure = failure, .committed = committed_};
  failed_.store(true, std::memory_order_release);
  for (std::size_t peer = 0; peer < lines_.size(); ++peer) {
    tell_failure(peer, AlarmHeader::Kind::kVerdict, generation_, *verdict_);
  }
  ring();
}

void TcpAlarms::propose(const Failure& failure) noexcept {
  const base::MutexLock lock(mutex_);
  propose_locked(failure);
}

void TcpAlarms::propose_gone(int peer, const std::string& why) noexcept {
  const base::MutexLock lock(mutex_);
  Standing& lost = standings_[at(peer)];
  if (lost.is_away()) return;
  lost.gone = true;
  anyone_away_.store(true, std::memory_order_release);
  propose_locked(
      {.code = ErrorCode::kUnavailable,
       .text = str_cat("[communicator] ", name_of(peer), " is gone: ", why,
                       ". Its process was ended or is cut off; see its output, and start the job "
                       "again from its last checkpoint"),
       .rank = peer});
  if (peer == 0 && !in_commit_) tell_settled();
  ring();  // also who waits for it in a generation that had failed before
}

void TcpAlarms::lose(std::span<const int> peers, const Failure& failure) noexcept {
  const base::MutexLock lock(mutex_);
  bool lost_first = false;
  for (const int each : peers) {
    Standing& peer = standings_[at(each)];
    if (each == rank_ || peer.is_away()) continue;
    // One that is only late reads why it is out, before it does anything else.
    tell_failure(at(each), AlarmHeader::Kind::kVerdict, generation_,
                 {.failure = failure, .committed = committed_});
    peer.gone = true;
    peer.lost = true;
    anyone_away_.store(true, std::memory_order_release);
    lost_first |= each == 0;
  }
  propose_locked(failure);
  if (lost_first && !in_commit_) tell_settled();
  ring();  // also who waits in a generation that had failed before
}

void TcpAlarms::check() {
  if (failed()) throw_failure(verdict().failure);
}

Verdict TcpAlarms::verdict() {
  const base::MutexLock lock(mutex_);
  int asked = -1;
  auto give_up = std::chrono::steady_clock::now();
  while (!verdict_) {
    const int judging = judge();
    if (judging == rank_) {
      decide(*proposed_);
      break;
    }
    if (judging != asked) {
      tell_failure(at(judging), AlarmHeader::Kind::kProposal, generation_, {.failure = *proposed_});
      asked = judging;
      give_up = std::chrono::steady_clock::now() + kAnswerWithin;
    }
    if (changed_.wait_until(mutex_, give_up) == std::cv_status::timeout && !verdict_) {
      standings_[at(judging)].suspect = true;
      overruled_first_ = overruled_first_ || (judging == 0 && in_commit_);
    }
  }
  return *verdict_;
}

void TcpAlarms::begin_generation(uint64_t generation) {
  const base::MutexLock lock(mutex_);
  generation_ = generation;
  committed_ = 0;
  proposed_.reset();
  verdict_.reset();
  overruled_first_ = false;
  for (Standing& peer : standings_) peer.suspect = false;
  later_.erase(later_.begin(), later_.lower_bound(generation));
  const auto found = later_.find(generation);
  if (found != later_.end()) verdict_ = found->second;
  failed_.store(verdict_.has_value(), std::memory_order_release);
}

void TcpAlarms::silence_bell() {
  uint64_t rings = 0;
  [[maybe_unused]] const ssize_t got = ::read(bell_.fd(), &rings, sizeof rings);
}

void TcpAlarms::begin_commit() {
  check();
  const base::MutexLock lock(mutex_);
  in_commit_ = true;
}

void TcpAlarms::end_commit(uint64_t committed) {
  const base::MutexLock lock(mutex_);
  in_commit_ = false;
  committed_ = std::max(committed_, committed);
  // It was not asked, so that it may let pass yet what has failed here: never again with it.
  if (overruled_first_ && committed == 0 && !standings_[0].gone) {
    standings_[0].gone = standings_[0].lost = true;
    anyone_away_.store(true, std::memory_order_release);
    ring();
  }
  if (standings_[0].gone && !has_settled_) tell_settled();
}

bool TcpAlarms::decide_commit(uint64_t sequence) {
  const base::MutexLock lock(mutex_);
  if (proposed_ || verdict_) return false;
  committed_ = sequence + 1;
  return true;
}

bool TcpAlarms::first_is_gone() const {
  const base::MutexLock lock(mutex_);
  return standings_[0].gone;
}

uint64_t TcpAlarms::settle(uint64_t committed) {
  const base::MutexLock lock(mutex_);
  committed_ = std::max(committed_, committed);
  tell_settled();
  const auto all_have = [&]() COHORT_REQUIRES(mutex_) {
    for (std::size_t peer = 1; peer < lines_.size(); ++peer) {
      if (listens(peer) && !standings_[peer].settled) return false;
    }
    return true;
  };
  changed_.wait_until(mutex_, std::chrono::steady_clock::now() + kAnswerWithin, all_have);
  for (const Standing& peer : standings_) {
    committed_ = std::max(committed_, peer.settled.value_or(0));
  }
  return committed_;
}

void TcpAlarms::hear_proposal(std::size_t peer, uint64_t generation, const Failure& failure) {
  if (generation < generation_) return;
  if (generation > generation_) {
    const auto [entry, is_new] = later_.try_emplace(generation, Verdict{.failure = failure});
    for (std::size_t each = 0; each < lines_.size(); ++each) {
      if (is_new) tell_failure(each, AlarmHeader::Kind::kVerdict, generation, entry->second);
    }
  } else if (verdict_) {
    tell_failure(peer, AlarmHeader::Kind::kVerdict, generation, *verdict_);
  } else {
    decide(failure);
  }
}

void TcpAlarms::hear_verdict(uint64_t generation, const Verdict& verdict) {
  if (generation > generation_) later_.try_emplace(generation, verdict);
  if (generation != generation_ || verdict_) return;
  verdict_ = verdict;
  failed_.store(true, std::memory_order_release);
  ring();
}

void TcpAlarms::hear(int from, const AlarmHeader& header, const std::string& text) {
  const base::MutexLock lock(mutex_);
  Standing& peer = standings_[at(from)];
  const Failure failure{
      .code = static_cast<ErrorCode>(header.code), .text = text, .rank = header.rank};
  switch (header.kind) {
    case AlarmHeader::Kind::kProposal:
      return hear_proposal(at(from), header.generation, failure);
    case AlarmHeader::Kind::kVerdict:
      return hear_verdict(header.generation, {.failure = failure, .committed = header.committed});
    case AlarmHeader::Kind::kSettling:
      if (header.generation == generation_) peer.settled = header.committed;
      return ring();
    case AlarmHeader::Kind::kGoodbye:
      peer.left = true;
      anyone_away_.store(true, std::memory_order_release);
      return ring();
  }
}

// What has come on a peer's line, failure by failure.
void TcpAlarms::read_line(int from) {
  std::vector<std::byte>& read = read_[at(from)];
  std::array<std::byte, 4096> bytes;
  std::string why;
  for (;;) {
    const ssize_t got = lines_[at(from)].socket.receive(bytes.data(), bytes.size(), &why);
    if (got < 0) return propose_gone(from, why);
    if (got == 0) return;
    read.insert(read.end(), bytes.begin(), bytes.begin() + got);
    hear_all(from);
    if (!listens_to(from)) return;
  }
}

bool TcpAlarms::listens_to(int from) {
  const base::MutexLock lock(mutex_);
  return listens(at(from));
}

// The whole messages of what has been read.
void TcpAlarms::hear_all(int from) {
  std::vector<std::byte>& read = read_[at(from)];
  for (;;) {
    AlarmHeader header;
    if (read.size() < sizeof header) return;
    std::memcpy(&header, read.data(), sizeof header);
    if (!header.is_sane()) return propose_gone(from, "what came is no message of a worker");
    if (read.size() < sizeof header + header.text_bytes) return;
    const auto* text = reinterpret_cast<const char*>(read.data() + sizeof header);
    hear(from, header, std::string(text, header.text_bytes));
    read.erase(read.begin(),
               read.begin() + static_cast<std::ptrdiff_t>(sizeof header + header.text_bytes));
  }
}

void TcpAlarms::watch(const std::stop_token& stop) {
  std::vector<pollfd> polled;
  std::vector<int> ranks;
  // What came with the greeting was read already, and no descriptor tells of it.
  for (std::size_t r = 0; r < lines_.size(); ++r) {
    if (lines_[r].socket) read_line(static_cast<int>(r));
  }
  while (!stop.stop_requested()) {
    polled.assign(1, {.fd = stop_bell_.fd(), .events = POLLIN, .revents = 0});
    ranks.assign(1, rank_);
    {
      const base::MutexLock lock(mutex_);
      for (std::size_t r = 0; r < lines_.size(); ++r) {
        if (!listens(r)) continue;
        polled.push_back({.fd = lines_[r].socket.fd(), .events = POLLIN, .revents = 0});
        ranks.push_back(static_cast<int>(r));
      }
    }
    if (::poll(polled.data(), polled.size(), -1) < 0) continue;
    for (std::size_t i = 1; i < polled.size(); ++i) {
      if (polled[i].revents != 0) read_line(ranks[i]);
    }
  }
}

}  // namespace cohort::internal::collectives
