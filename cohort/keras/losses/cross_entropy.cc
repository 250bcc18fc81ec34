// SPDX-License-Identifier: Apache-2.0
//
// The cross entropies: one autograd node over the kernels where scores are float32 on the CPU, or
// logits on a device, and recorded LibTorch operations otherwise. The forward pass of the node
// computes the gradient too.
#include <ATen/ops/_log_softmax.h>
#include <ATen/ops/binary_cross_entropy_with_logits.h>
#include <ATen/ops/dot.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/log_sigmoid.h>
#include <ATen/ops/log_softmax.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/graph_task.h>

#include "cohort/autograd/layer_node.h"
#include "cohort/base/check.h"
#include "cohort/keras/losses/internal/classes.h"
#include "cohort/keras/losses/internal/cross_entropy_kernels.h"
#include "cohort/keras/losses/internal/labels.h"
#include "cohort/keras/losses/internal/reduce.h"
#include "cohort/keras/losses/losses.h"

namespace cohort::keras {
namespace {

using cohort::internal::autograd::LayerNode;
using cohort::internal::autograd::SavedVariable;
using cohort::internal::autograd::variable_list;
using internal::CrossEntropyRows;

enum class EntropyKind { kSparse, kCategorical, kBinary };

struct EntropyConfig {
  EntropyKind kind = EntropyKind::kSparse;
  bool from_logits = false;
  double smoothing = 0;
  Reduction reduction = Reduction::kSumOverBatchSize;
  std::string name;
};

constexpr double kEpsilon = 1e-7;

// --- Recorded operations: any dtype and device, derivatives of any order.

Tensor smoothed(const EntropyConfig& config, const Tensor& targets, int64_t classes) {
  if (config.smoothing == 0) return targets;
  return targets * (1 - config.smoothing) + config.smoothing / static_cast<double>(classes);
}

Tensor log_probabilities(const EntropyConfig& config, const Tensor& scores) {
  if (config.from_logits) return at::log_softmax(scores, -1);
  return (scores / scores.sum(-1, /*keepdim=*/true)).clamp(kEpsilon, 1 - kEpsilon).log();
}

Tensor sparse_values(const EntropyConfig& config, const Tensor& labels, const Tensor& scores) {
  const Tensor logs = log_probabilities(config, scores);
  const Tensor own = internal::picked(logs, labels);
  if (config.smoothing == 0) return -own;
  return own * (config.smoothing - 1) - logs.mean(-1) * config.smoothing;
}

Tensor categorical_values(const EntropyConfig& config, const Tensor& targets,
                          const Tensor& scores) {
  const Tensor t = smoothed(config, targets, scores.size(-1));
  return -(t * log_probabilities(config, scores)).masked_fill(t.eq(0), 0).sum(-1);
}

Tensor binary_values(const EntropyConfig& config, const Tensor& targets, const Tensor& scores) {
  const Tensor z = smoothed(config, targets, 2);
  if (config.from_logits) {
    return -(at::log_sigmoid(-scores) + scores * z).mean(-1);
  }
  const Tensor p = scores.clamp(kEpsilon, 1 - kEpsilon);
  return -(z * p.log() + (1 - z) * (1 - p).log()).mean(-1);
}

/// Labels (class numbers or targets) that have been checked and fit the scores.
Tensor recorded_values(const EntropyConfig& config, const Tensor& labels, const Tensor& scores) {
  switch (config.kind) {
    case EntropyKind::kSparse:
      return sparse_values(config, labels, scores);
    case EntropyKind::kCategorical:
      return categorical_values(config, labels, scores);
    case EntropyKind::kBinary:
      return binary_values(config, labels, scores);
  }
  return {};
}

// --- The node.

struct Inputs {
  const EntropyConfig* config = nullptr;
  Tensor labels;   // kSparse: int64 [rows] in order; else targets like the scores
  Tensor scores;   // contiguous float32
  Tensor weights;  // float32 [rows]; undefined: 1
  double scale = 1;
  bool per_row = false;  // the output is one value per row, else their weighted sum
};

class CrossEntropyNode final : public LayerNode {
 public:
  CrossEntropyNode(Inputs inputs, std::shared_ptr<const LossBase> owner, Tensor gradient)
      : owner_(std::move(owner)), gradient_(std::move(gradient)) {
    scores_ = SavedVariable(inputs.scores, /*is_output=*/false);
    inputs.scores.reset();
    inputs_of_loss_ = std::move(inputs);
  }

