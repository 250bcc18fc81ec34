// SPDX-License-Identifier: Apache-2.0
//
// Pooling over images, with the names, options and defaults of Keras 3.
//
//   keras::MaxPooling2D();                                  // 2 x 2
//   keras::AveragePooling2D(3, {.strides = 2, .padding = "same"});
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "cohort/keras/layer.h"
#include "cohort/keras/layers/convolution.h"

namespace cohort::keras {

struct Pooling2DOptions {
  std::optional<Size2D> strides = {};  ///< Unset: pool_size.
  std::string padding = "valid";       ///< Or "same"; what lies outside does not count.
  std::string data_format = "channels_last";
  DTypePolicy dtype = {};
  std::string name = {};
  bool trainable = true;
};

struct Pooling2DConfig : Pooling2DOptions {
  Size2D pool_size = 2;
  static void fields(auto& c, auto&& f) {
    f("pool_size", c.pool_size);
    f("padding", c.padding);
    f("strides", c.strides);
    f("data_format", c.data_format);
  }
};

/// What pools windows have in common; a class that derives says what becomes of them.
class Pooling2DLayer : public LayerImpl<Pooling2DConfig> {
 public:
  ~Pooling2DLayer() override;
  bool may_have_weights() const override { return false; }
  void build(const Shape&) override { set_input_spec({.rank = 4}); }
  Shape compute_output_shape(const Shape& input_shape) const override;
  Tensor call(const Tensor& input, const CallArgs&) final;

 protected:
  struct Plan;

  /// `who` is for errors.
  Pooling2DLayer(const char* who, Pooling2DConfig config);
  /// Shapes: [b, h, w, c] to [b, h', w', c].
  virtual Tensor pool(const Tensor& x) const = 0;
  const Plan& plan() const { return *plan_; }

 private:
  std::unique_ptr<Plan> plan_;
  bool channels_first_ = false;
};

class MaxPooling2DLayer : public Pooling2DLayer {
 public:
  explicit MaxPooling2DLayer(Pooling2DConfig config)
      : Pooling2DLayer("max_pooling2d", std::move(config)) {}

 protected:
  Tensor pool(const Tensor& x) const override;
};

class AveragePooling2DLayer : public Pooling2DLayer {
 public:
  explicit AveragePooling2DLayer(Pooling2DConfig config)
      : Pooling2DLayer("average_pooling2d", std::move(config)) {}

 protected:
  Tensor pool(const Tensor& x) const override;
};

/// Shapes: [b, h, w, c] to [b, h', w', c]. The gradient of equal maxima goes to the first.
/// Cost: float32 on one intra-op thread runs Cohort's kernels, anything else LibTorch's pooling,
///       which serves several threads.
class MaxPooling2D : public Layer {
 public:
  explicit MaxPooling2D(Size2D pool_size = 2, Pooling2DOptions options = {});
};

/// Shapes: [b, h, w, c] to [b, h', w', c].
class AveragePooling2D : public Layer {
 public:
  explicit AveragePooling2D(Size2D pool_size = 2, Pooling2DOptions options = {});
};

struct GlobalPooling2DOptions {
  bool keepdims = false;
  std::string data_format = "channels_last";
  DTypePolicy dtype = {};
  std::string name = {};
  bool trainable = true;
  static void fields(auto& c, auto&& f) {
    f("data_format", c.data_format);
    f("keepdims", c.keepdims);
  }
};

class GlobalAveragePooling2DLayer : public LayerImpl<GlobalPooling2DOptions> {
 public:
  explicit GlobalAveragePooling2DLayer(GlobalPooling2DOptions options);
  bool may_have_weights() const override { return false; }
  void build(const Shape&) override { set_input_spec({.rank = 4}); }
  Shape compute_output_shape(const Shape& in) const override;
  Tensor call(const Tensor& x, const CallArgs&) override;

 private:
  bool channels_first_ = false;
};

/// Shapes: [b, h, w, c] to [b, c], or [b, 1, 1, c] with keepdims.
class GlobalAveragePooling2D : public Layer {
 public:
  explicit GlobalAveragePooling2D(GlobalPooling2DOptions options = {});
};

}  // namespace cohort::keras
