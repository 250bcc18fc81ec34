// SPDX-License-Identifier: Apache-2.0
//
// What a call of a layer does besides its call().
#include <algorithm>
#include <optional>
#include <utility>

#include "cohort/base/check.h"
#include "cohort/base/logging.h"
#include "cohort/keras/internal/layer_call.h"
#include "cohort/keras/layer.h"

namespace cohort::keras {
namespace {

ElementSpec spec_of_input(const Tensor& input) {
  return TensorSpec{shape_of(input), input.scalar_type()};
}
ElementSpec spec_of_input(const Element& inputs) { return inputs.spec(); }

Tensor cast_input(const Tensor& x, DType dtype) {
  const bool floats = x.defined() && at::isFloatingType(x.scalar_type());
  if (!floats || x.scalar_type() == dtype) return x;
  const Tensor cast = x.to(dtype);
  if (const Tensor mask = internal::mask_of(x); mask.defined()) internal::set_mask(cast, mask);
  return cast;
}

Element cast_input(const Element& x, DType dtype) {
  if (x.is_tensor()) return cast_input(x.tensor(), dtype);
  if (!x.is_tuple() || x.is_ragged()) return x;
  std::vector<Element> parts;
  std::vector<std::pair<std::string, Element>> named;
  for (std::size_t i = 0; i < x.size(); ++i) {
    parts.push_back(cast_input(x[i], dtype));
    if (!x.names().empty()) named.emplace_back(x.names()[i], parts.back());
  }
  return named.empty() ? Element::tuple(std::move(parts)) : Element::named(std::move(named));
}

void set_masks(const Element& outputs, const Element& masks) {
  if (!outputs.has_value()) return;
  if (outputs.is_tensor()) {
    const bool has = masks.has_value() && masks[0].has_value();
    internal::set_mask(outputs.tensor(), has ? masks[0].tensor() : Tensor());
    return;
  }
  if (!outputs.is_tuple()) return;
  const bool each = masks.has_value() && masks.is_tuple();
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const bool has = each ? i < masks.size() : i == 0;
    set_masks(outputs[i], !has ? Element() : each ? masks[i] : masks);
  }
}

void each_tensor(const Element& nest, const std::function<void(const Tensor&)>& visit) {
  if (!nest.has_value()) return;
  if (nest.is_tensor()) return visit(nest.tensor());
  if (!nest.is_tuple()) return;
  for (std::size_t i = 0; i < nest.size(); ++i) each_tensor(nest[i], visit);
}

}  // namespace

Element LayerBase::call_nest(const Element& inputs, const CallArgs& args) {
  COHORT_CHECK_ARG(inputs.size() == 1 && inputs[0].is_tensor(), "[", name(),
                   "] expected one tensor, got ", inputs.spec().to_string(), ": ", class_name(),
                   " takes one input");
  return call(inputs[0].tensor(), args);
}

Element LayerBase::compute_mask(const Element&, const Element& mask) const { return mask; }

Tensor LayerBase::operator()(const Tensor& input, const CallArgs& args) {
  const internal::LayerCall here(*this, input);
  try {
    const bool fits = cast_to_ == DType::Undefined || input.scalar_type() == cast_to_;
    if (!is_plain_call(args) || !here.is_plain() || !fits) [[unlikely]]
      return full_call(input, args);
    check_input(input);
    return call(input, args);
  } catch (...) {
    here.rethrow("call");
  }
}

Element LayerBase::operator()(const Element& inputs, const CallArgs& args) {
  const internal::LayerCall here(*this, inputs);
  try {
    const bool fits = cast_to_ == DType::Undefined;
    if (!is_plain_call(args) || !here.is_plain() || !fits) [[unlikely]]
      return full_call(inputs, args);
    check_input(inputs);
    return call_nest(inputs, args);
  } catch (...) {
    here.rethrow("call");
  }
}

