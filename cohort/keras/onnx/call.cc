// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/onnx/call.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "cohort/base/check.h"
#include "cohort/base/error.h"

namespace cohort::keras::internal::onnx {
namespace {

constexpr int64_t kEnd = std::numeric_limits<int64_t>::max();

const Variable* find_weight(const LayerBase& layer, const std::string& name) {
  const auto all = layer.variables();
  const auto found = std::ranges::find_if(all, [&](const Variable& one) {
    const std::string& full = one.name();
    return full == name || full.ends_with("/" + name);
  });
  return found == all.end() ? nullptr : &*found;
}

}  // namespace

Values only(std::string name, std::string mask) {
  Values out(1);
  out[0].name = std::move(name);
  out[0].mask = std::move(mask);
  return out;
}

Tensor weight_of(const LayerBase& layer, const std::string& name) {
  const Variable* found = find_weight(layer, name);
  COHORT_CHECK_STATE(found != nullptr, "[export_to] expected layer \"", layer.name(),
                     "\" to have the weight ", name);
  return found->value().detach();
}

void Call::refuse(const std::string& what) const {
  throw Unimplemented(str_cat("[export_to] expected layers that ONNX is written of, got ",
                              layer.class_name(), " \"", layer.name(), "\"",
                              what.empty() ? "" : " ", what,
                              ": export_to a .keras file, which has all of them"));
}

std::string Call::x(std::size_t i) const {
  const Value& value = in.at(i);
  const DType dtype = value.spec.dtype;
  const bool is_float = dtype == kFloat32 || dtype == DType::Undefined;
  return is_float ? value.name : g.cast(value.name, kFloat32);
}

Tensor Call::tensor(const std::string& weight) const { return weight_of(layer, weight); }
bool Call::has_weight(const std::string& weight) const {
  return find_weight(layer, weight) != nullptr;
}

std::vector<int64_t> Call::numbers(const char* name, std::size_t count) const {
  const Config& value = config.at(name);
  if (!value.is_list()) return std::vector<int64_t>(count, value.integer());
  std::vector<int64_t> out;
  for (const Config& one : value.list()) out.push_back(one.integer());
  if (out.size() == 1) out.assign(count, out[0]);
  return out;
}

bool Call::channels_first() const {
  const Config* format = config.find("data_format");
  return format != nullptr && format->is_text() && format->text() == "channels_first";
}

std::vector<int64_t> Call::axes(const char* name) const {
  std::vector<int64_t> out;
  const auto add = [&](int64_t axis) {
    out.push_back(axis < 0 ? axis + static_cast<int64_t>(rank()) : axis);
  };
  const Config& value = config.at(name);
  if (value.is_list()) {
    for (const Config& one : value.list()) add(one.integer());
  } else if (!value.is_null()) {
    add(value.integer());
  }
  std::ranges::sort(out);
  return out;
}

std::string reshape(const Call& c, const std::string& x, const Shape& to) {
  std::vector<int64_t> sizes = to;
  const auto unknown = std::ranges::count(to.begin() + 1, to.end(), kUnknownDim);
  if (unknown > 1) c.refuse("whose output has several axes of unknown size");
  if (unknown == 1 && to[0] == kUnknownDim) sizes[0] = 0;  // as it is
  return c.g("Reshape", {x, c.g.ints(sizes)});
}

std::string transpose(const Call& c, const std::string& x, const std::vector<int64_t>& order) {
  return c.g("Transpose", {x}, {{"perm", order}});
}

std::string channels_to_front(const Call& c, const std::string& x, std::size_t rank) {
  std::vector<int64_t> order = {0, static_cast<int64_t>(rank) - 1};
  for (int64_t i = 1; i + 1 < static_cast<int64_t>(rank); ++i) order.push_back(i);
  return transpose(c, x, order);
}

std::string channels_to_back(const Call& c, const std::string& x, std::size_t rank) {
  std::vector<int64_t> order = {0};
  for (int64_t i = 2; i < static_cast<int64_t>(rank); ++i) order.push_back(i);
  order.push_back(1);
  return transpose(c, x, order);
}

std::string slice(const Call& c, const std::string& x, int64_t axis, int64_t begin, int64_t end,
                  int64_t step) {
  return c.g("Slice", {x, c.g.ints({begin}), c.g.ints({end}), c.g.ints({axis}), c.g.ints({step})});
}

std::string join_steps(const Call& c, const std::string& x) {
  const std::string rest = slice(c, c.g("Shape", {x}), 0, 2, kEnd);
  const std::string sizes = c.g("Concat", {c.g.ints({-1}), rest}, {{"axis", int64_t{0}}});
  return c.g("Reshape", {x, sizes});
}

std::string split_steps(const Call& c, const std::string& x, const std::string& like) {
  const std::string first = slice(c, c.g("Shape", {like}), 0, 0, 2);
  const std::string rest = slice(c, c.g("Shape", {x}), 0, 1, kEnd);
  return c.g("Reshape", {x, c.g("Concat", {first, rest}, {{"axis", int64_t{0}}})});
}

}  // namespace cohort::keras::internal::onnx
