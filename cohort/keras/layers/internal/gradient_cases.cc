// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/layers/internal/gradient_cases.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "cohort/autograd/gradient_tape.h"
#include "cohort/runtime/intra_op.h"
#include "cohort/runtime/random.h"

namespace cohort::keras::testing {
namespace {

using Loss =
    std::function<Tensor(const std::function<Tensor(const Tensor&)>& layer, const Tensor& x)>;

// Restores the default dtype.
struct Floatx {
  explicit Floatx(DType dtype) : before(floatx()) { set_floatx(dtype); }
  ~Floatx() { set_floatx(before); }
  const DType before;
};

// One layer with weights that are not zero, an input, and coefficients for scalar losses.
struct Setup {
  const GradientCase& c;
  const double tolerance;
  Layer layer;
  Tensor x;
  std::vector<Variable> sources;

  Setup(const GradientCase& gradient_case, DType dtype)
      : c(gradient_case), tolerance(dtype == kFloat64 ? 1e-9 : 2e-4), layer(c.make()) {
    set_seed(7);
    x = random_normal(c.input, dtype);
    call(x);
    for (const Variable& v : layer.variables()) {
      if (v.trainable()) v.assign(random_normal(v.shape(), dtype) * 0.5);
    }
    const auto trainable = layer.trainable_variables();
    sources.assign(trainable.begin(), trainable.end());
  }
  Tensor call(const Tensor& input) const { return layer(input, {.training = c.training}); }
  Tensor plain(const Tensor& input) const {
    std::vector<Tensor> weights;
    for (const Variable& v : layer.variables()) weights.push_back(v.local_tensor());
    return c.reference(input, weights);
  }
  std::vector<Tensor> leaves(const Tensor& input) const {
    std::vector<Tensor> out = {input};
    for (const Variable& v : sources) out.push_back(v.local_tensor());
    return out;
  }
  Tensor input() const { return x.detach().clone().set_requires_grad(true); }

