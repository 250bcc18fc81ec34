// SPDX-License-Identifier: Apache-2.0
//
// LLVM's libomp registers each process by its id in /dev/shm, to find a second copy of itself. One
// that was killed leaves the entry behind, and the next process of that id looks into /proc whether
// it still stands for something: where /proc is of another process namespace (unshare --pid, some
// sandboxes), that is an abort.
#pragma once

namespace cohort::internal::runtime {

/// Removes an entry of this process's id that does not stand for a runtime in this process. Before
/// the runtime's first use. Cost: a system call where there is none.
void remove_dead_openmp_registration();

}  // namespace cohort::internal::runtime
