// SPDX-License-Identifier: Apache-2.0
#include "cohort/archive/internal/hdf5_library.h"

#include "cohort/base/fork_locks.h"

namespace cohort::internal::archive {
namespace {

constinit base::Mutex g_hdf5;
[[maybe_unused]] const bool hdf5_kept = base::keep_free_over_fork(g_hdf5);

// The innermost one, which is visited first.
herr_t note_reason(unsigned, const H5E_error2_t* error, void* text) {
  auto& reason = *static_cast<std::string*>(text);
  if (reason.empty() && error->desc != nullptr) reason = error->desc;
  return 0;
}

}  // namespace

Hdf5Turn::Hdf5Turn() : lock_(g_hdf5) {
  H5Eget_auto2(H5E_DEFAULT, &print_, &argument_);
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
}

Hdf5Turn::~Hdf5Turn() { H5Eset_auto2(H5E_DEFAULT, print_, argument_); }

std::string hdf5_reason() {
  std::string reason;
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, note_reason, &reason);
  return reason.empty() ? reason : ": " + reason;
}

}  // namespace cohort::internal::archive
