// SPDX-License-Identifier: Apache-2.0
#include "cohort/collectives/transports/shared_memory/meeting.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "cohort/base/error.h"
#include "cohort/base/strings.h"

namespace cohort::internal::collectives {
namespace {

using Piece = SharedBoard::Piece;

// More than this of what was only to be moved goes through the rings, piece by piece.
constexpr std::size_t kMostStaged = std::size_t{1} << 20;

std::vector<std::byte*> boards_of(const SharedInbox& inbox, int ranks) {
  std::vector<std::byte*> boards;
  for (int r = 0; r < ranks; ++r) boards.push_back(inbox.board_of(r));
  return boards;
}

// Their sender may wait until they have been read, whatever there is for which peer.
void await(SharedBoard::Pieces& pieces) {
  for (Piece& piece : pieces) piece.is_awaited = 1;
}

bool are_same(ConstBytes a, ConstBytes b) { return a.data() == b.data() && a.size() == b.size(); }

// Of different bytes: a post has those for several peers once.
std::size_t bytes_to_show(const Exchange& exchange) {
  std::size_t all = 0;
  ConstBytes last;
  for (const ExchangePart& part : exchange.parts) {
    if (part.to_peer.empty()) continue;
    if (!are_same(part.to_peer, last)) all += part.to_peer.size();
    last = part.to_peer;
  }
  return all;
}

}  // namespace

SharedMeeting::SharedMeeting(SharedInbox& inbox, int rank, int ranks)
    : rank_(rank),
      ranks_(ranks),
      inbox_(inbox),
      board_(rank, boards_of(inbox, ranks)),
      heap_(board_.table(rank)) {
  for (int r = 0; r < ranks; ++r) theirs_.emplace_back(board_.table(r));
}

void SharedMeeting::tell(const SharedBell::Event& event) {
  for (int peer = 0; peer < ranks_; ++peer) {
    if (peer != rank_) inbox_.bell_of(peer).arrive(event, rank_);
  }
}

SharedMeeting::Stage* SharedMeeting::free_stage(std::size_t bytes) {
  Stage* small = nullptr;
  for (Stage& stage : stages_) {
    bool is_free = true;
    for (int peer = 0; stage.used && is_free && peer < ranks_; ++peer) {
      is_free = peer == rank_ || board_.has_finished(peer, stage.key);
    }
    if (is_free && stage.bytes >= bytes) return &stage;
    if (is_free) small = &stage;
  }
  // In its place, so that sizes that grow do not fill the heap's table.
  if (small != nullptr) *small = {};
  std::shared_ptr<std::byte> memory = heap_.allocate(std::max(bytes, SharedHeap::kLeastBytes));
  if (memory == nullptr) return nullptr;
  if (small == nullptr) small = &stages_.emplace_back();
  *small = {.memory = std::move(memory), .bytes = bytes};
  return small;
}

bool SharedMeeting::place_on_stage(const Exchange& exchange, std::size_t bytes,
                                   SharedBoard::Pieces& pieces) {
  Stage* const stage = free_stage(bytes);
  if (stage == nullptr) return false;
  stage->used = true;
  stage->key = exchange.key;
  ConstBytes last;
  std::size_t end = 0;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const ConstBytes from = exchange.parts[i].to_peer;
    if (from.empty()) {
      pieces[i] = {};
      continue;
    }
    if (!are_same(from, last)) {
      begin = end;
      std::memcpy(stage->memory.get() + begin, from.data(), from.size());
      end += from.size();
    }
    last = from;
    const HeapPlace place = *heap_.find({stage->memory.get() + begin, from.size()});
    pieces[i] = {.bytes = from.size(), .at = place.at, .segment = place.segment};
  }
  return true;
}

SharedBoard::Pieces SharedMeeting::place(const Exchange& exchange) {
  SharedBoard::Pieces pieces(exchange.parts.size());
  const std::size_t all = bytes_to_show(exchange);
  for (std::size_t i = 0; i < pieces.size(); ++i)
    pieces[i].bytes = exchange.parts[i].to_peer.size();
  using Delivery = Exchange::Delivery;
  // What is lent has to be in one place, few bytes or many.
  const bool fits = all <= SharedBoard::kInlineBytes;
  if (fits && (exchange.delivery != Delivery::kLend || all == 0)) return pieces;
  bool lent = true;
  for (std::size_t i = 0; lent && i < pieces.size(); ++i) {
    if (pieces[i].bytes == 0) continue;
    const auto place = heap_.find(exchange.parts[i].to_peer);
    lent = place.has_value();
    if (lent) pieces[i] = {.bytes = pieces[i].bytes, .at = place->at, .segment = place->segment};
  }
  if (lent) {
    // For what is lent by the ranks' own rules nobody waits here.
    if (exchange.delivery == Delivery::kLend) return pieces;
    loans_.push_back(exchange.key);
    await(pieces);
    return pieces;
  }
  if (fits) {
    for (Piece& piece : pieces) piece.segment = Piece::kInline;
    return pieces;
  }
  const bool may_stage = exchange.delivery == Delivery::kLook ||
                         (exchange.delivery == Delivery::kMove && all <= kMostStaged);
  if (may_stage && place_on_stage(exchange, all, pieces)) {
    await(pieces);
    return pieces;
  }
  if (exchange.delivery == Delivery::kLook) {
    throw Error(ErrorCode::kResourceExhausted,
                str_cat("[communicator] expected room for ", all,
                        " bytes in shared memory, got none: too many operations are under way"));
  }
  for (Piece& piece : pieces) {
    piece.segment = piece.bytes > 0 ? Piece::kElsewhere : Piece::kInline;
  }
  return pieces;
}

