// SPDX-License-Identifier: Apache-2.0
//
// How layers come to their weights.
#include <c10/core/GradMode.h>

#include <algorithm>
#include <utility>

#include "cohort/base/check.h"
#include "cohort/keras/internal/layer_call.h"
#include "cohort/keras/layer.h"
#include "cohort/runtime/replica_group.h"

namespace cohort::keras {
namespace {

// Two rows of zeros; where the type is not known, of `dtype`. Nothing: a size is not known.
Element zeros_for(const ElementSpec& spec, DType dtype) {
  if (spec.is_leaf()) {
    const TensorSpec& leaf = spec.leaf();
    Shape shape = leaf.shape;
    if (leaf.is_string || !leaf.known_rank || shape.empty()) return {};
    if (shape[0] == kUnknownDim) shape[0] = 2;
    if (std::ranges::count(shape, kUnknownDim) > 0) return {};
    return zeros(shape, leaf.dtype == DType::Undefined ? dtype : leaf.dtype);
  }
  if (!spec.is_tuple()) return {};
  std::vector<Element> parts;
  std::vector<std::pair<std::string, Element>> named;
  for (std::size_t i = 0; i < spec.size(); ++i) {
    parts.push_back(zeros_for(spec[i], dtype));
    if (!parts.back().has_value()) return {};
    if (!spec.names().empty()) named.emplace_back(spec.names()[i], parts.back());
  }
  return named.empty() ? Element::tuple(std::move(parts)) : Element::named(std::move(named));
}

bool knows_types(const ElementSpec& spec) {
  return std::ranges::none_of(
      spec.flat(), [](const TensorSpec& leaf) { return leaf.dtype == DType::Undefined; });
}

}  // namespace

void LayerBase::build(const Shape&) {}

void LayerBase::build_nest(const ElementSpec& inputs) {
  if (inputs.size() == 1 && inputs[0].is_leaf()) build(inputs[0].leaf().shape);
}

Shape LayerBase::compute_output_shape(const Shape& input_shape) const { return input_shape; }

ElementSpec LayerBase::compute_output_spec(const ElementSpec& inputs) const {
  COHORT_CHECK_ARG(inputs.size() == 1 && inputs[0].is_leaf(), "[", name(),
                   "] expected one input, got ", inputs.to_string(),
                   ": a layer of several inputs overrides compute_output_spec");
  return TensorSpec{compute_output_shape(inputs[0].leaf().shape), policy_.compute_dtype()};
}

void LayerBase::ensure_built(const Shape& input_shape) {
  if (!built()) build_in_context(TensorSpec{input_shape, DType::Undefined}, false);
}

void LayerBase::ensure_built_for(const ElementSpec& inputs) {
  if (!built()) build_in_context(internal::any_rows(inputs), false);
}

void LayerBase::build_in_context(const ElementSpec& inputs, bool call_follows) {
  check_not_moved("call");
  const auto build_all = [&] {
    if (built()) return;
    build_once(inputs);
    if (!call_follows) build_by_a_call(inputs);
  };
  cohort::internal::runtime::ReplicaGroup* group =
      cohort::internal::runtime::current_replica_group();
  if (group == nullptr) {
    const std::lock_guard lock(build_mutex_);
    build_all();
    return;
  }
  // Every replica saw built() false: it becomes true only after all have come here.
  group->merge("layer.build", *this, [&](cohort::internal::runtime::Brought<LayerBase> all) {
    for (std::size_t r = 1; r < all.size(); ++r) {
      COHORT_CHECK_STATE(&all[r] == this,
                         "[layer.build] expected every replica to call the same layer first, got "
                         "\"",
                         name(), "\" on replica 0 and \"", all[r].name(), "\" on replica ", r);
    }
    build_all();
  });
}

// What only call() knows. It may not like zeros, or may want to be in a replica: then the first
// call with data does it.
void LayerBase::build_by_a_call(const ElementSpec& inputs) {
  if (waiting_sub_layer().empty()) return;
  const c10::AutoGradMode no_grad(false);
  std::string error;
  for (const DType dtype : {floatx(), kInt64}) {
    const Element rows = zeros_for(inputs, dtype);
    if (!rows.has_value()) return;
    try {
      if (rows.is_tensor()) {
        (*this)(rows.tensor());
      } else {
        (*this)(rows);
      }
      return;
    } catch (const std::exception& e) {
      const std::string text = str_cat("of ", dtype_name(dtype), ": ", e.what());
      error += (error.empty() ? "" : "; ") + text;
    }
    if (knows_types(inputs)) break;
  }
  zeros_error_ = error;  // for those who ask for the weights before data has come
}

void LayerBase::build_once(const ElementSpec& inputs) {
  const internal::LayerCall here(*this, inputs);
  const bool recording = c10::GradMode::is_enabled();
  c10::GradMode::set_enabled(false);
  const std::size_t made_before = weights_.size();  // by the constructor
  const std::size_t layers_before = sub_layers_.size();
  try {
    weights_state_ = Weights::kBeingMade;
    build_nest(inputs);
    build_spec_ = inputs;
    is_mixed_ = autocasts_ && policy_.is_mixed();
    cast_to_ = autocasts_ && policy_.casts() ? policy_.compute_dtype() : DType::Undefined;
    weights_state_ = Weights::kMade;
    tracked_parts_grown();
  } catch (...) {
    c10::GradMode::set_enabled(recording);
    weights_state_ = Weights::kNone;
    weights_.erase(weights_.begin() + static_cast<std::ptrdiff_t>(made_before), weights_.end());
    sub_layers_.erase(sub_layers_.begin() + static_cast<std::ptrdiff_t>(layers_before),
                      sub_layers_.end());
    places_.resize(layers_before);
    structure_changed();
    here.rethrow("build");
  }
  c10::GradMode::set_enabled(recording);
  stage_.store(Stage::kBuilt, std::memory_order_release);
}

}  // namespace cohort::keras
