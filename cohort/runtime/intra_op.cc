// SPDX-License-Identifier: Apache-2.0
#include "cohort/runtime/intra_op.h"

#include <ATen/Parallel.h>
#include <dlfcn.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <thread>

#include "cohort/runtime/float_mode.h"
#include "cohort/runtime/internal/openmp_registration.h"
#include "cohort/runtime/piece_helpers.h"
#include "cohort/runtime/spin_advisor.h"
#include "cohort/runtime/topology.h"

// OpenMP's own entry points: at::set_num_threads would also change the default of every thread
// that has not computed yet. GOMP_parallel is what LibTorch's regions call; GNU's and LLVM's
// runtimes both serve it, whatever compiler this is.
extern "C" {
void omp_set_num_threads(int);
int omp_get_max_threads(void);
int omp_get_num_procs(void);
int MKL_Set_Num_Threads_Local(int) __attribute__((weak));  // of LibTorch's MKL, where it has one
void GOMP_parallel(void (*body)(void*), void* data, unsigned threads, unsigned flags);
}

namespace cohort::internal::runtime {
namespace {

std::atomic<int> g_noted{0};

// GNU's threads of the thread that called fork stayed in the parent, and in the child it would wait
// for them for ever: there it computes alone. Threads that the child starts get their own. LLVM's
// runtime begins anew in the child by itself, and holds its locks until it has.
thread_local bool t_alone = false;
[[maybe_unused]] const int registered = [] {
  if (std::strcmp(openmp_runtime(), "llvm") != 0) {
    return pthread_atfork(nullptr, nullptr, [] {
      t_alone = true;
      omp_set_num_threads(1);
    });
  }
  // Handlers run in the order of their registration, and libomp's comes with its first use.
  remove_dead_openmp_registration();
  return pthread_atfork(nullptr, nullptr, remove_dead_openmp_registration);
}();

int current_threads() {
  at::get_num_threads();  // LibTorch's lazy set-up of this thread, which would overwrite ours
  return omp_get_max_threads();
}

// Whether OpenMP takes it: a number, or several ("4,2", for regions within regions). What it
// refuses, such as "all" or 0, it does without, with a warning of its own.
bool names_threads(const char* variable) {
  const char* text = std::getenv(variable);
  if (text == nullptr) return false;
  char* end = nullptr;
  const auto threads = std::strtol(text, &end, 10);
  while (*end == ' ' || *end == '\t') ++end;
  return end != text && threads > 0 && (*end == '\0' || *end == ',');
}

// Whether the program has called at::set_num_threads: the number is none of those that LibTorch and
// OpenMP begin with.
bool set_by_program(int threads) {
  return threads != omp_get_num_procs() &&
         threads != static_cast<int>(std::thread::hardware_concurrency()) &&
         threads != usable_cores() && threads != at::intraop_default_num_threads();
}

struct Pieces {
  const base::FunctionRef<void(int)>& piece;
  const int count;
  std::atomic<int> next{0};
  // The runtime's own barriers order everything; these two say so to ThreadSanitizer as well.
  std::atomic<int> begun{0};
  std::atomic<int> done{0};
  const unsigned mode = float_mode();
};

void work(void* data) {
  Pieces& all = *static_cast<Pieces*>(data);
  all.begun.load(std::memory_order_acquire);
  const unsigned before = float_mode();
  set_float_mode(all.mode);
  for (int i = all.next.fetch_add(1, std::memory_order_relaxed); i < all.count;
       i = all.next.fetch_add(1, std::memory_order_relaxed)) {
    all.piece(i);
  }
  set_float_mode(before);
  all.done.fetch_add(1, std::memory_order_release);
}

}  // namespace

IntraOpThreads::IntraOpThreads(int threads)
    : before_(threads > 0 && !t_alone ? current_threads() : 0) {
  if (t_alone) return;
  if (threads > 0 && threads != before_) omp_set_num_threads(threads);
  if (threads != 1) update_waiting();
}

IntraOpThreads::~IntraOpThreads() {
  if (before_ > 0 && !t_alone) omp_set_num_threads(before_);
}

int intra_op_threads_of_replica(int option, int replicas) {
  if (option > 0) return option;
  const int current = current_threads();
  if (names_threads("OMP_NUM_THREADS") || names_threads("MKL_NUM_THREADS")) return current;
  if (set_by_program(current)) return current;
  return std::max(1, usable_cores() / replicas);
}

void note_replica_threads(int threads) { g_noted.store(threads, std::memory_order_relaxed); }
int noted_replica_threads() { return g_noted.load(std::memory_order_relaxed); }

int intra_op_threads() { return at::get_num_threads(); }

ProductThreads::ProductThreads(int threads)
    : before_(MKL_Set_Num_Threads_Local != nullptr ? MKL_Set_Num_Threads_Local(threads) : 0) {}

ProductThreads::~ProductThreads() {
  if (MKL_Set_Num_Threads_Local != nullptr) MKL_Set_Num_Threads_Local(before_);
}

int threads_worth(double operations, int threads) {
  const double most = std::max(1.0, operations / kLeastOperations);
  return most >= threads ? threads : static_cast<int>(most);
}

void run_pieces(int pieces, base::FunctionRef<void(int)> piece) {
  const int threads = std::min(pieces, omp_get_max_threads());
  if (threads <= 1) {
    for (int i = 0; i < pieces; ++i) piece(i);
    return;
  }
  if (!threads_spin() && pieces <= PieceHelpers::kMostPieces) {
    thread_local PieceHelpers helpers;
    return helpers.run(threads - 1, pieces, piece);
  }
  Pieces all{piece, pieces};
  all.begun.store(1, std::memory_order_release);
  GOMP_parallel(work, &all, static_cast<unsigned>(threads), 0);
  all.done.load(std::memory_order_acquire);
}

const char* openmp_runtime() {
  static const bool llvm = [] {
    // libomp may be loaded and yet not serve: then another library came first.
    Dl_info serving{};
    Dl_info own{};
    void* parallel = dlsym(RTLD_DEFAULT, "GOMP_parallel");
    void* blocktime = dlsym(RTLD_DEFAULT, "kmp_set_blocktime");
    return parallel != nullptr && blocktime != nullptr && dladdr(parallel, &serving) != 0 &&
           dladdr(blocktime, &own) != 0 && serving.dli_fbase == own.dli_fbase;
  }();
  return llvm ? "llvm" : "gnu";
}

}  // namespace cohort::internal::runtime