  void release_variables() override {
    scores_.reset_data();
    gradient_.reset();
    inputs_of_loss_.labels.reset();
    inputs_of_loss_.weights.reset();
    released_ = true;
  }
  std::string name() const override { return "CohortCrossEntropyBackward"; }

 protected:
  variable_list backward(variable_list&& gradients) override;
  variable_list differentiable_backward(variable_list&& gradients) override;

 private:
  void check_not_released() const {
    COHORT_CHECK_STATE(!released_,
                       "[loss.backward] expected the first backward pass of this loss, "
                       "got a second one after its memory was freed; use "
                       "retain_graph, or a persistent tape");
  }

  const std::shared_ptr<const LossBase> owner_;  // of the config
  Inputs inputs_of_loss_;
  SavedVariable scores_;
  Tensor gradient_;  // for an incoming gradient of 1
  bool released_ = false;
};

variable_list CrossEntropyNode::backward(variable_list&& gradients) {
  check_not_released();
  const Tensor& incoming = gradients[0];
  if (!incoming.defined() || !wants_input(0)) return {Tensor()};
  // What nobody needs again is handed on itself, so that the next node may reuse its memory.
  const bool last = !torch::autograd::get_current_graph_task_keep_graph();
  Tensor own = last ? std::move(gradient_) : gradient_;
  if (last) gradient_.reset();
  if (inputs_of_loss_.per_row) {
    const Tensor factor = incoming.reshape({-1, 1});
    const Tensor rows = own.view({factor.size(0), own.size(-1)});
    if (!last) return {rows.mul(factor).view(own.sizes())};
    Tensor(rows).mul_(factor);
    return {std::move(own)};
  }
  if (!own.is_cpu()) {
    if (!last) return {own.mul(incoming)};
    own.mul_(incoming);
    return {std::move(own)};
  }
  const float factor = *incoming.const_data_ptr<float>();
  if (factor == 1) return {std::move(own)};
  if (!last) return {own.mul(factor)};
  own.mul_(factor);
  return {std::move(own)};
}

// The derivative of recorded operations on the same scores, itself recorded.
variable_list CrossEntropyNode::differentiable_backward(variable_list&& gradients) {
  check_not_released();
  if (!gradients[0].defined()) return {Tensor()};
  const Tensor scores = scores_.unpack();
  const Inputs& in = inputs_of_loss_;
  Tensor labels = in.labels;
  if (in.config->kind == EntropyKind::kSparse)
    labels = labels.view(scores.sizes().slice(0, scores.dim() - 1));
  Tensor value = recorded_values(*in.config, labels, scores);
  if (!in.per_row) {
    value = value.reshape({-1});
    value = (in.weights.defined() ? value * in.weights : value).sum() * in.scale;
  }
  return torch::autograd::grad({value}, {scores}, {gradients[0]}, /*retain_graph=*/true,
                               /*create_graph=*/true);
}

int64_t row_count(const Tensor& scores) {
  const int64_t classes = scores.size(-1);
  return classes == 0 ? 0 : scores.numel() / classes;
}

// Shapes: the scores' without the last axis, or with an axis of 1 in its place.
bool is_number_per_row(const Tensor& weights, const Tensor& scores) {
  const auto outer = scores.sizes().slice(0, static_cast<std::size_t>(scores.dim() - 1));
  if (weights.sizes() == outer) return true;
  return weights.dim() == scores.dim() && weights.size(-1) == 1 &&
         weights.sizes().slice(0, outer.size()) == outer;
}

double run_kernel(const EntropyConfig& config, const CrossEntropyRows& rows) {
  if (rows.rows == 0) return 0;
  if (config.kind == EntropyKind::kBinary) {
    return config.from_logits ? sigmoid_cross_entropy(rows) : binary_probability_entropy(rows);
  }
  return config.from_logits ? softmax_cross_entropy(rows) : probability_cross_entropy(rows);
}

// What a device has computed: losses of rows, and the gradient of their sum.
struct DeviceRows {
  Tensor losses;    // [rows]
  Tensor gradient;  // [rows, classes]; undefined: not wanted
};

DeviceRows sparse_on_device(const Inputs& in, const Tensor& scores, bool recorded) {
  const Tensor labels = in.labels.reshape({-1});
  const Tensor logs = at::_log_softmax(scores, 1, false);
  DeviceRows out{internal::picked(logs, labels).neg_(), {}};
  if (!recorded) return out;
  const Tensor inside = labels.clamp(0, scores.size(1) - 1).unsqueeze(1);
  out.gradient = logs.exp_().scatter_(1, inside, -1, "add");
  return out;
}

DeviceRows binary_on_device(const Inputs& in, const Tensor& scores, bool recorded) {
  const Tensor targets = smoothed(*in.config, in.labels, 2).view(scores.sizes());
  DeviceRows out{
      at::binary_cross_entropy_with_logits(scores, targets, {}, {}, /*reduction=*/0).mean(1), {}};
  if (!recorded) return out;
  out.gradient = scores.sigmoid().sub_(targets).div_(scores.size(1));
  return out;
}

// In a few launches, and nothing comes back to the host.
std::pair<Tensor, Tensor> run_on_device(const Inputs& in, bool recorded) {
  const Tensor scores = in.scores.reshape({row_count(in.scores), in.scores.size(-1)});
  const bool sparse = in.config->kind == EntropyKind::kSparse;
  DeviceRows rows =
      sparse ? sparse_on_device(in, scores, recorded) : binary_on_device(in, scores, recorded);
  if (in.per_row) {
    const auto outer = in.scores.sizes().slice(0, static_cast<std::size_t>(in.scores.dim() - 1));
    return {rows.losses.view(outer), rows.gradient};
  }
  const Tensor sum = in.weights.defined() ? at::dot(rows.losses, in.weights) : rows.losses.sum();
  if (recorded) {
    if (in.weights.defined()) {
      rows.gradient.mul_((in.weights * in.scale).unsqueeze(1));
    } else if (in.scale != 1) {
      rows.gradient.mul_(in.scale);
    }
  }
  return {in.scale == 1 ? sum : sum * in.scale, rows.gradient};
}

Tensor fused(const Inputs& in, std::shared_ptr<const LossBase> owner) {
  const bool recorded = cohort::internal::autograd::needs_node({&in.scores}, {});
  Tensor out;
  Tensor gradient;
  if (!in.scores.is_cpu()) {
    const cohort::internal::autograd::BelowAutograd below;
    std::tie(out, gradient) = run_on_device(in, recorded);
    if (recorded) gradient = gradient.view(in.scores.sizes());
  } else {
    const cohort::internal::autograd::BelowAutograd below;
    const Tensor& scores = in.scores;
    gradient = at::empty(scores.sizes(), scores.options());
    const auto outer = scores.sizes().slice(0, static_cast<std::size_t>(scores.dim() - 1));
    out = at::empty(in.per_row ? outer : at::IntArrayRef{}, scores.options());
    const bool sparse = in.config->kind == EntropyKind::kSparse;
    const double sum = run_kernel(
        *in.config, {.rows = row_count(scores),
                     .classes = scores.size(-1),
                     .scores = scores.const_data_ptr<float>(),
                     .labels = sparse ? in.labels.const_data_ptr<int64_t>() : nullptr,
                     .targets = sparse ? nullptr : in.labels.const_data_ptr<float>(),
                     .smoothing = in.config->smoothing,
                     .weights = in.weights.defined() ? in.weights.const_data_ptr<float>() : nullptr,
                     .scale = in.scale,
                     .losses = in.per_row ? out.mutable_data_ptr<float>() : nullptr,
                     .gradient = gradient.mutable_data_ptr<float>(),
                     .wants_gradient = recorded});
    if (!in.per_row) *out.mutable_data_ptr<float>() = static_cast<float>(sum);
  }
  if (recorded) {
    auto node = cohort::internal::runtime::make_node<CrossEntropyNode>(in, std::move(owner),
                                                                       std::move(gradient));
    node->add_input(in.scores);
    attach(out, std::move(node));
  }
  return out;
}

class CrossEntropyLoss : public LossBase, public std::enable_shared_from_this<CrossEntropyLoss> {
 public:
  explicit CrossEntropyLoss(EntropyConfig config)
      : LossBase(config.name, config.reduction), config_(std::move(config)) {}

