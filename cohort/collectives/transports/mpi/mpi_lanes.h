// SPDX-License-Identifier: Apache-2.0
//
// Streams over MPI, between processes that mpirun has started. MPI moves bytes and adds nothing:
// sums are those of every other transport.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "cohort/collectives/transports/mpi/stream_carrier.h"

namespace cohort::internal::collectives {

/// Whether this build of Cohort has MPI.
bool has_mpi();
/// Whether it has ended, as by the program itself: lanes take and bring nothing more.
bool is_mpi_over();

/// This process among those that mpirun has started with it; plain data.
struct MpiPlace {
  int rank = 0;
  int size = 1;
  uint64_t job = 0;  ///< The same in all of them.
};
/// Whether mpirun, or another one that speaks to MPI, has started this process.
bool has_mpi_launcher();
/// Begins MPI, if the program has not; what was begun here ends with the process. Without mpirun a
/// process is alone.
/// Errors: Unimplemented without MPI, or of one that threads cannot call by turns;
///         FailedPrecondition when MPI has ended.
MpiPlace mpi_place();

/// Errors: FailedPrecondition when MPI has ended, of all that begins something.
/// Threads: as StreamCarrier.
class MpiLanes {
 public:
  /// `ranks`: by the job's ranks those of MPI. Order: all processes that mpirun has started make
  /// one at the same time.
  explicit MpiLanes(std::vector<int> ranks);
  ~MpiLanes();
  MpiLanes(const MpiLanes&) = delete;
  MpiLanes& operator=(const MpiLanes&) = delete;

  /// Whether all have made theirs, before which there are no lanes. Blocks: never.
  bool are_ready();
  /// Whether a rank is dead or stopped. Lanes that are incomplete to their end, or were never
  /// ready, leave MPI to mpirun: its end with the process would wait for all. Threads: thread-safe.
  void set_incomplete(bool is_incomplete) noexcept;
  /// To a rank of the job; once for each. Outlives this.
  std::unique_ptr<StreamCarrier> lane_to(int peer);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace cohort::internal::collectives
