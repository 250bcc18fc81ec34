// SPDX-License-Identifier: Apache-2.0
//
// Pooling over series, images and volumes, with the names, options and defaults of Keras 3.
//
//   keras::MaxPooling2D();                                  // 2 x 2
//   keras::AveragePooling2D(3, {.strides = 2, .padding = "same"});
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cohort/keras/layer.h"
#include "cohort/keras/layers/convolution.h"

namespace cohort::keras {

namespace internal {
struct PoolingPlan;

/// A handle whose first argument is sizes. Most have a default for them.
template <class L, auto Member, int64_t kDefault = 2>
class SizesHandle : public Layer {
 public:
  using Config = typename L::Options;
  using Options = typename Config::Given;
  using Size = std::remove_reference_t<decltype(std::declval<Config>().*Member)>;
  explicit SizesHandle(Size sizes = kDefault, Options options = {})
      : Layer(std::make_shared<L>(Config{std::move(options), std::move(sizes)})) {}
};
}  // namespace internal

template <int N>
struct PoolingOptions {
  std::optional<Sizes<N>> strides = {};  ///< Unset: pool_size.
  std::string padding = "valid";         ///< Or "same"; what lies outside does not count.
  std::string data_format = "channels_last";
  DTypePolicy dtype = {};
  std::string name = {};
  bool trainable = true;
};
using Pooling1DOptions = PoolingOptions<1>;
using Pooling2DOptions = PoolingOptions<2>;
using Pooling3DOptions = PoolingOptions<3>;

template <int N>
struct PoolingConfig : PoolingOptions<N> {
  using Given = PoolingOptions<N>;
  Sizes<N> pool_size = 2;
  static void fields(auto& c, auto&& f) {
    f("pool_size", c.pool_size);
    f("padding", c.padding);
    f("strides", c.strides);
    f("data_format", c.data_format);
  }
};

/// What pools windows have in common; a class that derives says what becomes of them.
template <int N>
class PoolingLayer : public LayerImpl<PoolingConfig<N>> {
 public:
  ~PoolingLayer() override;
  bool may_have_weights() const override { return false; }
  void build(const Shape&) override { this->set_input_spec({.rank = N + 2}); }
  Shape compute_output_shape(const Shape& input_shape) const override;
  Tensor call(const Tensor& input, const CallArgs&) final;

 protected:
  /// `who` is for errors.
  PoolingLayer(const char* who, PoolingConfig<N> config);
  /// Shapes: [b, axes..., c] to [b, axes'..., c]; a series comes as an image of one row.
  virtual Tensor pool(const Tensor& x) const = 0;
  const internal::PoolingPlan& plan() const { return *plan_; }

 private:
  std::unique_ptr<internal::PoolingPlan> plan_;
};

template <int N>
class MaxPoolingLayer : public PoolingLayer<N> {
 public:
  explicit MaxPoolingLayer(PoolingConfig<N> config)
      : PoolingLayer<N>("max_pooling", std::move(config)) {}

 protected:
  Tensor pool(const Tensor& x) const override;
};

template <int N>
class AveragePoolingLayer : public PoolingLayer<N> {
 public:
  explicit AveragePoolingLayer(PoolingConfig<N> config)
      : PoolingLayer<N>("average_pooling", std::move(config)) {}

