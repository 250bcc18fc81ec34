// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/internal/operation_shapes.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/core/ScalarType.h>

#include <algorithm>
#include <optional>

#include "cohort/base/check.h"
#include "cohort/keras/dtype_policy.h"
#include "cohort/keras/internal/layer_call.h"
#include "cohort/keras/internal/torch_errors.h"

namespace cohort::keras::internal {
namespace {

using Compute = std::function<Tensor(const std::vector<Tensor>&)>;

// On tensors without memory, with `any` in place of sizes that are not known.
Tensor tried(const std::string& kind, const std::vector<TensorSpec>& inputs, int64_t any,
             const Compute& compute) {
  std::vector<Tensor> x;
  for (const TensorSpec& input : inputs) {
    Shape shape = input.shape;
    std::ranges::replace(shape, kUnknownDim, any);
    const DType dtype = input.dtype == DType::Undefined ? floatx() : input.dtype;
    x.push_back(at::empty(shape, at::TensorOptions().dtype(dtype).device(at::kMeta)));
  }
  try {
    return compute(x);
  } catch (const c10::Error& error) {
    throw InvalidArgument(str_cat("[", kind, "] expected inputs that fit, got ",
                                  none_shape(inputs[0].shape), ": ", torch_text(error)));
  }
}

// What two sizes in place of the unknown ones change is not known behind the function, either.
TensorSpec spec_by_trying(const std::string& kind, const std::vector<TensorSpec>& inputs,
                          const Compute& compute) {
  constexpr int64_t kSize = 840;
  const Tensor one = tried(kind, inputs, kSize, compute);
  const Tensor other = tried(kind, inputs, 2 * kSize, compute);
  TensorSpec out{shape_of(one), one.scalar_type()};
  for (std::size_t i = 0; i < out.shape.size(); ++i) {
    if (one.size(static_cast<int64_t>(i)) != other.size(static_cast<int64_t>(i))) {
      out.shape[i] = kUnknownDim;
    }
  }
  return out;
}

TensorSpec spec_of_broadcast(const std::string& kind, std::vector<TensorSpec> inputs,
                             const Compute& compute) {
  TensorSpec out{{}, DType::Undefined};
  for (TensorSpec& input : inputs) {
    out.shape = broadcast_shape(kind, out.shape, input.shape);
    input.shape.assign(input.shape.size(), 1);  // the type is the same of any
  }
  out.dtype = tried(kind, inputs, 1, compute).scalar_type();
  return out;
}

// As Keras has it: what unknown sizes are cut into is seen when they are known.
TensorSpec spec_of_reshape(const std::string& kind, const Config& options,
                           const std::vector<TensorSpec>& inputs, const Compute& compute) {
  const TensorSpec& input = inputs[0];
  if (std::ranges::find(input.shape, kUnknownDim) == input.shape.end()) {
    return spec_by_trying(kind, inputs, compute);
  }
  TensorSpec out{{}, input.dtype == DType::Undefined ? floatx() : input.dtype};
  for (const Config& size : options.at("newshape").list()) {
    const int64_t n = size.is_null() ? -1 : size.integer();
    COHORT_CHECK_ARG(n >= -1, "[", kind, "] expected sizes from 0 on, or -1, got ", n);
    out.shape.push_back(n == -1 ? kUnknownDim : n);
  }
  COHORT_CHECK_ARG(std::ranges::count(out.shape, kUnknownDim) <= 1, "[", kind,
                   "] expected at most one size that is left open, got ", options.at("newshape"));
  return out;
}

// Tensors of the same sizes, but for those along `axis`: what one does not know, another may.
void fill_from_others(std::vector<TensorSpec>& inputs, std::optional<int64_t> axis) {
  const std::size_t rank = inputs[0].shape.size();
  const auto is_alike = [&](const TensorSpec& x) { return x.shape.size() == rank; };
  if (!std::ranges::all_of(inputs, is_alike)) return;  // an error that LibTorch names
  const auto signed_rank = static_cast<int64_t>(rank);
  for (int64_t i = 0; i < signed_rank; ++i) {
    if (axis && (i == *axis || i == *axis + signed_rank)) continue;
    const auto at = static_cast<std::size_t>(i);
    const auto known = std::ranges::find_if(
        inputs, [&](const TensorSpec& x) { return x.shape[at] != kUnknownDim; });
    if (known == inputs.end()) continue;
    const int64_t size = known->shape[at];
    for (TensorSpec& x : inputs) {
      if (x.shape[at] == kUnknownDim) x.shape[at] = size;
    }
  }
}

}  // namespace

Shape broadcast_shape(const std::string& kind, const Shape& a, const Shape& b) {
  const std::size_t rank = std::max(a.size(), b.size());
  Shape out(rank, 1);
  const auto size = [&](const Shape& shape, std::size_t i) {
    return i + shape.size() < rank ? 1 : shape[i + shape.size() - rank];
  };
  for (std::size_t i = 0; i < rank; ++i) {
    const int64_t x = size(a, i), y = size(b, i);
    COHORT_CHECK_ARG(x == y || x == 1 || y == 1 || x == kUnknownDim || y == kUnknownDim, "[", kind,
                     "] expected shapes that broadcast, got ", none_shape(a), " and ",
                     none_shape(b));
    out[i] = x == 1 || (x == kUnknownDim && y != 1) ? y : x;
  }
  return out;
}

Shape product_shape(Shape a, Shape b) {
  COHORT_CHECK_ARG(!a.empty() && !b.empty(), "[Matmul] expected at least one axis, got ",
                   none_shape(a), " and ", none_shape(b));
  const bool row = a.size() == 1, column = b.size() == 1;
  if (row) a.insert(a.begin(), 1);
  if (column) b.push_back(1);
  const int64_t inner = a.back(), other = b[b.size() - 2];
  COHORT_CHECK_ARG(inner == other || inner == kUnknownDim || other == kUnknownDim,
                   "[Matmul] expected equal inner sizes, got ", none_shape(a), " and ",
                   none_shape(b));
  const int64_t rows = a[a.size() - 2], columns = b.back();
  Shape out = broadcast_shape("Matmul", {a.begin(), a.end() - 2}, {b.begin(), b.end() - 2});
  if (!row) out.push_back(rows);
  if (!column) out.push_back(columns);
  return out;
}

TensorSpec spec_of_function(const std::string& kind, const TensorFunction& function,
                            const Config& options, const std::vector<TensorSpec>& inputs,
                            const Compute& compute) {
  std::vector<TensorSpec> filled = inputs;
  switch (function.shapes) {
    case TensorFunction::Shapes::kTried:
      break;
    case TensorFunction::Shapes::kBroadcast:
      return spec_of_broadcast(kind, inputs, compute);
    case TensorFunction::Shapes::kReshaped:
      return spec_of_reshape(kind, options, inputs, compute);
    case TensorFunction::Shapes::kStacked:
      fill_from_others(filled, std::nullopt);
      break;
    case TensorFunction::Shapes::kJoined:
      fill_from_others(filled, options.at("axis").integer());
      break;
  }
  return spec_by_trying(kind, filled, compute);
}

}  // namespace cohort::keras::internal
