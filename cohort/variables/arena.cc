// SPDX-License-Identifier: Apache-2.0
#include "cohort/variables/arena.h"

#include <algorithm>

#include "cohort/base/check.h"

namespace cohort::internal::variables {
namespace {

// Of one replica: a pass, what others still read of the last one, sums over steps, and one that the
// program keeps. Who keeps more of them gets memory as large as each gradient.
constexpr std::size_t kMostBuffers = 4;

std::atomic<uint64_t> g_arenas_made{0};

// Not narrow() of one tensor: all views of one tensor would share its version counter.
Tensor view(const Device& device, runtime::Region& region, const std::shared_ptr<ArenaRange>& range,
            const Shape& shape) {
  const std::size_t item = range->arena->element_size();
  const std::size_t offset = static_cast<std::size_t>(range->offset) * item;
  region.use(offset, static_cast<std::size_t>(range->numel) * item);
  return runtime::device_backend(device).view(device, region.data() + offset, shape,
                                              range->arena->dtype(), [range](void*) {});
}

}  // namespace

std::shared_ptr<Arena> Arena::create(ArenaDevices devices, DType dtype, ArenaSize size) {
  return std::shared_ptr<Arena>(new Arena(std::move(devices), dtype, size));
}

Arena::Arena(ArenaDevices devices, DType dtype, ArenaSize size)
    : number_(g_arenas_made.fetch_add(1, std::memory_order_relaxed)),
      devices_(std::move(devices)),
      dtype_(dtype),
      element_size_(c10::elementSize(dtype)),
      shares_parameters_(devices_.central && devices_.replicas.size() > 1),
      buffers_(devices_.replicas.size()) {
  // Parameters that leave no room for their gradients could not be trained.
  for (std::size_t bytes = size.wanted; bytes > size.least; bytes /= 2) {
    try {
      reserve(bytes, true);
      return;
    } catch (const Error& e) {
      if (e.code() != ErrorCode::kResourceExhausted) throw;  // Less, then.
    }
  }
  reserve(size.least, false);
}

void Arena::reserve(std::size_t bytes, bool with_gradients) {
  parameters_.clear();
  for (auto& pool : buffers_) pool.clear();
  for (int r = 0; r < (shares_parameters_ ? 1 : replicas()); ++r) {
    const Device& device = parameter_device(r);
    parameters_.push_back(runtime::device_backend(device).reserve(device, bytes));
  }
  for (int r = 0; with_gradients && r < replicas(); ++r) {
    buffers_[static_cast<std::size_t>(r)].push_back(make_buffer(r, bytes));
  }
  region_bytes_ = parameters_.front()->bytes();
  for (const auto& region : parameters_) region_bytes_ = std::min(region_bytes_, region->bytes());
}

std::unique_ptr<GradientBuffer> Arena::make_buffer(int replica, std::size_t bytes) const {
  std::unique_ptr<runtime::Region> memory;
  const bool may_share = devices_.shared_gradients && device(replica).at_device().is_cpu();
  if (may_share) memory = devices_.shared_gradients(bytes);
  if (memory == nullptr) {
    memory = runtime::device_backend(device(replica)).reserve(device(replica), bytes);
  }
  return std::make_unique<GradientBuffer>(replica, std::move(memory));
}

bool Arena::empty() const {
  const base::MutexLock lock(mutex_);
  return end_ == 0;
}

int64_t Arena::padded(int64_t numel) const {
  const auto unit = static_cast<int64_t>(kAlignment / element_size_);
  return (std::max<int64_t>(numel, 1) + unit - 1) / unit * unit;
}

std::optional<int64_t> Arena::allocate(int64_t numel) {
  const int64_t size = padded(numel);
  const base::MutexLock lock(mutex_);
  for (auto hole = holes_.begin(); hole != holes_.end(); ++hole) {
    if (hole->second != size) continue;  // exact fit only: a rebuilt model lands where it was
    const int64_t offset = hole->first;
    holes_.erase(hole);
    return offset;
  }
  if ((end_ + size) * static_cast<int64_t>(element_size_) > static_cast<int64_t>(region_bytes_)) {
    return std::nullopt;
  }
  const int64_t offset = end_;
  end_ += size;
  return offset;
}

void Arena::release(int64_t offset, int64_t numel) {
  const int64_t size = padded(numel);
  const std::size_t begin = static_cast<std::size_t>(offset) * element_size_;
  const std::size_t bytes = static_cast<std::size_t>(size) * element_size_;
  const base::MutexLock lock(mutex_);
  // The next owner's padding must be zero, in its gradients as well: norms are taken over it.
  for (auto& region : parameters_) region->clear(begin, bytes);
  for (auto& pool : buffers_) {
    for (auto& buffer : pool) buffer->region->clear(begin, bytes);
  }
  holes_[offset] = size;
  while (!holes_.empty()) {
    const auto last = std::prev(holes_.end());
    if (last->first + last->second != end_) break;
    end_ = last->first;
    holes_.erase(last);
  }
}

ArenaRange::~ArenaRange() { arena->release(offset, numel); }

std::byte* Arena::parameter_data(int replica, int64_t offset) const {
  return parameters_[copy_of(replica)]->data() + static_cast<std::size_t>(offset) * element_size_;
}

std::byte* Arena::gradient_data(const GradientBuffer& buffer, int64_t offset) const {
  return buffer.region->data() + static_cast<std::size_t>(offset) * element_size_;
}

Tensor Arena::parameter_view(int replica, const std::shared_ptr<ArenaRange>& range,
                             const Shape& shape) {
  return view(parameter_device(replica), *parameters_[copy_of(replica)], range, shape);
}

Tensor Arena::gradient_view(GradientBuffer& buffer, const std::shared_ptr<ArenaRange>& range,
                            const Shape& shape) {
  return view(device(buffer.replica), *buffer.region, range, shape);
}

GradientBuffer* Arena::acquire_buffer(int replica, uint64_t epoch) {
  // What a child of fork would write there, its parent's peers would read.
  if (devices_.shared_gradients && !process_.is_ours()) return nullptr;
  const base::MutexLock lock(mutex_);
  auto& pool = buffers_[static_cast<std::size_t>(replica)];
  for (auto& buffer : pool) {
    if (buffer->readable_until < epoch && buffer->leases.load(std::memory_order_acquire) == 0) {
      buffer->leases.fetch_add(1, std::memory_order_relaxed);
      return buffer.get();
    }
  }
  if (pool.size() >= kMostBuffers) return nullptr;
  try {
    pool.push_back(make_buffer(replica, region_bytes_));
  } catch (const Error& e) {
    if (e.code() != ErrorCode::kResourceExhausted) throw;
    return nullptr;  // No address space for a whole one.
  }
  pool.back()->leases.store(1, std::memory_order_relaxed);
  return pool.back().get();
}

}  // namespace cohort::internal::variables
