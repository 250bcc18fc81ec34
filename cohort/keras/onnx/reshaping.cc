// SPDX-License-Identifier: Apache-2.0
//
// Layers that move values and compute nothing.
#include <limits>

#include "cohort/keras/onnx/call.h"

namespace cohort::keras::internal::onnx {
namespace {

Shape output_shape(const Call& c) { return c.layer.compute_output_shape(c.shape()); }

Values flatten(const Call& c) {
  const bool moves = c.channels_first() && c.rank() > 2;
  const std::string x = moves ? channels_to_back(c, c.in[0].name, c.rank()) : c.in[0].name;
  return only(reshape(c, x, output_shape(c)));
}

Values reshaped(const Call& c) { return only(reshape(c, c.in[0].name, output_shape(c))); }

Values permute(const Call& c) {
  std::vector<int64_t> order = c.numbers("dims", 1);
  order.insert(order.begin(), 0);
  return only(transpose(c, c.in[0].name, order));
}

Values repeat_vector(const Call& c) {
  const std::string row = c.g("Unsqueeze", {c.in[0].name, c.g.ints({1})});
  return only(c.g("Expand", {row, c.g.ints({1, c.config.integer("n"), 1})}));
}

struct Margin {
  int64_t before, after;
};

// Of each axis in space, as configs have them: a number, numbers, or pairs.
std::vector<Margin> margins(const Config& given, std::size_t count) {
  if (given.is_number()) return std::vector<Margin>(count, {given.integer(), given.integer()});
  const auto of = [](const Config& one) -> Margin {
    if (one.is_number()) return {one.integer(), one.integer()};
    return {one.list().at(0).integer(), one.list().at(1).integer()};
  };
  if (count == 1) return {of(given)};
  std::vector<Margin> out;
  for (const Config& one : given.list()) out.push_back(of(one));
  return out;
}

Values zero_padding(const Call& c) {
  const std::vector<Margin> around = margins(c.config.at("padding"), c.rank() - 2);
  std::vector<int64_t> before(c.rank(), 0), after(c.rank(), 0);
  for (std::size_t i = 0; i < around.size(); ++i) {
    const std::size_t axis = i + (c.channels_first() ? 2 : 1);
    before[axis] = around[i].before;
    after[axis] = around[i].after;
  }
  before.insert(before.end(), after.begin(), after.end());
  return only(c.g("Pad", {c.x(), c.g.ints(before)}));
}

Values cropping(const Call& c) {
  const std::vector<Margin> around = margins(c.config.at("cropping"), c.rank() - 2);
  std::string y = c.in[0].name;
  for (std::size_t i = 0; i < around.size(); ++i) {
    const auto [before, after] = around[i];
    const int64_t end = after == 0 ? std::numeric_limits<int64_t>::max() : -after;
    y = slice(c, y, static_cast<int64_t>(i) + (c.channels_first() ? 2 : 1), before, end);
  }
  return only(y);
}

std::string resized(const Call& c, const std::string& x, const std::vector<float>& scales,
                    const std::string& way) {
  const Tensor by = from_vector<float>(scales, {static_cast<int64_t>(scales.size())});
  Attributes how = {{"mode", way == "bilinear" ? "linear" : way}};
  how.emplace_back("coordinate_transformation_mode",
                   way == "nearest" ? "asymmetric" : "half_pixel");
  if (way == "nearest") how.emplace_back("nearest_mode", "floor");
  return c.g("Resize", {x, "", c.g.constant(by, "scales")}, how);
}

Values up_sampling(const Call& c) {
  const std::size_t space = c.rank() - 2;
  const std::vector<int64_t> sizes = c.numbers("size", space);
  const Config* given = c.config.find("interpolation");
  const std::string way = given == nullptr ? "nearest" : given->text();
  if (way != "nearest" && way != "bilinear") c.refuse("with interpolation " + way);
  std::vector<float> scales(c.rank(), 1);
  for (std::size_t i = 0; i < space; ++i) scales[i + 2] = static_cast<float>(sizes[i]);
  if (c.channels_first()) return only(resized(c, c.x(), scales, way));
  const std::string x = channels_to_front(c, c.x(), c.rank());
  return only(channels_to_back(c, resized(c, x, scales, way), c.rank()));
}

// Of each step as of a batch.
Values time_distributed(const Call& c) {
  Value step{join_steps(c, c.in[0].name), c.in[0].spec};
  step.spec.shape.erase(step.spec.shape.begin());
  step.spec.shape[0] = kUnknownDim;
  const Values y = c.exporter.convert(c.layer.sub_layers().at(0).base(), {step});
  if (y.size() != 1) c.refuse("of a layer with several outputs");
  return only(split_steps(c, y[0].name, c.in[0].name));
}

}  // namespace

void add_reshaping(Conversions& all) {
  all["Flatten"] = {flatten, false, true};
  all["Reshape"] = {reshaped, false, true};
  all["Permute"] = {permute, false, true};
  all["RepeatVector"] = {repeat_vector, false, true};
  all["TimeDistributed"] = {time_distributed};
  for (const char* name : {"1D", "2D", "3D"}) {
    all[std::string("ZeroPadding") + name] = {zero_padding};
    all[std::string("Cropping") + name] = {cropping, false, true};
    all[std::string("UpSampling") + name] = {up_sampling};
  }
}

}  // namespace cohort::keras::internal::onnx
