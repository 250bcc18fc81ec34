// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/layers/reshaping.h"

#include <ATen/ops/_upsample_bicubic2d_aa.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/upsample_bilinear2d.h>

#include <algorithm>

#include "cohort/base/check.h"
#include "cohort/keras/layers/internal/windows.h"

namespace cohort::keras {
namespace {

Margin margin_of(const Config& config) {
  if (config.is_number()) return config.integer();
  COHORT_CHECK_ARG(config.list().size() == 2, "[config] expected two numbers, got ", config);
  return {config.list()[0].integer(), config.list()[1].integer()};
}

void check_margins(const char* who, const std::vector<Margin>& margins) {
  for (const Margin& m : margins) {
    COHORT_CHECK_ARG(m.before >= 0 && m.after >= 0, "[", who, "] expected numbers >= 0, got (",
                     m.before, ", ", m.after, ")");
  }
}

template <class C>
bool has_channels_first(const char* who, const C& o) {
  if constexpr (requires { o.data_format; }) {
    return internal::is_channels_first(who, o.data_format);
  } else {
    return false;
  }
}

// Half pixels are centers, as in TensorFlow; what of a bicubic window is outside has no weight.
Tensor interpolated(const Tensor& x, const Size2D& size, bool bicubic) {
  const std::array<int64_t, 2> sizes = {x.size(2) * size[0], x.size(3) * size[1]};
  if (!bicubic) return at::upsample_bilinear2d(x, sizes, false);
  const bool half = at::isReducedFloatingType(x.scalar_type());  // which LibTorch has not
  return at::_upsample_bicubic2d_aa(half ? x.to(kFloat32) : x, sizes, false).to(x.scalar_type());
}

}  // namespace

PermuteLayer::PermuteLayer(PermuteConfig config) : LayerImpl(std::move(config)) {
  std::vector<int64_t> sorted = this->config().dims;
  std::ranges::sort(sorted);
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    COHORT_CHECK_ARG(sorted[i] == static_cast<int64_t>(i) + 1,
                     "[permute] expected 1, 2, ... in some order, got ",
                     bracketed(this->config().dims));
  }
}

Shape PermuteLayer::compute_output_shape(const Shape& in) const {
  const std::vector<int64_t>& dims = config().dims;
  COHORT_CHECK_ARG(in.size() == dims.size() + 1, "[", name(), "] expected inputs with ",
                   dims.size() + 1, " axes, got shape ", bracketed(in));
  Shape out = {in[0]};
  for (const int64_t axis : dims) out.push_back(in[static_cast<std::size_t>(axis)]);
  return out;
}

Tensor PermuteLayer::call(const Tensor& x, const CallArgs&) {
  compute_output_shape(shape_of(x));
  std::vector<int64_t> axes = {0};
  axes.insert(axes.end(), config().dims.begin(), config().dims.end());
  return x.permute(axes).contiguous();
}

Permute::Permute(std::vector<int64_t> dims, PermuteOptions options)
    : Layer(std::make_shared<PermuteLayer>(PermuteConfig{std::move(options), std::move(dims)})) {}

RepeatVectorLayer::RepeatVectorLayer(RepeatVectorConfig config) : LayerImpl(std::move(config)) {
  COHORT_CHECK_ARG(this->config().n > 0, "[repeat_vector] expected n > 0, got ", this->config().n);
}

Shape RepeatVectorLayer::compute_output_shape(const Shape& in) const {
  COHORT_CHECK_ARG(in.size() == 2, "[", name(), "] expected inputs with 2 axes, got shape ",
                   bracketed(in));
  return {in[0], config().n, in[1]};
}

Tensor RepeatVectorLayer::call(const Tensor& x, const CallArgs&) {
  return x.unsqueeze(1).expand(compute_output_shape(shape_of(x)));
}

RepeatVector::RepeatVector(int64_t n, RepeatVectorOptions options)
    : Layer(std::make_shared<RepeatVectorLayer>(RepeatVectorConfig{std::move(options), n})) {}

template <int N>
Margins<N>::Margins(std::initializer_list<Margin> axes) : each(axes) {
  const auto is_number = [](const Margin& m) { return m.before == m.after; };
  if (N == 1 && each.size() == 2 && is_number(each[0]) && is_number(each[1])) {
    each = {{each[0].before, each[1].before}};
  }
  COHORT_CHECK_ARG(each.size() == N, "[margins] expected numbers of ", N, " axes, got ",
                   each.size());
}

template <int N>
Config Margins<N>::serialize() const {
  Config::List list;
  for (const Margin& m : each) list.push_back(Config::List{m.before, m.after});
  return N == 1 ? list[0] : Config(list);
}

template <int N>
Margins<N> Margins<N>::deserialize(const Config& config) {
  if (config.is_number()) return config.integer();
  Margins margins = 0;
  if (N == 1) {
    margins.each = {margin_of(config)};
    return margins;
  }
  margins.each.clear();
  for (const Config& axis : config.list()) margins.each.push_back(margin_of(axis));
  COHORT_CHECK_ARG(margins.each.size() == N, "[config] expected numbers of ", N, " axes, got ",
                   config);
  return margins;
}

