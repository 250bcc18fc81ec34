// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/internal/operation.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/add.h>
#include <ATen/ops/div.h>
#include <ATen/ops/floor_divide.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/neg.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/remainder.h>
#include <ATen/ops/sub.h>
#include <c10/core/ScalarType.h>

#include <algorithm>
#include <utility>

#include "cohort/base/check.h"
#include "cohort/base/logging.h"
#include "cohort/keras/internal/layer_call.h"
#include "cohort/keras/internal/operation_shapes.h"

namespace cohort::keras::internal {
namespace {

constexpr const char* kModule = "keras.src.ops.numpy";
constexpr const char* kModules = "keras.src.ops.";
constexpr const char* kIndexing = "GetItem";
constexpr const char* kKnown =
    "Absolute, Add, FloorDivide, GetItem, Matmul, Mod, Multiply, Negative, Power, Subtract, "
    "TrueDivide, ";

using TensorOp = Tensor (*)(const Tensor& a, const Tensor& b);

// nullptr: none of two operands that broadcast. Numbers are tensors without axes, as wrapped
// numbers: they do not change the type of what they meet.
TensorOp broadcasting(const std::string& kind) {
  if (kind == "Add") return [](const Tensor& a, const Tensor& b) { return at::add(a, b); };
  if (kind == "Subtract") return [](const Tensor& a, const Tensor& b) { return at::sub(a, b); };
  if (kind == "Multiply") return [](const Tensor& a, const Tensor& b) { return at::mul(a, b); };
  if (kind == "TrueDivide") return [](const Tensor& a, const Tensor& b) { return at::div(a, b); };
  if (kind == "FloorDivide") {
    return [](const Tensor& a, const Tensor& b) { return at::floor_divide(a, b); };
  }
  if (kind == "Mod") return [](const Tensor& a, const Tensor& b) { return at::remainder(a, b); };
  if (kind == "Power") return [](const Tensor& a, const Tensor& b) { return at::pow(a, b); };
  return nullptr;
}

bool is_unary(const std::string& kind) { return kind == "Absolute" || kind == "Negative"; }

DType type_with(DType type, const Config& number) {
  const bool floating = c10::isFloatingType(type) || wrapped_number(number).scalar_type() == kInt64;
  return floating ? type : floatx();
}

bool is_class(const Config& config, const char* name) {
  const Config* of = config.find("class_name");
  return of != nullptr && of->is_text() && of->text() == name;
}

std::optional<int64_t> bound(const Config& slice, const char* name) {
  const Config* value = slice.at("config").find(name);
  if (value == nullptr || value->is_null()) return std::nullopt;
  return value->integer();
}

// Walks over the axes of a key: at(axis, i), slice(axis, start, stop, step), insert(axis).
template <class At, class Cut, class Insert>
void each_part(const Config& key, std::size_t rank, At at, Cut cut, Insert insert) {
  const Config::List parts = key.is_list() ? key.list() : Config::List{key};
  std::size_t named = 0;
  bool rest = false;
  for (const Config& part : parts) {
    COHORT_CHECK_ARG(!is_class(part, "__ellipsis__") || !std::exchange(rest, true),
                     "[GetItem] expected at most one ellipsis, got ", key);
    if (!part.is_null() && !is_class(part, "__ellipsis__")) ++named;
  }
  COHORT_CHECK_ARG(named <= rank, "[GetItem] expected at most ", rank, " axes, got ", key);
  int64_t axis = 0;
  for (const Config& part : parts) {
    if (part.is_null()) {
      insert(axis++);
    } else if (is_class(part, "__ellipsis__")) {
      axis += static_cast<int64_t>(rank - named);
    } else if (is_class(part, "__slice__")) {
      const int64_t step = bound(part, "step").value_or(1);
      if (step < 1) throw Unimplemented(str_cat("[GetItem] expected a step above 0, got ", step));
      cut(axis++, bound(part, "start"), bound(part, "stop"), step);
    } else if (part.is_number()) {
      at(axis, part.integer());
    } else {
      throw Unimplemented(
          str_cat("[GetItem] expected numbers, slices, None and an ellipsis, got ", part));
    }
  }
}

Tensor taken(Tensor x, const Config& key) {
  each_part(
      key, static_cast<std::size_t>(x.dim()),
      [&](int64_t axis, int64_t i) { x = x.select(axis, i); },
      [&](int64_t axis, std::optional<int64_t> start, std::optional<int64_t> stop, int64_t step) {
        x = x.slice(axis, start, stop, step);
      },
      [&](int64_t axis) { x = x.unsqueeze(axis); });
  return x;
}

int64_t slice_size(int64_t size, std::optional<int64_t> start, std::optional<int64_t> stop,
                   int64_t step) {
  if (size == kUnknownDim) return size;
  const auto place = [size](int64_t i) {
    return std::clamp(i < 0 ? i + size : i, int64_t{0}, size);
  };
  const int64_t first = place(start.value_or(0)), last = stop ? place(*stop) : size;
  return last > first ? (last - first - 1) / step + 1 : 0;
}

Shape taken_shape(Shape shape, const Config& key) {
  each_part(
      key, shape.size(),
      [&](int64_t axis, int64_t i) {
        const int64_t size = shape[static_cast<std::size_t>(axis)];
        COHORT_CHECK_ARG(size == kUnknownDim || (i < size && i >= -size),
                         "[GetItem] expected an index of an axis of ", size, ", got ", i);
        shape.erase(shape.begin() + axis);
      },
      [&](int64_t axis, std::optional<int64_t> start, std::optional<int64_t> stop, int64_t step) {
        int64_t& size = shape[static_cast<std::size_t>(axis)];
        size = slice_size(size, start, stop, step);
      },
      [&](int64_t axis) { shape.insert(shape.begin() + axis, 1); });
  return shape;
}

// Null where the tensors are: one by one, or in a list. Some take numbers in place of some.
bool takes(const TensorFunction& function, const std::vector<Config>& arguments) {
  const bool in_list = function.tensors == 0;
  const Config::List given = in_list && arguments.size() == 1 && arguments[0].is_list()
                                 ? arguments[0].list()
                                 : Config::List(arguments.begin(), arguments.end());
  const std::size_t count = in_list ? std::max<std::size_t>(given.size(), 1) : function.tensors;
  const bool takes_numbers = function.shapes == TensorFunction::Shapes::kBroadcast;
  const auto fits = [&](const Config& x) {
    return x.is_null() || (takes_numbers && x.is_number());
  };
  return given.size() == count && std::ranges::all_of(given, fits) &&
         std::ranges::any_of(given, &Config::is_null);
}

bool takes(const std::string& kind, const std::vector<Config>& arguments) {
  if (const TensorFunction* f = find_tensor_function(kind)) return takes(*f, arguments);
  if (kind == kIndexing) return arguments.size() == 2 && arguments[0].is_null();
  if (is_unary(kind)) return arguments.size() == 1 && arguments[0].is_null();
  if (arguments.size() != 2) return false;
  if (kind == "Matmul") return arguments[0].is_null() && arguments[1].is_null();
  const auto fits = [](const Config& x) { return x.is_null() || x.is_number(); };
  return std::ranges::all_of(arguments, fits) &&
         !(arguments[0].is_number() && arguments[1].is_number());
}

bool takes_numbers(const std::string& kind, const TensorFunction* function) {
  return function != nullptr ? function->shapes == TensorFunction::Shapes::kBroadcast
                             : broadcasting(kind) != nullptr;
}

}  // namespace

Operation::Operation(std::string kind, std::vector<Config> arguments, std::string name,
                     Config options)
    : NestLayer(std::move(name)),
      kind_(std::move(kind)),
      arguments_(std::move(arguments)),
      function_(find_tensor_function(kind_)),
      options_(std::move(options)) {
  const bool known = broadcasting(kind_) != nullptr || is_unary(kind_) || kind_ == "Matmul" ||
                     kind_ == kIndexing || function_ != nullptr;
  if (!known) {
    throw Unimplemented(str_cat("[Functional] expected one of the operations ", kKnown,
                                join(tensor_function_names(), ", "), ", got ", kind_,
                                ": write it as a layer"));
  }
  if (!takes(kind_, arguments_)) {
    throw Unimplemented(str_cat("[", kind_, "] expected tensors of the model",
                                takes_numbers(kind_, function_) ? " or plain numbers" : "",
                                " as arguments, got ", Config(arguments_), ": null is a tensor"));
  }
  set_autocast(false);
}

std::size_t Operation::tensors() const {
  if (kind_ == kIndexing) return 1;
  if (arguments_.size() == 1 && arguments_[0].is_list()) return arguments_[0].list().size();
  return static_cast<std::size_t>(std::ranges::count_if(arguments_, &Config::is_null));
}

std::vector<Tensor> Operation::with_numbers(const std::vector<Tensor>& x) const {
  if (x.size() >= arguments_.size()) return x;
  std::vector<Tensor> all;
  std::size_t next = 0;
  for (const Config& argument : arguments_) {
    all.push_back(argument.is_null() ? x.at(next++) : wrapped_number(argument));
  }
  return all;
}

Tensor Operation::compute(const std::vector<Tensor>& x) const {
  if (function_ != nullptr) return function_->compute(with_numbers(x), options_);
  if (kind_ == kIndexing) return taken(x[0], arguments_[1]);
  if (kind_ == "Negative") return at::neg(x[0]);
  if (kind_ == "Absolute") return at::abs(x[0]);
  if (kind_ == "Matmul") return at::matmul(x[0], x[1]);
  const TensorOp op = broadcasting(kind_);
  if (!arguments_[0].is_null()) return op(wrapped_number(arguments_[0]), x[0]);
  if (!arguments_[1].is_null()) return op(x[0], wrapped_number(arguments_[1]));
  return op(x[0], x[1]);
}

Element Operation::call_nest(const Element& inputs, const CallArgs&) {
  std::vector<Tensor> x;
  if (inputs.is_tensor()) x.push_back(inputs.tensor());
  for (std::size_t i = 0; inputs.is_tuple() && i < inputs.size(); ++i) {
    x.push_back(inputs[i].tensor());
  }
  COHORT_CHECK_ARG(x.size() == tensors(), "[", name(), "] expected ", tensors(), " tensors, got ",
                   inputs.spec());
  return compute(x);
}

ElementSpec Operation::compute_output_spec(const ElementSpec& inputs) const {
  const std::vector<TensorSpec> x = inputs.flat();
  COHORT_CHECK_ARG(x.size() == tensors(), "[", name(), "] expected ", tensors(), " tensors, got ",
                   inputs);
  if (function_ != nullptr) {
    return spec_of_function(kind_, *function_, options_, x,
                            [this](const std::vector<Tensor>& of) { return compute(of); });
  }
  TensorSpec out = x[0];
  if (kind_ == kIndexing) {
    out.shape = taken_shape(out.shape, arguments_[1]);
    return out;
  }
  const bool is_typed = out.dtype != DType::Undefined && x.back().dtype != DType::Undefined;
  if (x.size() == 2) {
    out.shape = kind_ == "Matmul" ? product_shape(x[0].shape, x[1].shape)
                                  : broadcast_shape(kind_, x[0].shape, x[1].shape);
    if (is_typed) out.dtype = c10::promoteTypes(x[0].dtype, x[1].dtype);
  } else if (!is_unary(kind_) && is_typed) {
    out.dtype = type_with(out.dtype, arguments_[arguments_[0].is_null() ? 1 : 0]);
  }
  const bool is_floating = !is_typed || c10::isFloatingType(out.dtype);
  if (kind_ == "TrueDivide" && !is_floating) out.dtype = floatx();
  return out;
}

Config Operation::get_config() const {
  Config config = Config::object({{"name", name()}});
  if (!options_.is_object()) return config;
  for (const auto& [option, value] : options_.members()) config.set(option, value);
  return config;
}

Config Operation::serialize() const {
  return Config::object({{"module", function_ == nullptr ? kModule : function_->module},
                         {"class_name", kind_},
                         {"config", get_config()},
                         {"registered_name", kind_}});
}

Config::List Operation::arguments_with(const Config::List& tensors) const {
  Config::List all;
  std::size_t next = 0;
  if (arguments_.size() == 1 && arguments_[0].is_list()) return {Config(tensors)};
  for (const Config& argument : arguments_) {
    const bool is_tensor = argument.is_null() && next < tensors.size();
    all.push_back(is_tensor ? tensors[next++] : argument);
  }
  return all;
}

namespace {

// What a later Keras may say: without it, as this one is.
void warn_of_unknown(const std::string& kind, const Config& options) {
  const TensorFunction* const function = find_tensor_function(kind);
  if (function == nullptr) return;
  for (const auto& [name, value] : options.members()) {
    const bool is_known = std::ranges::find(function->options, name) != function->options.end();
    if (is_known || value.is_null() || (value.is_bool() && !value.boolean())) continue;
    COHORT_LOG(kWarning, "[", kind, "] does not know \"", name, "\": ", value.brief(),
               " is left out");
  }
}

}  // namespace

std::shared_ptr<Operation> operation_of(const Config& entry) {
  const Config *module = entry.find("module"), *nodes = entry.find("inbound_nodes");
  const bool is_one =
      module != nullptr && module->is_text() && module->text().starts_with(kModules);
  if (!is_one) return nullptr;
  const std::string& kind = entry.text("class_name");
  const bool once = nodes != nullptr && nodes->is_list() && nodes->list().size() == 1;
  if (!once) {
    throw Unimplemented(
        str_cat("[Functional] expected an operation that is called once, got ", kind));
  }
  const auto argument_of = [](const Config& argument) {
    return is_class(argument, "__keras_tensor__") ? Config() : argument;
  };
  std::vector<Config> arguments;
  for (const Config& argument : nodes->list()[0].at("args").list()) {
    if (!argument.is_list() || find_tensor_function(kind) == nullptr) {
      arguments.push_back(argument_of(argument));
      continue;
    }
    Config::List parts;
    for (const Config& part : argument.list()) parts.push_back(argument_of(part));
    arguments.emplace_back(std::move(parts));
  }
  Config options = Config::object();
  if (const Config* config = entry.find("config"); config != nullptr && config->is_object()) {
    for (const auto& [name, value] : config->members()) {
      if (name != "name") options.set(name, value);
    }
  }
  warn_of_unknown(kind, options);
  return std::make_shared<Operation>(kind, std::move(arguments), entry.text("name"),
                                     std::move(options));
}

}  // namespace cohort::keras::internal
