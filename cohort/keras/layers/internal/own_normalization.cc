// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/layers/internal/own_normalization.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "cohort/autograd/layer_node.h"
#include "cohort/keras/layers/internal/kernels.h"
#include "cohort/runtime/intra_op.h"

namespace cohort::keras::internal {
namespace {

using cohort::internal::autograd::BelowAutograd;
using cohort::internal::autograd::LayerNode;
using cohort::internal::autograd::SavedVariable;
using cohort::internal::autograd::variable_list;

// [rows, columns], cut into chunks that a first-level cache holds.
class Chunks {
 public:
  explicit Chunks(const Tensor& x)
      : columns(x.size(-1)),
        rows(x.numel() / columns),
        each_(std::max<int64_t>(16, kFloats / columns)),
        count_((rows + each_ - 1) / each_) {}

  int64_t count() const { return count_; }
  int64_t rows_of(int64_t i) const { return std::min(each_, rows - i * each_); }
  int64_t offset(int64_t i) const { return i * each_ * columns; }

  // Calls chunk(i) for all, some of them at once.
  template <class F>
  void each(const F& chunk) const {
    constexpr double kOperations = 8;  // about what reading and writing a number costs
    const double all = kOperations * static_cast<double>(rows) * static_cast<double>(columns);
    const int threads = cohort::internal::runtime::threads_worth(
        all, cohort::internal::runtime::intra_op_threads());
    const int64_t parts = std::min<int64_t>(threads, count_);
    cohort::internal::runtime::run_pieces(static_cast<int>(parts), [&](int part) {
      for (int64_t i = count_ * part / parts; i < count_ * (part + 1) / parts; ++i) chunk(i);
    });
  }

  const int64_t columns, rows;

 private:
  static constexpr int64_t kFloats = 8192;
  const int64_t each_, count_;
};

// What the columns are normalised by.
struct ColumnScales {
  Tensor mean, inverse, scale, shift;
  std::vector<double> variance;
};

// Sums of two kinds, of every chunk.
struct ChunkSums {
  explicit ChunkSums(const Chunks& c) : columns(c.columns), all(2 * c.count() * c.columns) {}
  float* first(int64_t i) { return all.data() + 2 * i * columns; }
  float* second(int64_t i) { return first(i) + columns; }
  const int64_t columns;
  std::vector<float> all;
};

struct ColumnMoments {
  std::vector<double> mean, squares;
};

// By the formula of Chan and others: nothing is lost beside a large mean.
ColumnMoments moments_of(const Chunks& c, const float* x) {
  ChunkSums sums(c);
  c.each([&](int64_t i) {
    kernels().moments(x + c.offset(i), c.rows_of(i), c.columns, sums.first(i), sums.second(i));
  });
  ColumnMoments out{std::vector<double>(c.columns), std::vector<double>(c.columns)};
  double before = 0;
  for (int64_t i = 0; i < c.count(); ++i) {
    const auto rows = static_cast<double>(c.rows_of(i));
    const double share = rows / (before + rows);
    for (int64_t k = 0; k < c.columns; ++k) {
      const double delta = double{sums.first(i)[k]} - out.mean[k];
      out.mean[k] += delta * share;
      out.squares[k] += double{sums.second(i)[k]} + delta * delta * before * share;
    }
    before += rows;
  }
  return out;
}

ColumnScales scales_of(const Chunks& c, const Tensor& x, const Tensor& gamma, const Tensor& beta,
                       double epsilon) {
  ColumnMoments moments = moments_of(c, x.const_data_ptr<float>());
  const auto column = [&] { return at::empty({c.columns}, x.options()); };
  ColumnScales out{column(), column(), column(), column(), {}};
  const float* by = gamma.defined() ? gamma.const_data_ptr<float>() : nullptr;
  const float* to = beta.defined() ? beta.const_data_ptr<float>() : nullptr;
  for (int64_t k = 0; k < c.columns; ++k) {
    double& variance = moments.squares[k];
    variance /= static_cast<double>(c.rows);
    const double inverse = 1 / std::sqrt(variance + epsilon);
    const double scale = by != nullptr ? inverse * double{by[k]} : inverse;
    out.mean.mutable_data_ptr<float>()[k] = static_cast<float>(moments.mean[k]);
    out.inverse.mutable_data_ptr<float>()[k] = static_cast<float>(inverse);
    out.scale.mutable_data_ptr<float>()[k] = static_cast<float>(scale);
    out.shift.mutable_data_ptr<float>()[k] =
        static_cast<float>((to != nullptr ? double{to[k]} : 0) - moments.mean[k] * scale);
  }
  out.variance = std::move(moments.squares);
  return out;
}

NormalizedRows rows_of(const Chunks& c, int64_t i, const Tensor& x, const ColumnScales& s,
                       bool rectified) {
  return {.x = x.const_data_ptr<float>() + c.offset(i),
          .rows = c.rows_of(i),
          .columns = c.columns,
          .mean = s.mean.defined() ? s.mean.const_data_ptr<float>() : nullptr,
          .scale = s.scale.const_data_ptr<float>(),
          .shift = s.shift.const_data_ptr<float>(),
          .relu = rectified};
}

Tensor normalized(const Chunks& c, const Tensor& x, const ColumnScales& s, bool rectified) {
  Tensor y = at::empty(x.sizes(), x.options());
  float* to = y.mutable_data_ptr<float>();
  c.each([&](int64_t i) { kernels().normalize(rows_of(c, i, x, s, rectified), to + c.offset(i)); });
  return y;
}

class OwnNormalizationNode final : public LayerNode {
 public:
  OwnNormalizationNode(const Tensor& x, const Variable& gamma, const Variable& beta,
                       ColumnScales scales, double epsilon, bool rectified)
      : x_(x, false),
        scales_(std::move(scales)),
        has_gamma_(bool(gamma)),
        has_beta_(bool(beta)),
        rectified_(rectified),
        epsilon_(epsilon) {
    if (gamma) gamma_ = SavedVariable(gamma.value(), false);
    if (beta && rectified) beta_ = SavedVariable(beta.value(), false);
    add_input(x);
    add_weight(gamma);
    add_weight(beta);
  }
  void release_variables() override {
    x_.reset_data();
    gamma_.reset_data();
    beta_.reset_data();
    scales_ = {};
  }

