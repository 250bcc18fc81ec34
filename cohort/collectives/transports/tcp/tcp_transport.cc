// SPDX-License-Identifier: Apache-2.0
#include "cohort/collectives/transports/tcp/tcp_transport.h"

#include <poll.h>
#include <time.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "cohort/base/check.h"
#include "cohort/base/failpoint.h"
#include "cohort/base/function_ref.h"
#include "cohort/base/logging.h"
#include "cohort/collectives/transports/shared_memory/inbox.h"
#include "cohort/collectives/transports/tcp/alarms.h"
#include "cohort/collectives/transports/tcp/stream.h"

namespace cohort::internal {
namespace {

// How long what a rank that is gone has sent before is waited for.
constexpr std::chrono::seconds kDrainWithin{3};

class TcpTransport final : public Transport {
 public:
  TcpTransport(int rank, std::vector<MeshLink> links);
  ~TcpTransport() override;

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(streams_.size()); }
  void start(const Exchange& exchange) override;
  void finish(const Exchange& exchange, Deadline deadline) override;
  void withdraw(const Exchange& exchange) noexcept override;
  void commit(uint64_t sequence, const CallSignature& signature, Deadline deadline) override;
  void abort(const Failure& failure) noexcept override { alarms_->propose(failure); }
  void lose(std::span<const int> ranks, const Failure& failure) noexcept override {
    alarms_->lose(ranks, failure);
  }
  bool failed() const override { return alarms_->failed(); }
  void check() const override { alarms_->check(); }
  void renew(Deadline deadline) override;

  /// Moves all messages into memory that the ranks share, if they are on one machine: all of them,
  /// or none. All ranks call it, first of all.
  void share_memory(Deadline deadline);

 private:
  // `is_here(stream)` of each of the peers, and meanwhile all that comes is read.
  // Errors: the failure, Unavailable and DeadlineExceeded that name who is missing.
  struct Wait {
    std::vector<int> peers;
    FunctionRef<bool(const TcpStream&)> is_here;
    std::string what;
    bool heeds_failures = true;
  };
  TcpStream& stream(int peer) { return *streams_[static_cast<std::size_t>(peer)]; }
  std::string who_misses(const Wait& wait) const;
  void wait_for(const Wait& wait, Deadline deadline);
  void check_ended(const Wait& wait);
  void move_messages();
  bool sleep_until(Deadline deadline);
  bool sleep_at_inbox(Deadline deadline);
  template <class T>
  std::vector<T> told_by_all(uint64_t question, const T& mine, Deadline deadline);
  std::vector<int> others() const;
  void commit_as_first(const ExchangeKey& key, const CallSignature& signature, Deadline deadline);
  void commit_as_other(const ExchangeKey& key, const CallSignature& signature, Deadline deadline);
  bool has_committed(const ExchangeKey& answer, const std::exception_ptr& error);

