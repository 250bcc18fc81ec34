// SPDX-License-Identifier: Apache-2.0
//
// The machine under the benchmark: which cores there are, in what state they are right now, and
// what they could do at most. Virtual machines are moved between physical cores for minutes at a
// time, so each sample is bracketed by a probe:
//
//   Probe before = probe(cores);  ...sample...  Probe after = probe(cores);
//   State state = classify(before, after, other_load);
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace cohort::bench {

/// The cores that this process may use, in order.
std::vector<int> usable_cores();

/// The cores that the harness wants replicas on: replica r belongs on number r modulo their count.
/// From the environment (COHORT_BENCH_CORES, "0,1"), without it the usable ones.
std::vector<int> contender_cores();

/// Whether contenders have as many threads as they choose themselves, on all cores
/// (COHORT_BENCH_THREADS=default), instead of one per replica, each pinned to its core.
bool default_threads();

/// Pins the calling thread to one core.
void pin_to(int core);

/// Leaves the calling thread, and those it will start, the first `count` of contender_cores().
void confine_to_cores(int count);

/// Turns subnormal numbers to zero in the calling thread (every contender does).
void flush_denormals();

/// One look at the machine, from threads pinned to the first two cores. Units: Gflop/s, ns.
struct Probe {
  double fma1 = 0;         ///< fused multiply-adds, one thread
  double fma2 = 0;         ///< two threads together; 0 on a single core
  double pingpong_ns = 0;  ///< a cache line there and back; 0 on a single core
};

/// Blocks: about 20 ms. The threads run hot before they are measured, as hosts re-place
/// virtual cores under load.
Probe probe(const std::vector<int>& cores);

/// What a sample may be compared with.
enum class State {
  kSameCcx,     ///< the cores share a cache: round trip below 90 ns
  kCrossCcx,    ///< they do not
  kDegraded,    ///< two threads reach less than 1.85 times one, or others use > 3 % of the machine
  kSingleCore,  ///< there is only one core
};

const char* state_name(State state);

/// Units: other_load is the share of the machine (0 to 1) that foreign processes used.
State classify(const Probe& before, const Probe& after, double other_load);

/// Peak of fused multiply-adds of one thread on each given core, together. Units: Gflop/s.
double fma_gflops(const std::vector<int>& cores);

/// Bytes that an update of `parameters` weights must move in each of R replica threads, with the
/// work divided between them: of its n/R weights a thread reads the weight, two moments and R
/// gradients and writes the weight and two moments, then it copies the other replicas' weights.
///   bytes = 4 n/R (3 + R + 3)  +  8 n (R-1)/R
double update_bytes(std::int64_t parameters, int replicas);

/// What memcpy reaches on all the given cores at once, each among four private arrays of this many
/// floats (the footprint of weights, gradients and two moments). Units: Gbyte/s, read and
/// written bytes of each thread.
double copy_gbytes_per_thread(std::int64_t parameters, const std::vector<int>& cores);

/// "AMD EPYC ..." of /proc/cpuinfo.
std::string processor_name();

/// CPU time since boot that the whole machine has been busy or had stolen, and the part that
/// the processes of the given groups used. Units: seconds.
struct CpuTime {
  double machine = 0;
  double groups = 0;
};
CpuTime cpu_time(const std::vector<int>& process_groups);

/// Raises glibc's mmap and trim thresholds for the whole process, so that large tensors are not
/// given back to the system, and faulted in anew, in every step.
void fix_allocator();

}  // namespace cohort::bench
