// SPDX-License-Identifier: Apache-2.0
//
// Arrays in vectors of 16 bytes, for kernels that go through several of them at once.
#pragma once

#include <cstddef>
#include <cstdint>

namespace cohort::internal::cuda {

inline constexpr unsigned kThreads = 256;  // of a block

template <class T>
inline constexpr std::size_t kLanes = 16 / sizeof(T);

/// What one load or store of 16 bytes moves.
template <class T>
struct alignas(16) Vector {
  T lane[kLanes<T>];
};

template <class T>
__device__ inline Vector<T> load(const T* from) {
  return *reinterpret_cast<const Vector<T>*>(from);
}
template <class T>
__device__ inline void store(T* to, const Vector<T>& value) {
  *reinterpret_cast<Vector<T>*>(to) = value;
}

/// Elements [begin, end): `vectors` vectors from `aligned` on, and what lies before and behind.
struct Cut {
  std::size_t begin;
  std::size_t end;
  std::size_t aligned;
  std::size_t vectors;
  std::size_t behind;  ///< Where the vectors end.

  __host__ __device__ std::size_t rest() const { return end - begin - (behind - aligned); }
  /// Element `i` of those outside of vectors.
  __device__ std::size_t outside(std::size_t i) const {
    const std::size_t before = aligned - begin;
    return i < before ? begin + i : behind + (i - before);
  }
};

/// Gathers what the arrays' addresses have in common.
class Alignment {
 public:
  Alignment(std::size_t item, std::size_t begin) : item_(item), begin_(begin) {}
  void add(const void* array) {
    const std::size_t off = (reinterpret_cast<std::uintptr_t>(array) + begin_ * item_) % 16;
    equal_ = equal_ && off % item_ == 0 && (off_ == kNone || off == off_);
    off_ = off;
  }
  Cut cut(std::size_t end) const {
    Cut cut{begin_, end, begin_, 0, begin_};
    const std::size_t head = off_ == 0 || off_ == kNone ? 0 : (16 - off_) / item_;
    if (!equal_ || begin_ + head >= end) return cut;
    const std::size_t lanes = 16 / item_;
    cut.aligned = begin_ + head;
    cut.vectors = (end - cut.aligned) / lanes;
    cut.behind = cut.aligned + cut.vectors * lanes;
    return cut;
  }

 private:
  static constexpr std::size_t kNone = ~std::size_t{0};
  std::size_t item_;
  std::size_t begin_;
  std::size_t off_ = kNone;
  bool equal_ = true;
};

/// Blocks for so many threads; the kernels stride where there are more.
inline unsigned blocks_for(std::size_t threads) {
  constexpr std::size_t kMost = std::size_t{1} << 20;
  const std::size_t blocks = (threads + kThreads - 1) / kThreads;
  return static_cast<unsigned>(blocks < 1 ? 1 : (blocks > kMost ? kMost : blocks));
}
inline unsigned blocks_for(const Cut& cut) {
  return blocks_for(cut.vectors > cut.rest() ? cut.vectors : cut.rest());
}

__device__ inline std::size_t thread_of_grid() {
  return static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ inline std::size_t threads_of_grid() {
  return static_cast<std::size_t>(gridDim.x) * blockDim.x;
}

}  // namespace cohort::internal::cuda
