// SPDX-License-Identifier: Apache-2.0
#include "cohort/runtime/internal/cpu_backend.h"

#include <ATen/ops/from_blob.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>
#include <string>
#include <utility>

#include "cohort/base/check.h"
#include "cohort/base/mutex.h"
#include "cohort/base/sanitizers.h"
#include "cohort/runtime/memory.h"

#if COHORT_ADDRESS_SANITIZER
#include <sanitizer/asan_interface.h>
#define COHORT_POISON(data, bytes) ASAN_POISON_MEMORY_REGION(data, bytes)
#define COHORT_UNPOISON(data, bytes) ASAN_UNPOISON_MEMORY_REGION(data, bytes)
#else
#define COHORT_POISON(data, bytes) static_cast<void>(0)
#define COHORT_UNPOISON(data, bytes) static_cast<void>(0)
#endif

namespace cohort::internal::runtime {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr std::size_t kUnlimited = std::numeric_limits<std::size_t>::max();

std::size_t page_size() {
  static const auto bytes = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

std::size_t whole_pages(std::size_t bytes) {
  return (std::max<std::size_t>(bytes, 1) + page_size() - 1) / page_size() * page_size();
}

// Cut to a huge-page border, so that the parameters of a model need few TLB entries.
std::byte* map_pages(std::size_t bytes) {
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
  auto* begin = static_cast<std::byte*>(data);
  const std::size_t head =
      (kHugePage - reinterpret_cast<std::uintptr_t>(begin) % kHugePage) % kHugePage;
  if (head > 0) munmap(begin, head);
  if (head < kHugePage) munmap(begin + head + bytes, kHugePage - head);
  madvise(begin + head, bytes, MADV_HUGEPAGE);
  return begin + head;
}

/// Pages that the system backs with memory at first touch. Under AddressSanitizer what is not in
/// use is poisoned: up to kGuard behind the last byte that ever was, since a mark for each byte of
/// a region takes longer to write than most tests take.
class CpuRegion final : public Region {
 public:
  explicit CpuRegion(std::size_t bytes) : Region(map_pages(bytes), bytes) { poison_to(0); }
  ~CpuRegion() override {
    COHORT_UNPOISON(data(), poisoned_);
    munmap(data(), bytes());
  }

  void use(std::size_t offset, std::size_t bytes) override {
    poison_to(offset + bytes);
    COHORT_UNPOISON(data() + offset, bytes);
  }

  void clear(std::size_t offset, std::size_t bytes) override {
    use(offset, bytes);
    // The ends lie on pages that neighbours share. The system refuses to take locked pages.
    const std::size_t page = page_size();
    const std::size_t begin = std::min((offset + page - 1) / page * page, offset + bytes);
    const std::size_t end = std::max(begin, (offset + bytes) / page * page);
    const bool given = madvise(data() + begin, end - begin, MADV_DONTNEED) == 0;
    std::memset(data() + offset, 0, (given ? begin : end) - offset);
    std::memset(data() + end, 0, offset + bytes - end);
    COHORT_POISON(data() + offset, bytes);
  }

 private:
  static constexpr std::size_t kGuard = std::size_t{4} << 20;

  void poison_to(std::size_t end) {
    if constexpr (COHORT_ADDRESS_SANITIZER != 0) {
      const base::MutexLock lock(mutex_);
      end = std::min(bytes(), end + kGuard);
      if (end <= poisoned_) return;
      COHORT_POISON(data() + poisoned_, end - poisoned_);
      poisoned_ = end;
    }
  }

  base::Mutex mutex_;
  std::size_t poisoned_ = 0;  // bytes from the beginning
};

/// The number behind `name` in a file of "name: number kB" lines.
std::size_t read_kilobytes(const char* path, const std::string& name) {
  std::ifstream file(path);
  for (std::string word; file >> word;) {
    std::size_t number = 0;
    if (word == name && file >> number) return number << 10;
  }
  return 0;
}

std::size_t minus(std::size_t most, std::size_t used) { return most > used ? most - used : 0; }

class CpuBackend final : public DeviceBackend {
 public:
  int count() const override { return std::numeric_limits<int>::max(); }  // logical ones
  void split(int, std::span<const int64_t>) override {}
  c10::Device place(const Device&) const override { return c10::kCPU; }

  std::unique_ptr<Region> reserve(const Device&, std::size_t bytes) override {
    return std::make_unique<CpuRegion>(whole_pages(bytes));
  }

  /// What ulimit -v and the system's strict accounting leave to this process.
  std::size_t reservable(const Device&) const override {
    std::size_t left = kUnlimited;
    rlimit limit{};
    if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
      left = minus(limit.rlim_cur, read_kilobytes("/proc/self/status", "VmSize:"));
    }
    constexpr int kStrict = 2;
    int overcommit = 0;
    if (std::ifstream("/proc/sys/vm/overcommit_memory") >> overcommit && overcommit == kStrict) {
      left = std::min(left, minus(read_kilobytes("/proc/meminfo", "CommitLimit:"),
                                  read_kilobytes("/proc/meminfo", "Committed_AS:")));
    }
    return left;
  }

  Tensor view(const Device&, std::byte* data, const Shape& shape, DType dtype,
              std::function<void(void*)> release) override {
    return at::from_blob(data, shape, std::move(release), at::TensorOptions().dtype(dtype));
  }

  void copy(const Device&, std::byte* destination, const Device&, const std::byte* source,
            std::size_t bytes) override {
    std::memcpy(destination, source, bytes);
  }

  std::unique_ptr<DeviceGuard> guard(const Device&) override { return nullptr; }
  bool is_asynchronous() const override { return false; }
  void publish(const Device&) override {}
  void await(const Device&) override {}
};

}  // namespace

DeviceBackend& cpu_backend() {
  // Never destroyed: variables of static storage may outlive every other static.
  static CpuBackend& instance = *new CpuBackend;
  return instance;
}

}  // namespace cohort::internal::runtime
