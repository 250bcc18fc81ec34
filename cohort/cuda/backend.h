// SPDX-License-Identifier: Apache-2.0
//
// GPUs as the runtime sees them: memory in LibTorch's place, a stream for each logical GPU, events
// where replicas meet.
//
// The first logical GPU of a physical one works on CUDA's default stream, where programs outside of
// replicas work, too: with one replica nothing has to be waited for. Each further one has a stream
// of its own.
#pragma once

#include <c10/cuda/CUDAStream.h>

#include <atomic>
#include <memory>
#include <span>
#include <vector>

#include "cohort/runtime/device_backend.h"

namespace cohort::internal::cuda {

/// Threads: thread-safe.
class CudaBackend final : public runtime::DeviceBackend {
 public:
  CudaBackend();
  ~CudaBackend() override;

  int count() const override;
  void split(int card, std::span<const int64_t> memory_limits) override;
  c10::Device place(const Device& device) const override;
  std::unique_ptr<runtime::Region> reserve(const Device& device, std::size_t bytes) override;
  std::size_t reservable(const Device& device) const override;
  std::string memory_in_words(const Device& device) const override;
  Tensor view(const Device& device, std::byte* data, const Shape& shape, DType dtype,
              std::function<void(void*)> release) override;
  void copy(const Device& to, std::byte* destination, const Device& from, const std::byte* source,
            std::size_t bytes) override;
  bool is_asynchronous() const override { return true; }
  std::unique_ptr<runtime::DeviceGuard> guard(const Device& device) override;
  void publish(const Device& device) override;
  void await(const Device& device) override;

  /// The stream that a logical GPU works on.
  c10::cuda::CUDAStream stream(const Device& device) const;

 private:
  struct LogicalGpu;
  LogicalGpu& logical(const Device& device) const;
  void list_logical_gpus();

  // Constant once a GPU is in use.
  std::vector<int> parts_;  // [card]: its logical GPUs
  std::vector<std::unique_ptr<LogicalGpu>> gpus_;
  std::atomic<bool> in_use_ = false;
};

/// The one of the process; made at the first call.
CudaBackend& backend();

}  // namespace cohort::internal::cuda
