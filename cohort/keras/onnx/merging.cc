// SPDX-License-Identifier: Apache-2.0
//
// Layers of several inputs.
#include <algorithm>

#include "cohort/keras/onnx/call.h"

namespace cohort::keras::internal::onnx {
namespace {

// With axes of 1 behind the batch, as many as the largest input has.
Names aligned(const Call& c) {
  std::size_t rank = 0;
  for (std::size_t i = 0; i < c.in.size(); ++i) rank = std::max(rank, c.rank(i));
  Names out;
  for (std::size_t i = 0; i < c.in.size(); ++i) {
    std::vector<int64_t> missing;
    for (std::size_t axis = c.rank(i); axis < rank; ++axis) {
      missing.push_back(static_cast<int64_t>(missing.size()) + 1);
    }
    const std::string x = c.x(i);
    out.push_back(missing.empty() ? x : c.g("Unsqueeze", {x, c.g.ints(missing)}));
  }
  return out;
}

bool has_mask(const Call& c) {
  return std::ranges::any_of(c.in, [](const Value& x) { return !x.mask.empty(); });
}

// What any input counts; nothing if one of them has no mask.
std::string joined_mask(const Call& c) {
  std::string out;
  for (const Value& x : c.in) {
    if (x.mask.empty()) return {};
    out = out.empty() ? x.mask : c.g("Or", {out, x.mask});
  }
  return out;
}

Values merged(const Call& c, const std::string& y) { return only(y, joined_mask(c)); }

Values add(const Call& c) { return merged(c, c.g("Sum", aligned(c))); }
Values average(const Call& c) { return merged(c, c.g("Mean", aligned(c))); }
Values subtract(const Call& c) { return merged(c, c.g("Sub", aligned(c))); }

// What does not count is no factor, and no largest or smallest value.
Values unmasked(const Call& c) {
  if (has_mask(c)) c.refuse("of inputs with masks");
  const std::string& kind = c.layer.class_name();
  const Names in = aligned(c);
  if (kind != "Multiply") return only(c.g(kind == "Maximum" ? "Max" : "Min", in));
  std::string y = in[0];
  for (std::size_t i = 1; i < in.size(); ++i) y = c.g("Mul", {y, in[i]});
  return only(y);
}

Values concatenate(const Call& c) {
  const int64_t axis = c.config.integer("axis");
  Names in;
  for (std::size_t i = 0; i < c.in.size(); ++i) in.push_back(c.x(i));
  const std::string y = c.g("Concat", in, {{"axis", axis}});
  if (!has_mask(c)) return only(y);
  // Of each input its own, or that all counts; joined, what any feature counts.
  Names masks;
  for (const Value& x : c.in) {
    const std::string all = c.g("Shape", {x.name});
    if (x.mask.empty()) {
      masks.push_back(c.g("Expand", {c.g.number(1), all}));
      continue;
    }
    std::string mask = c.g.cast(x.mask, kFloat32);
    mask = c.g("Unsqueeze", {mask, c.g.ints({-1})});
    masks.push_back(c.g("Expand", {mask, all}));
  }
  const std::string counts = c.g("Concat", masks, {{"axis", axis}});
  const std::string any = c.g("ReduceMax", {counts, c.g.ints({-1})}, {{"keepdims", int64_t{0}}});
  return only(y, c.g.cast(any, kBool));
}

std::string of_length_one(const Call& c, const std::string& x, int64_t axis) {
  const std::string sum = c.g("ReduceSum", {c.g("Mul", {x, x}), c.g.ints({axis})});
  return c.g("Div", {x, c.g("Sqrt", {c.g("Max", {sum, c.g.number(1e-14)})})});
}

Values dot(const Call& c) {
  const std::vector<int64_t> axes = c.numbers("axes", 2);
  std::string terms[2], kept = "a";
  Names in = {c.x(0), c.x(1)};
  for (std::size_t i = 0; i < 2; ++i) {
    const auto rank = static_cast<int64_t>(c.rank(i));
    const int64_t summed = axes[i] < 0 ? axes[i] + rank : axes[i];
    if (c.config.boolean("normalize")) in[i] = of_length_one(c, in[i], summed);
    terms[i] = "a";
    for (int64_t axis = 1; axis < rank; ++axis) {
      const char own = static_cast<char>((i == 0 ? 'c' : 'n') + axis);
      terms[i] += axis == summed ? 'b' : own;
      if (axis != summed) kept += own;
    }
  }
  const std::string y = c.g("Einsum", in, {{"equation", terms[0] + "," + terms[1] + "->" + kept}});
  return only(kept.size() == 1 ? c.g("Unsqueeze", {y, c.g.ints({-1})}) : y);
}

}  // namespace

void add_merging(Conversions& all) {
  all["Add"] = {add, true};
  all["Average"] = {average, true};
  all["Subtract"] = {subtract, true};
  all["Multiply"] = {unmasked, true};
  all["Maximum"] = {unmasked, true};
  all["Minimum"] = {unmasked, true};
  all["Concatenate"] = {concatenate, true};
  all["Dot"] = {dot, true};
}

}  // namespace cohort::keras::internal::onnx
