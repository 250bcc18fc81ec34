// SPDX-License-Identifier: Apache-2.0
#include "cohort/rpc/internal/lane_memory.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <system_error>

#include "cohort/base/error.h"
#include "cohort/base/fork_descriptors.h"
#include "cohort/base/strings.h"
#include "cohort/runtime/relax.h"

namespace cohort::internal::rpc {
namespace {

// Some 200 us: longer than a call of a few thousand rows takes.
constexpr int kLaneLooks = 4000;
constexpr int kLaneSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

// Between processes: without FUTEX_PRIVATE_FLAG.
void lane_futex(const std::atomic<uint32_t>& word, int operation, uint32_t value,
                const timespec* wait) {
  ::syscall(SYS_futex, &word, operation, value, wait, nullptr, 0);
}

Error no_memory(const char* call) {
  return {ErrorCode::kResourceExhausted,
          str_cat("[rpc] expected ", LaneMemory::kBytes, " bytes of shared memory, got ", call,
                  ": ", std::generic_category().message(errno))};
}

}  // namespace

int lane_looks() {
  static const int looks = [] {
    cpu_set_t cores;
    const bool known = ::sched_getaffinity(0, sizeof cores, &cores) == 0;
    return known && CPU_COUNT(&cores) > 1 ? kLaneLooks : 0;
  }();
  return looks;
}

// A change against a wait: who waits counts itself, then looks once more, and the kernel once more;
// who changes, changes and then reads the count. All are sequentially consistent, so one of them
// sees the other.
void LaneWord::store(uint32_t value) {
  value_.store(value, std::memory_order_seq_cst);
  wake();
}

void LaneWord::add() {
  value_.fetch_add(1, std::memory_order_seq_cst);
  wake();
}

void LaneWord::wake() {
  if (sleepers_.load(std::memory_order_seq_cst) != 0) {
    lane_futex(value_, FUTEX_WAKE, INT_MAX, nullptr);
  }
}

void LaneWord::wait_while(uint32_t old, runtime::SpinBudget& budget, std::chrono::milliseconds most,
                          base::FunctionRef<bool()> meanwhile) {
  const int looks = budget.next();
  for (int i = 0; i < looks; ++i) {
    if (load() != old) return budget.met(i);
    meanwhile() ? static_cast<void>(i = 0) : runtime::relax();
  }
  if (load() != old || most.count() <= 0) return;
  const timespec wait{.tv_sec = most.count() / 1000, .tv_nsec = most.count() % 1000 * 1'000'000};
  sleepers_.store(1, std::memory_order_seq_cst);
  if (value_.load(std::memory_order_seq_cst) == old) lane_futex(value_, FUTEX_WAIT, old, &wait);
  sleepers_.store(0, std::memory_order_relaxed);
  budget.parked();
}

LaneMemory::LaneMemory(int descriptor) {
  void* const mapped = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (mapped == MAP_FAILED) throw no_memory("mmap");
  mapped_ = static_cast<std::byte*>(mapped);
  ::madvise(mapped, kBytes, MADV_DONTFORK);
}

LaneMemory LaneMemory::create(int* descriptor) {
  const int fd = ::memfd_create("cohort-lane", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) throw no_memory("memfd_create");
  try {
    // Who could make it shorter could end the other process by SIGBUS.
    if (::ftruncate(fd, kBytes) != 0) throw no_memory("ftruncate");
    if (::fcntl(fd, F_ADD_SEALS, kLaneSeals) != 0) throw no_memory("F_ADD_SEALS");
    LaneMemory made(fd);
    *descriptor = fd;
    return made;
  } catch (...) {
    ::close(fd);
    throw;
  }
}

LaneMemory LaneMemory::open(int descriptor) {
  struct stat status = {};
  const int seals = ::fcntl(descriptor, F_GET_SEALS);
  if (seals < 0 || (seals & kLaneSeals) != kLaneSeals || ::fstat(descriptor, &status) != 0 ||
      static_cast<std::size_t>(status.st_size) != kBytes) {
    throw DataLoss(
        "[rpc] expected the memory of a lane, got something else; the server is of "
        "another version");
  }
  return LaneMemory(descriptor);
}

// In a child of fork it is not there, and what is may be something else.
LaneMemory::~LaneMemory() {
  if (mapped_ != nullptr && process_.is_ours()) ::munmap(mapped_, kBytes);
}

std::span<std::byte> LaneMemory::bytes(std::size_t index) const {
  std::byte* const first = mapped_ + kHeadBytes;
  if (index < kSmallPlaces) return {first + index * kSmallBytes, kSmallBytes};
  return {first + kSmallPlaces * kSmallBytes + (index - kSmallPlaces) * kLargeBytes, kLargeBytes};
}

LaneSocket::LaneSocket(int fd) : fd_(fd) { base::close_in_children(fd); }

LaneSocket::~LaneSocket() {
  if (fd_ >= 0 && base::close_no_more_in_children(fd_)) ::close(fd_);
}

bool LaneSocket::is_of_our_user() const {
  ucred peer = {};
  socklen_t size = sizeof peer;
  return ::getsockopt(fd_, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == ::geteuid();
}

bool LaneSocket::is_over() const {
  char byte = 0;
  const ssize_t got = ::recv(fd_, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return got >= 0 || (errno != EAGAIN && errno != EINTR);
}

}  // namespace cohort::internal::rpc
