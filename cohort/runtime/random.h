// SPDX-License-Identifier: Apache-2.0
//
// Random numbers as a pure function of where they are drawn: draw k of (seed, operation, step,
// replica) is the same on any thread, in any order, on any processor (normal numbers up to the last
// bit of the mathematical library). The generator is Philox 4x32-10 (Salmon et al., 2011).
//
//   set_seed(42);                                                           // ahead of layers
//   const uint64_t operation = internal::runtime::next_operation_number();  // once, in a layer
//   internal::runtime::RandomStream stream(operation, step, replica);       // each step
//   internal::runtime::fill_keep_mask(stream, 0.5, mask);
//
// LibTorch's own generator (at::rand, ...) is not touched and does not follow set_seed.
// Threads: all functions are thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/base/mutex.h"
#include "cohort/runtime/step_draws.h"
#include "cohort/runtime/tensor.h"

namespace cohort {

/// Fixes initialisers, shuffles and dropout from here on, and numbers operations from 0 again.
/// Without a call the seed is different in every process.
/// Threads: no replica may be running. Order: before variables are made, the same on all workers.
/// TF: tf.random.set_seed, keras.utils.set_random_seed.
void set_seed(uint64_t seed);

/// Standard normal numbers. Inside Strategy::run each replica draws its own, in its program's
/// order. Errors: InvalidArgument unless dtype is a floating one.
Tensor random_normal(const Shape& shape, DType dtype = kFloat32);
/// Numbers in [0, 1), likewise.
Tensor random_uniform(const Shape& shape, DType dtype = kFloat32);

namespace internal::runtime {

/// The seed in force.
uint64_t current_seed();
/// A number that no other operation of the process, or of the strategy here if it counts its own
/// (RandomSeeds), has since set_seed: 0, 1, ... in order of calls.
/// Order: call it from one thread (cross-replica): with several, numbers differ from run to run.
uint64_t next_operation_number();

/// The seed, and how many operations and draws without one there have been: of the process and of
/// the strategy here. Bytes for restore_random_numbers(), to draw the same from there on.
std::string save_random_numbers();
/// Order: no replica may be running.
void restore_random_numbers(std::string_view state);

/// Numbers of operations and draws that belong to one strategy: what other strategies of the
/// process draw does not shift them, so that workers as threads of one process draw what workers
/// as processes draw. The seed is set_seed's; with each call of it they begin anew.
/// Threads: thread-safe.
class RandomSeeds : public DrawCounts {
 public:
  explicit RandomSeeds(int replicas) : steps_(static_cast<std::size_t>(replicas) + 1) {}

  uint64_t next_operation();
  /// Draws so far without an operation of their own, of a local replica or, -1, of none.
  uint64_t next_step(int replica);
  void take_back(int replica, uint64_t first, uint64_t draws) override;
  /// Operations, then steps.
  std::vector<uint64_t> numbers();
  /// Ignores those of another number of replicas.
  void set_numbers(std::span<const uint64_t> numbers);

 private:
  void begin_anew_after_set_seed() COHORT_REQUIRES(mutex_);

  base::Mutex mutex_;
  uint64_t seen_ COHORT_GUARDED_BY(mutex_) = 0;  // calls of set_seed
  uint64_t operations_ COHORT_GUARDED_BY(mutex_) = 0;
  std::vector<uint64_t> steps_ COHORT_GUARDED_BY(mutex_);  // [replica + 1]
};

/// Whose draws: all of it enters the generator's key and counter.
class RandomStream {
 public:
  /// With the seed in force. replica: as below.
  RandomStream(uint64_t operation, uint64_t step, int replica);
  /// replica: among those of all workers (current_global_replica()), -1 outside of replicas, at
  /// most 32,766.
  RandomStream(uint64_t seed, uint64_t operation, uint64_t step, int replica);

  /// Words [64 group, 64 group + 64) of the stream. `attempt` (0-255) selects a further,
  /// independent stream: it is how draws are repeated. Order: group < 2^36.
  void words(uint64_t group, uint32_t attempt, std::span<uint32_t, 64> out) const;
  /// One word of the same stream.
  uint32_t word(uint64_t index, uint32_t attempt = 0) const;
  /// `groups` groups from `group` on.
  void many_words(uint64_t group, uint64_t groups, uint32_t attempt, uint32_t* out) const;

  /// For generators on other devices: Philox's key, and the counter of block 0, attempt 0. Block
  /// b's counter has the lowest 32 bits of b in its first word, 8 more in the lowest of the second.
  /// Of a stream that a step draws which is recorded (step_recording.h) they are others in each
  /// step: six words in the device's memory, at place().
  const std::array<uint32_t, 2>& key() const { return key_; }
  std::array<uint32_t, 4> first_counter() const {
    return {0, replica_ << 16, static_cast<uint32_t>(step_), static_cast<uint32_t>(step_ >> 32)};
  }

  const std::byte* place() const { return place_; }
  /// The six words.
  static constexpr std::size_t kPlaceBytes = 24;
  void put(std::byte* out) const;
  /// One whose words come to be there; on the host there is nothing to draw of it.
  static RandomStream at(const std::byte* place);

 private:
  std::array<uint32_t, 4> counter(uint64_t block, uint32_t attempt) const;

  std::array<uint32_t, 2> key_;
  uint64_t step_;
  uint32_t replica_;
  const std::byte* place_ = nullptr;
};

// Each writes draws first, first + 1, ...: filling a span at once or in parts gives the same.
// T is float or double.

/// In [low, high).
template <class T>
void fill_uniform(const RandomStream& stream, T low, T high, std::span<T> out, uint64_t first = 0);
template <class T>
void fill_normal(const RandomStream& stream, T mean, T stddev, std::span<T> out,
                 uint64_t first = 0);
/// Normal numbers within two standard deviations of the mean; others are drawn again.
/// TF: Keras's TruncatedNormal and the initialisers built on it.
template <class T>
void fill_truncated_normal(const RandomStream& stream, T mean, T stddev, std::span<T> out,
                           uint64_t first = 0);
/// Dropout's mask: 0 with probability `rate`, else 1 / (1 - rate).
/// Errors: InvalidArgument unless 0 <= rate <= 1.
template <class T>
void fill_keep_mask(const RandomStream& stream, double rate, std::span<T> out, uint64_t first = 0);

/// Draw `index` in [0, n), each equally likely. Errors: InvalidArgument if n is 0.
uint64_t uniform_below(const RandomStream& stream, uint64_t index, uint64_t n);
/// 0 ... n - 1 in a random order.
std::vector<int64_t> random_permutation(const RandomStream& stream, int64_t n);

}  // namespace internal::runtime
}  // namespace cohort
