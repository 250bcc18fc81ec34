// SPDX-License-Identifier: Apache-2.0
//
// One contiguous, 64-byte aligned region per replica for the trainable parameters of one dtype,
// and gradient regions of the same layout. A variable is a view at its offset in each of them.
//
// Regions are reserved address space of the replica's device (runtime/device_backend.h), which gets
// memory where it is used. So the layout never moves, and what no replica writes costs nothing. A
// model that grows beyond an arena goes on in another, larger one (ArenaChain); no variable lies in
// two.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "cohort/base/mutex.h"
#include "cohort/base/process_mark.h"
#include "cohort/runtime/device_backend.h"
#include "cohort/runtime/tensor.h"

namespace cohort::internal::variables {

class Arena;

/// Where the parameters of several replicas lie.
enum class ParameterPlacement {
  kMirrored,  ///< Every replica has a copy.
  kCentral,   ///< One copy, which all replicas read.
};

/// Where an arena has its memory.
struct ArenaDevices {
  std::vector<Device> replicas;        ///< Gradients, and a copy of the parameters each,
  std::optional<Device> central = {};  ///< or the one copy, which several replicas read.
  /// Memory for gradients of a replica on a CPU that other processes can read; in a child of this
  /// process it is still this one's. Null, or where it returns null: the device's.
  std::function<std::unique_ptr<runtime::Region>(std::size_t bytes)> shared_gradients = {};
};

/// One replica's gradients, in the layout of its parameters. Threads: bound to its replica; other
/// replicas read it at merge points.
struct GradientBuffer {
  GradientBuffer(int replica_index, std::unique_ptr<runtime::Region> memory)
      : replica(replica_index), region(std::move(memory)) {}
  const int replica;
  const std::unique_ptr<runtime::Region> region;
  std::atomic<int> leases{0};
  /// Others may read until the replica's epoch (ReplicaGroup::epoch) is above this.
  std::atomic<uint64_t> readable_until{0};
};

/// A variable's place. It is free again when the last view of it dies: a tensor that was read from
/// a variable may outlive the variable. Threads: immutable.
struct ArenaRange {
  ArenaRange(std::shared_ptr<Arena> of, int64_t begin, int64_t elements)
      : arena(std::move(of)), offset(begin), numel(elements) {}
  ~ArenaRange();
  ArenaRange(const ArenaRange&) = delete;
  ArenaRange& operator=(const ArenaRange&) = delete;
  const std::shared_ptr<Arena> arena;
  const int64_t offset;
  const int64_t numel;
};

/// How many bytes each region of an arena gets.
struct ArenaSize {
  std::size_t wanted = 0;
  std::size_t least = 0;  ///< If there is no address space for the parameters and the gradients.
};

/// Threads: thread-safe.
class Arena : public std::enable_shared_from_this<Arena> {
 public:
  /// Of every variable, in bytes.
  static constexpr std::size_t kAlignment = 64;

  /// Errors: Error kResourceExhausted if there is no address space for the least size;
  ///         Unimplemented for a device that this version does not support.
  static std::shared_ptr<Arena> create(ArenaDevices devices, DType dtype, ArenaSize size);

  /// Arenas in the order in which they were made: the order of variables in an update.
  uint64_t number() const { return number_; }
  std::size_t region_bytes() const { return region_bytes_; }
  bool empty() const;

  DType dtype() const { return dtype_; }
  std::size_t element_size() const { return element_size_; }
  int replicas() const { return static_cast<int>(devices_.replicas.size()); }
  /// True if parameter_data() is the same memory for every replica; gradients never are.
  bool shares_parameters() const { return shares_parameters_; }
  /// Where a replica's gradients lie, and where the parameters that it reads.
  const Device& device(int replica) const {
    return devices_.replicas[static_cast<std::size_t>(replica)];
  }
  const Device& parameter_device(int replica) const {
    return shares_parameters_ ? *devices_.central : device(replica);
  }

  /// Place for `numel` elements, in elements; nullopt if the arena is full. Always a multiple of
  /// 64 bytes, and so is the distance to the next one: ranges made one after the other touch.
  std::optional<int64_t> allocate(int64_t numel);
  /// Makes the place, and what gradients lie in it, zero and free again; see ArenaRange.
  void release(int64_t offset, int64_t numel);
  /// `numel` rounded up to the next 64-byte border, in elements.
  int64_t padded(int64_t numel) const;

  /// View of one variable's place among a replica's parameters; a tensor of its own, with its own
  /// version counter, also where the memory is shared. Owns: a share of the range.
  Tensor parameter_view(int replica, const std::shared_ptr<ArenaRange>& range, const Shape& shape);
  std::byte* parameter_data(int replica, int64_t offset) const;

  /// A buffer nobody uses, now leased once; null if a replica's few buffers are all in use, there
  /// is no address space, or they are those of the parent of this process. `epoch` is
  /// ReplicaGroup::epoch of the replica (see readable_until).
  GradientBuffer* acquire_buffer(int replica, uint64_t epoch);
  /// The same in a gradient buffer.
  Tensor gradient_view(GradientBuffer& buffer, const std::shared_ptr<ArenaRange>& range,
                       const Shape& shape);
  std::byte* gradient_data(const GradientBuffer& buffer, int64_t offset) const;

 private:
  Arena(ArenaDevices devices, DType dtype, ArenaSize size);
  // While it is made.
  void reserve(std::size_t bytes, bool with_gradients) COHORT_NO_THREAD_SAFETY_ANALYSIS;
  std::unique_ptr<GradientBuffer> make_buffer(int replica, std::size_t bytes) const;
  std::size_t copy_of(int replica) const {
    return shares_parameters_ ? 0 : static_cast<std::size_t>(replica);
  }

  const base::ProcessMark process_;
  const uint64_t number_;
  const ArenaDevices devices_;
  const DType dtype_;
  const std::size_t element_size_;
  const bool shares_parameters_;
  std::size_t region_bytes_ = 0;                              // constant after construction
  std::vector<std::unique_ptr<runtime::Region>> parameters_;  // one per copy

  mutable base::Mutex mutex_;
  int64_t end_ COHORT_GUARDED_BY(mutex_) = 0;                   // elements in use from the start
  std::map<int64_t, int64_t> holes_ COHORT_GUARDED_BY(mutex_);  // released ranges below end_
  // [replica]
  std::vector<std::vector<std::unique_ptr<GradientBuffer>>> buffers_ COHORT_GUARDED_BY(mutex_);
};

}  // namespace cohort::internal::variables
