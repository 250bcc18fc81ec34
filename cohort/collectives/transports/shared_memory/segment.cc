// SPDX-License-Identifier: Apache-2.0
#include "cohort/collectives/transports/shared_memory/segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <system_error>

#include "cohort/base/error.h"
#include "cohort/base/strings.h"

namespace cohort::internal::collectives {
namespace {

std::string error_of(const char* call) {
  return str_cat(call, ": ", std::generic_category().message(errno));
}

std::array<char, 40> this_machine() {
  std::array<char, 40> id = {};
  std::string text;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), text);
  std::copy_n(text.begin(), std::min(text.size(), id.size()), id.begin());
  return id;
}

std::byte* map(int fd, std::size_t bytes) {
  void* const mapped = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  return mapped == MAP_FAILED ? nullptr : static_cast<std::byte*>(mapped);
}

// A page that the system cannot give when it is first written is SIGBUS.
bool reserve(int fd, std::size_t bytes) {
  int error = 0;
  do {
    error = ::fallocate(fd, 0, 0, static_cast<off_t>(bytes)) == 0 ? 0 : errno;
  } while (error == EINTR);
  errno = error;
  return error == 0 || error == EOPNOTSUPP;
}

}  // namespace

SharedSegment SharedSegment::create(std::size_t bytes, Pages pages) {
  const auto refused = [&](const char* call) {
    return Error(ErrorCode::kResourceExhausted,
                 str_cat("[communicator] expected ", bytes, " bytes of shared memory, got ",
                         error_of(call)));
  };
  SharedSegment segment;
  SegmentOffer& offer = segment.offer_;
  offer = {.machine = this_machine(),
           .bytes = bytes,
           .process = static_cast<int32_t>(::getpid()),
           .descriptor = ::memfd_create("cohort", MFD_CLOEXEC)};
  if (offer.descriptor < 0) throw refused("memfd_create");
  if (::ftruncate(offer.descriptor, static_cast<off_t>(kHeaderBytes + bytes)) != 0) {
    throw refused("ftruncate");
  }
  if (pages == Pages::kAllNow && !reserve(offer.descriptor, kHeaderBytes + bytes)) {
    throw refused("fallocate");
  }
  if (::getrandom(offer.token.data(), sizeof offer.token, 0) != sizeof offer.token) {
    throw refused("getrandom");
  }
  std::byte* const mapped = map(offer.descriptor, kHeaderBytes + bytes);
  if (mapped == nullptr) throw refused("mmap");
  if (pages == Pages::kWhenWritten) ::madvise(mapped, kHeaderBytes + bytes, MADV_HUGEPAGE);
  std::memcpy(mapped, &offer.token, sizeof offer.token);
  segment.mapped_ = mapped;
  segment.bytes_ = bytes;
  return segment;
}

SharedSegment SharedSegment::open(const SegmentOffer& offer, std::string* why) {
  SharedSegment segment;
  if (offer.machine != this_machine() || offer.machine[0] == '\0') {
    *why = "it is on another machine";
    return segment;
  }
  const std::string path = str_cat("/proc/", offer.process, "/fd/", offer.descriptor);
  const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  struct stat status = {};
  if (fd < 0 || ::fstat(fd, &status) != 0) {
    *why = error_of(path.c_str());
    if (fd >= 0) ::close(fd);
    return segment;
  }
  // In another namespace of processes the same number may be anybody's.
  const std::size_t bytes = kHeaderBytes + offer.bytes;
  std::byte* mapped = nullptr;
  if (S_ISREG(status.st_mode) && static_cast<std::size_t>(status.st_size) == bytes) {
    mapped = map(fd, bytes);
  }
  ::close(fd);
  if (mapped != nullptr && std::memcmp(mapped, &offer.token, sizeof offer.token) != 0) {
    ::munmap(mapped, bytes);
    mapped = nullptr;
  }
  if (mapped == nullptr) {
    *why = str_cat(path, " is something else");
    return segment;
  }
  segment.mapped_ = mapped;
  segment.bytes_ = offer.bytes;
  return segment;
}

void SharedSegment::clear(std::size_t offset, std::size_t bytes) {
  if (bytes == 0) return;
  // The system makes zeros of parts of pages, too.
  const int given =
      ::fallocate(offer_.descriptor, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                  static_cast<off_t>(kHeaderBytes + offset), static_cast<off_t>(bytes));
  if (given != 0) std::memset(data() + offset, 0, bytes);
}

SharedSegment::~SharedSegment() {
  if (mapped_ != nullptr) ::munmap(mapped_, kHeaderBytes + bytes_);
  if (offer_.descriptor >= 0) ::close(offer_.descriptor);
}

}  // namespace cohort::internal::collectives
