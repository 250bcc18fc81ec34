// SPDX-License-Identifier: Apache-2.0
//
// The numbers of fields and types are those of onnx.proto.
#include "cohort/keras/onnx/writer.h"

#include <limits>
#include <string_view>

#include "cohort/base/check.h"
#include "cohort/base/error.h"

namespace cohort::keras::internal::onnx {
namespace {

using data::TensorSpec;

enum class AttributeType { kFloat = 1, kInt = 2, kString = 3, kGraph = 5, kInts = 7 };

int64_t type_number(DType dtype) {
  switch (dtype) {
    case DType::Float:
      return 1;
    case DType::Byte:
      return 2;
    case DType::Char:
      return 3;
    case DType::Short:
      return 5;
    case DType::Int:
      return 6;
    case DType::Long:
      return 7;
    case DType::Bool:
      return 9;
    case DType::Half:
      return 10;
    case DType::Double:
      return 11;
    default:
      throw Unimplemented(str_cat("[export_to] expected a dtype of ONNX, got ", dtype));
  }
}

Message attribute_message(const char* name, const Attribute& value) {
  Message out;
  out.text(1, name);
  const auto type = [&out](AttributeType of) { out.integer(20, static_cast<int64_t>(of)); };
  if (const auto* number = std::get_if<int64_t>(&value)) {
    out.integer(3, *number);
    type(AttributeType::kInt);
  } else if (const auto* real = std::get_if<double>(&value)) {
    out.real(2, static_cast<float>(*real));
    type(AttributeType::kFloat);
  } else if (const auto* text = std::get_if<std::string>(&value)) {
    out.text(4, *text);
    type(AttributeType::kString);
  } else if (const auto* body = std::get_if<Body>(&value)) {
    out.message(6, body->graph);
    type(AttributeType::kGraph);
  } else {
    for (const int64_t one : std::get<std::vector<int64_t>>(value)) out.integer(8, one);
    type(AttributeType::kInts);
  }
  return out;
}

// ValueInfoProto. The first axis of unknown size is the batch.
Message value_message(const std::string& name, const TensorSpec& spec) {
  if (spec.is_string) {
    throw Unimplemented(str_cat("[export_to] expected numbers as \"", name,
                                "\" of an ONNX model, got strings: look them up before it"));
  }
  Message shape;
  for (std::size_t i = 0; i < spec.shape.size(); ++i) {
    Message dim;
    if (spec.shape[i] != kUnknownDim) {
      dim.integer(1, spec.shape[i]);
    } else if (i == 0) {
      dim.text(2, "batch");
    }
    shape.message(1, dim);
  }
  const DType dtype = spec.dtype == DType::Undefined ? kFloat32 : spec.dtype;
  Message tensor, type;
  tensor.integer(1, type_number(dtype)).message(2, shape);
  type.message(1, tensor);
  return Message().text(1, name).message(2, type);
}

std::string_view bytes_of(const Tensor& value) {
  return {static_cast<const char*>(value.const_data_ptr()), value.nbytes()};
}

}  // namespace

std::string Writer::fresh(const std::string& hint) {
  const std::string name = scope_.empty() ? hint : str_cat(scope_, "/", hint);
  const int number = taken_[name]++;
  if (number == 0) return name;
  const std::string numbered = str_cat(name, "_", number);
  return taken_[numbered]++ == 0 ? numbered : fresh(hint);
}

Names Writer::node(const char* op, const Names& inputs, std::size_t outputs,
                   const Attributes& attributes) {
  Message out;
  for (const std::string& input : inputs) out.text(1, input);
  Names names;
  for (std::size_t i = 0; i < outputs; ++i) {
    names.push_back(fresh(op));
    out.text(2, names.back());
  }
  out.text(3, names[0]).text(4, op);
  for (const auto& [name, value] : attributes) out.message(5, attribute_message(name, value));
  bodies_.back().messages.push_back(std::move(out));
  return names;
}

std::string Writer::operator()(const char* op, const Names& inputs, const Attributes& attributes) {
  return node(op, inputs, 1, attributes)[0];
}

std::string Writer::constant(const Tensor& value, const std::string& hint) {
  const Tensor kept = value.detach().to(at::kCPU).contiguous();
  const std::size_t hash = std::hash<std::string_view>()(bytes_of(kept));
  const auto [first, last] = known_.equal_range(hash);
  for (auto it = first; it != last; ++it) {
    const Tensor& other = it->second.first;
    const bool same = other.scalar_type() == kept.scalar_type() && other.sizes() == kept.sizes() &&
                      bytes_of(other) == bytes_of(kept);
    if (same) return it->second.second;
  }
  std::string name = fresh(hint);
  Message out;
  for (const int64_t size : kept.sizes()) out.integer(1, size);
  out.integer(2, type_number(kept.scalar_type())).text(8, name).text(9, bytes_of(kept));
  constants_.push_back(std::move(out));
  known_.emplace(hash, std::pair(kept, name));
  return name;
}

std::string Writer::number(double value) {
  return constant(from_vector<float>({static_cast<float>(value)}, {}), "number");
}
std::string Writer::ints(const std::vector<int64_t>& values) {
  return constant(from_vector<int64_t>(values, {static_cast<int64_t>(values.size())}), "ints");
}
std::string Writer::integer(int64_t value) {
  return constant(from_vector<int64_t>({value}, {}), "integer");
}

std::string Writer::cast(const std::string& x, DType dtype) {
  return (*this)("Cast", {x}, {{"to", type_number(dtype)}});
}

void Writer::rename(const std::string& x, const std::string& name) {
  Message out;
  out.text(1, x).text(2, name).text(3, fresh("Identity")).text(4, "Identity");
  bodies_.back().messages.push_back(std::move(out));
}

void Writer::begin_body() { bodies_.emplace_back(); }

Body Writer::end_body(const Typed& inputs, const Typed& outputs) {
  Message graph;
  for (const Message& node : bodies_.back().messages) graph.message(1, node);
  graph.text(2, fresh("body"));
  for (const auto& [name, spec] : inputs) graph.message(11, value_message(name, spec));
  for (const auto& [name, spec] : outputs) graph.message(12, value_message(name, spec));
  bodies_.pop_back();
  return {std::move(graph)};
}

void Writer::add_input(const std::string& name, const TensorSpec& spec) {
  inputs_.push_back(value_message(name, spec));
}
void Writer::add_output(const std::string& name, const TensorSpec& spec) {
  outputs_.push_back(value_message(name, spec));
}

std::string Writer::finish(const std::string& name) const {
  Message graph;
  for (const Message& node : bodies_[0].messages) graph.message(1, node);
  graph.text(2, name);
  for (const Message& constant : constants_) graph.message(5, constant);
  for (const Message& input : inputs_) graph.message(11, input);
  for (const Message& output : outputs_) graph.message(12, output);
  Message opset, model;
  opset.text(1, "").integer(2, kOpset);
  model.integer(1, kIrVersion).text(2, "cohort").message(8, opset).message(7, graph);
  constexpr auto kMost = static_cast<std::size_t>(std::numeric_limits<int32_t>::max());
  if (model.bytes().size() > kMost) {
    throw Unimplemented(str_cat("[export_to] expected an ONNX model below 2 GB, got ",
                                model.bytes().size(), " bytes"));
  }
  return model.bytes();
}

}  // namespace cohort::keras::internal::onnx
