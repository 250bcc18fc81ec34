// SPDX-License-Identifier: Apache-2.0
#include "machine.h"

#include <dirent.h>
#include <immintrin.h>
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <memory>
#include <sstream>
#include <thread>

#include "cohort/base/check.h"
#include "pinned_threads.h"

namespace cohort::bench {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Twelve independent chains hide the latency of four cycles on two units.
constexpr int kChains = 12;

__attribute__((target("avx512f"), noinline)) void fma_avx512(std::int64_t n) {
  __m512 chains[kChains];
#pragma GCC unroll 12
  for (int i = 0; i < kChains; ++i) chains[i] = _mm512_set1_ps(i);
  const __m512 x = _mm512_set1_ps(0.9999f), y = _mm512_set1_ps(1e-5f);
  for (std::int64_t k = 0; k < n; ++k) {
#pragma GCC unroll 12
    for (int i = 0; i < kChains; ++i) {
      chains[i] = _mm512_fmadd_ps(chains[i], x, y);
      asm volatile("" : "+v"(chains[i]));
    }
  }
}

__attribute__((target("avx2,fma"), noinline)) void fma_avx2(std::int64_t n) {
  __m256 chains[kChains];
#pragma GCC unroll 12
  for (int i = 0; i < kChains; ++i) chains[i] = _mm256_set1_ps(i);
  const __m256 x = _mm256_set1_ps(0.9999f), y = _mm256_set1_ps(1e-5f);
  for (std::int64_t k = 0; k < n; ++k) {
#pragma GCC unroll 12
    for (int i = 0; i < kChains; ++i) {
      chains[i] = _mm256_fmadd_ps(chains[i], x, y);
      asm volatile("" : "+x"(chains[i]));
    }
  }
}

// Floating-point operations of n turns.
double run_fma(std::int64_t n) {
  if (__builtin_cpu_supports("avx512f")) {
    fma_avx512(n);
    return 2.0 * kChains * 16 * n;
  }
  COHORT_CHECK_STATE(__builtin_cpu_supports("fma"), "[step_bench] expected a processor with FMA");
  fma_avx2(n);
  return 2.0 * kChains * 8 * n;
}

// Round trips of a line between the first two cores, the median of five goes.
double pingpong_ns(const std::vector<int>& cores) {
  constexpr int kGoes = 5, kTrips = 1000;
  alignas(64) std::atomic<int> line{0};
  std::vector<double> times;
  on_cores({cores[0], cores[1]}, [&](int index, SpinBarrier& barrier) {
    for (int go = 0; go < kGoes; ++go) {
      barrier.wait();
      const auto start = Clock::now();
      for (int i = 0; i < kTrips; ++i) {
        const int mine = 2 * (go * kTrips + i) + index;
        while (line.load(std::memory_order_acquire) != mine) {
        }
        line.store(mine + 1, std::memory_order_release);
      }
      barrier.wait();
      if (index == 0) times.push_back(seconds_since(start) / kTrips * 1e9);
    }
  });
  std::sort(times.begin(), times.end());
  return times[kGoes / 2];
}

struct AlignedFloats {
  explicit AlignedFloats(std::int64_t n)
      : data(static_cast<float*>(std::aligned_alloc(64, (n * sizeof(float) + 63) / 64 * 64))) {
    std::fill(data, data + n, 1e-3f);
  }
  ~AlignedFloats() { std::free(data); }
  AlignedFloats(const AlignedFloats&) = delete;
  AlignedFloats& operator=(const AlignedFloats&) = delete;
  float* data;
};

// Fields 5 (process group), 14 and 15 (user and system ticks) of /proc/<pid>/stat.
double ticks_if_in_groups(const std::string& pid, const std::vector<int>& groups) {
  std::ifstream in("/proc/" + pid + "/stat");
  std::string text;
  std::getline(in, text, '\0');           // empty where the process has ended meanwhile
  const auto name_end = text.rfind(')');  // the name may hold spaces
  if (name_end == std::string::npos) return 0;
  std::istringstream fields(text.substr(name_end + 1));
  std::string skipped;
  int group = 0;
  double user = 0, system = 0;
  fields >> skipped >> skipped >> group;
  for (int i = 0; i < 8; ++i) fields >> skipped;
  fields >> user >> system;
  const bool ours = std::find(groups.begin(), groups.end(), group) != groups.end();
  return ours ? user + system : 0;
}

void set_affinity(const std::vector<int>& cores) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (int core : cores) CPU_SET(core, &set);
  pthread_setaffinity_np(pthread_self(), sizeof set, &set);
}

}  // namespace

