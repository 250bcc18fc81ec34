// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/losses/internal/labels.h"

#include <cmath>
#include <limits>
#include <type_traits>
#include <vector>

#include "cohort/base/check.h"

namespace cohort::keras::internal {
namespace {

// "row 3", or "row 3, place [1, 0]" where a row has several labels.
std::string place_of(int64_t index, at::IntArrayRef shape) {
  std::vector<int64_t> place(shape.size());
  for (std::size_t axis = shape.size(); axis-- > 0; index /= shape[axis]) {
    place[axis] = index % shape[axis];
  }
  if (place.empty()) return "row 0";
  const std::string row = str_cat("row ", place.front());
  if (place.size() == 1) return row;
  place.erase(place.begin());
  return str_cat(row, ", place ", bracketed(place));
}

template <class T>
void check_range(const std::string& loss, const Tensor& labels, int64_t classes) {
  const T* values = labels.const_data_ptr<T>();
  for (int64_t i = 0, n = labels.numel(); i < n; ++i) {
    // Negated, so that NaN fails.
    const bool inside = !(values[i] < T(0)) && values[i] < static_cast<T>(classes);
    COHORT_CHECK_ARG(inside, "[", loss, "] expected labels in [0, ", classes, "), got ", values[i],
                     " in ", place_of(i, labels.sizes()));
    if constexpr (std::is_floating_point_v<T>) {
      COHORT_CHECK_ARG(values[i] == std::floor(values[i]), "[", loss,
                       "] expected whole numbers as labels in [0, ", classes, "), got ", values[i],
                       " in ", place_of(i, labels.sizes()));
    }
  }
}

// Small integers, as image data sets have them: a loop instead of a LibTorch operation.
template <class T>
Tensor widened(const Tensor& labels) {
  Tensor out = empty(shape_of(labels), kInt64);
  auto* to = out.mutable_data_ptr<int64_t>();
  const T* from = labels.const_data_ptr<T>();
  for (int64_t i = 0, n = labels.numel(); i < n; ++i) to[i] = from[i];
  return out;
}

Tensor as_int64(const Tensor& labels) {
  const DType type = labels.scalar_type();
  const bool direct = labels.device().is_cpu() && labels.is_contiguous();
  if (type == kInt64) return labels;
  if (direct && type == kUint8) return widened<uint8_t>(labels);
  if (direct && type == kInt32) return widened<int32_t>(labels);
  return labels.to(kInt64);
}

Tensor without_trailing_one(const std::string& loss, const Tensor& y_true, const Tensor& scores) {
  const auto outer = scores.sizes().slice(0, static_cast<std::size_t>(scores.dim() - 1));
  if (y_true.sizes() == outer) return y_true;
  at::IntArrayRef shape = y_true.sizes();  // less its last axes of 1
  while (shape.size() > outer.size() && shape.back() == 1) shape = shape.slice(0, shape.size() - 1);
  const bool trailing = shape == outer;
  COHORT_CHECK_ARG(trailing, "[", loss, "] expected labels of shape ", bracketed(outer),
                   " for predictions of shape ", bracketed(scores.sizes()), ", got ",
                   bracketed(y_true.sizes()));
  return y_true.reshape(outer);
}

Tensor unread(const Tensor& labels, const Tensor& scores) {
  const Tensor there = labels.to(scores.device());
  if (!at::isFloatingType(there.scalar_type())) return there.to(kInt64).contiguous();
  const Tensor whole = there.to(kInt64);
  return whole.masked_fill(whole.ne(there), -1).contiguous();
}

}  // namespace

Tensor picked(const Tensor& values, const Tensor& numbers) {
  if (values.is_cpu()) return values.gather(-1, numbers.unsqueeze(-1)).squeeze(-1);
  const Tensor inside = numbers.clamp(0, values.size(-1) - 1);
  return values.gather(-1, inside.unsqueeze(-1))
      .squeeze(-1)
      .masked_fill(inside.ne(numbers), std::numeric_limits<double>::quiet_NaN());
}

Tensor class_numbers(const std::string& loss, const Tensor& y_true, const Tensor& scores) {
  const int64_t classes = scores.size(-1);
  Tensor labels = without_trailing_one(loss, y_true, scores);
  if (!scores.is_cpu()) return unread(labels, scores);
  if (at::isFloatingType(labels.scalar_type())) {
    labels = labels.to(at::kCPU, kFloat64).contiguous();
    check_range<double>(loss, labels, classes);
    return labels.to(scores.device(), kInt64);
  }
  labels = as_int64(labels).contiguous();
  check_range<int64_t>(loss, labels.to(at::kCPU), classes);
  return labels;
}

}  // namespace cohort::keras::internal