 protected:
  Tensor pool(const Tensor& x) const override;
};

struct MaxPooling1DLayer : MaxPoolingLayer<1> {
  using MaxPoolingLayer<1>::MaxPoolingLayer;
};
struct MaxPooling2DLayer : MaxPoolingLayer<2> {
  using MaxPoolingLayer<2>::MaxPoolingLayer;
};
struct MaxPooling3DLayer : MaxPoolingLayer<3> {
  using MaxPoolingLayer<3>::MaxPoolingLayer;
};
struct AveragePooling1DLayer : AveragePoolingLayer<1> {
  using AveragePoolingLayer<1>::AveragePoolingLayer;
};
struct AveragePooling2DLayer : AveragePoolingLayer<2> {
  using AveragePoolingLayer<2>::AveragePoolingLayer;
};
struct AveragePooling3DLayer : AveragePoolingLayer<3> {
  using AveragePoolingLayer<3>::AveragePoolingLayer;
};

/// MaxPooling2D(pool_size, options).
/// Shapes: [b, h, w, c] to [b, h', w', c]. The gradient of equal maxima goes to the first.
/// Cost: float32 on one intra-op thread runs Cohort's kernels (not MaxPooling3D), anything else
///       LibTorch's pooling, which serves several threads.
using MaxPooling1D = internal::SizesHandle<MaxPooling1DLayer, &PoolingConfig<1>::pool_size>;
using MaxPooling2D = internal::SizesHandle<MaxPooling2DLayer, &PoolingConfig<2>::pool_size>;
using MaxPooling3D = internal::SizesHandle<MaxPooling3DLayer, &PoolingConfig<3>::pool_size>;
/// AveragePooling2D(pool_size, options). Shapes: [b, h, w, c] to [b, h', w', c].
using AveragePooling1D = internal::SizesHandle<AveragePooling1DLayer, &PoolingConfig<1>::pool_size>;
using AveragePooling2D = internal::SizesHandle<AveragePooling2DLayer, &PoolingConfig<2>::pool_size>;
using AveragePooling3D = internal::SizesHandle<AveragePooling3DLayer, &PoolingConfig<3>::pool_size>;

struct GlobalPoolingOptions {
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
using GlobalPooling2DOptions = GlobalPoolingOptions;

template <int N>
class GlobalPoolingLayer : public LayerImpl<GlobalPoolingOptions> {
 public:
  bool may_have_weights() const override { return false; }
  void build(const Shape&) override { set_input_spec({.rank = N + 2}); }
  Shape compute_output_shape(const Shape& in) const override;

 protected:
  explicit GlobalPoolingLayer(GlobalPoolingOptions options);
  /// All but the batch's and the channels'.
  std::vector<int64_t> axes() const;
  bool channels_first_ = false;
};

template <int N>
struct GlobalAveragePoolingLayer : GlobalPoolingLayer<N> {
  explicit GlobalAveragePoolingLayer(GlobalPoolingOptions options)
      : GlobalPoolingLayer<N>(std::move(options)) {}
  Tensor call(const Tensor& x, const CallArgs& args) override;
  bool supports_masking() const override { return N == 1; }
  Element compute_mask(const Element&, const Element&) const override { return {}; }
};

template <int N>
struct GlobalMaxPoolingLayer : GlobalPoolingLayer<N> {
  explicit GlobalMaxPoolingLayer(GlobalPoolingOptions options)
      : GlobalPoolingLayer<N>(std::move(options)) {}
  Tensor call(const Tensor& x, const CallArgs&) override;
};

struct GlobalAveragePooling1DLayer : GlobalAveragePoolingLayer<1> {
  using GlobalAveragePoolingLayer<1>::GlobalAveragePoolingLayer;
};
struct GlobalAveragePooling2DLayer : GlobalAveragePoolingLayer<2> {
  using GlobalAveragePoolingLayer<2>::GlobalAveragePoolingLayer;
};
struct GlobalAveragePooling3DLayer : GlobalAveragePoolingLayer<3> {
  using GlobalAveragePoolingLayer<3>::GlobalAveragePoolingLayer;
};
struct GlobalMaxPooling1DLayer : GlobalMaxPoolingLayer<1> {
  using GlobalMaxPoolingLayer<1>::GlobalMaxPoolingLayer;
};
struct GlobalMaxPooling2DLayer : GlobalMaxPoolingLayer<2> {
  using GlobalMaxPoolingLayer<2>::GlobalMaxPoolingLayer;
};
struct GlobalMaxPooling3DLayer : GlobalMaxPoolingLayer<3> {
  using GlobalMaxPoolingLayer<3>::GlobalMaxPoolingLayer;
};

/// Shapes: [b, h, w, c] to [b, c], or [b, 1, 1, c] with keepdims.
using GlobalAveragePooling1D = Handle<GlobalAveragePooling1DLayer>;
using GlobalAveragePooling2D = Handle<GlobalAveragePooling2DLayer>;
using GlobalAveragePooling3D = Handle<GlobalAveragePooling3DLayer>;
/// The gradient of equal maxima is shared among them.
using GlobalMaxPooling1D = Handle<GlobalMaxPooling1DLayer>;
using GlobalMaxPooling2D = Handle<GlobalMaxPooling2DLayer>;
using GlobalMaxPooling3D = Handle<GlobalMaxPooling3DLayer>;

template <int N>
struct AdaptivePoolingOptions {
  std::string data_format = "channels_last";
  DTypePolicy dtype = {};
  std::string name = {};
  bool trainable = true;
};

template <int N>
struct AdaptivePoolingConfig : AdaptivePoolingOptions<N> {
  using Given = AdaptivePoolingOptions<N>;
  Sizes<N> output_size = 1;
  static void fields(auto& c, auto&& f) {
    f.required("output_size", c.output_size);
    f("data_format", c.data_format);
  }
};

template <int N>
class AdaptivePoolingLayer : public LayerImpl<AdaptivePoolingConfig<N>> {
 public:
  bool may_have_weights() const override { return false; }
  void build(const Shape&) override { this->set_input_spec({.rank = N + 2}); }
  Shape compute_output_shape(const Shape& in) const override;
  Tensor call(const Tensor& x, const CallArgs&) final;

