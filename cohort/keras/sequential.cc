// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/sequential.h"

#include <algorithm>
#include <atomic>

#include "cohort/base/check.h"
#include "cohort/keras/internal/layer_call.h"
#include "cohort/keras/internal/rectified_call.h"
#include "cohort/keras/internal/shape_of_training.h"

namespace cohort::keras {

namespace {
bool agrees(const Shape& promised, const Tensor& x) {
  return x.defined() &&
         std::equal(promised.begin(), promised.end(), x.sizes().begin(), x.sizes().end(),
                    [](int64_t p, int64_t size) { return p == kUnknownDim || p == size; });
}

// As in Keras: a layer may stand twice, but no other of its name, by which get_layer finds it.
void check_name_is_new(const std::vector<Layer>& layers, const Layer& layer,
                       const std::string& model) {
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const bool clashes = &layers[i].base() != &layer.base() && layers[i].name() == layer.name();
    COHORT_CHECK_ARG(!clashes, "[sequential.add] expected layers of unique names in model \"",
                     model, "\", got \"", layer.name(), "\" at position ", i, ", ",
                     layers[i].base().class_name(), ", and at position ", layers.size(), ", ",
                     layer.base().class_name(), ": give one of them another name");
  }
}
}  // namespace

Sequential::Sequential(std::vector<Layer> layers, std::string name) : Model(std::move(name)) {
  for (Layer& layer : layers) add(std::move(layer));
}

void Sequential::add(Layer layer) {
  COHORT_CHECK_STATE(!built() || next_shape_,
                     "[sequential.add] expected a model that is not built "
                     "yet, got \"",
                     name(), "\", which has its variables");
  check_name_is_new(layers(), layer, name());
  track(layer);
  if (layers().size() == 1) {
    next_shape_ = layer.base().declared_input_shape();
    if (!next_shape_) return;
    ensure_built(*next_shape_);
  } else if (next_shape_) {
    layer.base().ensure_built(*next_shape_);
  } else {
    return;
  }
  next_shape_ = layer.base().compute_output_shape(*next_shape_);
  shapes_.resize(layers().size() - 1);  // building after an InputLayer has put its own there
  shapes_.push_back(*next_shape_);
}

std::optional<Shape> Sequential::declared_input_shape() const {
  return layers().empty() ? std::nullopt : layers().front().base().declared_input_shape();
}

void Sequential::build(const Shape& input_shape) {
  COHORT_CHECK_STATE(!layers().empty(), "[sequential.build] expected layers, got \"", name(),
                     "\" without any: call add() first");
  // The program's own first call: as in Keras, the model is built() behind it.
  if (!is_being_built() && !built()) return ensure_built(input_shape);
  shapes_.clear();
  Shape shape = input_shape;
  for (const Layer& layer : layers()) {
    layer.base().ensure_built(shape);
    shape = layer.base().compute_output_shape(shape);
    shapes_.push_back(shape);
  }
  input_shape_ = input_shape;
}

std::vector<Shape> Sequential::layer_output_shapes() const {
  std::vector<Shape> shapes;
  if (!input_shape_) return shapes;
  Shape shape = *input_shape_;
  for (const Layer& layer : layers()) {
    shape = layer.base().compute_output_shape(shape);
    shapes.push_back(shape);
  }
  return shapes;
}

Tensor Sequential::call(const Tensor& input, const CallArgs& args) {
  Tensor x = input;
  if (!std::atomic_ref(shapes_hold_).load(std::memory_order_relaxed)) [[unlikely]] {
    return call_and_check_shapes(input, args);
  }
  if (args.mask.has_value() || args.initial_state.has_value()) [[unlikely]]
    return call_with_mask(input, args);
  const std::vector<Layer>& all = layers();
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (i + 1 < all.size() && internal::can_join(all[i].base(), all[i + 1].base())) {
      const internal::RectifiedCall both(all[i].base());
      x = all[i++](x, args);
    } else {
      x = all[i](x, args);
    }
  }
  return x;
}

// The inputs' mask is for the first layer: what it gives carries its own.
Tensor Sequential::call_with_mask(const Tensor& input, const CallArgs& args) {
  CallArgs here{.training = args.training, .mask = args.mask};
  Tensor x = input;
  for (const Layer& layer : layers()) {
    x = layer(x, here);
    here.mask = {};
  }
  return x;
}

// What a layer promises wrongly, layers after it were built for: the first call says who it was.
Tensor Sequential::call_and_check_shapes(const Tensor& input, const CallArgs& args) {
  bool as_built = input_shape_ && agrees(*input_shape_, input);
  CallArgs here{.training = args.training, .mask = args.mask};
  Tensor x = input;
  for (std::size_t i = 0; i < layers().size(); ++i) {
    const Shape before = shape_of(x);
    x = layers()[i](x, here);
    here.mask = {};
    if (!as_built || i >= shapes_.size() || agrees(shapes_[i], x)) continue;
    const LayerBase& layer = layers()[i].base();
    if (!args.training && internal::has_shape_of_training(layer)) {
      as_built = false;
      continue;
    }
    throw InvalidArgument(str_cat("[", layer.name(), "] expected outputs of shape ",
                                  internal::none_shape(shapes_[i]), ", as ", layer.class_name(),
                                  ".compute_output_shape promises, got ", bracketed(x.sizes()),
                                  " from ", layer.class_name(), ".call() of layer ", name(), "/",
                                  layer.name(), " for inputs of shape ", bracketed(before),
                                  "; override compute_output_shape to return what call gives"));
  }
  if (as_built) std::atomic_ref(shapes_hold_).store(true, std::memory_order_relaxed);
  return x;
}

Shape Sequential::compute_output_shape(const Shape& input_shape) const {
  Shape shape = input_shape;
  for (const Layer& layer : layers()) shape = layer.base().compute_output_shape(shape);
  return shape;
}

}  // namespace cohort::keras
