// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/layers/internal/torch_normalization.h"

#include <ATen/ops/_batch_norm_impl_index.h>
#include <ATen/ops/_batch_norm_impl_index_backward.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/zeros_like.h>

#include "cohort/autograd/layer_node.h"
#include "cohort/keras/layers/internal/own_normalization.h"

namespace cohort::keras::internal {
namespace {

using cohort::internal::autograd::BelowAutograd;
using cohort::internal::autograd::LayerNode;
using cohort::internal::autograd::SavedVariable;
using cohort::internal::autograd::variable_list;

// The same memory as LibTorch has images of channels last, which its fast kernels are for. On a CPU
// all rows are one image; on devices a matrix stays one.
Tensor as_image(const Tensor& x) {
  const int64_t channels = x.size(-1);
  if (x.is_cpu()) {
    return x.reshape({1, x.numel() / channels, 1, channels}).permute({0, 3, 1, 2});
  }
  if (x.dim() == 2) return x;
  return (x.dim() == 3 ? x.unsqueeze(2) : x).movedim(-1, 1);
}

Tensor like(const Tensor& image, const Tensor& x) {
  if (x.is_cpu()) return image.permute({0, 2, 3, 1}).reshape(x.sizes()).contiguous();
  if (x.dim() == 2) return image.contiguous();
  return image.movedim(1, -1).reshape(x.sizes()).contiguous();
}

// What the forward pass leaves to the backward pass.
struct Trace {
  Tensor mean, inverse_deviation, reserve;
  int64_t implementation = 0;
};

class TorchNormalizationNode final : public LayerNode {
 public:
  TorchNormalizationNode(const Tensor& x, const Variable& gamma, const Variable& beta, Trace trace,
                         double epsilon)
      : x_(x, false),
        trace_(std::move(trace)),
        has_gamma_(bool(gamma)),
        has_beta_(bool(beta)),
        epsilon_(epsilon) {
    if (gamma) gamma_ = SavedVariable(gamma.value(), false);
    add_input(x);
    add_weight(gamma);
    add_weight(beta);
  }
  void release_variables() override {
    x_.reset_data();
    gamma_.reset_data();
    trace_ = {};
  }

 protected:
  variable_list backward(variable_list&& gradients) override {
    variable_list out(3);
    if (!gradients[0].defined()) return out;
    const Tensor x = x_.unpack().contiguous();
    const Tensor gamma = has_gamma_ ? gamma_.unpack() : Tensor();
    const bool wants_gamma = has_gamma_ && wants_weight(0);
    const bool wants_beta = has_beta_ && wants_weight(1);
    auto [dx, dgamma, dbeta] = at::_batch_norm_impl_index_backward(
        trace_.implementation, as_image(x), as_image(gradients[0].contiguous()), gamma, {}, {},
        trace_.mean, trace_.inverse_deviation, true, epsilon_,
        {wants_input(0), wants_gamma, wants_beta}, trace_.reserve);
    if (wants_input(0)) out[0] = like(dx, x);
    const auto put = [this](int i, const Tensor& gradient) {
      return weight_gradient(i, [&](Tensor& slot, bool accumulate) {
        accumulate ? slot.add_(gradient) : slot.copy_(gradient);
      });
    };
    if (wants_gamma) out[1] = put(0, dgamma);
    if (wants_beta) out[2] = put(1, dbeta);
    return out;
  }

  variable_list differentiable_backward(variable_list&& gradients) override {
    if (!gradients[0].defined()) return variable_list(3);
    const NormalizationWants wants{.x = wants_input(0),
                                   .gamma = has_gamma_ && wants_weight(0),
                                   .beta = has_beta_ && wants_weight(1)};
    const auto [x, gamma, beta] = recorded_normalization_gradients(
        x_.unpack(), gradients[0], has_gamma_ ? gamma_.unpack() : Tensor(), {}, epsilon_,
        /*rectified=*/false, wants);
    return {x, gamma, beta};
  }

 private:
  SavedVariable x_, gamma_;
  Trace trace_;
  const bool has_gamma_, has_beta_;
  const double epsilon_;
};

Tensor value_of(const Variable& v) { return v ? v.value() : Tensor(); }

// `mean` and `share`: moved with `rest` of the batch's; undefined: nothing is.
Tensor forward(const Tensor& x, const Variable& gamma, const Variable& beta, const Tensor& mean,
               const Tensor& share, double rest, double epsilon, Trace& trace) {
  Tensor image;
  std::tie(image, trace.mean, trace.inverse_deviation, trace.reserve, trace.implementation) =
      at::_batch_norm_impl_index(as_image(x.contiguous()), value_of(gamma), value_of(beta), mean,
                                 share, /*training=*/true, rest, epsilon, /*cudnn_enabled=*/true);
  return like(image, x);
}

void record(Tensor& y, const Tensor& x, const Variable& gamma, const Variable& beta, Trace trace,
            double epsilon) {
  if (!cohort::internal::autograd::needs_node({&x}, {&gamma, &beta})) return;
  cohort::internal::autograd::attach(
      y, cohort::internal::runtime::make_node<TorchNormalizationNode>(x, gamma, beta,
                                                                      std::move(trace), epsilon));
}

}  // namespace

TorchNormalized torch_normalization(const Tensor& x, const Variable& gamma, const Variable& beta,
                                    double epsilon) {
  Trace trace;
  TorchNormalized out;
  {
    const BelowAutograd below;
    out.y = forward(x, gamma, beta, {}, {}, 0, epsilon, trace);
  }
  out.mean = trace.mean;
  out.inverse_deviation = trace.inverse_deviation;
  record(out.y, x, gamma, beta, std::move(trace), epsilon);
  return out;
}

Tensor device_normalization(const Tensor& x, const Variable& gamma, const Variable& beta,
                            double epsilon, const MovingStatistics& moving) {
  Tensor y;
  Trace trace;
  {
    const BelowAutograd below;
    const auto rows = static_cast<double>(x.numel() / x.size(-1));
    // The kernels move statistics themselves, the variance as that of a sample, which is larger by
    // rows / (rows - 1) than the batch's. So they get nothing to move it from.
    const Tensor share = at::zeros_like(moving.variance);
    y = forward(x, gamma, beta, moving.mean, share, 1 - moving.momentum, epsilon, trace);
    moving.variance.mul_(moving.momentum);
    if (rows > 1) moving.variance.add_(share, (rows - 1) / rows);
  }
  record(y, x, gamma, beta, std::move(trace), epsilon);
  return y;
}

Tensor device_inference(const Tensor& x, const Tensor& gamma, const Tensor& beta,
                        const Tensor& mean, const Tensor& variance, double epsilon) {
  return like(at::batch_norm(as_image(x.contiguous()), gamma, beta, mean, variance,
                             /*training=*/false, 0.0, epsilon, /*cudnn_enabled=*/true),
              x);
}

}  // namespace cohort::keras::internal
