// SPDX-License-Identifier: Apache-2.0
#include "cohort/variables/arena.h"

#include <ATen/ops/from_blob.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "cohort/base/check.h"
#include "cohort/runtime/memory.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#define COHORT_POISON(data, bytes) ASAN_POISON_MEMORY_REGION(data, bytes)
#define COHORT_UNPOISON(data, bytes) ASAN_UNPOISON_MEMORY_REGION(data, bytes)
#else
#define COHORT_POISON(data, bytes) static_cast<void>(0)
#define COHORT_UNPOISON(data, bytes) static_cast<void>(0)
#endif

namespace cohort::internal {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;
// Of one replica: a pass, what others still read of the last one, sums over steps, and one that the
// program keeps. Who keeps more of them gets memory as large as each gradient.
constexpr std::size_t kMostBuffers = 4;

std::size_t page_size() {
  static const auto bytes = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

std::size_t whole_pages(std::size_t bytes) {
  return (std::max<std::size_t>(bytes, 1) + page_size() - 1) / page_size() * page_size();
}

std::atomic<uint64_t> g_arenas_made{0};

// Not narrow() of one tensor: all views of one tensor would share its version counter.
Tensor view(std::byte* data, const std::shared_ptr<ArenaRange>& range, const Shape& shape) {
  COHORT_UNPOISON(data, static_cast<std::size_t>(range->numel) * range->arena->element_size());
  return at::from_blob(
      data, shape, [range](void*) {}, at::TensorOptions().dtype(range->arena->dtype()));
}

}  // namespace

Region::Region(std::size_t wanted) : bytes_(whole_pages(wanted)) {
  const std::size_t bytes = bytes_;
  const auto map = [bytes] {
    return mmap(nullptr, bytes + kHugePage, PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  };
  void* data = map();
  if (data == MAP_FAILED) {
    release_all_cached_memory();
    data = map();
  }
  if (data == MAP_FAILED) {
    throw Error(ErrorCode::kResourceExhausted,
                str_cat("[variable] expected address space for ", bytes,
                        " bytes of parameters, gradients or slots, got: ", std::strerror(errno),
                        "; raise the limit (ulimit -v, vm.overcommit_memory)"));
  }
  // Cut to a huge-page border, so that the parameters of a model need few TLB entries.
  auto* begin = static_cast<std::byte*>(data);
  const std::size_t head =
      (kHugePage - reinterpret_cast<std::uintptr_t>(begin) % kHugePage) % kHugePage;
  if (head > 0) munmap(begin, head);
  if (head < kHugePage) munmap(begin + head + bytes, kHugePage - head);
  data_ = begin + head;
  madvise(data_, bytes_, MADV_HUGEPAGE);
  COHORT_POISON(data_, bytes_);
}

Region::~Region() {
  COHORT_UNPOISON(data_, bytes_);
  munmap(data_, bytes_);
}

void Region::make_usable() { COHORT_UNPOISON(data_, bytes_); }

void Region::clear(std::size_t offset, std::size_t bytes) {
  COHORT_UNPOISON(data_ + offset, bytes);
  // The ends lie on pages that neighbours share. The system refuses to take locked pages.
  const std::size_t page = page_size();
  const std::size_t begin = std::min((offset + page - 1) / page * page, offset + bytes);
  const std::size_t end = std::max(begin, (offset + bytes) / page * page);
  const bool given = madvise(data_ + begin, end - begin, MADV_DONTNEED) == 0;
  std::memset(data_ + offset, 0, (given ? begin : end) - offset);
  std::memset(data_ + end, 0, offset + bytes - end);
  COHORT_POISON(data_ + offset, bytes);
}

std::shared_ptr<Arena> Arena::create(int replicas, DType dtype, ParameterPlacement placement,
                                     ArenaSize size) {
  return std::shared_ptr<Arena>(new Arena(replicas, dtype, placement, size));
}

Arena::Arena(int replicas, DType dtype, ParameterPlacement placement, ArenaSize size)
    : number_(g_arenas_made.fetch_add(1, std::memory_order_relaxed)),
      dtype_(dtype),
      element_size_(c10::elementSize(dtype)),
      shares_parameters_(placement == ParameterPlacement::kCentral && replicas > 1),
      buffers_(static_cast<std::size_t>(replicas)) {
  const std::size_t least = whole_pages(size.least);
  // Parameters that leave no room for their gradients could not be trained.
  for (std::size_t bytes = whole_pages(size.wanted); bytes > least;
       bytes = whole_pages(bytes / 2)) {
    try {
      reserve(bytes, true);
      return;
    } catch (const Error&) {
      continue;  // Less, then.
    }
  }
  reserve(least, false);
}

void Arena::reserve(std::size_t bytes, bool with_gradients) {
  parameters_.clear();
  for (auto& pool : buffers_) pool.clear();
  while (parameters_.size() < (shares_parameters_ ? 1 : buffers_.size())) {
    parameters_.push_back(std::make_unique<Region>(bytes));
  }
  for (std::size_t r = 0; with_gradients && r < buffers_.size(); ++r) {
    buffers_[r].push_back(std::make_unique<GradientBuffer>(static_cast<int>(r), bytes));
  }
  region_bytes_ = bytes;
}

bool Arena::empty() const {
  std::scoped_lock lock(mutex_);
  return end_ == 0;
}

int64_t Arena::padded(int64_t numel) const {
  const auto unit = static_cast<int64_t>(kAlignment / element_size_);
  return (std::max<int64_t>(numel, 1) + unit - 1) / unit * unit;
}

std::optional<int64_t> Arena::allocate(int64_t numel) {
  const int64_t size = padded(numel);
  std::scoped_lock lock(mutex_);
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
  std::scoped_lock lock(mutex_);
  // The next owner's padding must be zero, in its gradients as well: norms are taken over it.
  for (auto& region : parameters_) region->clear(begin, bytes);
  for (auto& pool : buffers_) {
    for (auto& buffer : pool) buffer->region.clear(begin, bytes);
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
  const auto copy = shares_parameters() ? std::size_t{0} : static_cast<std::size_t>(replica);
  return parameters_[copy]->data() + static_cast<std::size_t>(offset) * element_size_;
}

std::byte* Arena::gradient_data(const GradientBuffer& buffer, int64_t offset) const {
  return buffer.region.data() + static_cast<std::size_t>(offset) * element_size_;
}

Tensor Arena::parameter_view(int replica, const std::shared_ptr<ArenaRange>& range,
                             const Shape& shape) {
  return view(parameter_data(replica, range->offset), range, shape);
}

Tensor Arena::gradient_view(GradientBuffer& buffer, const std::shared_ptr<ArenaRange>& range,
                            const Shape& shape) {
  return view(gradient_data(buffer, range->offset), range, shape);
}

GradientBuffer* Arena::acquire_buffer(int replica, uint64_t epoch) {
  std::scoped_lock lock(mutex_);
  auto& pool = buffers_[static_cast<std::size_t>(replica)];
  for (auto& buffer : pool) {
    if (buffer->readable_until < epoch && buffer->leases.load(std::memory_order_acquire) == 0) {
      buffer->leases.fetch_add(1, std::memory_order_relaxed);
      return buffer.get();
    }
  }
  if (pool.size() >= kMostBuffers) return nullptr;
  try {
    pool.push_back(std::make_unique<GradientBuffer>(replica, region_bytes_));
  } catch (const Error&) {
    return nullptr;  // No address space for a whole one.
  }
  pool.back()->leases.store(1, std::memory_order_relaxed);
  return pool.back().get();
}

}  // namespace cohort::internal