 protected:
  explicit AdaptivePoolingLayer(AdaptivePoolingConfig<N> config);
  /// Shapes: [b, c, axes...] to [b, c, output_size...]; a series comes as an image of one row.
  virtual Tensor pool(const Tensor& x, const std::vector<int64_t>& output_size) const = 0;

 private:
  bool channels_first_ = false;
};

template <int N>
struct AdaptiveAveragePoolingLayer : AdaptivePoolingLayer<N> {
  explicit AdaptiveAveragePoolingLayer(AdaptivePoolingConfig<N> config)
      : AdaptivePoolingLayer<N>(std::move(config)) {}

 protected:
  Tensor pool(const Tensor& x, const std::vector<int64_t>& output_size) const override;
};

template <int N>
struct AdaptiveMaxPoolingLayer : AdaptivePoolingLayer<N> {
  explicit AdaptiveMaxPoolingLayer(AdaptivePoolingConfig<N> config)
      : AdaptivePoolingLayer<N>(std::move(config)) {}

 protected:
  Tensor pool(const Tensor& x, const std::vector<int64_t>& output_size) const override;
};

struct AdaptiveAveragePooling1DLayer : AdaptiveAveragePoolingLayer<1> {
  using AdaptiveAveragePoolingLayer<1>::AdaptiveAveragePoolingLayer;
};
struct AdaptiveAveragePooling2DLayer : AdaptiveAveragePoolingLayer<2> {
  using AdaptiveAveragePoolingLayer<2>::AdaptiveAveragePoolingLayer;
};
struct AdaptiveAveragePooling3DLayer : AdaptiveAveragePoolingLayer<3> {
  using AdaptiveAveragePoolingLayer<3>::AdaptiveAveragePoolingLayer;
};
struct AdaptiveMaxPooling1DLayer : AdaptiveMaxPoolingLayer<1> {
  using AdaptiveMaxPoolingLayer<1>::AdaptiveMaxPoolingLayer;
};
struct AdaptiveMaxPooling2DLayer : AdaptiveMaxPoolingLayer<2> {
  using AdaptiveMaxPoolingLayer<2>::AdaptiveMaxPoolingLayer;
};
struct AdaptiveMaxPooling3DLayer : AdaptiveMaxPoolingLayer<3> {
  using AdaptiveMaxPoolingLayer<3>::AdaptiveMaxPoolingLayer;
};

/// AdaptiveAveragePooling2D(output_size, options): windows such that this many come out.
/// Shapes: [b, h, w, c] to [b, output_size..., c].
using AdaptiveAveragePooling1D =
    internal::SizesHandle<AdaptiveAveragePooling1DLayer, &AdaptivePoolingConfig<1>::output_size, 1>;
using AdaptiveAveragePooling2D =
    internal::SizesHandle<AdaptiveAveragePooling2DLayer, &AdaptivePoolingConfig<2>::output_size, 1>;
using AdaptiveAveragePooling3D =
    internal::SizesHandle<AdaptiveAveragePooling3DLayer, &AdaptivePoolingConfig<3>::output_size, 1>;
using AdaptiveMaxPooling1D =
    internal::SizesHandle<AdaptiveMaxPooling1DLayer, &AdaptivePoolingConfig<1>::output_size, 1>;
using AdaptiveMaxPooling2D =
    internal::SizesHandle<AdaptiveMaxPooling2DLayer, &AdaptivePoolingConfig<2>::output_size, 1>;
using AdaptiveMaxPooling3D =
    internal::SizesHandle<AdaptiveMaxPooling3DLayer, &AdaptivePoolingConfig<3>::output_size, 1>;

}  // namespace cohort::keras
