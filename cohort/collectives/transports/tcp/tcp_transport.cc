// SPDX-License-Identifier: Apache-2.0
#include "cohort/collectives/transports/tcp/tcp_transport.h"

#include <algorithm>
#include <array>
#include <utility>

#include "cohort/base/check.h"
#include "cohort/base/failpoint.h"
#include "cohort/base/running_time.h"
#include "cohort/collectives/transports/tcp/transport_parts.h"

namespace cohort::internal::collectives {
namespace {

// How long what a rank that is gone has sent before is waited for.
constexpr std::chrono::seconds kDrainWithin{3};

std::vector<TcpAlarms::Line> lines_of(std::vector<MeshLink>& links) {
  std::vector<TcpAlarms::Line> lines;
  for (MeshLink& link : links) {
    link.line.keep_from_children();
    link.stream.keep_from_children();
    lines.push_back({link.task.empty() ? link.address : str_cat(link.address, ", ", link.task),
                     std::move(link.line)});
  }
  return lines;
}

}  // namespace

TcpTransport::TcpTransport(int rank, std::vector<MeshLink> links)
    : rank_(rank),
      patience_(runtime::most_spins(static_cast<int>(links.size()))),
      alarms_(std::make_unique<TcpAlarms>(rank, lines_of(links))) {
  for (std::size_t r = 0; r < links.size(); ++r) {
    if (static_cast<int>(r) != rank) others_.push_back(static_cast<int>(r));
    streams_.push_back(
        static_cast<int>(r) == rank
            ? nullptr
            : std::make_unique<TcpStream>(static_cast<int>(r), std::move(links[r].stream)));
  }
}

TcpTransport::~TcpTransport() {
  base::failpoint("communicator.close");
  await_copies();
  for (const auto& each : streams_) {
    if (!each) continue;
    each->say_goodbye();
    each->read_some();  // what is left unread would reset the connection, and lose the goodbye
  }
  empty_lanes();
  tell_lanes();
}

// Copies that were made for others go with this process: who is slow shall read them first.
void TcpTransport::await_copies() noexcept {
  if (!shared_ || alarms_->failed()) return;
  const auto is_here = [&](const TcpStream& from) {
    return from.state() != TcpStream::State::kOpen || shared_->has_read_copies(from.peer());
  };
  const auto is_over = [&] {
    return std::all_of(others_.begin(), others_.end(),
                       [&](int peer) { return is_here(stream(peer)); });
  };
  try {
    wait_for({.peers = others_, .is_here = is_here, .what = "the end", .is_over = is_over},
             std::chrono::steady_clock::now() + kDrainWithin);
  } catch (...) {
    // Who does not read them now, will not.
  }
}

void TcpTransport::move_messages() {
  if (inbox_) rings_ = inbox_->bell().rings();
  if (shared_) shared_->go_on();
  for (const auto& each : streams_) {
    if (!each || each->state() != TcpStream::State::kOpen) continue;
    const uint64_t carried = each->carried();
    each->write_some();
    each->read_some();
    if (each->carried() != carried) naps_ = 0;
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
bool TcpTransport::sleep_until(Deadline deadline, const Wait& wait) {
  if (shared_) return sleep_at_bell(deadline, wait);
  if (lanes_) return nap(deadline);
  polled_.assign(1, {.fd = alarms_->bell(), .events = POLLIN, .revents = 0});
  if (inbox_) polled_.push_back({.fd = inbox_->door(), .events = POLLIN, .revents = 0});
  for (const auto& each : streams_) {
    if (!each || each->state() != TcpStream::State::kOpen || each->has_moved()) continue;
    const int events = POLLIN | (each->wants_to_write() ? POLLOUT : 0);
    polled_.push_back({.fd = each->fd(), .events = static_cast<short>(events), .revents = 0});
  }
  if (inbox_) inbox_->bell().begin_sleep();
  const bool rang = inbox_ && inbox_->bell().rings() != rings_;
  const int left = rang ? 0 : milliseconds_until(deadline);
  const int ready = ::poll(polled_.data(), polled_.size(), left);
  if (inbox_) {
    inbox_->bell().end_sleep();
    inbox_->empty_door();
  }
  if (polled_[0].revents != 0) alarms_->silence_bell();
  return rang || ready > 0 || left > 0;
}

std::string TcpTransport::who_misses(const Wait& wait) const {
  std::string out;
  for (const int peer : wait.peers) {
    const TcpStream& from = *streams_[static_cast<std::size_t>(peer)];
    if (wait.is_here(from)) continue;
    out += out.empty() ? "" : ", ";
    out += from.state() == TcpStream::State::kEnded
               ? str_cat("rank ", peer, ", which has ended (see its output)")
               : alarms_->name_of(peer);
  }
  return out;
}

void TcpTransport::check_ended(const Wait& wait) {
  for (const int peer : wait.peers) {
    if (stream(peer).state() == TcpStream::State::kOpen || wait.is_here(stream(peer))) continue;
    const std::string missing = who_misses(wait);
    throw Unavailable(
        str_cat("[communicator] expected every rank at ", wait.text(), ", got none from ", missing),
        alarms_->name_of(peer));
  }
}

void TcpTransport::wait_for(const Wait& wait, Deadline deadline) {
  const auto all_here = [&] {
    return std::all_of(wait.peers.begin(), wait.peers.end(),
                       [&](int peer) { return wait.is_here(stream(peer)); });
  };
  base::RunningTime running(base::BootClock::now());
  naps_ = 0;
  for (bool in_time = true;;) {
    move_messages();
    if (wait.heeds_failures) alarms_->check();
    if (all_here()) return;
    check_ended(wait);
    if (!in_time) break;
    const Deadline look = std::chrono::steady_clock::now() + base::RunningTime::kLookEvery;
    const bool woke = sleep_until(std::min(deadline, look), wait);
    // Nobody is late for what this process, perhaps with the whole job, was stopped.
    deadline += running.look(base::BootClock::now());
    in_time = woke || std::chrono::steady_clock::now() < deadline;
  }
  if (lanes_) lanes_->set_incomplete(true);  // also at renew(), which proposes nothing
  throw DeadlineExceeded(str_cat("[communicator] expected every rank at ", wait.text(),
                                 " before the deadline, got none from ", who_misses(wait),
                                 ". See its output: it is busy with something else, or hangs. "
                                 "Let all workers call the same, or give them more time (timeout "
                                 "of communication_options), or start the job again from its last "
                                 "checkpoint"));
}

void TcpTransport::start(const Exchange& exchange) {
  alarms_->check();
  if (meets(exchange)) return start_meeting(exchange);
  for (const ExchangePart& part : exchange.parts) {
    if (part.receives) stream(part.peer).expect(exchange.key, exchange.signature, part.from_peer);
  }
  for (const ExchangePart& part : exchange.parts) {
    if (part.sends) stream(part.peer).send(exchange.key, exchange.signature, part.to_peer);
  }
}

void TcpTransport::finish(const Exchange& exchange, Deadline deadline) {
  if (!meets(exchange)) return finish_streams(exchange, deadline);
  try {
    finish_meeting(exchange, deadline);
  } catch (...) {
    withdraw(exchange);
    throw;
  }
}

bool TcpTransport::has_come(const Exchange& exchange) {
  return !meets(exchange) &&
         std::all_of(exchange.parts.begin(), exchange.parts.end(),
                     [&](const ExchangePart& part) { return has_come(part, exchange.key); });
}

void TcpTransport::finish_streams(const Exchange& exchange, Deadline deadline) {
  const auto part_of = [&](int peer) {
    return std::find_if(exchange.parts.begin(), exchange.parts.end(),
                        [&](const ExchangePart& part) { return part.peer == peer; });
  };
  std::vector<int> peers;
  for (const ExchangePart& part : exchange.parts) peers.push_back(part.peer);
  const auto is_here = [&](const TcpStream& from) {
    return has_come(*part_of(from.peer()), exchange.key);
  };
  try {
    wait_for({.peers = peers, .is_here = is_here, .signature = &exchange.signature}, deadline);
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
  if (meets(exchange)) shared_->withdraw(exchange.key);
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
    shared_ ? commit_at_meeting(key, signature, deadline)
            : commit_as_other(key, signature, deadline);
  } catch (...) {
    alarms_->end_commit(0);
    throw;
  }
  alarms_->end_commit(sequence + 1);
}

Exchange TcpTransport::arrivals(const ExchangeKey& key, const CallSignature& signature) const {
  Exchange exchange{.key = key, .signature = signature};
  for (const int peer : others_)
    exchange.parts.push_back({.peer = peer, .sends = shared_ != nullptr});
  return exchange;
}

void TcpTransport::commit_as_first(const ExchangeKey& key, const CallSignature& signature,
                                   Deadline deadline) {
  alarms_->check();
  const Exchange arrival = arrivals(key, signature);
  start(arrival);
  finish(arrival, deadline);
  base::failpoint("commit.decide");
  if (!alarms_->decide_commit(key.sequence)) alarms_->check();
  if (shared_) return shared_->commit(key.sequence);
  ExchangeKey answer = key;
  answer.phase = 1;
  for (const int peer : others_) stream(peer).send(answer, signature, {});
}

void TcpTransport::commit_as_other(const ExchangeKey& key, const CallSignature& signature,
                                   Deadline deadline) {
  ExchangeKey answer = key;
  answer.phase = 1;
  stream(0).expect(answer, signature, {});
  stream(0).send(key, signature, {});
  const auto is_here = [&](const TcpStream& first) { return first.has_come(answer); };
  constexpr std::array<int, 1> kFirst = {0};
  try {
    // Whoever is at another operation sends something else by this key.
    const auto is_answered = [&](const TcpStream& first) {
      return first.has_come(answer) || first.has_come(key);
    };
    wait_for({.peers = kFirst, .is_here = is_answered, .signature = &signature}, deadline);
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
  // Rank 0 shows it when it has decided, and may have ended since.
  if (shared_ && shared_->has_committed(answer.sequence)) return true;
  if (alarms_->verdict().committed > answer.sequence) return true;
  if (!alarms_->first_is_gone()) return false;
  if (shared_) {
    const bool shown = shared_->has_committed(answer.sequence);
    return alarms_->settle(shown ? answer.sequence + 1 : 0) > answer.sequence;
  }
  const auto has_ended = [](const TcpStream& first) {
    return first.state() != TcpStream::State::kOpen;
  };
  try {
    constexpr std::array<int, 1> kFirst = {0};
    wait_for({.peers = kFirst, .is_here = has_ended, .what = "the end", .heeds_failures = false},
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
    for (const int peer : others_) {
      stream(peer).send_plain(FrameHeader::Kind::kRenew, next);
    }
  }
  // One that is lost may renew as well: not with this rank.
  const auto is_here = [&](const TcpStream& from) {
    return from.peer_generation() >= next && !alarms_->is_lost(from.peer());
  };
  wait_for({.peers = others_, .is_here = is_here, .what = "renew", .heeds_failures = false},
           deadline);
  generation_ = next;
  for (const int peer : others_) stream(peer).begin_generation(next);
  if (shared_) shared_->begin_generation(next);
  alarms_->begin_generation(next);
  if (lanes_) lanes_->set_incomplete(false);  // all have come
  tell_lanes();
}

std::unique_ptr<Transport> connect_over_tcp(MeshOptions options) {
  const int rank = options.rank;
  const bool share = options.shared_memory && !options.mpi;
  const bool mpi = options.mpi;
  const std::string machine = options.machine;
  const Deadline deadline = std::chrono::steady_clock::now() + options.timeout;
  auto transport = std::make_unique<TcpTransport>(rank, meet_over_tcp(std::move(options)));
  if (share) transport->share_memory(machine, deadline);
  if (mpi) transport->move_to_mpi(deadline);
  return transport;
}

}  // namespace cohort::internal::collectives