template <int N>
ZeroPaddingLayer<N>::ZeroPaddingLayer(ZeroPaddingConfig<N> config)
    : LayerImpl<ZeroPaddingConfig<N>>(std::move(config)),
      channels_first_(has_channels_first("zero_padding", this->config())) {
  check_margins("zero_padding", this->config().padding.each);
}

template <int N>
Shape ZeroPaddingLayer<N>::compute_output_shape(const Shape& in) const {
  const internal::DataLayout layout(this->name(), in, N, channels_first_);
  Shape out = in;
  for (std::size_t i = 0; i < N; ++i) {
    int64_t& size = out[layout.first + i];
    const Margin& margin = this->config().padding.each[i];
    if (size != kUnknownDim) size += margin.before + margin.after;
  }
  return out;
}

template <int N>
Tensor ZeroPaddingLayer<N>::call(const Tensor& x, const CallArgs&) {
  compute_output_shape(shape_of(x));
  std::vector<int64_t> around;  // the last axis comes first
  if (!channels_first_) around = {0, 0};
  for (std::size_t i = N; i-- > 0;) {
    const Margin& margin = this->config().padding.each[i];
    around.insert(around.end(), {margin.before, margin.after});
  }
  return at::constant_pad_nd(x, around, 0);
}

template <int N>
CroppingLayer<N>::CroppingLayer(CroppingConfig<N> config)
    : LayerImpl<CroppingConfig<N>>(std::move(config)),
      channels_first_(has_channels_first("cropping", this->config())) {
  check_margins("cropping", this->config().cropping.each);
}

template <int N>
Shape CroppingLayer<N>::compute_output_shape(const Shape& in) const {
  const internal::DataLayout layout(this->name(), in, N, channels_first_);
  Shape out = in;
  for (std::size_t i = 0; i < N; ++i) {
    int64_t& size = out[layout.first + i];
    const Margin& margin = this->config().cropping.each[i];
    if (size == kUnknownDim) continue;
    size -= margin.before + margin.after;
    COHORT_CHECK_ARG(size > 0, "[", this->name(), "] expected more than ",
                     margin.before + margin.after, " along axis ", layout.first + i, ", got shape ",
                     bracketed(in));
  }
  return out;
}

template <int N>
Tensor CroppingLayer<N>::call(const Tensor& x, const CallArgs&) {
  const Shape shape = compute_output_shape(shape_of(x));
  const std::size_t first = channels_first_ ? 2 : 1;
  Tensor out = x;
  for (std::size_t i = 0; i < N; ++i) {
    out = out.narrow(static_cast<int64_t>(first + i), this->config().cropping.each[i].before,
                     shape[first + i]);
  }
  return out;
}

template <int N>
UpSamplingLayer<N>::UpSamplingLayer(UpSamplingConfig<N> config)
    : LayerImpl<UpSamplingConfig<N>>(std::move(config)),
      channels_first_(has_channels_first("up_sampling", this->config())) {
  const auto& o = this->config();
  COHORT_CHECK_ARG(std::ranges::min(o.size.each) > 0, "[up_sampling] expected sizes > 0, got ",
                   o.size);
  if constexpr (N == 2) {
    const std::string& way = o.interpolation;
    if (way == "lanczos3" || way == "lanczos5" || way == "area" || way == "gaussian" ||
        way == "mitchellcubic") {
      throw Unimplemented(str_cat("[up_sampling2d] expected nearest, bilinear or bicubic, got ",
                                  way, ", which LibTorch does not have"));
    }
    COHORT_CHECK_ARG(way == "nearest" || way == "bilinear" || way == "bicubic",
                     "[up_sampling2d] expected interpolation nearest, bilinear or bicubic, got ",
                     way);
  }
}

template <int N>
Shape UpSamplingLayer<N>::compute_output_shape(const Shape& in) const {
  const internal::DataLayout layout(this->name(), in, N, channels_first_);
  Shape out = in;
  for (std::size_t i = 0; i < N; ++i) {
    int64_t& size = out[layout.first + i];
    if (size != kUnknownDim) size *= this->config().size[i];
  }
  return out;
}

template <int N>
Tensor UpSamplingLayer<N>::call(const Tensor& x, const CallArgs&) {
  compute_output_shape(shape_of(x));
  const auto& o = this->config();
  if constexpr (N == 2) {
    if (o.interpolation != "nearest") {
      const bool bicubic = o.interpolation == "bicubic";
      if (channels_first_) return interpolated(x, o.size, bicubic);
      return internal::to_channels_last(
          interpolated(internal::to_channels_first(x), o.size, bicubic));
    }
  }
  Tensor out = x;
  for (std::size_t i = 0; i < N; ++i) {
    const auto axis = static_cast<int64_t>(i) + (channels_first_ ? 2 : 1);
    if (o.size[i] > 1) out = out.repeat_interleave(o.size[i], axis);
  }
  return out;
}

template struct Margins<1>;
template struct Margins<2>;
template struct Margins<3>;
template class ZeroPaddingLayer<1>;
template class ZeroPaddingLayer<2>;
template class ZeroPaddingLayer<3>;
template class CroppingLayer<1>;
template class CroppingLayer<2>;
template class CroppingLayer<3>;
template class UpSamplingLayer<1>;
template class UpSamplingLayer<2>;
template class UpSamplingLayer<3>;

}  // namespace cohort::keras
