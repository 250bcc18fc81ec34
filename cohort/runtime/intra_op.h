// SPDX-License-Identifier: Apache-2.0
//
// Threads inside one operation. How many there are is a pure function of shapes and cores; whether
// they spin while they wait is what the machine's load decides, and no result depends on it.
#pragma once

#include <cstdint>

#include "cohort/base/function_ref.h"

namespace cohort::internal::runtime {

/// Sets the calling thread's number of intra-op threads; the destructor restores it. OpenMP keeps
/// it per thread, and a new thread starts with the process's default, not its parent's number.
/// Also brings the waiting of these threads up to date (spin_advisor.h).
/// 0 leaves the number alone. In a child of fork the thread that called it has one, whatever is
/// set, where OpenMP is GNU's.
class [[nodiscard]] IntraOpThreads {
 public:
  explicit IntraOpThreads(int threads);
  ~IntraOpThreads();
  IntraOpThreads(const IntraOpThreads&) = delete;
  IntraOpThreads& operator=(const IntraOpThreads&) = delete;

 private:
  const int before_;
};

/// The number for each of so many replicas of a strategy. In this order: what the strategy's option
/// says, OMP_NUM_THREADS (or MKL_NUM_THREADS), at::set_num_threads called before on this thread,
/// and the usable cores divided by the replicas. Always at least 1.
int intra_op_threads_of_replica(int option, int replicas);

/// The calling thread's number.
int intra_op_threads();

/// The number that the replicas of the last strategy made in this process have; 0 before there is
/// one. What sums of LibTorch's operations may depend on in their last bits: checkpoints keep it.
void note_replica_threads(int threads);
int noted_replica_threads();

/// LibTorch's products (at::mm and its kin) on so many threads of the calling thread's; the
/// destructor restores what was. MKL keeps this apart from OpenMP's number.
class [[nodiscard]] ProductThreads {
 public:
  explicit ProductThreads(int threads);
  ~ProductThreads();
  ProductThreads(const ProductThreads&) = delete;
  ProductThreads& operator=(const ProductThreads&) = delete;

 private:
  const int before_;
};

/// How many threads work of so many floating-point operations is worth, at most `threads`: a
/// further one must have at least kLeastOperations to do, or waking it costs more than it saves.
inline constexpr double kLeastOperations = 8e6;
int threads_worth(double operations, int threads);

/// Calls piece(i) for i from 0 to pieces - 1 on the calling thread's intra-op threads, and returns
/// when all have ended. A thread takes the next piece when it has done one, so one that is not
/// running keeps nobody from working. Pieces must neither throw nor call LibTorch's operations.
/// Pieces compute with the caller's float mode (flush to zero).
void run_pieces(int pieces, base::FunctionRef<void(int piece)> piece);

/// "llvm" if libomp serves this process's parallel regions, which can be told how to wait, else
/// "gnu".
const char* openmp_runtime();

}  // namespace cohort::internal::runtime
