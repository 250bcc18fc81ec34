// SPDX-License-Identifier: Apache-2.0
#include "cohort/cuda/internal/memory_region.h"

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <cuda.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <string>
#include <vector>

#include "cohort/base/mutex.h"
#include "cohort/cuda/internal/check_cuda.h"

namespace cohort::internal::cuda {
namespace {

constexpr int kMaxGpus = 128;
std::array<std::atomic<std::size_t>, kMaxGpus> g_backed = {};

// The driver's functions, found through the runtime: nothing links the driver's library, which is
// only there where a GPU is.
template <class F>
F* driver_function(const char* name) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
  constexpr unsigned kSince = 12000;
  if (cudaGetDriverEntryPointByVersion(name, &found, kSince, cudaEnableDefault, &result) !=
          cudaSuccess ||
      result != cudaDriverEntryPointSuccess) {
    cudaGetLastError();
    return nullptr;
  }
  return reinterpret_cast<F*>(found);
}

struct Driver {
  decltype(cuMemAddressReserve)* reserve =
      driver_function<decltype(cuMemAddressReserve)>("cuMemAddressReserve");
  decltype(cuMemAddressFree)* free =
      driver_function<decltype(cuMemAddressFree)>("cuMemAddressFree");
  decltype(cuMemCreate)* create = driver_function<decltype(cuMemCreate)>("cuMemCreate");
  decltype(cuMemRelease)* release = driver_function<decltype(cuMemRelease)>("cuMemRelease");
  decltype(cuMemMap)* map = driver_function<decltype(cuMemMap)>("cuMemMap");
  decltype(cuMemUnmap)* unmap = driver_function<decltype(cuMemUnmap)>("cuMemUnmap");
  decltype(cuMemSetAccess)* set_access =
      driver_function<decltype(cuMemSetAccess)>("cuMemSetAccess");
  decltype(cuMemGetAllocationGranularity)* granularity =
      driver_function<decltype(cuMemGetAllocationGranularity)>("cuMemGetAllocationGranularity");
  bool complete() const {
    return reserve != nullptr && free != nullptr && create != nullptr && release != nullptr &&
           map != nullptr && unmap != nullptr && set_access != nullptr && granularity != nullptr;
  }
};

const Driver& driver() {
  static const Driver& functions = *new Driver;
  return functions;
}

CUmemAllocationProp properties_of(c10::Device place) {
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = place.index();
  return properties;
}

std::string megabytes(std::size_t bytes) { return str_cat(bytes >> 20, " MB"); }

[[noreturn]] void out_of_memory(c10::Device place, std::size_t bytes) {
  throw Error(ErrorCode::kResourceExhausted,
              str_cat("[variable] expected ", megabytes(bytes), " on ", place.str(),
                      " for parameters, gradients or slots, got none: ", memory_in_words(place),
                      "; take a smaller batch or model"));
}

// What was freed on the GPU before these calls, all streams have left.
void settle() { cudaDeviceSynchronize(); }

void clear_now(std::byte* data, std::size_t bytes) {
  if (bytes == 0) return;
  check_cuda("[variable] clearing GPU memory", cudaMemset(data, 0, bytes));
  settle();
}

/// Memory that is there from the start.
class WholeRegion final : public runtime::Region {
 public:
  WholeRegion(c10::Device place, std::byte* data, std::size_t bytes)
      : Region(data, bytes), place_(place) {
    clear_now(data, bytes);
    g_backed[static_cast<std::size_t>(place.index())] += bytes;
  }
  ~WholeRegion() override {
    const c10::cuda::OptionalCUDAGuard here(place_);
    cudaFree(data());
    g_backed[static_cast<std::size_t>(place_.index())] -= bytes();
  }
  void use(std::size_t, std::size_t) override {}
  void clear(std::size_t offset, std::size_t bytes) override {
    const c10::cuda::CUDAGuard here(place_);
    settle();
    clear_now(data() + offset, bytes);
  }

 private:
  const c10::Device place_;
};

/// Pieces are mapped at their first use, and taken back when nothing of them is used.
class MappedRegion final : public runtime::Region {
 public:
  MappedRegion(c10::Device place, CUdeviceptr address, std::size_t bytes, std::size_t piece)
      : Region(reinterpret_cast<std::byte*>(address), bytes), place_(place), piece_(piece) {
    pieces_.resize(bytes / piece);
  }

  ~MappedRegion() override {
    const c10::cuda::OptionalCUDAGuard here(place_);
    settle();
    {
      const base::MutexLock lock(mutex_);
      for (std::size_t i = 0; i < pieces_.size(); ++i) unmap(i);
    }
    driver().free(address(0), bytes());
  }

  void use(std::size_t offset, std::size_t bytes) override {
    if (bytes == 0) return;
    const c10::cuda::CUDAGuard here(place_);
    const base::MutexLock lock(mutex_);
    bool mapped = false;
    for (std::size_t i = offset / piece_; i <= (offset + bytes - 1) / piece_; ++i) {
      mapped = map(i) || mapped;
    }
    if (mapped) settle();
  }

  void clear(std::size_t offset, std::size_t bytes) override {
    if (bytes == 0) return;
    const c10::cuda::CUDAGuard here(place_);
    settle();
    const base::MutexLock lock(mutex_);
    const std::size_t end = offset + bytes;
    const std::size_t whole = (offset + piece_ - 1) / piece_;
    for (std::size_t i = whole; (i + 1) * piece_ <= end; ++i) unmap(i);
    for (std::size_t at = offset; at < end;) {
      const std::size_t next = std::min((at / piece_ + 1) * piece_, end);
      if (pieces_[at / piece_] != 0) clear_now(data() + at, next - at);
      at = next;
    }
  }

