// SPDX-License-Identifier: Apache-2.0
#include "cohort/collectives/transports/shared_memory/board.h"

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>

namespace cohort::internal::collectives {

struct alignas(64) BoardHead {
  std::array<std::atomic<uint64_t>, SharedBoard::kLanes> finished;  // stamps; only ever higher
  alignas(64) std::atomic<uint64_t> committed;                      // a stamp, of rank 0
  alignas(64) SegmentTable table;
};

// One line of the cache, which is all that peers read of a post without bytes. Pieces, if they
// differ, and inline bytes stand behind it.
struct alignas(64) BoardPost {
  std::atomic<uint64_t> stamp;  // 0: nothing to be read
  CallSignature signature;
  SharedBoard::Piece common;  // of all peers
};
static_assert(sizeof(BoardPost) == 64);

namespace {

constexpr std::size_t kLine = 64;
constexpr std::size_t round_up(std::size_t bytes) { return (bytes + kLine - 1) / kLine * kLine; }

// A peer's piece is not the same as the others'.
constexpr int32_t kEach = -3;

// Asks for a line that is about to be written, which others have read; a hint, ordered by nothing.
void will_write([[maybe_unused]] const std::byte* line) {
#if defined(__x86_64__)
  asm volatile("prefetchw %0"
               :
               : "m"(*line));  // the builtin asks to read where -mprfchw is not set
#else
  __builtin_prefetch(line, 1);
#endif
}

}  // namespace

static_assert(std::is_trivially_copyable_v<CallSignature>);

std::size_t SharedBoard::post_bytes(int ranks) {
  return sizeof(BoardPost) + round_up(static_cast<std::size_t>(ranks) * sizeof(Piece)) +
         kInlineBytes;
}

std::size_t SharedBoard::bytes(int ranks) {
  return sizeof(BoardHead) + kLanes * kSlots * post_bytes(ranks);
}

SharedBoard::SharedBoard(int rank, std::vector<std::byte*> boards)
    : rank_(rank), ranks_(static_cast<int>(boards.size())), boards_(std::move(boards)) {
  begin_generation(0);
}

BoardHead& SharedBoard::head(int rank) const {
  return *reinterpret_cast<BoardHead*>(boards_[static_cast<std::size_t>(rank)]);
}

BoardPost& SharedBoard::post_of(int rank, const ExchangeKey& key) const {
  const std::size_t slot = lane_of(key) * kSlots + key.sequence % kSlots;
  return *reinterpret_cast<BoardPost*>(boards_[static_cast<std::size_t>(rank)] + sizeof(BoardHead) +
                                       slot * post_bytes(ranks_));
}

SharedBoard::Piece* SharedBoard::pieces_of(BoardPost& post) const {
  return reinterpret_cast<Piece*>(reinterpret_cast<std::byte*>(&post) + sizeof(BoardPost));
}

std::byte* SharedBoard::inline_of(BoardPost& post) const {
  return reinterpret_cast<std::byte*>(pieces_of(post)) +
         round_up(static_cast<std::size_t>(ranks_) * sizeof(Piece));
}

SegmentTable* SharedBoard::table(int rank) const { return &head(rank).table; }

void SharedBoard::begin_generation(uint64_t generation) {
  generation_ = generation;
  for (Lane& lane : lanes_) {
    lane.held = {};
    lane.finished.assign(static_cast<std::size_t>(ranks_), 0);
  }
}

bool SharedBoard::takes(const Exchange& exchange) const {
  if (exchange.key.channel != ExchangeKey::Channel::kCollective) return false;
  if (exchange.key.phase >= kLanes || static_cast<int>(exchange.parts.size()) != ranks_ - 1) {
    return false;
  }
  return std::all_of(exchange.parts.begin(), exchange.parts.end(),
                     [](const ExchangePart& part) { return part.sends && part.receives; });
}

bool SharedBoard::can_post(const ExchangeKey& key) const {
  const std::size_t lane = lane_of(key);
  const uint64_t held = lanes_[lane].held[key.sequence % kSlots];
  for (int peer = 0; held != 0 && peer < ranks_; ++peer) {
    if (peer == rank_) continue;
    // What a peer has finished only grows: most of the time what was seen last is enough, and its
    // line stays where it writes it.
    uint64_t& seen = lanes_[lane].finished[static_cast<std::size_t>(peer)];
    if (seen >= held) continue;
    seen = head(peer).finished[lane].load(std::memory_order_acquire);
    if (seen < held) return false;
  }
  return true;
}

void SharedBoard::post(const Exchange& exchange, Pieces pieces) {
  BoardPost& post = post_of(rank_, exchange.key);
  const std::byte* last = nullptr;
  std::size_t end = 0;
  Piece same = {};
  bool is_common = true;
  for (std::size_t i = 0; i < exchange.parts.size(); ++i) {
    const ExchangePart& part = exchange.parts[i];
    Piece piece = pieces[i];
    if (piece.segment == Piece::kInline && piece.bytes > 0) {
      if (part.to_peer.data() == last && piece.bytes == same.bytes) {
        piece = same;  // the same for several peers
      } else {
        piece.at = end;
        std::memcpy(inline_of(post) + end, part.to_peer.data(), piece.bytes);
        end += piece.bytes;
        last = part.to_peer.data();
        same = piece;
      }
    }
    if (i == 0) post.common = piece;
    is_common = is_common && piece == post.common;
    pieces[i] = piece;
  }
  if (!is_common) {
    post.common.segment = kEach;
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      pieces_of(post)[exchange.parts[i].peer] = pieces[i];
    }
  }
  const uint64_t stamp = stamp_of(exchange.key.sequence);
  lanes_[lane_of(exchange.key)].held[exchange.key.sequence % kSlots] = stamp;
  // Peers look at this line already: it is written last, and at once. Nobody reads by the stamp
  // that it has had, for all have finished that post. ring() is a fence.
  post.signature = exchange.signature;
  post.stamp.store(stamp, std::memory_order_release);
  shown_ = is_common ? end : 0;
}

