// SPDX-License-Identifier: Apache-2.0
//
// How ranks of one machine meet, once they share memory: they look at each other's boards, and the
// rings under the streams move only what is between two of them, or too large for a board.
#include <sched.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <bitset>
#include <cstring>

#include "cohort/base/logging.h"
#include "cohort/collectives/transports/tcp/transport_parts.h"
#include "cohort/runtime/device_backend.h"

namespace cohort::internal::collectives {
namespace {

// Whether the bytes of a part could come as a message; then they are expected in good time.
bool may_be_message(const ExchangePart& part) {
  return part.from_peer.data() != nullptr && part.from_peer.size() > SharedBoard::kInlineBytes;
}

// Ranks that were given cores of their own may look for each other as long as replicas do.
bool have_own_cores(std::span<const cpu_set_t> cores) {
  for (std::size_t a = 0; a < cores.size(); ++a) {
    for (std::size_t b = 0; b < a; ++b) {
      cpu_set_t both;
      CPU_AND(&both, &cores[a], &cores[b]);
      if (CPU_COUNT(&both) > 0) return false;
    }
  }
  return true;
}

// Every rank maps what any of them reserves, far more than it uses; its length is a file's, too.
bool has_address_space() {
  rlimit of_files{};
  if (getrlimit(RLIMIT_FSIZE, &of_files) != 0 || of_files.rlim_cur != RLIM_INFINITY) return false;
  const Device& host = runtime::host_device();
  return runtime::device_backend(host).reservable(host) == std::numeric_limits<std::size_t>::max();
}

}  // namespace

bool TcpTransport::sleep_at_bell(Deadline deadline, const Wait& wait) {
  SharedBell& bell = inbox_->bell();
  runtime::SpinBudget none(0);
  // A slot for what has to wait for one comes without a message.
  const auto is_over = [&] {
    shared_->go_on();
    return wait.is_over();
  };
  const auto has_come = [&](int peer) { return wait.is_here(stream(peer)); };
  SharedBell::Sleep sleep{.ranks = wait.peers, .has_come = has_come};
  if (wait.shown) sleep.event = shared_->event_of(wait.shown->key, wait.shown->what);
  bell.wait(rings_, wait.has_looked ? none : patience_->looks(), deadline, is_over, sleep);
  return wait.is_over() || bell.rings() != rings_ || std::chrono::steady_clock::now() < deadline;
}

void TcpTransport::start_meeting(const Exchange& exchange) {
  for (const ExchangePart& part : exchange.parts) {
    if (may_be_message(part)) {
      stream(part.peer).expect(exchange.key, exchange.signature, part.from_peer);
    }
  }
  const auto elsewhere = shared_->start(exchange);
  for (const ExchangePart& part : exchange.parts) {
    if (std::find(elsewhere.begin(), elsewhere.end(), part.peer) == elsewhere.end()) continue;
    stream(part.peer).send(exchange.key, exchange.signature, part.to_peer);
  }
}

// False: it takes long. Most of the time the others are nearly there.
bool TcpTransport::look_for(base::FunctionRef<bool()> is_over) {
  const SharedBell& bell = inbox_->bell();
  return patience_->look_for(is_over, [&] {
    if (bell.rings() == rings_) return;
    move_messages();
    alarms_->check();
  });
}

void TcpTransport::wait_by_looking(Wait wait, Deadline deadline) {
  wait.has_looked = true;
  if (!look_for(wait.is_over)) wait_for(wait, deadline);
  alarms_->check();
}

void TcpTransport::meet(const Exchange& exchange, Deadline deadline) {
  const auto is_over = [&] { return shared_->has_come(exchange); };
  const auto is_here = [&](const TcpStream& from) {
    return shared_->has_come(from.peer(), exchange.key);
  };
  wait_by_looking({.peers = others_,
                   .is_here = is_here,
                   .signature = &exchange.signature,
                   .is_over = is_over,
                   .shown = Shown{SharedBoard::Shown::kPost, exchange.key}},
                  deadline);
  shared_->check(exchange);
}

// What comes as messages, and what `wants` says of the rest, to from_peer.
void TcpTransport::move(const Exchange& exchange, Deadline deadline,
                        base::FunctionRef<bool(const ExchangePart&)> wants) {
  Exchange messages{.key = exchange.key, .signature = exchange.signature};
  bool any = false;
  for (const ExchangePart& part : exchange.parts) {
    const bool comes = shared_->is_elsewhere(part.peer, exchange.key);
    messages.parts.push_back({.peer = part.peer, .receives = comes, .from_peer = part.from_peer});
    any = any || comes || !stream(part.peer).is_sent(exchange.key);
    if (comes) continue;
    if (may_be_message(part)) stream(part.peer).withdraw_expected(exchange.key);
    if (!wants(part)) continue;
    const ConstBytes bytes = shared_->see(part.peer, exchange.key);
    if (!bytes.empty()) std::memcpy(part.from_peer.data(), bytes.data(), bytes.size());
  }
  if (any) finish_streams(messages, deadline);
}

void TcpTransport::finish_meeting(const Exchange& exchange, Deadline deadline) {
  meet(exchange, deadline);
  move(exchange, deadline, [](const ExchangePart&) { return true; });
  let_go(exchange, deadline);
  await_readers(exchange, deadline);
}

void TcpTransport::look(Exchange& exchange, Deadline deadline) {
  if (!meets(exchange)) return Transport::look(exchange, deadline);
  const bool lends = exchange.delivery == Exchange::Delivery::kLend;
  try {
    meet(exchange, deadline);
    // A post's own bytes do not last.
    move(exchange, deadline, [&](const ExchangePart& part) {
      return lends && shared_->is_inline(part.peer, exchange.key);
    });
    for (ExchangePart& part : exchange.parts) {
      const bool moved = shared_->is_elsewhere(part.peer, exchange.key) ||
                         (lends && shared_->is_inline(part.peer, exchange.key));
      part.seen = moved ? part.from_peer : shared_->see(part.peer, exchange.key);
    }
  } catch (...) {
    withdraw(exchange);
    throw;
  }
}

void TcpTransport::let_go(const Exchange& exchange, Deadline deadline) {
  if (!meets(exchange)) return;
  if (!shared_->is_intact(exchange)) {
    // Who takes back what it has shown has failed, and says so.
    const auto is_here = [](const TcpStream&) { return false; };
    wait_for({.peers = others_, .is_here = is_here, .signature = &exchange.signature}, deadline);
  }
  shared_->finish(exchange);
}

void TcpTransport::await_readers(const Exchange& exchange, Deadline deadline) {
  if (!meets(exchange) || !shared_->lends(exchange.key)) return;
  const auto is_here = [&](const TcpStream& from) {
    return shared_->was_read(from.peer(), exchange.key);
  };
  const auto is_over = [&] {
    shared_->go_on();
    return std::all_of(others_.begin(), others_.end(),
                       [&](int peer) { return shared_->was_read(peer, exchange.key); });
  };
  wait_by_looking({.peers = others_,
                   .is_here = is_here,
                   .signature = &exchange.signature,
                   .is_over = is_over,
                   .shown = Shown{SharedBoard::Shown::kFinish, exchange.key}},
                  deadline);
  shared_->forget_loan(exchange.key);
}

// Everybody shows that it has come, and rank 0 that all have.
void TcpTransport::commit_at_meeting(const ExchangeKey& key, const CallSignature& signature,
                                     Deadline deadline) {
  const Exchange arrival = arrivals(key, signature);
  constexpr std::array<int, 1> kFirst = {0};
  const auto is_over = [&] {
    shared_->go_on();  // this rank's own arrival may have to wait for its place
    return shared_->has_committed(key.sequence);
  };
  try {
    alarms_->check();
    start_meeting(arrival);
    const auto is_here = [&](const TcpStream&) { return is_over(); };
    wait_by_looking({.peers = kFirst,
                     .is_here = is_here,
                     .signature = &signature,
                     .is_over = is_over,
                     .shown = Shown{SharedBoard::Shown::kCommit, key}},
                    deadline);
  } catch (...) {
    const bool passed = has_committed(key, std::current_exception());
    shared_->withdraw(key);
    if (!passed) throw;
  }
  shared_->finish(arrival);
}

std::shared_ptr<std::byte> TcpTransport::allocate(std::size_t bytes) {
  std::shared_ptr<std::byte> memory = shared_ ? shared_->allocate(bytes) : nullptr;
  return memory != nullptr ? memory : Transport::allocate(bytes);
}

std::unique_ptr<runtime::Region> TcpTransport::reserve_memory(std::size_t bytes) {
  if (!shared_) return nullptr;
  std::string why =
      "a rank's address space or files are limited (ulimit -v, ulimit -f, vm.overcommit_memory)";
  try {
    auto region = has_address_space_ ? shared_->reserve(bytes) : nullptr;
    if (region != nullptr) return region;
    if (has_address_space_) why = "it has as many segments as it can have";
  } catch (const Error& e) {
    why = e.what();
  }
  COHORT_LOG(kInfo, "[communicator] gradients are copied before other ranks read them: ", why);
  return nullptr;
}

// Which ranks each has opened.
using Opened = std::bitset<1024>;

void TcpTransport::share_memory(const std::string& machine, Deadline deadline) {
  std::unique_ptr<SharedInbox> inbox;
  InboxOffer offer;
  std::string why = "the system gives none";
  try {
    inbox = std::make_unique<SharedInbox>(rank_, size(), machine);
    offer = inbox->offer();
  } catch (const Error& e) {
    why = e.what();
  }
  const auto offers = told_by_all(0, offer, deadline);
  if (inbox) inbox->open(offers, &why);
  Opened mine;
  for (const int peer : others_) {
    const auto at = static_cast<std::size_t>(peer);
    if (at < mine.size()) mine[at] = inbox && inbox->has_opened(peer);
  }
  const auto all = told_by_all(1, mine, deadline);
  cpu_set_t cores;
  CPU_ZERO(&cores);
  sched_getaffinity(0, sizeof cores, &cores);
  const bool own_cores = have_own_cores(told_by_all(2, cores, deadline));
  const auto roomy = told_by_all(4, has_address_space() ? 1 : 0, deadline);
  has_address_space_ = std::find(roomy.begin(), roomy.end(), 0) == roomy.end();
  const bool one_machine = std::all_of(all.begin(), all.end(), [&](const Opened& opened) {
    return opened.count() == others_.size();
  });
  const auto sleeps = one_machine ? SharedInbox::SleepsAt::kBell : SharedInbox::SleepsAt::kDoor;
  std::size_t near = 0;
  for (const int peer : others_) {
    const auto at = static_cast<std::size_t>(peer);
    if (at >= mine.size() || !mine[at] || !all[at][static_cast<std::size_t>(rank_)]) continue;
    stream(peer).move_to(inbox->rings_of(peer, sleeps));
    ++near;
  }
  if (near < others_.size()) {
    COHORT_LOG(kInfo, "[communicator] messages to ", others_.size() - near, " of ", others_.size(),
               " other ranks travel over TCP, not through shared memory: ", why);
  }
  if (near == 0) return;
  inbox_ = std::move(inbox);
  alarms_->also_ring([bell = &inbox_->bell()] { bell->ring(); });
  if (!one_machine) return;
  if (own_cores) patience_.emplace(runtime::most_spins(1));
  shared_ = std::make_unique<SharedMeeting>(*inbox_, rank_, size());
}

}  // namespace cohort::internal::collectives
