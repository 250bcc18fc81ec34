// SPDX-License-Identifier: Apache-2.0
//
// How the ranks of a job agree on a failure, and on the commits that had passed before it: over a
// line to every other rank, on which a thread listens that sleeps otherwise.
//
// A rank that fails proposes its failure to the lowest rank that lives, which takes the first one
// and tells all. Rank 0 lets a commit pass or takes a failure, under one lock, so that each knows
// on which side of the other it stands. Where rank 0 itself is gone, the others tell each other how
// many commits they had passed. Where it only does not answer, and may have let a commit pass, no
// generation begins with it any more.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cohort/base/mutex.h"
#include "cohort/collectives/transports/tcp/socket.h"
#include "cohort/collectives/transports/tcp/wire.h"
#include "cohort/runtime/task_thread.h"

namespace cohort::internal::collectives {

/// A generation's end: the failure that counts, and how many commits had passed.
struct Verdict {
  Failure failure = {};
  uint64_t committed = 0;
};

/// Threads: thread-safe, but for what says otherwise.
class TcpAlarms {
 public:
  struct Line {
    std::string address = {};  ///< And task, as errors name it.
    Socket socket = {};        ///< Of this rank itself: none.
  };
  TcpAlarms(int rank, std::vector<Line> lines);
  /// Says goodbye.
  ~TcpAlarms();
  TcpAlarms(const TcpAlarms&) = delete;
  TcpAlarms& operator=(const TcpAlarms&) = delete;

  /// The first failure of this generation counts. Blocks: never.
  void propose(const Failure& failure) noexcept;
  /// A peer's connection was lost: as every rank that saw it says it.
  void propose_gone(int peer, const std::string& why) noexcept;
  /// These peers do not answer any more, though their connections are there. They are told, and not
  /// listened to. Blocks: never.
  void lose(std::span<const int> peers, const Failure& failure) noexcept;
  bool failed() const { return failed_.load(std::memory_order_acquire); }
  /// Throws the generation's failure, if there is one. Blocks: until the ranks have agreed.
  void check();
  /// What the ranks agree on, after failed(). Blocks: a few seconds where nobody answers.
  Verdict verdict();
  void begin_generation(uint64_t generation);

  /// Readable as soon as something has happened that who waits has to look at.
  int bell() const { return bell_.fd(); }
  void silence_bell();
  /// Is called, too, whenever the bell rings, and must not block. Before any use.
  void also_ring(std::function<void()> bell);
  /// Whether a peer is gone or has ended.
  bool is_away(int peer) const;
  /// Whether lose() has named it.
  bool is_lost(int peer) const;
  /// Whether a peer is dead, or did not answer in time in this generation.
  bool misses_ranks() const;
  /// False only if no peer is away. Cost: one load.
  bool is_anyone_away() const { return anyone_away_.load(std::memory_order_acquire); }
  /// "rank 1 (host:port, worker 0)".
  std::string name_of(int rank) const;

  // Commits; on the communicator's thread.

  /// From here to end_commit() this rank cannot say yet how many commits it has passed.
  void begin_commit();
  /// Commits [0, committed) have passed; 0: this one has not. A rank 0 that did not answer whether
  /// it has is lost from here on.
  void end_commit(uint64_t committed);
  /// On rank 0. False if a failure was first.
  bool decide_commit(uint64_t sequence);
  bool first_is_gone() const;
  /// With rank 0 gone, and `committed` all that it had told this rank: what it had told any.
  uint64_t settle(uint64_t committed);

 private:
  // What this rank knows of a peer.
  struct Standing {
    bool gone = false;     // dead, or cut off
    bool left = false;     // ended in good order
    bool lost = false;     // gone, but perhaps its connection is not
    bool suspect = false;  // does not answer
    std::optional<uint64_t> settled = {};
    bool is_away() const { return gone || left; }
  };

  static std::size_t at(int rank) { return static_cast<std::size_t>(rank); }
  bool listens(std::size_t peer) const COHORT_REQUIRES(mutex_) {
    return lines_[peer].socket && !standings_[peer].is_away();
  }
  int judge() const COHORT_REQUIRES(mutex_);
  void propose_locked(const Failure& failure) COHORT_REQUIRES(mutex_);
  void decide(const Failure& failure) COHORT_REQUIRES(mutex_);
  void tell(std::size_t peer, AlarmHeader header, const std::string& text) COHORT_REQUIRES(mutex_);
  void tell_failure(std::size_t peer, AlarmHeader::Kind kind, uint64_t generation,
                    const Verdict& verdict) COHORT_REQUIRES(mutex_);
  void tell_settled() COHORT_REQUIRES(mutex_);
  void ring() COHORT_REQUIRES(mutex_);
  void hear(int peer, const AlarmHeader& header, const std::string& text);
  void hear_proposal(std::size_t peer, uint64_t generation, const Failure& failure)
      COHORT_REQUIRES(mutex_);
  void hear_verdict(uint64_t generation, const Verdict& verdict) COHORT_REQUIRES(mutex_);

  void watch(const std::stop_token& stop);
  bool listens_to(int from);
  void hear_all(int from);
  void read_line(int peer);

  const int rank_;
  Socket bell_;
  Socket stop_bell_;
  std::atomic<bool> failed_{false};
  std::atomic<bool> anyone_away_{false};
  // Their lists are constant after construction. Who holds mutex_ sends; the watching thread
  // receives.
  std::vector<Line> lines_;
  std::vector<std::vector<std::byte>> read_;  // of each line, the watching thread's

  mutable base::Mutex mutex_;
  std::condition_variable_any changed_;
  std::vector<Standing> standings_ COHORT_GUARDED_BY(mutex_);
  uint64_t generation_ COHORT_GUARDED_BY(mutex_) = 0;
  uint64_t committed_ COHORT_GUARDED_BY(mutex_) = 0;
  bool in_commit_ COHORT_GUARDED_BY(mutex_) = false;
  bool has_settled_ COHORT_GUARDED_BY(mutex_) = false;
  // In a commit others have decided without rank 0.
  bool overruled_first_ COHORT_GUARDED_BY(mutex_) = false;
  std::optional<Failure> proposed_ COHORT_GUARDED_BY(mutex_);
  std::optional<Verdict> verdict_ COHORT_GUARDED_BY(mutex_);
  std::function<void()> other_bell_ COHORT_GUARDED_BY(mutex_);
  // Of generations that others have begun already.
  std::map<uint64_t, Verdict> later_ COHORT_GUARDED_BY(mutex_);

  std::optional<runtime::TaskThread> thread_;  // last: it uses all the rest
};

}  // namespace cohort::internal::collectives
