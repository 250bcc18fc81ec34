// SPDX-License-Identifier: Apache-2.0
#include "cohort/variables/id_table.h"

#include "cohort/runtime/random.h"

namespace cohort::internal::variables {
namespace {

// Tells these draws from those of other operations of the same seed.
constexpr uint64_t kFirstRows = 0x1d7ab1e;

template <class T>
void fill(const IdTableOptions& options, std::span<const int64_t> ids, std::size_t width, T* to) {
  for (const int64_t id : ids) {
    const runtime::RandomStream stream(options.seed, kFirstRows, static_cast<uint64_t>(id), -1);
    runtime::fill_uniform<T>(stream, static_cast<T>(options.minval), static_cast<T>(options.maxval),
                             {to, width});
    to += width;
  }
}

}  // namespace

void fill_first_rows(const IdTableOptions& options, std::span<const int64_t> ids, DType dtype,
                     std::size_t width, std::byte* to) {
  if (dtype == kFloat64) return fill(options, ids, width, reinterpret_cast<double*>(to));
  fill(options, ids, width, reinterpret_cast<float*>(to));
}

}  // namespace cohort::internal::variables