  Tensor call(const Tensor& y_true, const Tensor& y_pred) override {
    Inputs in = prepare(y_true, y_pred);
    if (!fits_kernels(in)) return recorded_values(config_, in.labels, in.scores);
    make_contiguous(in);
    in.per_row = true;
    return fused(in, shared_from_this());
  }

  Tensor reduced(const Tensor& y_true, const Tensor& y_pred, const Tensor& sample_weight,
                 double scale) override {
    if (config_.reduction != Reduction::kNone) {
      Inputs in = prepare(y_true, y_pred);
      if (fits_kernels(in) && take_weights(in, sample_weight, scale)) {
        make_contiguous(in);
        return fused(in, shared_from_this());
      }
    }
    return LossBase::reduced(y_true, y_pred, sample_weight, scale);
  }

 private:
  Inputs prepare(const Tensor& y_true, const Tensor& y_pred) const;
  bool take_weights(Inputs& in, const Tensor& sample_weight, double scale) const;

  static bool fits_kernels(const Inputs& in) {
    if (in.labels.requires_grad()) return false;
    if (in.scores.is_cpu()) return in.scores.scalar_type() == kFloat32;
    const EntropyConfig& config = *in.config;
    const bool smooth = config.kind == EntropyKind::kSparse && config.smoothing != 0;
    return config.from_logits && config.kind != EntropyKind::kCategorical && !smooth &&
           in.scores.numel() > 0;
  }
  static void make_contiguous(Inputs& in) {
    in.scores = in.scores.contiguous();
    in.labels = in.labels.contiguous();
  }