c10::SmallVector<int, 8> SharedMeeting::start(const Exchange& exchange) {
  if (exchange.key.phase > 0) {
    // Who has come to this phase has read what was lent in the one before.
    ExchangeKey before = exchange.key;
    --before.phase;
    forget_loan(before);
  }
  auto& waiting = waiting_[SharedBoard::lane_of(exchange.key)];
  const bool has_slot = waiting.empty() && board_.can_post(exchange.key);
  if (!has_slot && exchange.delivery == Exchange::Delivery::kLook) {
    waiting.push_back({.exchange = exchange, .placed = false});  // copied when there is a slot
    return {};
  }
  const SharedBoard::Pieces pieces = place(exchange);
  if (has_slot) {
    board_.post(exchange, pieces);
    tell(board_.event_of(exchange.key, SharedBoard::Shown::kPost));
    board_.expect_next(exchange.key);
  } else {
    waiting.push_back({.exchange = exchange, .pieces = pieces});
  }
  c10::SmallVector<int, 8> elsewhere;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    if (pieces[i].segment == Piece::kElsewhere) elsewhere.push_back(exchange.parts[i].peer);
  }
  return elsewhere;
}

void SharedMeeting::go_on() {
  for (auto& waiting : waiting_) {
    while (!waiting.empty() && board_.can_post(waiting.front().exchange.key)) {
      Waiting& next = waiting.front();
      if (!next.placed) next.pieces = place(next.exchange);
      const ExchangeKey key = next.exchange.key;
      board_.post(next.exchange, next.pieces);
      waiting.pop_front();
      tell(board_.event_of(key, SharedBoard::Shown::kPost));
    }
  }
}

bool SharedMeeting::has_come(const Exchange& exchange) {
  go_on();
  return std::all_of(exchange.parts.begin(), exchange.parts.end(),
                     [&](const ExchangePart& part) { return has_come(part.peer, exchange.key); });
}

bool SharedMeeting::is_elsewhere(int peer, const ExchangeKey& key) const {
  return board_.piece(peer, key).segment == Piece::kElsewhere;
}

bool SharedMeeting::is_inline(int peer, const ExchangeKey& key) const {
  return board_.piece(peer, key).segment == Piece::kInline;
}

void SharedMeeting::check(const Exchange& exchange) const {
  for (const ExchangePart& part : exchange.parts) {
    check_same_signature(exchange.signature, rank_, board_.signature(part.peer, exchange.key),
                         part.peer);
    check_same_length(exchange.signature, rank_, part.from_peer.size(), part.peer,
                      board_.piece(part.peer, exchange.key).bytes);
  }
}

ConstBytes SharedMeeting::see(int peer, const ExchangeKey& key) {
  const Piece piece = board_.piece(peer, key);
  if (piece.segment == Piece::kInline) return board_.inline_bytes(peer, key, piece);
  return theirs_[static_cast<std::size_t>(peer)].read({piece.segment, piece.at}, piece.bytes);
}

bool SharedMeeting::is_intact(const Exchange& exchange) const {
  std::atomic_thread_fence(std::memory_order_acquire);
  return std::all_of(exchange.parts.begin(), exchange.parts.end(), [&](const ExchangePart& part) {
    return board_.has_come(part.peer, exchange.key);
  });
}

void SharedMeeting::finish(const Exchange& exchange) {
  // Who sleeps for a slot does so for anything that a peer does. This rank's post that needs the
  // same slot of the peers rings them after this, unless it is there already: then this has to.
  const auto is_awaited = [&](const ExchangePart& part) {
    return !board_.has_come(part.peer, exchange.key) ||
           board_.piece(part.peer, exchange.key).is_awaited != 0;
  };
  const bool tells = board_.is_slot_used_again(exchange.key) ||
                     std::any_of(exchange.parts.begin(), exchange.parts.end(), is_awaited);
  board_.finish(exchange.key);
  if (tells) tell(board_.event_of(exchange.key, SharedBoard::Shown::kFinish));
}

bool SharedMeeting::lends(const ExchangeKey& key) const {
  return std::find(loans_.begin(), loans_.end(), key) != loans_.end();
}

bool SharedMeeting::has_read_copies(int peer) const {
  return std::all_of(stages_.begin(), stages_.end(), [&](const Stage& stage) {
    return !stage.used || board_.has_finished(peer, stage.key);
  });
}

void SharedMeeting::forget_loan(const ExchangeKey& key) { std::erase(loans_, key); }

void SharedMeeting::withdraw(const ExchangeKey& key) {
  board_.revoke(key);
  forget_loan(key);
  for (auto& waiting : waiting_) {
    std::erase_if(waiting, [&](const Waiting& one) { return one.exchange.key == key; });
  }
}

void SharedMeeting::commit(uint64_t sequence) {
  board_.commit(sequence);
  tell(board_.event_of({.sequence = sequence}, SharedBoard::Shown::kCommit));
}

void SharedMeeting::begin_generation(uint64_t generation) {
  board_.begin_generation(generation);
  for (Stage& stage : stages_) stage.used = false;
  loans_.clear();
  for (auto& waiting : waiting_) waiting.clear();
}

}  // namespace cohort::internal::collectives
