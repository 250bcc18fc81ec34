// SPDX-License-Identifier: Apache-2.0
//
// Internal: what Cohort needs of a kind of device: memory that arenas grow in, tensors over it,
// copies, the state of a thread that works there, and fences where replicas meet.
//
//   DeviceBackend& backend = device_backend(device);
//   const std::unique_ptr<Region> region = backend.reserve(device, bytes);
//   region->use(0, 4096);
//   Tensor weights = backend.view(device, region->data(), {1024}, kFloat32, [](void*) {});
//
// CPUs have one, GPUs that of cohort/cuda (device_library.h). Kernels belong to higher floors,
// which know what they compute: each floor keeps those of every kind of device in a ByDeviceType of
// its own (variables/update_kernels.h for updates, reductions/local_reduce.h for reductions).
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "cohort/runtime/device.h"
#include "cohort/runtime/device_library.h"
#include "cohort/runtime/tensor.h"

namespace cohort::internal::runtime {

/// Reserved address space of a device, which gets memory when it is used; zeros until written. It
/// never moves. Threads: immutable; use() and clear() on disjoint ranges at the same time.
class Region {
 public:
  virtual ~Region() = default;
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;
  /// The device's address: only its kernels may follow it.
  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  /// From here on the bytes may be touched. Errors: Error kResourceExhausted without memory.
  virtual void use(std::size_t offset, std::size_t bytes) = 0;
  /// Makes zeros of it, not to be touched until use(); gives whole pages back to the system.
  virtual void clear(std::size_t offset, std::size_t bytes) = 0;

 protected:
  Region(std::byte* data, std::size_t bytes) : data_(data), bytes_(bytes) {}

 private:
  std::byte* const data_;
  const std::size_t bytes_;
};

/// Ends with the scope in which a thread works on a device.
class DeviceGuard {
 public:
  virtual ~DeviceGuard() = default;
};

/// Threads: thread-safe. Owns: nothing that it hands out; it lives as long as the process, or as
/// what it handed out.
class DeviceBackend {
 public:
  virtual ~DeviceBackend() = default;

  /// How many there are, logical ones counted: indices 0 ... count - 1.
  virtual int count() const = 0;
  /// Makes logical devices of a physical one; see set_logical_device_configuration.
  virtual void split(int physical, std::span<const int64_t> memory_limits) = 0;
  /// Where LibTorch has the tensors of `device`: several logical devices may share one.
  virtual c10::Device place(const Device& device) const = 0;

  /// At least so many bytes. Errors: Error kResourceExhausted that says what to raise.
  virtual std::unique_ptr<Region> reserve(const Device& device, std::size_t bytes) = 0;
  /// How many bytes reserve() may still give for all of the devices that share a place; the
  /// largest std::size_t if nothing limits them.
  virtual std::size_t reservable(const Device& device) const = 0;

  /// Who holds the memory of the device's place, in words for errors; empty where nobody counts.
  virtual std::string memory_in_words(const Device&) const { return {}; }

  /// A tensor over memory of the device, with a version counter of its own; calls `release` with
  /// the last handle.
  virtual Tensor view(const Device& device, std::byte* data, const Shape& shape, DType dtype,
                      std::function<void(void*)> release) = 0;
  /// Whether kernels of `device` may follow addresses of `other`, another device of this backend.
  /// Default: of devices that share a place.
  virtual bool reaches(const Device& device, const Device& other) const {
    return place(device) == place(other);
  }
  /// A copy of a tensor of the host, on a stream beside the calling thread's, which waits for it.
  /// Blocks: of memory as host_buffer gives it, not at all, and the memory must not be written
  /// before the copy is done; of other memory until it has been read. Default: by LibTorch's
  /// streams of the place.
  virtual Tensor upload(const Device& device, const Tensor& host);
  /// Uninitialised memory of the host which upload() reads without waiting. Default: pinned, where
  /// the place is no CPU.
  virtual Tensor host_buffer(const Device& device, const Shape& shape, DType dtype);
  /// Copies bytes between a device of this backend and a device of this one or a CPU, in the order
  /// of what the calling thread has started.
  virtual void copy(const Device& to, std::byte* destination, const Device& from,
                    const std::byte* source, std::size_t bytes) = 0;