  const EntropyConfig config_;
};

Inputs CrossEntropyLoss::prepare(const Tensor& y_true, const Tensor& y_pred) const {
  COHORT_CHECK_ARG(at::isFloatingType(y_pred.scalar_type()) && y_pred.dim() > 0, "[", name(),
                   "] expected floating predictions with a last axis, got ",
                   dtype_name(y_pred.scalar_type()), bracketed(y_pred.sizes()));
  Inputs in;
  in.config = &config_;
  if (config_.kind == EntropyKind::kSparse) {
    in.scores = y_pred;
    in.labels = internal::class_numbers(name(), y_true, y_pred);
  } else {
    std::tie(in.labels, in.scores) = internal::matched(name(), y_true, y_pred);
  }
  return in;
}

// False for weights that are no number per row: those take recorded operations.
bool CrossEntropyLoss::take_weights(Inputs& in, const Tensor& sample_weight, double scale) const {
  const int64_t rows = row_count(in.scores);
  double divisor = 1;
  if (config_.reduction != Reduction::kSum) divisor = static_cast<double>(rows);
  if (sample_weight.defined()) {
    if (sample_weight.requires_grad() || !is_number_per_row(sample_weight, in.scores)) return false;
    in.weights = sample_weight.to(in.scores.options()).reshape({-1});
    if (config_.reduction == Reduction::kMeanWithSampleWeight) {
      if (!in.weights.is_cpu()) return false;  // nobody reads the sum
      divisor = in.weights.sum(kFloat64).item<double>();
    }
  }
  in.scale = divisor == 0 ? 0 : scale / divisor;
  return true;
}

template <class C>
EntropyConfig checked_config(EntropyKind kind, const C& options, const char* standard_name) {
  COHORT_CHECK_ARG(options.label_smoothing >= 0 && options.label_smoothing <= 1, "[", standard_name,
                   "] expected label_smoothing in [0, 1], got ", options.label_smoothing);
  return {kind, options.from_logits, options.label_smoothing, options.reduction,
          options.name.empty() ? standard_name : options.name};
}

template <EntropyKind kEntropy, class C>
class CrossEntropyOf : public CrossEntropyLoss {
 public:
  using Options = C;
  CrossEntropyOf(C options, const char* standard_name)
      : CrossEntropyLoss(checked_config(kEntropy, options, standard_name)),
        options_(std::move(options)) {}
  Config get_config() const override {
    C now = options_;
    now.name = name();
    return internal::full_config<LossBase>(now);
  }

