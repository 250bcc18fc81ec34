// SPDX-License-Identifier: Apache-2.0
//
// Sequential: layers one after the other.
//
//   keras::Sequential model({keras::Flatten(), keras::Dense(256, {.activation = "relu"}),
//                            keras::Dense(10)});
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cohort/keras/model.h"

namespace cohort::keras {

/// Built at once if it starts with an InputLayer, else by the first data or call.
/// TF: keras.Sequential.
class Sequential : public Model {
 public:
  explicit Sequential(std::vector<Layer> layers = {}, std::string name = {});

  /// Appends. Errors: FailedPrecondition once data has built the model; InvalidArgument for another
  ///         layer of a name that the model has.
  void add(Layer layer);

  std::optional<Shape> declared_input_shape() const override;
  void build(const Shape& input_shape) override;
  Tensor call(const Tensor& input, const CallArgs& args) override;
  Shape compute_output_shape(const Shape& input_shape) const override;

  /// Name and layers, an InputLayer before them once the model is built, as Keras writes it.
  /// Errors: Unimplemented for a layer whose class does not say what it is made with.
  Config get_config() const override;
  Config serialize() const override;
  /// Errors: InvalidArgument, as model_from_config.
  static std::shared_ptr<Sequential> from_config(const Config& config);
  std::vector<Shape> layer_output_shapes() const override;

 private:
  Tensor call_and_check_shapes(const Tensor& input, const CallArgs& args);
  Tensor call_with_mask(const Tensor& input, const CallArgs& args);

  std::optional<Shape> input_shape_;  // since the model is built
  std::optional<Shape> next_shape_;   // after an InputLayer: what the next layer gets
  std::vector<Shape> shapes_;         // of the layers' outputs, as these promise
  bool shapes_hold_ = false;          // a call has had them; read and set atomically
};

}  // namespace cohort::keras