 private:
  CUdeviceptr address(std::size_t piece) const {
    return reinterpret_cast<CUdeviceptr>(data()) + piece * piece_;
  }

  bool map(std::size_t i) COHORT_REQUIRES(mutex_) {
    if (pieces_[i] != 0) return false;
    const CUmemAllocationProp properties = properties_of(place_);
    CUmemGenericAllocationHandle handle = 0;
    if (driver().create(&handle, piece_, &properties, 0) != CUDA_SUCCESS) {
      c10::cuda::CUDACachingAllocator::emptyCache();
      if (driver().create(&handle, piece_, &properties, 0) != CUDA_SUCCESS) {
        out_of_memory(place_, piece_);
      }
    }
    const bool there = driver().map(address(i), piece_, 0, handle, 0) == CUDA_SUCCESS;
    if (!there || !allow_access(i)) {
      if (there) driver().unmap(address(i), piece_);
      driver().release(handle);
      throw Internal(str_cat("[variable] memory of ", place_.str(), " could not be mapped"));
    }
    pieces_[i] = handle;
    g_backed[static_cast<std::size_t>(place_.index())] += piece_;
    check_cuda("[variable] clearing GPU memory", cudaMemset(data() + i * piece_, 0, piece_));
    return true;
  }

  // By this GPU, and by those that can reach it.
  bool allow_access(std::size_t i) {
    int gpus = 0;
    cudaGetDeviceCount(&gpus);
    std::vector<CUmemAccessDesc> who;
    for (int gpu = 0; gpu < gpus; ++gpu) {
      int reaches = gpu == place_.index() ? 1 : 0;
      if (reaches == 0) cudaDeviceCanAccessPeer(&reaches, gpu, place_.index());
      if (reaches == 0) continue;
      CUmemAccessDesc one = {};
      one.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
      one.location.id = gpu;
      one.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
      who.push_back(one);
    }
    return driver().set_access(address(i), piece_, who.data(), who.size()) == CUDA_SUCCESS;
  }

  void unmap(std::size_t i) COHORT_REQUIRES(mutex_) {
    if (pieces_[i] == 0) return;
    driver().unmap(address(i), piece_);
    driver().release(pieces_[i]);
    pieces_[i] = 0;
    g_backed[static_cast<std::size_t>(place_.index())] -= piece_;
  }

  const c10::Device place_;
  const std::size_t piece_;
  base::Mutex mutex_;
  // 0: not mapped
  std::vector<CUmemGenericAllocationHandle> pieces_ COHORT_GUARDED_BY(mutex_);
};

std::unique_ptr<runtime::Region> whole_region(c10::Device place, std::size_t bytes) {
  void* data = nullptr;
  if (cudaMalloc(&data, bytes) != cudaSuccess) {
    cudaGetLastError();
    c10::cuda::CUDACachingAllocator::emptyCache();
    if (cudaMalloc(&data, bytes) != cudaSuccess) {
      cudaGetLastError();
      out_of_memory(place, bytes);
    }
  }
  return std::make_unique<WholeRegion>(place, static_cast<std::byte*>(data), bytes);
}

// 0: the driver cannot map memory in pieces.
std::size_t piece_bytes(c10::Device place) {
  if (!driver().complete()) return 0;
  const CUmemAllocationProp properties = properties_of(place);
  std::size_t bytes = 0;
  const CUresult result =
      driver().granularity(&bytes, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
  if (result != CUDA_SUCCESS || bytes == 0) return 0;
  CUmemGenericAllocationHandle handle = 0;
  if (driver().create(&handle, bytes, &properties, 0) != CUDA_SUCCESS) return 0;
  driver().release(handle);
  return bytes;
}

}  // namespace

std::unique_ptr<runtime::Region> reserve_region(c10::Device place, std::size_t bytes) {
  const c10::cuda::CUDAGuard here(place);
  check_cuda("[variable] starting the GPU", cudaFree(nullptr));
  const std::size_t piece = piece_bytes(place);
  if (piece == 0) return whole_region(place, bytes);
  const std::size_t whole = (std::max<std::size_t>(bytes, 1) + piece - 1) / piece * piece;
  CUdeviceptr address = 0;
  if (driver().reserve(&address, whole, 0, 0, 0) != CUDA_SUCCESS) return whole_region(place, bytes);
  return std::make_unique<MappedRegion>(place, address, whole, piece);
}

std::string memory_in_words(c10::Device place) {
  const c10::cuda::CUDAGuard here(place);
  std::size_t free = 0;
  std::size_t total = 0;
  cudaMemGetInfo(&free, &total);
  const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(place.index());
  constexpr std::size_t kAll = 0;  // the statistics' kind that counts every pool
  const auto bytes_of = [&](const auto& kinds) {
    return static_cast<std::size_t>(kinds[kAll].current);
  };
  return str_cat("of ", megabytes(total), " ", megabytes(free), " are free, ",
                 megabytes(g_backed[static_cast<std::size_t>(place.index())]),
                 " hold parameters, gradients and slots, ",
                 megabytes(bytes_of(stats.reserved_bytes)), " LibTorch's tensors (",
                 megabytes(bytes_of(stats.allocated_bytes)),
                 " of them in use), the rest is other programs'");
}

}  // namespace cohort::internal::cuda
