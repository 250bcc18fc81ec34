// SPDX-License-Identifier: Apache-2.0
//
// Layers that move, repeat, cut or pad, with the names, options and defaults of Keras 3.
//
// keras::ZeroPadding2D({{1, 2}, {0, 0}});      // a row above, two below
// keras::UpSampling2D(2, {.interpolation = "bilinear"});
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cohort/keras/layer.h"
#include "cohort/keras/layers/sizes.h"

namespace cohort::keras {

struct PermuteOptions {
  DTypePolicy dtype = {};
  std::string name = {};
  bool trainable = true;
};

struct PermuteConfig : PermuteOptions {
  std::vector<int64_t> dims = {};
  static void fields(auto& c, auto&& f) { f.required("dims", c.dims); }
};

class PermuteLayer : public LayerImpl<PermuteConfig> {
 public:
  explicit PermuteLayer(PermuteConfig config);
  bool may_have_weights() const override { return false; }
  Shape compute_output_shape(const Shape& in) const override;
  Tensor call(const Tensor& x, const CallArgs&) override;
};

/// Permute({2, 1}): axis 2 becomes the first after the batch.
/// Errors: InvalidArgument unless the numbers are 1, 2, ... in some order.
class Permute : public Layer {
 public:
  explicit Permute(std::vector<int64_t> dims, PermuteOptions options = {});
};

struct RepeatVectorOptions {
  DTypePolicy dtype = {};
  std::string name = {};
  bool trainable = true;
};

struct RepeatVectorConfig : RepeatVectorOptions {
  int64_t n = 1;
  static void fields(auto& c, auto&& f) { f.required("n", c.n); }
};

class RepeatVectorLayer : public LayerImpl<RepeatVectorConfig> {
 public:
  explicit RepeatVectorLayer(RepeatVectorConfig config);
  bool may_have_weights() const override { return false; }
  Shape compute_output_shape(const Shape& in) const override;
  Tensor call(const Tensor& x, const CallArgs&) override;
};

/// Shapes: [b, f] to [b, n, f].
class RepeatVector : public Layer {
 public:
  explicit RepeatVector(int64_t n, RepeatVectorOptions options = {});
};

/// At the beginning of an axis and at its end.
struct Margin {
  int64_t before = 0;
  int64_t after = 0;
  Margin(int64_t both) : before(both), after(both) {}  // NOLINT: implicit by design
  Margin(int64_t in_front, int64_t behind) : before(in_front), after(behind) {}
  bool operator==(const Margin&) const = default;
};

/// Of N axes: 1, {1, 2} (of each axis; of one axis at both ends), or {{1, 2}, {0, 0}}.
template <int N>
struct Margins {
  std::vector<Margin> each;

  Margins(int64_t all) : each(N, all) {}  // NOLINT: implicit by design
  /// Errors: InvalidArgument for another number of axes.
  Margins(std::initializer_list<Margin> axes);  // NOLINT
  bool operator==(const Margins&) const = default;
  /// [[1, 2], [0, 0]]; of one axis [1, 2].
  Config serialize() const;
  static Margins deserialize(const Config& config);
};

template <int N>
struct ZeroPaddingOptions {
  std::string data_format = "channels_last";
  DTypePolicy dtype = {};
  std::string name = {};
  bool trainable = true;
};

template <int N>
struct ZeroPaddingConfig : ZeroPaddingOptions<N> {
  using Given = ZeroPaddingOptions<N>;
  Margins<N> padding = 1;
  static void fields(auto& c, auto&& f) {
    f("padding", c.padding);
    f("data_format", c.data_format);
  }
};

template <int N>
class ZeroPaddingLayer : public LayerImpl<ZeroPaddingConfig<N>> {
 public:
  explicit ZeroPaddingLayer(ZeroPaddingConfig<N> config);
  bool may_have_weights() const override { return false; }
  Shape compute_output_shape(const Shape& in) const override;
  Tensor call(const Tensor& x, const CallArgs&) override;

 private:
  bool channels_first_ = false;
};

template <int N>
struct CroppingOptions {
  std::string data_format = "channels_last";
  DTypePolicy dtype = {};
  std::string name = {};
  bool trainable = true;
};
/// Of series, whose channels are last.
template <>
struct CroppingOptions<1> {
  DTypePolicy dtype = {};
  std::string name = {};
  bool trainable = true;
};

template <int N>
struct CroppingConfig : CroppingOptions<N> {
  using Given = CroppingOptions<N>;
  Margins<N> cropping = N == 2 ? 0 : 1;
  static void fields(auto& c, auto&& f) {
    f("cropping", c.cropping);
    if constexpr (N > 1) f("data_format", c.data_format);
  }
};

template <int N>
class CroppingLayer : public LayerImpl<CroppingConfig<N>> {
 public:
  explicit CroppingLayer(CroppingConfig<N> config);
  bool may_have_weights() const override { return false; }
  Shape compute_output_shape(const Shape& in) const override;
  Tensor call(const Tensor& x, const CallArgs&) override;

