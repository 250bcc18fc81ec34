// SPDX-License-Identifier: Apache-2.0
//
// Preparation of inputs. What only training does to images is nothing here.
#include "cohort/keras/layers/preprocessing.h"

#include <algorithm>

#include "cohort/keras/onnx/call.h"

namespace cohort::keras::internal::onnx {
namespace {

Values unchanged(const Call& c) { return only(c.in[0].name); }

Values rescaling(const Call& c) {
  const std::string y = c.g("Mul", {c.x(), c.g.number(c.config.number("scale"))});
  const double offset = c.config.number("offset");
  return only(offset == 0 ? y : c.g("Add", {y, c.g.number(offset)}));
}

// Of the last of the axes that the layer keeps, or of all values.
Tensor as_given(const Call& c, const char* what, const std::vector<int64_t>& axes) {
  const Config& given = c.config.at(what);
  if (!given.is_list()) return from_vector<float>({static_cast<float>(given.number())}, {});
  std::vector<float> values;
  for (const Config& one : given.list()) values.push_back(static_cast<float>(one.number()));
  Shape shape(c.rank(), 1);
  if (!axes.empty()) shape[static_cast<std::size_t>(axes.back())] = std::ssize(values);
  return from_vector<float>(values, shape);
}

Values normalization(const Call& c) {
  const std::vector<int64_t> axes = c.axes("axis");
  Tensor mean, variance;
  if (c.has_weight("mean")) {
    Shape shape(c.rank(), 1);
    for (const int64_t axis : axes) {
      shape[static_cast<std::size_t>(axis)] = c.shape()[static_cast<std::size_t>(axis)];
    }
    mean = c.tensor("mean").reshape(shape);
    variance = c.tensor("variance").reshape(shape);
  } else {
    mean = as_given(c, "mean", axes);
    variance = as_given(c, "variance", axes);
  }
  const std::string middle = c.g.constant(mean, "mean");
  const std::string deviation = c.g.constant(variance.sqrt().clamp_min(1e-7), "deviation");
  if (c.config.boolean("invert")) {
    return only(c.g("Add", {c.g("Mul", {c.x(), deviation}), middle}));
  }
  return only(c.g("Div", {c.g("Sub", {c.x(), middle}), deviation}));
}

// Whole numbers by `mode`, as CategoryEncoding: compared with each of them, so that none below 0 or
// above the last is found.
Values encoded(const Call& c, const std::string& numbers, const std::string& mode, int64_t depth) {
  std::vector<int64_t> all(static_cast<std::size_t>(depth));
  for (int64_t i = 0; i < depth; ++i) all[static_cast<std::size_t>(i)] = i;
  const std::string each = c.g("Unsqueeze", {numbers, c.g.ints({-1})});
  std::string y = c.g.cast(c.g("Equal", {each, c.g.ints(all)}), kFloat32);
  if (mode == "one_hot") {
    const bool squeezes = c.rank() > 1 && c.shape().back() == 1;
    return only(squeezes ? c.g("Squeeze", {y, c.g.ints({-2})}) : y);
  }
  if (c.rank() < 2) c.refuse("of inputs without an axis after the batch");
  const char* op = mode == "count" ? "ReduceSum" : "ReduceMax";
  return only(c.g(op, {y, c.g.ints({1})}, {{"keepdims", int64_t{0}}}));
}

Values category_encoding(const Call& c) {
  if (c.in.size() > 1) c.refuse("with weights of counts");
  return encoded(c, c.g.cast(c.in[0].name, kInt64), c.config.text("output_mode"),
                 c.config.integer("num_tokens"));
}

// As many as there are boundaries that are not above it.
Values discretization(const Call& c) {
  const auto& layer = dynamic_cast<const DiscretizationLayer&>(c.layer);
  const std::vector<double> bounds = layer.bin_boundaries();
  const DType given = c.in[0].spec.dtype;
  const DType dtype = given == kFloat64 || given == kInt64 ? kFloat64 : kFloat32;
  const std::string x = c.g("Unsqueeze", {c.g.cast(c.in[0].name, dtype), c.g.ints({-1})});
  const Tensor values = from_vector<double>(bounds, {std::ssize(bounds)}).to(dtype);
  const std::string above = c.g("GreaterOrEqual", {x, c.g.constant(values, "boundaries")});
  const std::string number =
      c.g("ReduceSum", {c.g.cast(above, kInt32), c.g.ints({-1})}, {{"keepdims", int64_t{0}}});
  const std::string mode = c.config.text("output_mode");
  if (mode == "int") return only(number);
  return encoded(c, c.g.cast(number, kInt64), mode, std::ssize(bounds) + 1);
}

struct Picture {
  int64_t rows_axis, height, width;  // of the input
};

Picture picture_of(const Call& c) {
  if (c.rank() != 4) c.refuse("of inputs that are no batch of images");
  const std::size_t axis = c.channels_first() ? 2 : 1;
  return {static_cast<int64_t>(axis), c.shape()[axis], c.shape()[axis + 1]};
}

Values resizing(const Call& c) {
  const std::string& way = c.config.text("interpolation");
  const bool plain = !c.config.boolean("crop_to_aspect_ratio") &&
                     !c.config.boolean("pad_to_aspect_ratio") && !c.config.boolean("antialias");
  if (!plain) c.refuse("with crop_to_aspect_ratio, pad_to_aspect_ratio or antialias");
  if (way != "bilinear") c.refuse("with interpolation " + way);
  picture_of(c);
  const bool first = c.channels_first();
  const std::string x = first ? c.x() : channels_to_front(c, c.x(), 4);
  const std::string sizes = c.g.ints({c.config.integer("height"), c.config.integer("width")});
  const std::string y = c.g("Resize", {x, "", "", sizes},
                            {{"mode", std::string("linear")},
                             {"coordinate_transformation_mode", std::string("half_pixel")},
                             {"axes", std::vector<int64_t>{2, 3}}});
  return only(first ? y : channels_to_back(c, y, 4));
}

Values center_crop(const Call& c) {
  const Picture from = picture_of(c);
  const int64_t height = c.config.integer("height"), width = c.config.integer("width");
  const bool fits = from.height >= height && from.width >= width;  // both are known, then
  if (!fits) c.refuse("of images that are smaller, or of unknown size");
  const int64_t row = (from.height - height) / 2, column = (from.width - width) / 2;
  const std::string rows = slice(c, c.x(), from.rows_axis, row, row + height);
  return only(slice(c, rows, from.rows_axis + 1, column, column + width));
}

// Outside of training images stay as large as they are.
Values random_crop(const Call& c) {
  const Picture from = picture_of(c);
  const bool same =
      from.height == c.config.integer("height") && from.width == c.config.integer("width");
  if (!same) c.refuse("of images that have another size, which only training makes");
  return unchanged(c);
}

Values pipeline(const Call& c) {
  Values x = c.in;
  for (const Layer& layer : c.layer.sub_layers()) x = c.exporter.convert(layer.base(), x);
  return x;
}

}  // namespace

void add_preprocessing(Conversions& all) {
  all["Rescaling"] = {rescaling};
  all["Normalization"] = {normalization};
  all["CategoryEncoding"] = {category_encoding};
  all["Discretization"] = {discretization};
  all["Resizing"] = {resizing};
  all["CenterCrop"] = {center_crop};
  all["RandomCrop"] = {random_crop, false, true};
  all["Pipeline"] = {pipeline};
  for (const char* name : {"RandomFlip",
                           "RandomRotation",
                           "RandomTranslation",
                           "RandomZoom",
                           "RandomShear",
                           "RandomPerspective",
                           "RandomElasticTransform",
                           "RandomBrightness",
                           "RandomContrast",
                           "RandomHue",
                           "RandomSaturation",
                           "RandomColorDegeneration",
                           "RandomColorJitter",
                           "RandomGrayscale",
                           "RandomInvert",
                           "RandomPosterization",
                           "RandomSharpness",
                           "RandomGaussianBlur",
                           "RandomErasing",
                           "MixUp",
                           "CutMix",
                           "RandAugment",
                           "AugMix",
                           "Solarization",
                           "Equalization"}) {
    all[name] = {unchanged, false, true};
  }
}

}  // namespace cohort::keras::internal::onnx
