// SPDX-License-Identifier: Apache-2.0
//
// What layers of images have in common: images [h, w, c] or batches of them [b, h, w, c], channels
// last unless data_format says "channels_first", of any type of numbers, in the range of values
// that the layer is told. Results are of the layer's dtype.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "cohort/keras/layer.h"

namespace cohort::keras {

namespace internal {
class Draws;
}

/// How strong something is: 0.2, or between two numbers {-0.2, 0.3}, as Keras's `factor`.
struct FactorRange {
  double low = 0;
  double high = 0;
  bool is_one = true;  ///< Given as one number, which is `high`.

  FactorRange(double one = 0) : high(one) {}  // NOLINT: implicit by design
  FactorRange(double from, double to) : low(from), high(to), is_one(false) {}
  bool operator==(const FactorRange&) const = default;
  Config serialize() const;
  static FactorRange deserialize(const Config& config);
  /// Sorted; one number x is [-|x|, |x|], or [least, |x|] where -|x| is below `least`.
  /// Errors: InvalidArgument for one number out of [least, most], and two that are both above it or
  ///         below it.
  FactorRange within(const std::string& who, double least, double most) const;
};

/// Base of layers of images; derive with LayerImpl<Options, ImageLayer>.
class ImageLayer : public LayerBase {
 public:
  explicit ImageLayer(std::string name);
  ~ImageLayer() override;
  bool may_have_weights() const override { return false; }
  Tensor call(const Tensor& images, const CallArgs& args) override;

 protected:
  /// What the layer makes of [b, h, w, c], in the type it computes in, while training; of one image
  /// and channels first alike; of an empty batch, too.
  virtual Tensor transform(const Tensor& images) = 0;
  /// Whether it does so when not training, too.
  virtual bool transforms_always() const { return false; }
  /// For constructors. Errors: InvalidArgument for another data format.
  void set_up(const std::string& data_format, std::optional<uint64_t> seed = {});
  /// Whose numbers are drawn: of the layer's seed, its calls on this replica, and the replica.
  internal::Draws& draws() const { return *draws_; }
  bool channels_first() const { return channels_first_; }
  TrackedParts tracked_parts() const override;

  /// One number in [range.low, range.high) for each image. Shapes: [b, 1, 1, 1].
  Tensor one_each(const Tensor& images, const FactorRange& range) const;
  /// For each image, whether a draw says so that is as likely as a number of this range.
  Tensor chosen(const Tensor& images, const FactorRange& probability) const;

 private:
  bool channels_first_ = false;
  std::unique_ptr<internal::Draws> draws_;
};

namespace internal {
/// A handle of a class whose config is its options and a factor: RandomHue(0.2, {...}).
template <class L>
class FactorHandle : public Layer {
 public:
  explicit FactorHandle(FactorRange factor, typename L::Options::Given options = {})
      : Layer(std::make_shared<L>(typename L::Options{std::move(options), factor})) {}
};
}  // namespace internal

}  // namespace cohort::keras
