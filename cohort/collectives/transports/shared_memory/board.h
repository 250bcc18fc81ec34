// SPDX-License-Identifier: Apache-2.0
//
// Where ranks of one machine meet for an exchange of all with all: each shows a post, and all read
// all others'. A post says which exchange it is, what was called, and for each peer where its bytes
// are: in the post itself, or in the sender's heap, where the peer reads them in place.
//
// A post's slot is used again when all peers have finished what was in it. Posts are in lanes, one
// for each phase of an exchange, so that a second phase never waits for the first of a later one.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cohort/collectives/transport.h"
#include "cohort/collectives/transports/shared_memory/heap.h"
#include "cohort/collectives/transports/shared_memory/ring.h"

namespace cohort::internal::collectives {

struct BoardHead;
struct BoardPost;

/// All boards of a job as one rank sees them.
/// Threads: thread-compatible; boards are shared between processes.
class SharedBoard {
 public:
  static constexpr std::size_t kInlineBytes = std::size_t{16} << 10;
  static constexpr int kLanes = 2;

  static constexpr std::size_t lane_of(const ExchangeKey& key) { return key.phase == 0 ? 0 : 1; }

  /// Of one rank's board. Zeros are its beginning.
  static std::size_t bytes(int ranks);
  /// `boards`: every rank's, 64-byte aligned.
  SharedBoard(int rank, std::vector<std::byte*> boards);

  SegmentTable* table(int rank) const;
  /// Forgets all posts. No rank may be at one.
  void begin_generation(uint64_t generation);

  /// Whether exchanges of this kind can stand on a board.
  bool takes(const Exchange& exchange) const;

  /// Where the bytes for a peer are.
  struct Piece {
    static constexpr int32_t kInline = -1;
    static constexpr int32_t kElsewhere = -2;  ///< They come another way.
    uint64_t bytes = 0;
    uint64_t at = 0;
    int32_t segment = kInline;
    int32_t is_awaited =
        0;  ///< 1: the sender may sleep until the peer has finished, bytes or none.
    bool operator==(const Piece&) const = default;
  };
  using Pieces = c10::SmallVector<Piece, 8>;

  /// Whether the slot is free.
  bool can_post(const ExchangeKey& key) const;
  /// `pieces`: one for each part of the exchange; those that are kInline are copied here. Peers
  /// that sleep are to be rung for: after it, finish() and commit().
  void post(const Exchange& exchange, Pieces pieces);
  /// After post() and before a wait: another one like it will follow, whose memory is asked for.
  void expect_next(const ExchangeKey& key) const;
  /// What was posted is not to be read any more; nothing if it was not.
  void revoke(const ExchangeKey& key);

  /// This rank has shown its post; another one may have its slot by now.
  bool has_posted(const ExchangeKey& key) const;
  /// Another of this rank's posts has the slot that this one had.
  bool is_slot_used_again(const ExchangeKey& key) const;
  bool has_come(int peer, const ExchangeKey& key) const;
  CallSignature signature(int peer, const ExchangeKey& key) const;
  /// What the peer has for this rank.
  Piece piece(int peer, const ExchangeKey& key) const;
  std::span<const std::byte> inline_bytes(int peer, const ExchangeKey& key,
                                          const Piece& piece) const;
  /// This rank has read what it wanted of all posts.
  void finish(const ExchangeKey& key);
  bool has_finished(int peer, const ExchangeKey& key) const;

  /// What of an exchange a rank has shown, as those are told who sleep until it has.
  enum class Shown : uint8_t { kPost, kFinish, kCommit };
  SharedBell::Event event_of(const ExchangeKey& key, Shown shown) const;

  /// Rank 0: everything up to this commit has passed.
  void commit(uint64_t sequence);
  bool has_committed(uint64_t sequence) const;

 private:
  static constexpr std::size_t kSlots = 8;
  static constexpr std::size_t kMostExpected =
      2048;  // of bytes: more is copied as fast as it comes
  struct Lane {
    std::array<uint64_t, kSlots> held = {};  // the stamp that a slot of this rank has, or had
    mutable std::vector<uint64_t> finished;  // [peer]: the stamp that was seen last
  };
  uint64_t stamp_of(uint64_t sequence) const { return (generation_ << 40) + sequence + 1; }
  static std::size_t post_bytes(int ranks);
  BoardHead& head(int rank) const;
  BoardPost& post_of(int rank, const ExchangeKey& key) const;
  Piece* pieces_of(BoardPost& post) const;
  std::byte* inline_of(BoardPost& post) const;

  const int rank_;
  const int ranks_;
  const std::vector<std::byte*> boards_;  // [rank]
  uint64_t generation_ = 0;
  std::array<Lane, kLanes> lanes_ = {};
  std::size_t shown_ = 0;  // of inline bytes, by the last post
};

}  // namespace cohort::internal::collectives