void SharedBoard::expect_next(const ExchangeKey& key) const {
  const ExchangeKey next{.phase = key.phase, .sequence = key.sequence + 1};
  BoardPost& post = post_of(rank_, next);
  will_write(reinterpret_cast<const std::byte*>(&post));
  const std::size_t bytes = std::min(shown_, kMostExpected);
  for (std::size_t at = 0; at < bytes; at += kLine) will_write(inline_of(post) + at);
}

void SharedBoard::revoke(const ExchangeKey& key) {
  BoardPost& post = post_of(rank_, key);
  if (post.stamp.load(std::memory_order_relaxed) != stamp_of(key.sequence)) return;
  post.stamp.store(0, std::memory_order_seq_cst);
  // What is written from here on is not seen before that.
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

bool SharedBoard::has_posted(const ExchangeKey& key) const {
  return lanes_[lane_of(key)].held[key.sequence % kSlots] >= stamp_of(key.sequence);
}

bool SharedBoard::is_slot_used_again(const ExchangeKey& key) const {
  return lanes_[lane_of(key)].held[key.sequence % kSlots] > stamp_of(key.sequence);
}

bool SharedBoard::has_come(int peer, const ExchangeKey& key) const {
  return post_of(peer, key).stamp.load(std::memory_order_acquire) == stamp_of(key.sequence);
}

CallSignature SharedBoard::signature(int peer, const ExchangeKey& key) const {
  return post_of(peer, key).signature;
}

SharedBoard::Piece SharedBoard::piece(int peer, const ExchangeKey& key) const {
  BoardPost& post = post_of(peer, key);
  return post.common.segment != kEach ? post.common : pieces_of(post)[rank_];
}

std::span<const std::byte> SharedBoard::inline_bytes(int peer, const ExchangeKey& key,
                                                     const Piece& piece) const {
  return {inline_of(post_of(peer, key)) + piece.at, piece.bytes};
}

void SharedBoard::finish(const ExchangeKey& key) {
  head(rank_).finished[lane_of(key)].store(stamp_of(key.sequence), std::memory_order_release);
}

bool SharedBoard::has_finished(int peer, const ExchangeKey& key) const {
  return head(peer).finished[lane_of(key)].load(std::memory_order_acquire) >=
         stamp_of(key.sequence);
}

// Posts of a lane come in the order of their stamps.
SharedBell::Event SharedBoard::event_of(const ExchangeKey& key, Shown shown) const {
  using Kind = SharedBell::Event::Kind;
  const bool first = lane_of(key) == 0;
  Kind kind = Kind::kCommit;
  if (shown == Shown::kPost) kind = first ? Kind::kPost : Kind::kSecondPost;
  if (shown == Shown::kFinish) kind = first ? Kind::kFinish : Kind::kSecondFinish;
  return {.kind = kind, .number = stamp_of(key.sequence)};
}

void SharedBoard::commit(uint64_t sequence) {
  head(rank_).committed.store(stamp_of(sequence), std::memory_order_release);
}

bool SharedBoard::has_committed(uint64_t sequence) const {
  return head(0).committed.load(std::memory_order_acquire) >= stamp_of(sequence);
}

}  // namespace cohort::internal::collectives
