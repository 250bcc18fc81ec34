// SPDX-License-Identifier: Apache-2.0
//
// libhdf5's handles as objects, and its errors as text.
#pragma once

#define H5_USE_110_API
#include <hdf5.h>

#include <string>
#include <utility>

#include "cohort/base/mutex.h"

namespace cohort::internal::archive {

/// For its lifetime the library is the caller's: it is not made for several threads at once
/// everywhere, and prints errors, which programs that use it themselves may want.
class [[nodiscard]] Hdf5Turn {
 public:
  Hdf5Turn();
  ~Hdf5Turn();
  Hdf5Turn(const Hdf5Turn&) = delete;
  Hdf5Turn& operator=(const Hdf5Turn&) = delete;

 private:
  base::MutexLock lock_;
  H5E_auto2_t print_ = nullptr;
  void* argument_ = nullptr;
};

/// A handle, closed at its end. Within a Hdf5Turn.
class Hdf5Id {
 public:
  using Close = herr_t (*)(hid_t);
  Hdf5Id() = default;
  Hdf5Id(hid_t id, Close how) : id_(id), close_(how) {}
  Hdf5Id(Hdf5Id&& other) noexcept : id_(std::exchange(other.id_, -1)), close_(other.close_) {}
  Hdf5Id& operator=(Hdf5Id&& other) noexcept {
    std::swap(id_, other.id_);
    std::swap(close_, other.close_);
    return *this;
  }
  ~Hdf5Id() { close(); }

  void close() {
    if (id_ >= 0 && close_ != nullptr) close_(id_);
    id_ = -1;
  }
  bool valid() const { return id_ >= 0; }
  operator hid_t() const { return id_; }  // NOLINT: implicit by design

 private:
  hid_t id_ = -1;
  Close close_ = nullptr;
};

/// What the library says of its last error: ", bad heap"; empty: nothing.
std::string hdf5_reason();

}  // namespace cohort::internal::archive
