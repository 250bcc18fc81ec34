// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/utils.h"

#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/where.h>

#include "cohort/base/check.h"

namespace cohort {

Tensor one_hot(const Tensor& indices, int64_t depth, const OneHotOptions& options) {
  COHORT_CHECK_ARG(indices.defined() && at::isIntegralType(indices.scalar_type(), false),
                   "[one_hot] expected integers as indices, got ",
                   indices.defined() ? dtype_name(indices.scalar_type()) : "no tensor");
  COHORT_CHECK_ARG(depth >= 0, "[one_hot] expected depth of 0 or more, got ", depth);
  const int64_t rank = indices.dim() + 1;
  const int64_t axis = options.axis < 0 ? options.axis + rank : options.axis;
  COHORT_CHECK_ARG(axis >= 0 && axis < rank, "[one_hot] expected an axis in [", -rank, ", ", rank,
                   ") for indices of shape ", bracketed(indices.sizes()), ", got ", options.axis);
  std::vector<int64_t> along(static_cast<std::size_t>(rank), 1);
  along[static_cast<std::size_t>(axis)] = depth;
  const Tensor hits = indices.to(kInt64).unsqueeze(axis).eq(arange(depth).view(along));
  const Tensor on = full({}, options.on_value, options.dtype);
  const Tensor off = full({}, options.off_value, options.dtype);
  return at::where(hits, on, off);
}

namespace keras {

Tensor to_categorical(const Tensor& x, std::optional<int64_t> num_classes) {
  COHORT_CHECK_ARG(x.defined(), "[to_categorical] expected labels, got no tensor");
  Tensor labels = x.to(kInt64);
  if (labels.dim() > 1 && labels.size(-1) == 1) labels = labels.squeeze(-1);
  COHORT_CHECK_ARG(num_classes || labels.numel() > 0,
                   "[to_categorical] expected at least one label or num_classes, got neither: "
                   "without labels there is no largest one that says how many classes there are");
  const int64_t classes = num_classes ? *num_classes : labels.max().item<int64_t>() + 1;
  COHORT_CHECK_ARG(classes > 0, "[to_categorical] expected at least 1 class, got ", classes);
  if (labels.numel() > 0) {
    const auto low = labels.min().item<int64_t>();
    const auto high = labels.max().item<int64_t>();
    COHORT_CHECK_ARG(low >= -classes && high < classes, "[to_categorical] expected labels in [",
                     -classes, ", ", classes, "), got ", high < classes ? low : high);
  }
  return cohort::one_hot(at::where(labels.lt(0), labels + classes, labels), classes);
}

Tensor normalize(const Tensor& x, int64_t axis, double order) {
  COHORT_CHECK_ARG(x.defined() && x.dim() > 0, "[normalize] expected values with axes, got ",
                   x.defined() ? "a scalar" : "no tensor");
  COHORT_CHECK_ARG(axis >= -x.dim() && axis < x.dim(), "[normalize] expected an axis in [",
                   -x.dim(), ", ", x.dim(), "), got ", axis);
  COHORT_CHECK_ARG(order >= 1, "[normalize] expected an order of 1 or more, got ", order);
  const Tensor values = at::isFloatingType(x.scalar_type()) ? x : x.to(kFloat32);
  const Tensor norm = at::linalg_vector_norm(values, order, at::IntArrayRef{axis}, true);
  return values / norm.masked_fill(norm.eq(0), 1);
}

}  // namespace keras
}  // namespace cohort