void on_cores(const std::vector<int>& cores, const std::function<void(int, SpinBarrier&)>& work) {
  SpinBarrier barrier(cores.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < cores.size(); ++i) {
    threads.emplace_back([&, i] {
      pin_to(cores[i]);
      flush_denormals();
      work(i, barrier);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

std::vector<int> usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  COHORT_CHECK_STATE(sched_getaffinity(0, sizeof set, &set) == 0, "[step_bench] no affinity");
  std::vector<int> cores;
  for (int i = 0; i < CPU_SETSIZE; ++i) {
    if (CPU_ISSET(i, &set)) cores.push_back(i);
  }
  return cores;
}

std::vector<int> contender_cores() {
  const char* wanted = std::getenv("COHORT_BENCH_CORES");
  if (!wanted) return usable_cores();
  std::vector<int> cores;
  std::istringstream in(wanted);
  for (std::string core; std::getline(in, core, ',');) cores.push_back(std::stoi(core));
  COHORT_CHECK_STATE(!cores.empty(), "[step_bench] expected cores in COHORT_BENCH_CORES");
  return cores;
}

bool default_threads() {
  const char* wanted = std::getenv("COHORT_BENCH_THREADS");
  return wanted != nullptr && std::strcmp(wanted, "default") == 0;
}

void pin_to(int core) { set_affinity({core}); }

void confine_to_cores(int count) {
  if (default_threads()) return;
  std::vector<int> cores = contender_cores();
  cores.resize(std::min<std::size_t>(count, cores.size()));
  set_affinity(cores);
}

void flush_denormals() {
  _MM_SET_FLUSH_ZERO_MODE(_MM_FLUSH_ZERO_ON);
  _mm_setcsr(_mm_getcsr() | 0x0040);  // denormals are zero
}

double fma_gflops(const std::vector<int>& cores) {
  constexpr std::int64_t kTurns = 500000;  // 1.6 ms at 117 Gflop/s
  constexpr int kGoes = 3;                 // the first runs the cores hot
  double best = 0;
  on_cores(cores, [&](int index, SpinBarrier& barrier) {
    for (int go = 0; go < kGoes; ++go) {
      barrier.wait();
      const auto start = Clock::now();
      const double flops = run_fma(kTurns);
      barrier.wait();
      if (index == 0) best = std::max(best, flops * cores.size() / seconds_since(start) / 1e9);
    }
  });
  return best;
}

Probe probe(const std::vector<int>& cores) {
  Probe result;
  if (cores.size() > 1) {
    result.fma2 = fma_gflops({cores[0], cores[1]});
    result.pingpong_ns = pingpong_ns(cores);
  }
  result.fma1 = fma_gflops({cores[0]});
  return result;
}

const char* state_name(State state) {
  switch (state) {
    case State::kSameCcx:
      return "SAME_CCX";
    case State::kCrossCcx:
      return "CROSS_CCX";
    case State::kDegraded:
      return "DEGRADED";
    case State::kSingleCore:
      return "SINGLE_CORE";
  }
  return "UNKNOWN";
}

State classify(const Probe& before, const Probe& after, double other_load) {
  constexpr double kSameCacheNs = 90, kLeastGain = 1.85, kMostOther = 0.03;
  if (before.fma2 == 0) return State::kSingleCore;
  const double gain = std::min(before.fma2 / before.fma1, after.fma2 / after.fma1);
  if (gain < kLeastGain || other_load > kMostOther) return State::kDegraded;
  const bool same = std::max(before.pingpong_ns, after.pingpong_ns) < kSameCacheNs;
  return same ? State::kSameCcx : State::kCrossCcx;
}

double update_bytes(std::int64_t parameters, int replicas) {
  const double n = parameters, r = replicas;
  return 4 * n / r * (3 + r + 3) + 8 * n * (r - 1) / r;
}

double copy_gbytes_per_thread(std::int64_t parameters, const std::vector<int>& cores) {
  constexpr int kGoes = 12;
  const std::size_t bytes = parameters * sizeof(float);
  std::vector<std::unique_ptr<AlignedFloats>> arrays;  // four for each thread
  for (std::size_t i = 0; i < 4 * cores.size(); ++i) {
    arrays.push_back(std::make_unique<AlignedFloats>(parameters));
  }
  double best = 0;
  on_cores(cores, [&](int index, SpinBarrier& barrier) {
    const auto* mine = &arrays[4 * index];
    for (int go = 0; go < kGoes; ++go) {
      barrier.wait();
      const auto start = Clock::now();
      std::memcpy(mine[1]->data, mine[0]->data, bytes);
      std::memcpy(mine[3]->data, mine[2]->data, bytes);
      barrier.wait();
      if (index == 0) best = std::max(best, 4.0 * bytes / seconds_since(start) / 1e9);
    }
  });
  return best;
}

std::string processor_name() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);) {
    if (line.rfind("model name", 0) == 0) return line.substr(line.find(':') + 2);
  }
  return "unknown";
}

CpuTime cpu_time(const std::vector<int>& process_groups) {
  const double tick = 1.0 / sysconf(_SC_CLK_TCK);
  CpuTime time;
  std::ifstream in("/proc/stat");
  std::string label;
  double user = 0, nice = 0, system = 0, idle = 0, iowait = 0, irq = 0, softirq = 0, steal = 0;
  in >> label >> user >> nice >> system >> idle >> iowait >> irq >> softirq >> steal;
  time.machine = (user + nice + system + irq + softirq + steal) * tick;
  if (DIR* processes = opendir("/proc")) {
    while (const dirent* entry = readdir(processes)) {
      if (entry->d_name[0] < '0' || entry->d_name[0] > '9') continue;
      time.groups += ticks_if_in_groups(entry->d_name, process_groups) * tick;
    }
    closedir(processes);
  }
  return time;
}

void fix_allocator() {
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, INT_MAX);
  mallopt(M_TOP_PAD, 64 << 20);
}

}  // namespace cohort::bench
