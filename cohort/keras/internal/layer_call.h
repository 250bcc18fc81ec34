// SPDX-License-Identifier: Apache-2.0
//
// Which layer of which model is at work on this thread, and what its calls leave there: masks of
// tensors and losses that were added. Internal.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cohort/data/core/element.h"
#include "cohort/keras/config.h"
#include "cohort/runtime/tensor.h"

namespace cohort::keras {
class LayerBase;
}

namespace cohort::keras::internal {

/// A call or build of a layer for its lifetime, inside those that are going on. Threads: bound to
/// one. Cost: a few writes of a thread's variables.
class [[nodiscard]] LayerCall {
 public:
  LayerCall(const LayerBase& layer, const Tensor& input) : LayerCall(layer) { input_ = &input; }
  LayerCall(const LayerBase& layer, const Element& inputs) : LayerCall(layer) { nest_ = &inputs; }
  LayerCall(const LayerBase& layer, const ElementSpec& inputs) : LayerCall(layer) {
    spec_ = &inputs;
  }
  ~LayerCall();
  LayerCall(const LayerCall&) = delete;
  LayerCall& operator=(const LayerCall&) = delete;

  /// Nothing that a call would have to look at is on this thread: no mask, no type of weights.
  bool is_plain() const { return plain_; }
  const LayerBase& outermost() const { return outer_ == nullptr ? layer_ : outer_->outermost(); }

  /// For a catch block: throws the caught exception anew in its category, with the layer's path and
  /// class, `method` and the input added by the innermost layer. LibTorch's lose their stack trace;
  /// what is neither theirs nor ours stays as it is.
  [[noreturn]] void rethrow(const char* method) const;

 private:
  explicit LayerCall(const LayerBase& layer);
  std::string described(const char* method) const;
  std::string input_text() const;

  const LayerBase& layer_;
  const Tensor* input_ = nullptr;
  const Element* nest_ = nullptr;
  const ElementSpec* spec_ = nullptr;
  const LayerCall* const outer_;
  bool plain_ = true;
};

/// While it lives, layers' calls on this thread are not plain, and trainable weights are read in
/// this type, if one is given. Threads: bound to one.
class [[nodiscard]] ComputeType {
 public:
  explicit ComputeType(std::optional<DType> dtype);
  ~ComputeType();
  static bool any();  ///< One lives on this thread.
  ComputeType(const ComputeType&) = delete;
  ComputeType& operator=(const ComputeType&) = delete;

 private:
  const std::optional<DType> outer_;
};

/// Says which steps of `x` count: what layers that are called with it on this thread are told, and
/// the loss. An undefined mask takes it away.
void set_mask(const Tensor& x, const Tensor& mask);
/// Undefined: all count.
Tensor mask_of(const Tensor& x);
/// A nest like `inputs`, or nothing.
Element masks_of(const Element& inputs);

/// A loss that a layer has added in the running call.
struct AddedLoss {
  const LayerBase* outermost;
  const LayerBase* layer;
  Tensor value;
  bool is_sum;  ///< Over rows, as an activity regularizer's: replicas' add up.
};
/// Of this thread, each until the outermost layer is called again.
const std::vector<AddedLoss>& added_losses();
/// Outside of a call nothing is kept.
void add_loss(const LayerBase& layer, const Tensor& value, bool is_sum);
/// At the end of a step: its graphs are not kept.
void forget_added_losses();

/// "[None, 4]"
std::string none_shape(const Shape& shape);
/// Shapes in the form of Keras's configs: a list, or of several inputs lists of lists.
Config shapes_config(const ElementSpec& spec);
/// Builds a layer for the shapes that its config was written with, if it says any.
void build_as_told(LayerBase& layer, const Config& serialized);
/// A spec of inputs, without the number of their rows.
ElementSpec any_rows(const ElementSpec& spec);

}  // namespace cohort::keras::internal