 private:
  bool channels_first_ = false;
};

template <int N>
struct UpSamplingOptions {
  std::string data_format = "channels_last";
  DTypePolicy dtype = {};
  std::string name = {};
  bool trainable = true;
};
template <>
struct UpSamplingOptions<1> {
  DTypePolicy dtype = {};
  std::string name = {};
  bool trainable = true;
};
template <>
struct UpSamplingOptions<2> {
  std::string data_format = "channels_last";
  std::string interpolation = "nearest";  ///< Or "bilinear", "bicubic".
  DTypePolicy dtype = {};
  std::string name = {};
  bool trainable = true;
};

template <int N>
struct UpSamplingConfig : UpSamplingOptions<N> {
  using Given = UpSamplingOptions<N>;
  Sizes<N> size = 2;
  static void fields(auto& c, auto&& f) {
    if constexpr (N == 1) {
      f("size", c.size.each[0]);
    } else {
      f("size", c.size);
      f("data_format", c.data_format);
    }
    if constexpr (N == 2) f("interpolation", c.interpolation);
  }
};

template <int N>
class UpSamplingLayer : public LayerImpl<UpSamplingConfig<N>> {
 public:
  explicit UpSamplingLayer(UpSamplingConfig<N> config);
  bool may_have_weights() const override { return false; }
  Shape compute_output_shape(const Shape& in) const override;
  Tensor call(const Tensor& x, const CallArgs&) override;

 private:
  bool channels_first_ = false;
};

// The classes by Keras's names.
struct ZeroPadding1DLayer : ZeroPaddingLayer<1> {
  using ZeroPaddingLayer<1>::ZeroPaddingLayer;
};
struct ZeroPadding2DLayer : ZeroPaddingLayer<2> {
  using ZeroPaddingLayer<2>::ZeroPaddingLayer;
};
struct ZeroPadding3DLayer : ZeroPaddingLayer<3> {
  using ZeroPaddingLayer<3>::ZeroPaddingLayer;
};
struct Cropping1DLayer : CroppingLayer<1> {
  using CroppingLayer<1>::CroppingLayer;
};
struct Cropping2DLayer : CroppingLayer<2> {
  using CroppingLayer<2>::CroppingLayer;
};
struct Cropping3DLayer : CroppingLayer<3> {
  using CroppingLayer<3>::CroppingLayer;
};
struct UpSampling1DLayer : UpSamplingLayer<1> {
  using UpSamplingLayer<1>::UpSamplingLayer;
};
struct UpSampling2DLayer : UpSamplingLayer<2> {
  using UpSamplingLayer<2>::UpSamplingLayer;
};
struct UpSampling3DLayer : UpSamplingLayer<3> {
  using UpSamplingLayer<3>::UpSamplingLayer;
};

namespace internal {
/// A handle whose first argument is a member of the config of its own, with a default.
template <class L, auto Member>
class MemberHandle : public Layer {
 public:
  using Config = typename L::Options;
  using Options = typename Config::Given;
  using First = std::remove_reference_t<decltype(std::declval<Config>().*Member)>;
  explicit MemberHandle(First first = Config().*Member, Options options = {})
      : Layer(std::make_shared<L>(made(std::move(first), std::move(options)))) {}

 private:
  static Config made(First first, Options options) {
    Config config;
    static_cast<Options&>(config) = std::move(options);
    config.*Member = std::move(first);
    return config;
  }
};
}  // namespace internal

/// ZeroPadding2D(padding, options). Shapes: [b, h, w, c] to [b, before + h + after, ..., c].
using ZeroPadding1D = internal::MemberHandle<ZeroPadding1DLayer, &ZeroPaddingConfig<1>::padding>;
using ZeroPadding2D = internal::MemberHandle<ZeroPadding2DLayer, &ZeroPaddingConfig<2>::padding>;
using ZeroPadding3D = internal::MemberHandle<ZeroPadding3DLayer, &ZeroPaddingConfig<3>::padding>;
/// Cropping2D(cropping, options). Errors: InvalidArgument for inputs of which nothing would be
/// left.
using Cropping1D = internal::MemberHandle<Cropping1DLayer, &CroppingConfig<1>::cropping>;
using Cropping2D = internal::MemberHandle<Cropping2DLayer, &CroppingConfig<2>::cropping>;
using Cropping3D = internal::MemberHandle<Cropping3DLayer, &CroppingConfig<3>::cropping>;
/// UpSampling2D(size, options): each pixel, size times along each axis, or what lies between.
using UpSampling1D = internal::MemberHandle<UpSampling1DLayer, &UpSamplingConfig<1>::size>;
using UpSampling2D = internal::MemberHandle<UpSampling2DLayer, &UpSamplingConfig<2>::size>;
using UpSampling3D = internal::MemberHandle<UpSampling3DLayer, &UpSamplingConfig<3>::size>;

}  // namespace cohort::keras
