// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "cohort/keras/layer.h"

namespace cohort::keras {

struct IdentityLayerOptions {
  DTypePolicy dtype = {};
  std::string name = {};
  bool trainable = true;
  static void fields(auto&, auto&&) {}
};

/// Of layers::Identity.
class IdentityLayer : public LayerImpl<IdentityLayerOptions> {
 public:
  using LayerImpl::LayerImpl;
  bool may_have_weights() const override { return false; }
  bool supports_masking() const override { return true; }
  Tensor call(const Tensor& x, const CallArgs&) override { return x; }
  Element call_nest(const Element& x, const CallArgs&) override { return x; }
  ElementSpec compute_output_spec(const ElementSpec& inputs) const override { return inputs; }
};

namespace layers {
/// Its input, a nest too. keras::Identity is the initializer. TF: keras.layers.Identity.
class Identity : public Layer {
 public:
  explicit Identity(IdentityLayerOptions options = {})
      : Layer(std::make_shared<IdentityLayer>(std::move(options))) {}
};
}  // namespace layers

}  // namespace cohort::keras
