// SPDX-License-Identifier: Apache-2.0
//
// Layers that learn from data before training: their mean and variance, bins or vocabulary.
//
//   keras::Normalization normalize;
//   normalize.adapt(train);                     // a Dataset, a tensor, or strings
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cohort/keras/layer.h"

namespace cohort::keras {

struct AdaptOptions {
  std::optional<int64_t> steps = {};  ///< Of a dataset, how many batches; unset: all.
};

/// Base of layers with adapt().
class AdaptingLayer : public LayerBase {
 public:
  using LayerBase::LayerBase;
  /// Forgets what was learnt before, and learns from all of `data`: a dataset of batches (of tuples
  /// the first component), one tensor, or strings. All of it is read here, whatever the strategy,
  /// so that the result does not depend on the number of replicas; of several workers each reads
  /// what it is given.
  /// Errors: FailedPrecondition inside a replica, and where there is nothing to learn;
  ///         InvalidArgument for data without elements; what the dataset throws. The layer is then
  ///         what it was.
  void adapt(const Element& data, const AdaptOptions& options = {});

 protected:
  virtual void begin_learning() = 0;
  virtual void learn(const Element& batch) = 0;
  virtual void finish_learning() = 0;
  /// The batch to learn from, of data that is not a dataset. Default: the data themselves.
  virtual Element as_batch(const Element& data) const { return data; }
  /// A dataset as batches. Default: as it is.
  virtual Element as_batches(const Element& dataset) const { return dataset; }
};

/// A handle to one.
class AdaptingHandle : public Layer {
 public:
  /// As AdaptingLayer::adapt. TF: keras.layers.Normalization.adapt.
  void adapt(const Element& data, const AdaptOptions& options = {}) const;

 protected:
  using Layer::Layer;
};

}  // namespace cohort::keras
