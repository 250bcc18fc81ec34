// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/internal/layer_call.h"

#include <algorithm>
#include <typeinfo>
#include <utility>

#include "cohort/base/error.h"
#include "cohort/base/strings.h"
#include "cohort/keras/internal/torch_errors.h"
#include "cohort/keras/layer.h"
#include "cohort/variables/read_dtype.h"

namespace cohort::keras::internal {
namespace {

struct MaskedTensor {
  c10::weak_intrusive_ptr<c10::TensorImpl> tensor;  // no other one gets its address
  Tensor mask;
};

thread_local const LayerCall* t_innermost = nullptr;
thread_local bool t_described = false;  // the exception that is on its way names its layer
thread_local bool t_plain = true;       // none of these:
thread_local std::vector<MaskedTensor> t_masks;
thread_local std::optional<DType> t_compute_type;
thread_local int t_compute_types = 0;
thread_local std::vector<AddedLoss> t_added;

void update_plain() { t_plain = t_masks.empty() && t_compute_types == 0 && t_added.empty(); }

// And what its parts added when they were called by themselves, or by another model.
void forget_of_outermost(const LayerBase& layer) {
  const std::vector<Tensor> of_parts =
      t_added.empty() ? std::vector<Tensor>() : layer.added_losses();
  std::erase_if(t_added, [&](const AddedLoss& loss) {
    const auto is_it = [&](const Tensor& value) { return value.is_same(loss.value); };
    return loss.outermost == &layer || std::ranges::any_of(of_parts, is_it);
  });
  update_plain();
}

// Only for exactly this class: one that derives from it means more than a text.
template <class E>
void throw_if(const Error& error, const std::string& where) {
  if (typeid(error) == typeid(E)) throw E(str_cat(error.what(), where));
}

}  // namespace

LayerCall::LayerCall(const LayerBase& layer)
    : layer_(layer), outer_(std::exchange(t_innermost, this)) {
  t_described = false;
  if (t_plain) [[likely]]
    return;
  if (outer_ == nullptr) forget_of_outermost(layer);
  plain_ = t_plain;
}
LayerCall::~LayerCall() { t_innermost = outer_; }

std::string LayerCall::input_text() const {
  if (spec_ != nullptr && spec_->is_leaf()) return none_shape(spec_->leaf().shape);
  if (spec_ != nullptr) return spec_->to_string();
  const bool is_tensor = nest_ != nullptr && nest_->has_value() && nest_->is_tensor();
  if (nest_ != nullptr && !nest_->has_value()) return "nothing";
  if (nest_ != nullptr && !is_tensor) return nest_->spec().to_string();
  const Tensor& input = nest_ != nullptr ? nest_->tensor() : *input_;
  if (!input.defined()) return "an undefined tensor";
  return str_cat(dtype_name(input.scalar_type()), " ", bracketed(input.sizes()));
}

std::string LayerCall::described(const char* method) const {
  std::string path = layer_.name();
  const LayerBase* inner = &layer_;
  for (const LayerCall* call = outer_; call != nullptr; call = call->outer_) {
    if (&call->layer_ == inner) continue;  // the call that builds
    inner = &call->layer_;
    path.insert(0, inner->name() + "/");
  }
  return str_cat(" (when calling ", layer_.class_name(), ".", method, "() of layer ", path,
                 " with ", input_text(), ")");
}

void LayerCall::rethrow(const char* method) const {
  if (t_described) throw;
  t_described = true;
  try {
    throw;
  } catch (const Error& error) {
    const std::string where = described(method);
    throw_if<InvalidArgument>(error, where);
    throw_if<FailedPrecondition>(error, where);
    throw_if<Unimplemented>(error, where);
    throw_if<DataLoss>(error, where);
    throw_if<Internal>(error, where);
    if (typeid(error) == typeid(Error)) throw Error(error.code(), str_cat(error.what(), where));
    throw;
  } catch (const c10::Error& error) {
    throw_for(error, str_cat("[", layer_.name(), "] ", torch_text(error), described(method)));
  } catch (const std::runtime_error& error) {
    // LibTorch's of a number that a tensor's type has not, which is none of its c10::Errors.
    const std::string_view text = error.what();
    if (!text.starts_with("value cannot be converted to type")) throw;
    throw InvalidArgument(str_cat("[", layer_.name(), "] ", error.what(), described(method)));
  }
}

ComputeType::ComputeType(std::optional<DType> dtype)
    : outer_(std::exchange(t_compute_type, dtype)) {
  ++t_compute_types;
  t_plain = false;
  cohort::internal::variables::read_weights_as(dtype);
}

ComputeType::~ComputeType() {
  t_compute_type = outer_;
  --t_compute_types;
  update_plain();
  cohort::internal::variables::read_weights_as(outer_);
}

bool ComputeType::any() { return t_compute_types > 0; }

void set_mask(const Tensor& x, const Tensor& mask) {
  const auto gone = [&](const MaskedTensor& known) {
    return known.tensor.expired() || known.tensor._unsafe_get_target() == x.unsafeGetTensorImpl();
  };
  std::erase_if(t_masks, gone);
  if (mask.defined()) {
    t_masks.push_back({c10::weak_intrusive_ptr<c10::TensorImpl>(x.getIntrusivePtr()), mask});
  }
  update_plain();
}

Tensor mask_of(const Tensor& x) {
  if (t_masks.empty() || !x.defined()) return {};
  for (const MaskedTensor& known : t_masks) {
    if (known.tensor._unsafe_get_target() == x.unsafeGetTensorImpl()) return known.mask;
  }
  std::erase_if(t_masks, [](const MaskedTensor& known) { return known.tensor.expired(); });
  update_plain();
  return {};
}

Element masks_of(const Element& inputs) {
  if (t_masks.empty() || !inputs.has_value()) return {};
  if (inputs.is_tensor()) {
    const Tensor mask = mask_of(inputs.tensor());
    return mask.defined() ? Element(mask) : Element();
  }
  if (!inputs.is_tuple()) return {};
  std::vector<Element> masks;
  bool any = false;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    masks.push_back(masks_of(inputs[i]));
    any = any || masks.back().has_value();
  }
  return any ? Element::tuple(std::move(masks)) : Element();
}

