// SPDX-License-Identifier: Apache-2.0
#include "cohort/variables/internal/equal_copies.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <sstream>

#include "cohort/base/check.h"

namespace cohort::internal::variables {
namespace {

// With as many digits as tell two neighbours apart.
std::string number(const Tensor& flat, int64_t i) {
  std::ostringstream out;
  if (at::isIntegralType(flat.scalar_type(), /*includeBool=*/true)) {
    out << flat[i].item<int64_t>();
  } else if (at::isComplexType(flat.scalar_type())) {
    out << flat[i].item<c10::complex<double>>();
  } else {
    out.precision(flat.scalar_type() == kFloat64 ? std::numeric_limits<double>::max_digits10
                                                 : std::numeric_limits<float>::max_digits10);
    out << flat[i].item<double>();
  }
  return std::move(out).str();
}

int64_t first_difference(const Tensor& a, const Tensor& b) {
  const auto* left = static_cast<const std::byte*>(a.const_data_ptr());
  const auto* right = static_cast<const std::byte*>(b.const_data_ptr());
  const auto at = std::mismatch(left, left + a.nbytes(), right).first - left;
  return at / static_cast<int64_t>(a.element_size());
}

Shape position(int64_t element, const Shape& shape) {
  Shape out(shape.size());
  for (std::size_t i = shape.size(); i-- > 0; element /= shape[i]) out[i] = element % shape[i];
  return out;
}

}  // namespace

void check_equal_copies(VariableImpl& variable) {
  const VariableImpl::Description& d = variable.description();
  if (d.synchronization != Synchronization::kOnWrite || variable.numel() == 0) return;
  const Tensor first = variable.leaf_of(0).tensor.detach().cpu().contiguous();
  for (int r = 1; r < variable.leaf_count(); ++r) {
    const Tensor other = variable.leaf_of(r).tensor.detach().cpu().contiguous();
    if (std::memcmp(first.const_data_ptr(), other.const_data_ptr(), first.nbytes()) == 0) continue;
    const int64_t i = first_difference(first, other);
    throw FailedPrecondition(
        str_cat("[strategy.check_copies] expected equal copies of variable ", label(variable),
                " on every replica, got ", number(first.view({-1}), i), " on replica 0 and ",
                number(other.view({-1}), i), " on replica ", r, " at element ",
                bracketed(position(i, d.shape)),
                "; what a replica writes with aggregation none stays its own: give the variable an "
                "aggregation, make it kOnRead, or write it cross-replica"));
  }
}

}  // namespace cohort::internal::variables