// Replicas may be in their first one at once.
template <class Input>
Input LayerBase::full_call(const Input& given, const CallArgs& args) {
  if (!built()) build_in_context(internal::any_rows(spec_of_input(given)), true);
  const bool casts = cast_to_ != DType::Undefined;
  const Input inputs = casts ? cast_input(given, cast_to_) : given;
  check_input(inputs);
  CallArgs all = args;
  if (!all.mask.has_value()) all.mask = internal::masks_of(Element(inputs));
  std::optional<internal::ComputeType> type;
  if (is_mixed_ || internal::ComputeType::any()) {
    type.emplace(is_mixed_ ? std::optional(cast_to_) : std::nullopt);
  }
  Input outputs = call_as_is(inputs, all);
  const bool makes_masks = hand_on_mask(Element(inputs), all.mask, Element(outputs));
  if (activity_regularizer_) penalize(Element(outputs));
  const bool is_plain = !is_mixed_ && !makes_masks && !activity_regularizer_;
  stage_.store(is_plain ? Stage::kPlain : Stage::kCalled, std::memory_order_release);
  return outputs;
}

// Whether the layer makes masks of its own.
bool LayerBase::hand_on_mask(const Element& inputs, const Element& mask,
                             const Element& outputs) const {
  if (!supports_masking()) {
    warn_of_lost_mask(mask);
    return false;
  }
  const Element masks = compute_mask(inputs, mask);
  if (!masks.has_value()) return false;
  set_masks(outputs, masks);
  return !mask.has_value();
}

// What is made of layers leaves it to these.
void LayerBase::warn_of_lost_mask(const Element& mask) const {
  const bool lost = mask.has_value() && sub_layers_.empty();
  if (!lost || warned_of_mask_.exchange(true)) return;
  COHORT_LOG(kWarning, "[", name(),
             "] was called with inputs that have a mask, which ends here: ", class_name(),
             " does not support masking, and layers after it do not see it");
}

// As Keras: of a row, so that it does not grow with the batch.
void LayerBase::penalize(const Element& outputs) {
  each_tensor(outputs, [this](const Tensor& output) {
    const int64_t rows = output.dim() > 0 ? std::max<int64_t>(1, output.size(0)) : 1;
    const Tensor sum = activity_regularizer_(output).sum();
    internal::add_loss(*this, sum / static_cast<double>(rows), false);
  });
}

void LayerBase::add_loss(const Tensor& loss) {
  COHORT_CHECK_ARG(loss.defined(), "[add_loss] expected a scalar, got an undefined tensor");
  internal::add_loss(*this, loss.dim() == 0 ? loss : loss.sum(), false);
}

void LayerBase::set_activity_regularizer(Regularizer regularizer) {
  std::swap(activity_regularizer_, regularizer);
}

std::vector<Tensor> LayerBase::added_losses() const {
  std::vector<Tensor> losses;
  each_added_loss([&](const internal::AddedLoss& loss) { losses.push_back(loss.value); });
  return losses;
}

void LayerBase::each_added_loss(
    cohort::internal::base::FunctionRef<void(const internal::AddedLoss&)> visit) const {
  if (internal::added_losses().empty()) return;
  Family family;
  collect(family, true);
  for (const internal::AddedLoss& loss : internal::added_losses()) {
    const bool is_mine = std::ranges::count(family, loss.layer, &Family::value_type::first) > 0;
    if (is_mine) visit(loss);
  }
}

void LayerBase::set_called() {
  if (stage_.load(std::memory_order_acquire) == Stage::kBuilt) {
    stage_.store(Stage::kCalled, std::memory_order_release);
  }
}

void LayerBase::check_input(const Element& inputs) const {
  if (inputs.is_tensor()) check_input(inputs.tensor());
}

void LayerBase::check_input(const Tensor& input) const {
  const InputSpec& spec = input_spec_;
  const int64_t rank = input.dim();
  COHORT_CHECK_ARG(!spec.rank || rank == *spec.rank, "[", name(), "] expected inputs with ",
                   *spec.rank, " axes, got shape ", bracketed(input.sizes()));
  COHORT_CHECK_ARG(!spec.min_rank || rank >= *spec.min_rank, "[", name(),
                   "] expected inputs with at least ", *spec.min_rank, " axes, got shape ",
                   bracketed(input.sizes()));
  if (!spec.size) return;
  const int64_t axis = spec.axis < 0 ? rank + spec.axis : spec.axis;
  const bool fits = axis >= 0 && axis < rank && input.size(axis) == *spec.size;
  COHORT_CHECK_ARG(fits, "[", name(), "] expected inputs with ",
                   spec.axis == -1 ? std::string("last axis") : str_cat("axis ", spec.axis), " ",
                   *spec.size, ", got shape ", bracketed(input.sizes()));
}

}  // namespace cohort::keras