  void expect_close(const Tensor& got, const Tensor& want, const std::string& what) const {
    ASSERT_EQ(got.defined(), want.defined()) << what;
    if (!got.defined()) return;
    ASSERT_EQ(got.sizes(), want.sizes()) << what;
    if (got.numel() == 0) return;
    const double scale = 1 + want.abs().max().item<double>();
    EXPECT_LE((got - want).abs().max().item<double>(), tolerance * scale) << c.name << ": " << what;
  }
};

// The same numbers on every call: coefficients that tell outputs apart.
Tensor coefficients(const Tensor& like) {
  return arange(like.numel(), like.scalar_type()).mul(0.7).sin().add(0.3).reshape(like.sizes());
}
Tensor squares(const Tensor& y) { return (y * y * coefficients(y)).sum(); }

std::vector<Tensor> plain_gradients(const Setup& s, const Loss& loss, const Tensor& x) {
  const at::AutoGradMode recording(true);
  const Tensor target = loss([&](const Tensor& t) { return s.plain(t); }, x);
  return torch::autograd::grad({target}, s.leaves(x), {}, false, false, true);
}

// By tape: the weights straight into their slots, and the input.
void check_loss(const Setup& s, const Loss& loss, const std::string& what) {
  const Tensor x = s.input();
  const auto want = plain_gradients(s, loss, x);
  const auto layer = [&](const Tensor& t) { return s.call(t); };
  GradientTape tape({.persistent = true});
  const Tensor target = loss(layer, x);
  const Gradients got = tape.gradient(target, s.sources);
  for (std::size_t i = 0; i < s.sources.size(); ++i) {
    s.expect_close(got[i].gradient.as_tensor(), want[i + 1], what + ", " + s.sources[i].name());
  }
  s.expect_close(tape.gradient(target, x), want[0], what + ", input");
}

void check_outputs(const Setup& s) {
  const at::NoGradGuard no_grad;
  s.expect_close(s.call(s.x), s.plain(s.x), "outputs");
}

void check_once_and_shared(const Setup& s) {
  check_loss(
      s, [](const auto& layer, const Tensor& x) { return squares(layer(x)); }, "once");
  check_loss(
      s, [](const auto& layer, const Tensor& x) { return layer(x).sum(); }, "an expanded gradient");
  check_loss(
      s,
      [](const auto& layer, const Tensor& x) {
        const Tensor y = layer(x);
        return squares(y) + (y.exp() * 0.1).sum() + squares(x);
      },
      "output and input used again");
  check_loss(
      s,
      [](const auto& layer, const Tensor& x) {
        return squares(layer(x)) + (layer(x * 0.5).sin() * 2).sum();
      },
      "used twice");
}

// The sum hands one gradient tensor to both sides: the layer must not write into it.
void check_residual(const Setup& s) {
  const bool keeps_shape = s.call(s.x).sizes() == s.x.sizes();
  check_loss(
      s,
      [&](const auto& layer, const Tensor& x) {
        const Tensor h = x * 1.5;
        const Tensor y = layer(h);
        return keeps_shape ? squares(y + h) : squares(y + y.relu()) + squares(h);
      },
      "residual");
}

void check_transposed_gradient(const Setup& s) {
  check_loss(
      s, [](const auto& layer, const Tensor& x) { return squares(layer(x).transpose(0, 1).exp()); },
      "a gradient that is not contiguous");
}

void check_frozen_and_subset(const Setup& s) {
  const Tensor x = s.input();
  const Loss loss = [](const auto& layer, const Tensor& t) { return squares(layer(t)); };
  const auto layer = [&](const Tensor& t) { return s.call(t); };
  const auto want = plain_gradients(s, loss, x);
  for (std::size_t i = 0; i < s.sources.size(); ++i) {
    GradientTape tape;
    const Tensor got = tape.gradient(loss(layer, x), s.sources[i]);
    s.expect_close(got, want[i + 1], "only " + s.sources[i].name());
  }
  GradientTape tape;
  s.expect_close(tape.gradient(loss(layer, x), x), want[0], "only the input");
}

void check_skipped(const Setup& s) {
  if (s.sources.empty()) return;
  const Tensor x = s.input();
  GradientTape tape;
  const Gradients got = tape.gradient(squares(x), s.sources);
  for (const auto& [gradient, variable] : got) EXPECT_FALSE(gradient.has_value()) << s.c.name;
}

void check_accumulated(const Setup& s) {
  const at::AutoGradMode recording(true);
  const Loss loss = [](const auto& layer, const Tensor& t) { return squares(layer(t)); };
  const Tensor x = s.input();
  const auto want = plain_gradients(s, loss, x);
  for (int pass = 0; pass < 2; ++pass) squares(s.call(x)).backward();
  s.expect_close(x.grad(), want[0] * 2, "backward() twice, input");
  for (std::size_t i = 0; i < s.sources.size(); ++i) {
    s.expect_close(s.sources[i].grad(), want[i + 1] * 2, "backward() twice, a weight");
    s.sources[i].local_tensor().mutable_grad().reset();
  }
  GradientTape tape({.persistent = true});
  const Tensor target = squares(s.call(x));
  for (int pass = 0; pass < 2; ++pass) {
    const Gradients got = tape.gradient(target, s.sources);
    for (std::size_t i = 0; i < s.sources.size(); ++i) {
      s.expect_close(got[i].gradient.as_tensor(), want[i + 1], "persistent tape");
    }
  }
}

// d/dw of |d loss / dx|^2, with nested tapes and with LibTorch's own create_graph.
void check_penalty(const Setup& s) {
  const at::AutoGradMode recording(true);
  const Tensor x = s.input();
  const auto penalty_of = [&](const Tensor& y) {
    const auto first = torch::autograd::grad({squares(y)}, {x}, {}, true, true, true);
    return squares(first[0]);
  };
  const auto want =
      torch::autograd::grad({penalty_of(s.plain(x))}, s.leaves(x), {}, false, false, true);
  const auto direct =
      torch::autograd::grad({penalty_of(s.call(x))}, s.leaves(x), {}, false, false, true);
  for (std::size_t i = 0; i < want.size(); ++i) {
    const auto or_zero = [&](const Tensor& t) { return t.defined() ? t : at::zeros_like(want[0]); };
    if (i > 0 && !want[i].defined() && !direct[i].defined()) continue;
    if (!want[i].defined() || !direct[i].defined()) {
      const Tensor& t = want[i].defined() ? want[i] : direct[i];
      EXPECT_EQ(or_zero(t).abs().max().item<double>(), 0) << s.c.name << ": penalty " << i;
      continue;
    }
    s.expect_close(direct[i], want[i], "penalty by create_graph");
  }
  GradientTape outer;
  GradientTape inner;
  const Tensor first = inner.gradient(squares(s.call(x)), x);
  const Gradients got = outer.gradient(squares(first), s.sources);
  for (std::size_t i = 0; i < s.sources.size(); ++i) {
    if (!want[i + 1].defined()) continue;
    s.expect_close(got[i].gradient.as_tensor(), want[i + 1], "penalty by nested tapes");
  }
}

void check_version(const Setup& s) {
  for (const Variable& v : s.sources) {
    const Tensor x = s.input();
    GradientTape tape;
    const Tensor target = squares(s.call(x));
    const bool is_read = v.shape().size() > 1;  // a bias is not needed to go backward
    if (!is_read) continue;
    v.assign_add(1.0);
    EXPECT_ANY_THROW(tape.gradient(target, s.leaves(x))) << s.c.name << ": " << v.name();
    v.assign_sub(1.0);
  }
}

double loss_at(const Setup& s, const Tensor& x) {
  const at::NoGradGuard no_grad;
  return squares(s.call(x)).item<double>();
}

// Central differences along a few coordinates of each leaf.
void check_finite_differences(const Setup& s) {
  const Tensor x = s.input();
  const auto layer = [&](const Tensor& t) { return s.call(t); };
  GradientTape tape;
  const Tensor target = squares(layer(x));
  const std::vector<Tensor> got = tape.gradient(target, s.leaves(x));
  const auto leaves = s.leaves(x);
  const at::NoGradGuard no_grad;
  constexpr double kStep = 1e-5;
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    const Tensor flat = leaves[i].detach().view({-1});
    const int64_t stride = std::max<int64_t>(1, flat.numel() / 13);
    for (int64_t k = 0; k < flat.numel(); k += stride) {
      const double middle = flat[k].item<double>();
      flat[k].fill_(middle + kStep);
      const double above = loss_at(s, x);
      flat[k].fill_(middle - kStep);
      const double below = loss_at(s, x);
      flat[k].fill_(middle);
      const double slope = (above - below) / (2 * kStep);
      const double mine = got[i].reshape({-1})[k].item<double>();
      EXPECT_NEAR(mine, slope, 1e-5 * (1 + std::abs(slope)))
          << s.c.name << ": leaf " << i << ", element " << k;
    }
  }
}

void check_empty_batch(const Setup& s) {
  Shape shape = s.c.input;
  shape[0] = 0;
  const Tensor x = zeros(shape, s.x.scalar_type()).set_requires_grad(true);
  GradientTape tape;
  const Tensor y = s.call(x);
  EXPECT_EQ(y.size(0), 0);
  const Gradients got =
      tape.gradient(y.sum(), s.sources, {.unconnected_gradients = UnconnectedGradients::kZero});
  for (const auto& [gradient, variable] : got) {
    EXPECT_EQ(gradient.as_tensor().abs().sum().item<double>(), 0) << s.c.name << variable.name();
  }
}

}  // namespace

void check_gradients(const GradientCase& c) {
  struct Mode {
    DType dtype;
    int threads;
  };
  // Own products run on one intra-op thread only.
  for (const auto& [dtype, threads] : {Mode{kFloat64, 0}, Mode{kFloat32, 1}, Mode{kFloat32, 2}}) {
    SCOPED_TRACE(c.name + " in " + dtype_name(dtype));
    const Floatx scope(dtype);
    const cohort::internal::runtime::IntraOpThreads intra_op(threads);
    const Setup s(c, dtype);
    check_outputs(s);
    check_once_and_shared(s);
    check_residual(s);
    check_transposed_gradient(s);
    check_frozen_and_subset(s);
    check_skipped(s);
    check_accumulated(s);
    check_penalty(s);
    check_version(s);
    if (dtype == kFloat64 && c.smooth) check_finite_differences(s);
    check_empty_batch(s);
  }
}

}  // namespace cohort::keras::testing
