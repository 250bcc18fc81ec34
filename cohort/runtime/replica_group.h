// SPDX-License-Identifier: Apache-2.0
//
// The replicas of one strategy in this process: persistent threads that run one function at the
// same time, meet at barriers, and merge.
//
//   ReplicaGroup group({.replicas = 2});
//   group.run([&](int replica) { ...; group.barrier(); ... });
//
// Replica 0 runs on the caller's thread. A group of one is the identity: no thread, no barrier, no
// lock, and several threads may run it at once.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cohort/base/function_ref.h"
#include "cohort/base/mutex.h"
#include "cohort/runtime/group_devices.h"
#include "cohort/runtime/meeting.h"
#include "cohort/runtime/thread_context.h"

namespace cohort::internal::runtime {

struct ReplicaGroupOptions {
  int replicas = 1;
  int intra_op_threads = 0;  ///< LibTorch's threads inside each replica; 0 leaves them alone.
  std::vector<Device> devices = {};  ///< What each replica works on; none: CPUs.
};

/// Threads: run() from any thread, one run at a time (others wait); the rest inside a run.
class ReplicaGroup {
 public:
  explicit ReplicaGroup(ReplicaGroupOptions options);
  ~ReplicaGroup();
  ReplicaGroup(const ReplicaGroup&) = delete;
  ReplicaGroup& operator=(const ReplicaGroup&) = delete;

  int size() const { return options_.replicas; }
  int intra_op_threads() const { return options_.intra_op_threads; }

  /// Calls body(r) for every replica at once and waits for all.
  /// Errors: the exception of the lowest failing replica, as thrown; the others are unwound at
  ///         their next barrier. FailedPrecondition inside a run of the same group, and with more
  ///         than one replica in a child of the process that made the group. Error
  ///         kResourceExhausted if the system refuses threads; a later run tries again.
  void run(base::FunctionRef<void(int replica)> body);
  /// The same. On every replica's thread `context` is current meanwhile, with its replica and this
  /// group; the body may fill in more. Calls `ended` when all replicas are at rest again, before it
  /// returns or throws and before the next run may begin. Order: the context's layout has as many
  /// local replicas as the group.
  void run(const ThreadContext& context, base::FunctionRef<void(ThreadContext& here)> body,
           base::FunctionRef<void(bool failed)> ended);

  /// Waits for all replicas.
  /// Errors: PeerFailed if another replica failed; FailedPrecondition that names the replicas if
  ///         some have returned (divergence), or outside of a replica of this group.
  void barrier();

  /// A merge point: when all replicas have come, fn(Brought<A>) of replica 0 runs once, in
  /// cross-replica context, with every replica's `argument`; all get its result, as a
  /// std::shared_ptr<const R>, or void. Arguments stay valid meanwhile.
  /// Errors: FailedPrecondition if names (literals) or types differ. This and what `fn` throws is
  ///         thrown on replica 0, unwinds the others, and reaches the caller of run() even if
  ///         replica 0's function swallows it.
  template <class A, class Fn>
  auto merge(const char* name, const A& argument, const Fn& fn) {
    return typed_merge(name, argument, fn,
                       [this](const MeetingKind& kind, const void* own, MergeBody body) {
                         return merge_untyped(kind, own, body);
                       });
  }
  std::shared_ptr<void> merge_untyped(const MeetingKind& kind, const void* argument,
                                      MergeBody body);

  /// A meeting in which all work: when all replicas have come, each runs its own fn(Brought<A>) at
  /// the same time, with every replica's `argument`; nobody goes on before all are done. Arguments
  /// stay valid meanwhile. Allocates nothing. Errors: FailedPrecondition if names or types differ
  /// (those of merge() count, too). What a function throws
  ///         is thrown on its replica, unwinds the others, and reaches the caller of run() even if
  ///         the replica's function swallows it.
  template <class A, class Fn>
  void meet(const char* name, const A& argument, const Fn& fn) {
    meet_untyped({name, &type_tag<A>}, std::addressof(argument),
                 [&](std::span<const void* const> all) { fn(Brought<A>(all)); });
  }

  /// Counts the meetings of all replicas that this one has passed (barriers and starts of runs):
  /// what others read before their next meeting is free again when it has grown. From 1 in a run.
  uint64_t epoch(int replica) const;

  /// Tells runs apart, so that nobody acts for a replica whose run is over; 0 while none runs.
  /// Always 1 for a group of one. Threads: any.
  uint64_t run_number() const;

  /// Runs that ended by an exception: what replicas count without meeting may differ after one.
  /// With one replica those of other workers only.
  uint64_t failed_runs() const { return failed_runs_; }
  /// Counts one that failed elsewhere, on another worker; of one replica, too. Not inside a run.
  void note_failed_run() { ++failed_runs_; }

  /// True if the cores of replicas 0 and 1 share a cache: a round trip between them takes less
  /// than 100 ns. Also where that cannot be measured, because the machine is busy.
  /// Not inside a run. Cost: about 0.2 ms, at most 2 ms.
  bool cores_share_cache();

 private:
  struct Workers;
  void start_workers() COHORT_REQUIRES(run_mutex_);
  void work(int replica);
  struct Work;
  void run_alone(const Work& work);
  void run_together(const Work& work) COHORT_REQUIRES(run_mutex_);
  void check_may_run() const;
  void run_replica(int replica, const Work& work);
  void meet_untyped(const MeetingKind& kind, const void* argument,
                    base::FunctionRef<void(std::span<const void* const> arguments)> body);
  void rethrow_first_error() COHORT_REQUIRES(run_mutex_);
  std::string diverged_text(int waiting) const;
  int checked_replica() const;
  void post(int replica, const MeetingKind& kind, const void* argument);
  std::span<const void* const> posted(int replica, const MeetingKind& kind);
  [[noreturn]] void fail(int replica, const std::exception_ptr& error);

  const ReplicaGroupOptions options_;
  const GroupDevices devices_;
  base::Mutex run_mutex_;     // one run at a time, of several replicas
  uint64_t failed_runs_ = 0;  // written between runs
  std::unique_ptr<Workers> workers_;
};

}  // namespace cohort::internal::runtime
