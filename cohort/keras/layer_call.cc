// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/internal/layer_call.h"

#include <typeinfo>
#include <utility>

#include "cohort/base/error.h"
#include "cohort/base/strings.h"
#include "cohort/keras/internal/torch_errors.h"
#include "cohort/keras/layer.h"

namespace cohort::keras::internal {
namespace {

thread_local const LayerCall* t_innermost = nullptr;
thread_local bool t_described = false;  // the exception that is on its way names its layer

// Only for exactly this class: one that derives from it means more than a text.
template <class E>
void throw_if(const Error& error, const std::string& where) {
  if (typeid(error) == typeid(E)) throw E(str_cat(error.what(), where));
}

std::string input_text(const Tensor& input) {
  if (!input.defined()) return "an undefined tensor";
  return str_cat(dtype_name(input.scalar_type()), " ", bracketed(input.sizes()));
}

}  // namespace

LayerCall::LayerCall(const LayerBase& layer, const Tensor& input)
    : layer_(layer), input_(&input), outer_(std::exchange(t_innermost, this)) {
  t_described = false;
}
LayerCall::LayerCall(const LayerBase& layer, const Shape& input_shape)
    : layer_(layer), shape_(&input_shape), outer_(std::exchange(t_innermost, this)) {
  t_described = false;
}
LayerCall::~LayerCall() { t_innermost = outer_; }

std::string LayerCall::described(const char* method) const {
  std::string path = layer_.name();
  const LayerBase* inner = &layer_;
  for (const LayerCall* call = outer_; call != nullptr; call = call->outer_) {
    if (&call->layer_ == inner) continue;  // the call that builds
    inner = &call->layer_;
    path = inner->name() + "/" + path;
  }
  return str_cat(" (when calling ", layer_.class_name(), ".", method, "() of layer ", path,
                 " with ", input_ != nullptr ? input_text(*input_) : none_shape(*shape_), ")");
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
  }
}

std::string none_shape(const Shape& shape) {
  std::vector<std::string> sizes;
  for (const int64_t size : shape) {
    sizes.push_back(size == kUnknownDim ? "None" : std::to_string(size));
  }
  return str_cat("[", join(sizes, ", "), "]");
}

}  // namespace cohort::keras::internal