 protected:
  const C& options() const { return options_; }

 private:
  const C options_;
};

class SparseCategoricalCrossentropyLoss final
    : public CrossEntropyOf<EntropyKind::kSparse, SparseCategoricalCrossentropyOptions> {
 public:
  explicit SparseCategoricalCrossentropyLoss(Options o)
      : CrossEntropyOf(std::move(o), "sparse_categorical_crossentropy"),
        ignored_(options().ignore_class) {}

  Tensor call(const Tensor& y_true, const Tensor& y_pred) override {
    if (!ignored_) return CrossEntropyLoss::call(y_true, y_pred);
    const Tensor counts = counted(y_true, y_pred, {});
    const Tensor labels = y_true.reshape(counts.sizes());
    const Tensor values = CrossEntropyLoss::call(labels.where(counts, labels * 0),
                                                 y_pred.where(counts.unsqueeze(-1), 1));
    return values.where(counts, values * 0);
  }

  Tensor reduced(const Tensor& y_true, const Tensor& y_pred, const Tensor& sample_weight,
                 double scale) override {
    if (!ignored_) return CrossEntropyLoss::reduced(y_true, y_pred, sample_weight, scale);
    return LossBase::reduced(y_true, y_pred, sample_weight, scale);
  }

  bool leaves_out() const override { return ignored_.has_value(); }
  /// Where there is another label than the one that is ignored. Shapes: y_pred's, less the last.
  Tensor counted(const Tensor& y_true, const Tensor& y_pred, const Tensor&) const override {
    if (!ignored_) return {};
    const auto outer = y_pred.sizes().slice(0, static_cast<std::size_t>(y_pred.dim() - 1));
    COHORT_CHECK_ARG(y_pred.dim() > 0 && y_true.numel() * y_pred.size(-1) == y_pred.numel(), "[",
                     name(), "] expected labels of shape ", bracketed(outer),
                     " for predictions of shape ", bracketed(y_pred.sizes()), ", got ",
                     bracketed(y_true.sizes()));
    return y_true.ne(*ignored_).reshape(outer);
  }

 private:
  const std::optional<int64_t> ignored_;
};

struct CategoricalCrossentropyLoss final
    : CrossEntropyOf<EntropyKind::kCategorical, CrossentropyOptions> {
  explicit CategoricalCrossentropyLoss(Options o)
      : CrossEntropyOf(std::move(o), "categorical_crossentropy") {}
};

struct BinaryCrossentropyLoss final : CrossEntropyOf<EntropyKind::kBinary, CrossentropyOptions> {
  explicit BinaryCrossentropyLoss(Options o)
      : CrossEntropyOf(std::move(o), "binary_crossentropy") {}
};

}  // namespace

void internal::add_crossentropies(ClassTable& table) {
  table.add_builtin<BinaryCrossentropyLoss>();
  table.add_builtin<CategoricalCrossentropyLoss>();
  table.add_builtin<SparseCategoricalCrossentropyLoss>();
}

SparseCategoricalCrossentropy::SparseCategoricalCrossentropy(
    SparseCategoricalCrossentropyOptions options)
    : Loss(std::make_shared<SparseCategoricalCrossentropyLoss>(std::move(options))) {}

CategoricalCrossentropy::CategoricalCrossentropy(CrossentropyOptions options)
    : Loss(std::make_shared<CategoricalCrossentropyLoss>(std::move(options))) {}

BinaryCrossentropy::BinaryCrossentropy(CrossentropyOptions options)
    : Loss(std::make_shared<BinaryCrossentropyLoss>(std::move(options))) {}

}  // namespace cohort::keras
