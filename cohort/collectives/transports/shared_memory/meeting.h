// SPDX-License-Identifier: Apache-2.0
//
// Exchanges of all ranks of one machine, over their boards and heaps. Nothing here waits: it shows
// what this rank has, and says what the others show.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "cohort/collectives/transports/shared_memory/board.h"
#include "cohort/collectives/transports/shared_memory/heap.h"
#include "cohort/collectives/transports/shared_memory/inbox.h"

namespace cohort::internal::collectives {

/// Threads: thread-compatible, but for allocate() from any.
class SharedMeeting {
 public:
  /// `inbox`: has opened all others'; outlives this.
  SharedMeeting(SharedInbox& inbox, int rank, int ranks);

  bool takes(const Exchange& exchange) const { return board_.takes(exchange); }

  /// Shows this rank's part. The peers whose bytes have to be sent another way: see is_elsewhere().
  c10::SmallVector<int, 8> start(const Exchange& exchange);
  /// Shows what had to wait for a slot; nothing most of the time.
  void go_on();
  /// A peer's part, all of it but what comes another way; and this rank's, which may have to wait
  /// for its place: what it shows must not change before.
  bool has_come(int peer, const ExchangeKey& key) const {
    return board_.has_posted(key) && board_.has_come(peer, key);
  }
  bool has_come(const Exchange& exchange);
  /// What peers ring for. Unset: whatever they do may be what something here waits for.
  std::optional<SharedBell::Event> event_of(const ExchangeKey& key,
                                            SharedBoard::Shown shown) const {
    for (const auto& waiting : waiting_) {
      if (!waiting.empty()) return std::nullopt;
    }
    return board_.event_of(key, shown);
  }
  /// Whether the peer sends the bytes of its part another way.
  bool is_elsewhere(int peer, const ExchangeKey& key) const;
  /// Errors: as check_same_signature() and check_same_length().
  void check(const Exchange& exchange) const;
  /// The peer's bytes, where they are.
  ConstBytes see(int peer, const ExchangeKey& key);
  bool is_inline(int peer, const ExchangeKey& key) const;
  /// After reading: whether all of it was what the peers have shown.
  bool is_intact(const Exchange& exchange) const;
  /// This rank has read what it wanted.
  void finish(const Exchange& exchange);
  /// Whether the peers read this rank's own memory, and not a copy of it, and it waits for them.
  bool lends(const ExchangeKey& key) const;
  bool was_read(int peer, const ExchangeKey& key) const { return board_.has_finished(peer, key); }
  void forget_loan(const ExchangeKey& key);
  /// Whether the peer has read all copies that were made for it.
  bool has_read_copies(int peer) const;
  /// Takes back what was shown; who is reading it will see so.
  void withdraw(const ExchangeKey& key);

  void commit(uint64_t sequence);
  bool has_committed(uint64_t sequence) const { return board_.has_committed(sequence); }
  void begin_generation(uint64_t generation);

  /// Null: see SharedHeap.
  std::shared_ptr<std::byte> allocate(std::size_t bytes) { return heap_.allocate(bytes); }
  /// The same.
  std::unique_ptr<runtime::Region> reserve(std::size_t bytes) { return heap_.reserve(bytes); }
  /// Whether peers can read it where it is.
  bool is_in_heap(ConstBytes bytes) const { return heap_.find(bytes).has_value(); }

 private:
  // A copy of what is not in the heap.
  struct Stage {
    std::shared_ptr<std::byte> memory = {};
    std::size_t bytes = 0;
    bool used = false;
    ExchangeKey key = {};
  };
  struct Waiting {
    Exchange exchange = {};
    SharedBoard::Pieces pieces = {};
    bool placed = true;
  };
  SharedBoard::Pieces place(const Exchange& exchange);
  bool place_on_stage(const Exchange& exchange, std::size_t bytes, SharedBoard::Pieces& pieces);
  Stage* free_stage(std::size_t bytes);
  void tell(const SharedBell::Event& event);

  const int rank_;
  const int ranks_;
  SharedInbox& inbox_;
  SharedBoard board_;
  SharedHeap heap_;
  std::vector<PeerHeap> theirs_;  // [rank]
  std::vector<Stage> stages_;
  std::vector<ExchangeKey> loans_;
  std::array<std::deque<Waiting>, SharedBoard::kLanes> waiting_;  // for slots
};

}  // namespace cohort::internal::collectives