  const int rank_;
  uint64_t generation_ = 0;
  uint64_t renewing_ = 0;                            // the newest generation that all were told of
  std::vector<std::unique_ptr<TcpStream>> streams_;  // [peer]; of this rank itself: none
  std::vector<pollfd> polled_;
  std::unique_ptr<SharedInbox> inbox_;  // null: messages travel over the connections
  uint32_t rings_ = 0;                  // of the inbox's bell, before the last look
  SpinBudget looks_;
  std::unique_ptr<TcpAlarms> alarms_;  // last: it rings the inbox's bell
};

std::vector<TcpAlarms::Line> lines_of(std::vector<MeshLink>& links) {
  std::vector<TcpAlarms::Line> lines;
  for (MeshLink& link : links) lines.push_back({link.address, std::move(link.line)});
  return lines;
}

TcpTransport::TcpTransport(int rank, std::vector<MeshLink> links)
    : rank_(rank),
      looks_(most_spins(static_cast<int>(links.size()))),
      alarms_(std::make_unique<TcpAlarms>(rank, lines_of(links))) {
  for (std::size_t r = 0; r < links.size(); ++r) {
    streams_.push_back(
        static_cast<int>(r) == rank
            ? nullptr
            : std::make_unique<TcpStream>(static_cast<int>(r), std::move(links[r].stream)));
  }
}

TcpTransport::~TcpTransport() {
  failpoint("communicator.close");
  for (const auto& each : streams_) {
    if (!each) continue;
    each->say_goodbye();
    each->read_some();  // what is left unread would reset the connection, and lose the goodbye
  }
}

std::vector<int> TcpTransport::others() const {
  std::vector<int> peers;
  for (int r = 0; r < size(); ++r) {
    if (r != rank_) peers.push_back(r);
  }
  return peers;
}

void TcpTransport::move_messages() {
  if (inbox_) rings_ = inbox_->bell().rings();
  for (const auto& each : streams_) {
    if (!each || each->state() != TcpStream::State::kOpen) continue;
    each->write_some();
    each->read_some();
    if (alarms_->is_anyone_away() && alarms_->is_away(each->peer())) {
      each->end("the connection was closed");
      if (alarms_->is_lost(each->peer())) each->give_up("it does not answer any more");
    }
    if (each->state() == TcpStream::State::kBroken) {
      alarms_->propose_gone(each->peer(), each->why());
    }
  }
}

// False if the deadline has passed.
bool TcpTransport::sleep_until(Deadline deadline) {
  if (inbox_) return sleep_at_inbox(deadline);
  polled_.assign(1, {.fd = alarms_->bell(), .events = POLLIN, .revents = 0});
  for (const auto& each : streams_) {
    if (!each || each->state() != TcpStream::State::kOpen) continue;
    const int events = POLLIN | (each->wants_to_write() ? POLLOUT : 0);
    polled_.push_back({.fd = each->fd(), .events = static_cast<short>(events), .revents = 0});
  }
  const int left = milliseconds_until(deadline);
  const int ready = ::poll(polled_.data(), polled_.size(), left);
  if (polled_[0].revents != 0) alarms_->silence_bell();
  return ready > 0 || left > 0;
}

bool TcpTransport::sleep_at_inbox(Deadline deadline) {
  inbox_->bell().wait(rings_, looks_, deadline);
  return inbox_->bell().rings() != rings_ || std::chrono::steady_clock::now() < deadline;
}

std::string TcpTransport::who_misses(const Wait& wait) const {
  std::string out;
  for (const int peer : wait.peers) {
    const TcpStream& from = *streams_[static_cast<std::size_t>(peer)];
    if (wait.is_here(from)) continue;
    out += out.empty() ? "" : ", ";
    out += from.state() == TcpStream::State::kEnded ? str_cat("rank ", peer, ", which has ended")
                                                    : alarms_->name_of(peer);
  }
  return out;
}

void TcpTransport::check_ended(const Wait& wait) {
  for (const int peer : wait.peers) {
    if (stream(peer).state() == TcpStream::State::kOpen || wait.is_here(stream(peer))) continue;
    const std::string missing = who_misses(wait);
    throw Unavailable(
        str_cat("[communicator] expected every rank at ", wait.what, ", got none from ", missing),
        alarms_->name_of(peer));
  }
}

void TcpTransport::wait_for(const Wait& wait, Deadline deadline) {
  const auto all_here = [&] {
    return std::all_of(wait.peers.begin(), wait.peers.end(),
                       [&](int peer) { return wait.is_here(stream(peer)); });
  };
  for (bool in_time = true;; in_time = sleep_until(deadline)) {
    move_messages();
    if (wait.heeds_failures) alarms_->check();
    if (all_here()) return;
    check_ended(wait);
    if (!in_time) break;
  }
  throw DeadlineExceeded(str_cat("[communicator] expected every rank at ", wait.what,
                                 " before the deadline, got none from ", who_misses(wait)));
}

void TcpTransport::start(const Exchange& exchange) {
  alarms_->check();
  for (const ExchangePart& part : exchange.parts) {
    if (part.receives) stream(part.peer).expect(exchange.key, exchange.signature, part.from_peer);
  }
  for (const ExchangePart& part : exchange.parts) {
    if (part.sends) stream(part.peer).send(exchange.key, exchange.signature, part.to_peer);
  }
}

void TcpTransport::finish(const Exchange& exchange, Deadline deadline) {
  const auto part_of = [&](int peer) {
    return std::find_if(exchange.parts.begin(), exchange.parts.end(),
                        [&](const ExchangePart& part) { return part.peer == peer; });
  };
  std::vector<int> peers;
  for (const ExchangePart& part : exchange.parts) peers.push_back(part.peer);
  const auto is_here = [&](const TcpStream& from) {
    const auto part = part_of(from.peer());
    return (!part->receives || from.has_come(exchange.key)) &&
           (!part->sends || from.is_sent(exchange.key));
  };
  try {
    wait_for({std::move(peers), is_here, signature_text(exchange.signature)}, deadline);
    for (const ExchangePart& part : exchange.parts) {
      if (!part.receives) continue;
      stream(part.peer).take(exchange.key, exchange.signature, rank_, part.from_peer);
    }
  } catch (...) {
    withdraw(exchange);
    throw;
  }
}

void TcpTransport::withdraw(const Exchange& exchange) noexcept {
  for (const ExchangePart& part : exchange.parts) {
    if (part.sends) stream(part.peer).withdraw_sent(exchange.key);
    if (part.receives) stream(part.peer).withdraw_expected(exchange.key);
  }
}

void TcpTransport::commit(uint64_t sequence, const CallSignature& signature, Deadline deadline) {
  const ExchangeKey key{.sequence = sequence};
  if (rank_ == 0) return commit_as_first(key, signature, deadline);
  alarms_->begin_commit();
  try {
    commit_as_other(key, signature, deadline);
  } catch (...) {
    alarms_->end_commit(0);
    throw;
  }
  alarms_->end_commit(sequence + 1);
}

void TcpTransport::commit_as_first(const ExchangeKey& key, const CallSignature& signature,
                                   Deadline deadline) {
  alarms_->check();
  Exchange arrivals{.key = key, .signature = signature};
  for (const int peer : others()) arrivals.parts.push_back({.peer = peer, .sends = false});
  start(arrivals);
  finish(arrivals, deadline);
  if (!alarms_->decide_commit(key.sequence)) alarms_->check();
  ExchangeKey answer = key;
  answer.phase = 1;
  for (const int peer : others()) stream(peer).send(answer, signature, {});
}

void TcpTransport::commit_as_other(const ExchangeKey& key, const CallSignature& signature,
                                   Deadline deadline) {
  ExchangeKey answer = key;
  answer.phase = 1;
  stream(0).expect(answer, signature, {});
  stream(0).send(key, signature, {});
  const auto is_here = [&](const TcpStream& first) { return first.has_come(answer); };
  try {
    // Whoever is at another operation sends something else by this key.
    const auto is_answered = [&](const TcpStream& first) {
      return first.has_come(answer) || first.has_come(key);
    };
    wait_for({{0}, is_answered, signature_text(signature)}, deadline);
    if (!is_here(stream(0))) stream(0).take(key, signature, rank_, {});
  } catch (...) {
    const bool passed = has_committed(answer, std::current_exception());
    stream(0).withdraw_sent(key);
    stream(0).withdraw_expected(answer);
    if (!passed) throw;
    return;
  }
  stream(0).take(answer, signature, rank_, {});
}

// Whether a commit that has failed here has passed elsewhere. From here on it cannot any more.
bool TcpTransport::has_committed(const ExchangeKey& answer, const std::exception_ptr& error) {
  alarms_->propose(failure_of(error, rank_, size(), collective_name(Collective::kCommit)));
  if (alarms_->verdict().committed > answer.sequence) return true;
  if (!alarms_->first_is_gone()) return false;
  const auto has_ended = [](const TcpStream& first) {
    return first.state() != TcpStream::State::kOpen;
  };
  try {
    wait_for({{0}, has_ended, "the end", /*heeds_failures=*/false},
             std::chrono::steady_clock::now() + kDrainWithin);
  } catch (const Error&) {
    // What rank 0 has sent does not come any more.
  }
  const bool told = stream(0).has_come(answer);
  return alarms_->settle(told ? answer.sequence + 1 : 0) > answer.sequence;
}

void TcpTransport::renew(Deadline deadline) {
  const uint64_t next = generation_ + 1;
  if (renewing_ < next) {
    renewing_ = next;
    for (const int peer : others()) {
      stream(peer).send_plain(FrameHeader::Kind::kRenew, next);
    }
  }
  const auto is_here = [&](const TcpStream& from) { return from.peer_generation() >= next; };
  wait_for({others(), is_here, "renew", /*heeds_failures=*/false}, deadline);
  generation_ = next;
  for (const int peer : others()) stream(peer).begin_generation(next);
  alarms_->begin_generation(next);
}

// Before any operation of a communicator, whose keys have another phase.
template <class T>
std::vector<T> TcpTransport::told_by_all(uint64_t question, const T& mine, Deadline deadline) {
  std::vector<T> answers(streams_.size(), mine);
  Exchange exchange{.key = {.channel = ExchangeKey::Channel::kPair,
                            .phase = std::numeric_limits<uint8_t>::max(),
                            .sequence = question},
                    .signature = {.collective = Collective::kAllGather, .bytes = sizeof(T)}};
  for (const int peer : others()) {
    exchange.parts.push_back({.peer = peer,
                              .to_peer = std::as_bytes(std::span(&mine, 1)),
                              .from_peer = std::as_writable_bytes(
                                  std::span(answers).subspan(static_cast<std::size_t>(peer), 1))});
  }
  start(exchange);
  finish(exchange, deadline);
  return answers;
}

void TcpTransport::share_memory(Deadline deadline) {
  std::unique_ptr<SharedInbox> inbox;
  SegmentOffer offer;
  std::string why = "the system gives none";
  try {
    inbox = std::make_unique<SharedInbox>(rank_, size());
    offer = inbox->offer();
  } catch (const Error& e) {
    why = e.what();
  }
  const auto offers = told_by_all(0, offer, deadline);
  const char opened = inbox && inbox->open(offers, &why) ? 1 : 0;
  const auto all = told_by_all(1, opened, deadline);
  if (opened == 0)
    COHORT_LOG(kInfo, "[communicator] messages travel over TCP, not through shared memory: ", why);
  if (std::find(all.begin(), all.end(), 0) != all.end()) return;
  inbox_ = std::move(inbox);
  for (const int peer : others()) stream(peer).move_to(inbox_->rings_of(peer));
  alarms_->also_ring([bell = &inbox_->bell()] { bell->ring(); });
}

}  // namespace

std::unique_ptr<Transport> connect_over_tcp(MeshOptions options) {
  const int rank = options.rank;
  const bool share = options.shared_memory;
  const Deadline deadline = std::chrono::steady_clock::now() + options.timeout;
  auto transport = std::make_unique<TcpTransport>(rank, meet_over_tcp(std::move(options)));
  if (share) transport->share_memory(deadline);
  return transport;
}

}  // namespace cohort::internal