 protected:
  variable_list backward(variable_list&& gradients) override;
  variable_list differentiable_backward(variable_list&& gradients) override;

 private:
  Tensor column(int i, const std::vector<double>& values, const Tensor& by);
  void input_gradient(const Chunks& c, const Tensor& x, const Tensor& g, const ColumnMoments& sums,
                      const Tensor& dx) const;

  SavedVariable x_, gamma_, beta_;
  ColumnScales scales_;
  const bool has_gamma_, has_beta_, rectified_;
  const double epsilon_;
};

// The sums of the gradient, and of the gradient times (x - mean).
ColumnMoments gradient_sums(const Chunks& c, const Tensor& x, const Tensor& g,
                            const ColumnScales& s, bool rectified) {
  ChunkSums sums(c);
  const float* from = g.const_data_ptr<float>();
  c.each([&](int64_t i) {
    kernels().normalized_sums(rows_of(c, i, x, s, rectified), from + c.offset(i), sums.first(i),
                              sums.second(i));
  });
  ColumnMoments out{std::vector<double>(c.columns), std::vector<double>(c.columns)};
  for (int64_t i = 0; i < c.count(); ++i) {
    for (int64_t k = 0; k < c.columns; ++k) {
      out.mean[k] += double{sums.first(i)[k]};
      out.squares[k] += double{sums.second(i)[k]};
    }
  }
  return out;
}

Tensor OwnNormalizationNode::column(int i, const std::vector<double>& values, const Tensor& by) {
  return weight_gradient(i, [&](Tensor& slot, bool accumulate) {
    float* to = slot.mutable_data_ptr<float>();
    const float* scale = by.defined() ? by.const_data_ptr<float>() : nullptr;
    for (std::size_t k = 0; k < values.size(); ++k) {
      const auto v =
          static_cast<float>(scale != nullptr ? values[k] * double{scale[k]} : values[k]);
      to[k] = accumulate ? to[k] + v : v;
    }
  });
}

void OwnNormalizationNode::input_gradient(const Chunks& c, const Tensor& x, const Tensor& g,
                                          const ColumnMoments& sums, const Tensor& dx) const {
  std::vector<float> slope(c.columns), offset(c.columns);
  const float* scale = scales_.scale.const_data_ptr<float>();
  const float* inverse = scales_.inverse.const_data_ptr<float>();
  for (int64_t k = 0; k < c.columns; ++k) {
    const double by = -double{scale[k]} / static_cast<double>(c.rows);
    offset[k] = static_cast<float>(by * sums.mean[k]);
    slope[k] = static_cast<float>(by * sums.squares[k] * double{inverse[k]} * double{inverse[k]});
  }
  const NormalizedGradient rest{slope.data(), offset.data()};
  const float* from = g.const_data_ptr<float>();
  float* to = dx.mutable_data_ptr<float>();
  c.each([&](int64_t i) {
    kernels().normalized_gradient(rows_of(c, i, x, scales_, rectified_), from + c.offset(i), rest,
                                  to + c.offset(i));
  });
}

variable_list OwnNormalizationNode::backward(variable_list&& gradients) {
  variable_list out(3);
  if (!gradients[0].defined()) return out;
  const Tensor x = x_.unpack().contiguous();
  if (has_gamma_) gamma_.unpack();  // throws if it has changed, for the scales came of it
  const bool mine = cohort::internal::autograd::owns(gradients[0]);
  const Tensor g = gradients[0].contiguous();
  const Chunks c(x);
  const ColumnMoments sums = gradient_sums(c, x, g, scales_, rectified_);
  if (wants_input(0)) {
    out[0] = mine ? g : at::empty(x.sizes(), x.options());
    input_gradient(c, x, g, sums, out[0]);
  }
  if (has_gamma_ && wants_weight(0)) out[1] = column(0, sums.squares, scales_.inverse);
  if (has_beta_ && wants_weight(1)) out[2] = column(1, sums.mean, {});
  return out;
}

variable_list OwnNormalizationNode::differentiable_backward(variable_list&& gradients) {
  if (!gradients[0].defined()) return variable_list(3);
  const NormalizationWants wants{.x = wants_input(0),
                                 .gamma = has_gamma_ && wants_weight(0),
                                 .beta = has_beta_ && wants_weight(1)};
  const auto [x, gamma, beta] = recorded_normalization_gradients(
      x_.unpack(), gradients[0], has_gamma_ ? gamma_.unpack() : Tensor(),
      has_beta_ && rectified_ ? beta_.unpack() : Tensor(), epsilon_, rectified_, wants);
  return {x, gamma, beta};
}

Tensor contiguous_or_none(const Variable& v) { return v ? v.value().contiguous() : Tensor(); }

}  // namespace

bool has_own_normalization(const Tensor& x) {
  return x.scalar_type() == kFloat32 && x.device().is_cpu() && x.numel() > 0;
}

OwnNormalized own_normalization(const Tensor& x, const Variable& gamma, const Variable& beta,
                                double epsilon, bool rectified) {
  OwnNormalized out;
  ColumnScales scales;
  {
    const BelowAutograd below;
    const Tensor rows = x.contiguous();
    const Chunks c(rows);
    scales = scales_of(c, rows, contiguous_or_none(gamma), contiguous_or_none(beta), epsilon);
    out.y = normalized(c, rows, scales, rectified);
    out.mean = scales.mean;
    out.variance = from_vector(scales.variance, {c.columns});
  }
  if (cohort::internal::autograd::needs_node({&x}, {&gamma, &beta})) {
    cohort::internal::autograd::attach(out.y,
                                       cohort::internal::runtime::make_node<OwnNormalizationNode>(
                                           x, gamma, beta, std::move(scales), epsilon, rectified));
  }
  return out;
}

std::array<Tensor, 3> recorded_normalization_gradients(const Tensor& x, const Tensor& g,
                                                       const Tensor& gamma, const Tensor& beta,
                                                       double epsilon, bool rectified,
                                                       const NormalizationWants& wants) {
  const int64_t channels = x.size(-1);
  const Tensor rows = x.reshape({x.numel() / channels, channels});
  const Tensor centered = rows - rows.mean(0);
  const Tensor inverse = (centered.square().mean(0) + epsilon).rsqrt();
  const Tensor normal = centered * inverse;
  Tensor by = g.reshape(rows.sizes());
  if (rectified) {
    Tensor y = normal.detach();
    if (gamma.defined()) y = y * gamma.detach();
    if (beta.defined()) y = y + beta.detach();
    by = by.mul(y.gt(0));
  }
  std::array<Tensor, 3> out;
  if (wants.x) {
    const Tensor scale = gamma.defined() ? inverse * gamma : inverse;
    const Tensor rest = by - by.mean(0) - normal * (by * normal).mean(0);
    out[0] = (rest * scale).reshape(x.sizes());
  }
  if (wants.gamma) out[1] = (by * normal).sum(0);
  if (wants.beta) out[2] = by.sum(0);
  return out;
}

Tensor scaled_rows(const Tensor& x, const Tensor& scale, const Tensor& shift, bool rectified) {
  const BelowAutograd below;
  const Tensor rows = x.contiguous();
  const ColumnScales s{{}, {}, scale.contiguous(), shift.contiguous(), {}};
  return normalized(Chunks(rows), rows, s, rectified);
}

}  // namespace cohort::keras::internal
