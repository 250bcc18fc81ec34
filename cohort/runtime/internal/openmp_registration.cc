// SPDX-License-Identifier: Apache-2.0
#include "cohort/runtime/internal/openmp_registration.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstring>

namespace cohort::internal::runtime {
namespace {

// The number at an address of this process, by a way that asks the system whether there is any.
bool read_number(std::uintptr_t address, unsigned long& number) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return false;
  const bool copied =
      ::write(ends[1], reinterpret_cast<const void*>(address), sizeof(number)) ==
          static_cast<ssize_t>(sizeof(number)) &&
      ::read(ends[0], &number, sizeof(number)) == static_cast<ssize_t>(sizeof(number));
  ::close(ends[0]);
  ::close(ends[1]);
  return copied;
}

}  // namespace

void remove_dead_openmp_registration() {
  char name[64];
  std::snprintf(name, sizeof(name), "/__KMP_REGISTERED_LIB_%d_%d", static_cast<int>(::getpid()),
                static_cast<int>(::getuid()));
  const int file = ::shm_open(name, O_RDONLY | O_CLOEXEC, 0);
  if (file < 0) return;
  // "0x7fc6af364980-cafe3e19-libomp.so.5": where the runtime has a number, and which.
  char text[128] = {};
  const bool is_read = ::read(file, text, sizeof(text) - 1) > 0;
  ::close(file);
  void* address = nullptr;
  unsigned long expected = 0;
  unsigned long found = 0;
  if (!is_read || std::sscanf(text, "%p-%lx", &address, &expected) != 2) return;
  const bool lives =
      read_number(reinterpret_cast<std::uintptr_t>(address), found) && found == expected;
  if (!lives) ::shm_unlink(name);
}

}  // namespace cohort::internal::runtime
