// SPDX-License-Identifier: Apache-2.0
#include "cohort/runtime/intra_op.h"

#include <ATen/Parallel.h>
#include <pthread.h>

// OpenMP's own entry points: at::set_num_threads would also change the default of every thread
// that has not computed yet.
extern "C" {
void omp_set_num_threads(int);
int omp_get_max_threads(void);
}

namespace cohort::internal {
namespace {

// OpenMP's threads of the thread that called fork stayed in the parent, and in the child it would
// wait for them for ever: there it computes alone. Threads that the child starts get their own.
thread_local bool t_alone = false;
[[maybe_unused]] const int registered = pthread_atfork(nullptr, nullptr, [] {
  t_alone = true;
  omp_set_num_threads(1);
});

int current_threads() {
  at::get_num_threads();  // LibTorch's lazy set-up of this thread, which would overwrite ours
  return omp_get_max_threads();
}

}  // namespace

IntraOpThreads::IntraOpThreads(int threads)
    : before_(threads > 0 && !t_alone ? current_threads() : 0) {
  if (t_alone) return;
  if (threads > 0 && threads != before_) omp_set_num_threads(threads);
}

IntraOpThreads::~IntraOpThreads() {
  if (before_ > 0) omp_set_num_threads(before_);
}

}  // namespace cohort::internal
