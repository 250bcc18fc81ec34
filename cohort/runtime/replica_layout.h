// SPDX-License-Identifier: Apache-2.0
//
// Which replicas of a job are those of this process: the only place where local and global meet.
//
//   ReplicaLayout layout(/*worker=*/1, /*workers=*/2, /*local=*/4);
//   layout.total();       // 8: replicas in sync
//   layout.global_id(2);  // 6: the third replica of worker 1
//
// Ids that users see, the number of replicas in sync, loss scaling, batches and the keys of random
// numbers are global. Results of run, components of variables, values and threads are local.
#pragma once

#include <iosfwd>
#include <string>

namespace cohort {

/// Immutable; copies are independent. The default is one worker with one replica.
class ReplicaLayout {
 public:
  constexpr ReplicaLayout() = default;
  /// Worker `worker` (counted from 0) of `workers`, each of which has `local` replicas.
  /// Errors: InvalidArgument unless 0 <= worker < workers, local >= 1 and the total is at most
  ///         32767, the largest number of replicas that random numbers tell apart.
  ReplicaLayout(int worker, int workers, int local);
  /// One worker that has all `local` replicas. Errors: as above.
  static ReplicaLayout one_worker(int local) { return ReplicaLayout(0, 1, local); }

  constexpr int worker() const { return worker_; }
  constexpr int workers() const { return workers_; }
  /// Replicas of this worker.
  constexpr int local() const { return local_; }
  /// Replicas of all workers.
  constexpr int total() const { return workers_ * local_; }
  /// The global id of this worker's local replica 0.
  constexpr int first() const { return worker_ * local_; }
  /// The global id of this worker's replica `local`. -1, which stands for no replica, stays -1.
  constexpr int global_id(int local) const { return local < 0 ? -1 : first() + local; }

  bool operator==(const ReplicaLayout&) const = default;
  /// "worker 1 of 2, 4 local replicas".
  std::string to_string() const;

 private:
  int worker_ = 0;
  int workers_ = 1;
  int local_ = 1;
};

std::ostream& operator<<(std::ostream& out, const ReplicaLayout& layout);

namespace internal::runtime {
/// For what workers have to do together. Errors: Unimplemented with more than one worker.
void check_one_worker(const char* operation, const ReplicaLayout& layout);
}  // namespace internal::runtime

}  // namespace cohort