  /// True if work goes on when the call that started it has returned: then each replica's thread
  /// has a guard in each run, and a run's start, a meeting and the end are publish(), all threads
  /// come, await() (see GroupDevices).
  virtual bool is_asynchronous() const = 0;
  /// Makes the calling thread work on `device` (with its stream, where there are such). Null where
  /// there is nothing to set.
  virtual std::unique_ptr<DeviceGuard> guard(const Device& device) = 0;
  /// What the calling thread has started on `device` so far is what others await there.
  virtual void publish(const Device& device) = 0;
  /// What the calling thread starts from here on, anywhere, comes after what was last published of
  /// `device`. Blocks: not the thread, where the device can wait.
  virtual void await(const Device& device) = 0;
};

/// Null for a kind of device that there is nothing for.
DeviceBackend* find_device_backend(c10::DeviceType type);

/// "CPU:0": where values are that belong to no replica.
const Device& host_device();
/// Errors: Unimplemented for a kind of device that this version does not support.
DeviceBackend& device_backend(const Device& device);
/// Errors: Unimplemented "<operation>expected CPU <what>, got GPU:0: <why none can be used>".
void check_supported(const char* operation, const char* what, const Device& device);

/// Gives a kind of device another backend, or none; returns the one before. Not while values of
/// such devices exist.
DeviceBackend* exchange_device_backend(c10::DeviceType type, DeviceBackend* backend);

/// Between any two devices; see DeviceBackend::copy.
void copy_memory(const Device& to, std::byte* destination, const Device& from,
                 const std::byte* source, std::size_t bytes);
/// The tensor where `device` has its tensors; itself if it is there.
Tensor tensor_on(const Device& device, const Tensor& tensor);
/// A tensor that shares no memory with the one given.
Tensor copy_on(const Device& device, const Tensor& tensor);

/// True where kernels of each of two devices may follow the other's addresses.
bool share_memory(const Device& a, const Device& b);
/// The tensor of a replica's argument where its replica is: itself, or as DeviceBackend::upload,
/// when its memory has been read.
Tensor argument_on(const Device& device, const Tensor& tensor);
/// Says that what the calling thread has started reads the tensor, which another thread's stream
/// has made: its memory is not reused until that is done. Does nothing on CPUs.
void note_use(const Tensor& tensor);

/// What a floor has for each kind of device. Threads: thread-safe; `T`s are not owned.
template <class T>
class ByDeviceType {
 public:
  /// `part`: how the libraries of devices name theirs (device_library.h).
  ByDeviceType(T* for_cpus, const char* part) : part_(part) { exchange(c10::kCPU, for_cpus); }
  /// What was given for it, else what its library has; null if there is none.
  T* find(c10::DeviceType type) const {
    T* const given = entry(type).load(std::memory_order_acquire);
    return given != nullptr ? given : static_cast<T*>(device_part(type, part_));
  }
  /// Returns what was given before. Null: the library's again.
  T* exchange(c10::DeviceType type, T* now) {
    return entry(type).exchange(now, std::memory_order_acq_rel);
  }

 private:
  std::atomic<T*>& entry(c10::DeviceType type) { return entries_[static_cast<std::size_t>(type)]; }
  const std::atomic<T*>& entry(c10::DeviceType type) const {
    return entries_[static_cast<std::size_t>(type)];
  }
  const char* const part_;
  std::array<std::atomic<T*>, c10::COMPILE_TIME_MAX_DEVICE_TYPES> entries_ = {};
};

}  // namespace cohort::internal::runtime