const std::vector<AddedLoss>& added_losses() { return t_added; }

void add_loss(const LayerBase& layer, const Tensor& value, bool is_sum) {
  if (t_innermost == nullptr) return;
  t_added.push_back({&t_innermost->outermost(), &layer, value, is_sum});
  t_plain = false;
}

void forget_added_losses() {
  if (t_added.empty()) return;
  t_added.clear();
  update_plain();
}

Config shapes_config(const ElementSpec& spec) {
  if (spec.is_leaf()) return ShapeValue::write(spec.leaf().shape);
  if (!spec.is_tuple()) return {};
  Config::List list;
  for (std::size_t i = 0; i < spec.size(); ++i) list.push_back(shapes_config(spec[i]));
  if (spec.names().empty()) return list;
  Config named = Config::object();
  for (std::size_t i = 0; i < list.size(); ++i) named.set(spec.names()[i], list[i]);
  return named;
}

namespace {
// Nothing: not of a form that is known.
ElementSpec spec_of_shapes(const Config& config) {
  const auto is_size = [](const Config& size) { return size.is_null() || size.is_number(); };
  if (config.is_list() && std::ranges::all_of(config.list(), is_size)) {
    return TensorSpec{ShapeValue::read(config), DType::Undefined};
  }
  if (config.is_list()) {
    std::vector<ElementSpec> parts;
    for (const Config& part : config.list()) parts.push_back(spec_of_shapes(part));
    return ElementSpec::tuple(std::move(parts));
  }
  if (!config.is_object()) return {};
  std::vector<std::pair<std::string, ElementSpec>> named;
  for (const auto& [name, part] : config.members()) named.emplace_back(name, spec_of_shapes(part));
  return ElementSpec::named(std::move(named));
}
}  // namespace

void build_as_told(LayerBase& layer, const Config& serialized) {
  const Config* build = serialized.find("build_config");
  const Config* shape = build == nullptr ? nullptr : build->find("input_shape");
  if (layer.built() || shape == nullptr || shape->is_null()) return;
  const ElementSpec spec = spec_of_shapes(*shape);
  if (spec.is_unknown()) return;
  // As it says, the batch included: who writes the layer again says so, too.
  if (spec.is_leaf()) return layer.ensure_built(spec.leaf().shape);
  layer.ensure_built_for(spec);
}

ElementSpec any_rows(const ElementSpec& spec) {
  if (spec.is_leaf()) {
    TensorSpec leaf = spec.leaf();
    if (!leaf.shape.empty()) leaf.shape[0] = kUnknownDim;
    return leaf;
  }
  if (!spec.is_tuple()) return spec;
  std::vector<ElementSpec> parts;
  for (std::size_t i = 0; i < spec.size(); ++i) parts.push_back(any_rows(spec[i]));
  if (spec.names().empty()) return ElementSpec::tuple(std::move(parts));
  std::vector<std::pair<std::string, ElementSpec>> named;
  for (std::size_t i = 0; i < parts.size(); ++i) named.emplace_back(spec.names()[i], parts[i]);
  return ElementSpec::named(std::move(named));
}

std::string none_shape(const Shape& shape) {
  std::vector<std::string> sizes;
  for (const int64_t size : shape) {
    sizes.push_back(size == kUnknownDim ? "None" : std::to_string(size));
  }
  return str_cat("[", join(sizes, ", "), "]");
}

}  // namespace cohort::keras::internal
