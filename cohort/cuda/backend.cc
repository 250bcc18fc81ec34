// SPDX-License-Identifier: Apache-2.0
#include "cohort/cuda/backend.h"

#include <ATen/DeviceAccelerator.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/AutogradState.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>

#include <limits>
#include <utility>

#include "cohort/cuda/internal/check_cuda.h"
#include "cohort/cuda/internal/memory_region.h"

namespace cohort::internal::cuda {
namespace {

using c10::cuda::CUDAStream;

/// The device, its stream, and backward passes on the calling thread, as on CPUs: there nodes find
/// the thread's replica and its open slots, and logical GPUs of one card do not wait for each
/// other.
class CudaGuard final : public runtime::DeviceGuard {
 public:
  explicit CudaGuard(const CUDAStream& stream)
      : stream_(stream), had_threads_(autograd().get_multithreading_enabled()) {
    autograd().set_multithreading_enabled(false);
  }
  ~CudaGuard() override { autograd().set_multithreading_enabled(had_threads_); }

 private:
  static c10::AutogradState& autograd() { return c10::AutogradState::get_tls_state(); }
  const c10::cuda::CUDAStreamGuard stream_;
  const bool had_threads_;
};

constexpr const char* kSplit = "[set_logical_device_configuration] ";

// LibTorch's allocator knows physical cards only: the limits of its logical GPUs count together.
void limit_memory(c10::DeviceIndex card, int64_t megabytes) {
  const c10::cuda::CUDAGuard here(card);
  std::size_t free = 0;
  std::size_t total = 0;
  check_cuda(kSplit, cudaMemGetInfo(&free, &total));
  const double share = static_cast<double>(megabytes) * 0x1p20 / static_cast<double>(total);
  COHORT_CHECK_ARG(share <= 1, kSplit, "expected memory limits of at most ", total >> 20,
                   " MB together, got ", megabytes, " MB");
  c10::cuda::CUDACachingAllocator::init(c10::cuda::device_count());
  c10::cuda::CUDACachingAllocator::setMemoryFraction(share, card);
}

}  // namespace

struct CudaBackend::LogicalGpu {
  LogicalGpu(c10::DeviceIndex index, const CUDAStream& its_stream)
      : place(c10::kCUDA, index), stream(its_stream) {
    const c10::cuda::CUDAGuard here(place);
    check_cuda("[device] making an event", cudaEventCreateWithFlags(&done, cudaEventDisableTiming));
  }
  const c10::Device place;
  const CUDAStream stream;
  cudaEvent_t done = nullptr;  // as old as the process
  std::atomic<cudaStream_t> done_on = nullptr;
};

CudaBackend::CudaBackend()
    // 0 without a driver, without an error.
    : parts_(static_cast<std::size_t>(c10::cuda::device_count()), 1) {
  // It has looked for GPUs when this library was not yet there, and will not look again.
  COHORT_CHECK_STATE(
      parts_.empty() || at::accelerator::getAccelerator() == c10::kCUDA,
      "[device] expected GPUs to be asked for before LibTorch's first backward pass, "
      "got one after it; call cohort::list_devices(cohort::DeviceKind::kGpu) where "
      "the program begins");
  list_logical_gpus();
}

CudaBackend::~CudaBackend() = default;

void CudaBackend::list_logical_gpus() {
  gpus_.clear();
  for (std::size_t card = 0; card < parts_.size(); ++card) {
    const auto index = static_cast<c10::DeviceIndex>(card);
    for (int part = 0; part < parts_[card]; ++part) {
      const CUDAStream stream = part == 0 ? c10::cuda::getDefaultCUDAStream(index)
                                          : c10::cuda::getStreamFromPool(false, index);
      gpus_.push_back(std::make_unique<LogicalGpu>(index, stream));
    }
  }
}

void CudaBackend::split(int card, std::span<const int64_t> memory_limits) {
  COHORT_CHECK_ARG(card < static_cast<int>(parts_.size()), kSplit, "expected one of ",
                   parts_.size(), " GPUs, got GPU:", card);
  COHORT_CHECK_STATE(!in_use_.load(), kSplit,
                     "expected a call before GPUs are used, got one after a strategy or a "
                     "variable has taken them");
  const auto index = static_cast<c10::DeviceIndex>(card);
  int64_t megabytes = 0;
  for (const int64_t limit : memory_limits) {
    if (limit == 0) megabytes = -1;
    if (megabytes >= 0) megabytes += limit;
  }
  if (megabytes > 0) limit_memory(index, megabytes);
  parts_[static_cast<std::size_t>(card)] = static_cast<int>(memory_limits.size());
  list_logical_gpus();
}

int CudaBackend::count() const { return static_cast<int>(gpus_.size()); }

CudaBackend::LogicalGpu& CudaBackend::logical(const Device& device) const {
  COHORT_CHECK_ARG(device.index() < count(), "[device] expected one of ", count(), " GPUs, got ",
                   device.short_name());
  return *gpus_[static_cast<std::size_t>(device.index())];
}

c10::Device CudaBackend::place(const Device& device) const { return logical(device).place; }
CUDAStream CudaBackend::stream(const Device& device) const { return logical(device).stream; }

std::unique_ptr<runtime::Region> CudaBackend::reserve(const Device& device, std::size_t bytes) {
  in_use_ = true;
  return reserve_region(place(device), bytes);
}

// Address space; memory is taken where it is used.
std::size_t CudaBackend::reservable(const Device&) const {
  return std::numeric_limits<std::size_t>::max();
}

std::string CudaBackend::memory_in_words(const Device& device) const {
  return cuda::memory_in_words(place(device));
}

Tensor CudaBackend::view(const Device& device, std::byte* data, const Shape& shape, DType dtype,
                         std::function<void(void*)> release) {
  const c10::Device where = place(device);
  return at::from_blob(data, shape, std::move(release),
                       at::TensorOptions().dtype(dtype).device(where), where);
}

void CudaBackend::copy(const Device& to, std::byte* destination, const Device& from,
                       const std::byte* source, std::size_t bytes) {
  if (bytes == 0) return;
  const bool to_host = to.kind() == DeviceKind::kCpu;
  const c10::Device here = place(to_host ? from : to);
  const c10::cuda::CUDAGuard guard(here);
  const CUDAStream stream = c10::cuda::getCurrentCUDAStream(here.index());
  // Addresses say where they are; peers are reached through the host where there is no other way.
  check_cuda("[device] copying",
             cudaMemcpyAsync(destination, source, bytes, cudaMemcpyDefault, stream.stream()));
  if (to_host) stream.synchronize();
}

std::unique_ptr<runtime::DeviceGuard> CudaBackend::guard(const Device& device) {
  in_use_ = true;
  return std::make_unique<CudaGuard>(logical(device).stream);
}

void CudaBackend::publish(const Device& device) {
  LogicalGpu& gpu = logical(device);
  const c10::cuda::CUDAGuard here(gpu.place);
  const CUDAStream now = c10::cuda::getCurrentCUDAStream(gpu.place.index());
  check_cuda("[device] recording an event", cudaEventRecord(gpu.done, now.stream()));
  gpu.done_on.store(now.stream(), std::memory_order_release);
}

// On every GPU that the thread may work on next: a replica's own, a caller's current one and this.
void CudaBackend::await(const Device& device) {
  const LogicalGpu& gpu = logical(device);
  const auto wait_on = [&](c10::DeviceIndex index) {
    const CUDAStream now = c10::cuda::getCurrentCUDAStream(index);
    const bool same_card = index == gpu.place.index();
    if (same_card && now.stream() == gpu.done_on.load(std::memory_order_acquire)) return;
    const c10::cuda::CUDAGuard here(now.device());
    check_cuda("[device] waiting for an event",
               cudaStreamWaitEvent(now.stream(), gpu.done, cudaEventWaitDefault));
  };
  const auto physical = c10::cuda::device_count();
  for (c10::DeviceIndex index = 0; index < physical; ++index) wait_on(index);
}

CudaBackend& backend() {
  // Never destroyed: variables of static storage may outlive every other static.
  static CudaBackend& instance = *new CudaBackend;
  return instance;
}

}  // namespace cohort::internal::cuda
