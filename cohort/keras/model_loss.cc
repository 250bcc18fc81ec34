// SPDX-License-Identifier: Apache-2.0
//
// Losses and metrics of one step, of one output or several.
#include <ATen/ops/full_like.h>
#include <c10/core/GradMode.h>

#include <algorithm>

#include "cohort/base/check.h"
#include "cohort/keras/compiled_model.h"
#include "cohort/keras/internal/layer_call.h"
#include "cohort/keras/losses/internal/masked_weight.h"
#include "cohort/keras/model.h"
#include "cohort/strategy/replica_context.h"

namespace cohort::keras {

using cohort::internal::strategy::ReplicaStep;
using internal::CompiledModel;
using internal::CompiledOutput;

namespace {

// The scale that makes the replicas' losses add up to the batch's, and what the metric "loss"
// gets of each.
struct Share {
  double scale;   // of the loss
  double weight;  // of the scaled loss in the metric's total
  int64_t count;  // examples

  // What makes of a sum over so many values of the examples the part that they have in the mean
  // over all values.
  double of_sum(int64_t values) const {
    const double all = static_cast<double>(values) * weight;
    return all > 0 ? static_cast<double>(count) / all : 0;
  }
};

// The replica's part of the batch, whatever the step has made of the rows (one for each word, say),
// and whichever model's fit gave it.
struct StepOfLoss {
  int64_t rows;
  int64_t global_rows;  // -1: outside of fit nobody knows the others'
  int replicas;
  bool exact;

  Share share_of(Reduction reduction) const {
    const auto n = static_cast<double>(replicas);
    const auto mine = static_cast<double>(rows);
    // Outside of fit: as many as here.
    const double all = global_rows >= 0 ? static_cast<double>(global_rows) : mine * n;
    if (reduction == Reduction::kSum || reduction == Reduction::kNone) return {1, all, rows};
    if (exact && all > 0) return {mine / all, all, rows};
    return {1 / n, n * mine, rows};
  }

  // The scale of a mean over `here` of what counts on all replicas. Of one replica it is 1, and
  // outside of fit, where replicas need not come here alike, the rows decide.
  double share_of_counted(Reduction reduction, double here) const {
    const double by_rows = share_of(reduction).scale;
    const bool is_sum = reduction == Reduction::kSum || reduction == Reduction::kNone;
    if (is_sum || !exact || global_rows < 0 || replicas == 1) return by_rows;
    const double all = get_replica_context().all_reduce(ReduceOp::kSum, here);
    return all > 0 ? here / all : 0;
  }

  // The same of what a device has counted; all replicas' are devices then.
  Tensor share_of_counted(Reduction reduction, const Tensor& here) const {
    const double by_rows = share_of(reduction).scale;
    const bool is_sum = reduction == Reduction::kSum || reduction == Reduction::kNone;
    if (is_sum || !exact || global_rows < 0 || replicas == 1) return at::full_like(here, by_rows);
    const Tensor all = get_replica_context().all_reduce(ReduceOp::kSum, here);
    return (here / all).masked_fill(all.le(0), 0);
  }

  Tensor scaled(const internal::CountedLoss& loss, Reduction reduction) const {
    if (!loss.device_count.defined()) return loss.value * share_of_counted(reduction, loss.count);
    return loss.value * share_of_counted(reduction, loss.device_count).to(loss.value.scalar_type());
  }
};

StepOfLoss step_of_loss(const CompiledModel& compiled, int replicas, int64_t rows) {
  const ReplicaStep* step = ReplicaStep::running();
  const bool exact = compiled.options.exact_uneven_batches;
  if (step == nullptr) return {rows, -1, replicas, exact};
  return {step->rows, step->global_rows, replicas, exact};
}

// What is not said by the number of rows.
bool divides_by_what_counts(const Loss& loss, const Tensor& sample_weight) {
  return loss.base().leaves_out() ||
         (loss.reduction() == Reduction::kMeanWithSampleWeight && sample_weight.defined());
}

int64_t rows_of_output(const Tensor& y_pred) { return y_pred.dim() > 0 ? y_pred.size(0) : 1; }

// scale * the loss of one output.
struct ScaledLoss {
  Tensor value;
  int64_t values;  // whose sum it is, without a reduction; else 1

  // What the mean of the losses gets: without a reduction the mean of the values, as in Keras,
  // whose gradients are those of their sum.
  Tensor logged(const Loss& loss, const Share& share) const {
    return loss.reduction() == Reduction::kNone ? value.detach() * share.of_sum(values)
                                                : value.detach();
  }
};
ScaledLoss scaled_loss(const Loss& loss, const Tensor& y, const Tensor& y_pred,
                       const Tensor& sample_weight, const StepOfLoss& step) {
  const int64_t rows = rows_of_output(y_pred);
  COHORT_CHECK_ARG(y.defined(),
                   "[compute_loss] expected elements (x, y) or (x, y, sample_weight), ",
                   "got no labels");
  COHORT_CHECK_ARG(y.dim() == 0 || y.size(0) == rows,
                   "[compute_loss] expected a label for each of ", rows, " outputs, got ",
                   y.dim() == 0 ? 1 : y.size(0));
  const Tensor mask = internal::mask_of(y_pred);
  const Tensor predicted = internal::as_loss_type(y_pred);
  Tensor value;
  if (mask.defined() || divides_by_what_counts(loss, sample_weight)) [[unlikely]] {
    const internal::CountedLoss counted =
        rows > 0 ? internal::counted_loss(loss.base(), y, predicted, mask, sample_weight)
                 : internal::nothing_counted(loss.reduced(y, predicted, {}, 0));
    value = step.scaled(counted, loss.reduction());
  } else {
    const double scale = rows == 0 ? 0 : step.share_of(loss.reduction()).scale;
    value = loss.reduced(y, predicted, sample_weight, scale);
  }
  return {value.dim() > 0 ? value.sum() : value, value.numel()};
}

// What belongs to one of several outputs, by name or place; nothing: there is none.
Element part_of(const Element& nest, std::size_t i, const std::vector<CompiledOutput>& outputs,
                const char* what) {
  if (!nest.has_value()) return {};
  if (!nest.names().empty()) {
    const auto& names = nest.names();
    const bool has = std::ranges::count(names, outputs[i].name) > 0;
    return has ? nest[outputs[i].name] : Element();
  }
  if (nest.is_tuple() && nest.size() == outputs.size()) return nest[i];
  std::vector<std::string> names;
  for (const CompiledOutput& output : outputs) names.push_back(output.name);
  throw InvalidArgument(str_cat("[compute_loss] expected ", what, " for the outputs ",
                                join(names, ", "), ", got ", nest.spec().to_string()));
}

// The one tensor of a part, or of a tuple with it alone.
Tensor tensor_of(const Element& part) {
  if (!part.has_value()) return {};
  if (part.is_tuple() && part.size() == 1) return part[0].tensor();
  return part.tensor();
}

struct OutputParts {
  Tensor y, y_pred, weight;
};

OutputParts parts_of_output(const Element& y, const Element& y_pred, const Element& weight,
                            std::size_t i, const std::vector<CompiledOutput>& outputs) {
  OutputParts parts;
  parts.y = tensor_of(part_of(y, i, outputs, "labels"));
  parts.y_pred = tensor_of(part_of(y_pred, i, outputs, "values"));
  const bool common = weight.has_value() && weight.is_tensor();
  parts.weight =
      common ? weight.tensor() : tensor_of(part_of(weight, i, outputs, "sample weights"));
  return parts;
}

}  // namespace

// Losses that layers added count like the mean over the batch; sums over its rows add up.
Tensor Model::with_penalties(Tensor value, const Tensor& y_pred) {
  const CompiledModel& compiled = *compiled_;
  const int replicas = strategy_.num_replicas_in_sync();
  if (const Tensor penalty = regularization_loss(); penalty.defined()) {
    value = value + penalty / static_cast<double>(replicas);
  }
  const int64_t rows = rows_of_output(y_pred);
  each_added_loss([&](const internal::AddedLoss& added) {
    if (rows == 0) return;
    const bool adds_up = added.is_sum && compiled.options.exact_uneven_batches;
    const double scale =
        adds_up
            ? 1
            : step_of_loss(compiled, replicas, rows).share_of(Reduction::kSumOverBatchSize).scale;
    value = value + added.value.to(value.scalar_type()) * scale;
  });
  return value;
}

Tensor Model::compute_loss(const Tensor&, const Tensor& y, const Tensor& y_pred,
                           const Tensor& sample_weight) {
  CompiledModel& compiled = checked("compute_loss");
  const Loss& loss = compiled.one_loss;
  COHORT_CHECK_STATE(
      static_cast<bool>(loss),
      "[compute_loss] expected a model with a loss, got one compiled without; give compile() a "
      ".loss, or override compute_loss");
  compiled.check_scope();
  const StepOfLoss step =
      step_of_loss(compiled, strategy_.num_replicas_in_sync(), rows_of_output(y_pred));
  const ScaledLoss scaled = scaled_loss(loss, y, y_pred, sample_weight, step);
  Tensor value = scaled.value;
  if (compiled.one_weight != 1) value = value * compiled.one_weight;
  value = with_penalties(value, y_pred);
  const Share share = step.share_of(loss.reduction());
  ReplicaStep* const running = ReplicaStep::running();
  Tensor logged = running != nullptr ? running->shares.add(value) : value.detach();
  if (loss.reduction() == Reduction::kNone) [[unlikely]] {
    logged = with_penalties(scaled.logged(loss, share) * compiled.one_weight, y_pred).detach();
  }
  compiled.loss.add(logged, share.weight, share.count);
  return value;
}

namespace {
// The only output of Model(inputs, {x}), which as in Keras is compiled as x is.
bool is_one_in_a_list(const Model& model, const CompiledModel* compiled, const Element& y_pred) {
  return model.is_functional() && y_pred.is_tuple() && y_pred.size() == 1 && compiled != nullptr &&
         compiled->outputs.empty();
}
}  // namespace

// All replicas come here in their first step: what makes variables is cross-replica.
void Model::know_outputs(const Element& y_pred) {
  CompiledModel& compiled = *compiled_;
  if (!compiled.outputs.empty()) return;
  std::vector<std::string> names = y_pred.names();
  for (std::size_t i = names.size(); i < y_pred.size(); ++i) {
    names.push_back(str_cat("output_", i + 1));
  }
  get_replica_context().merge_call([&](Strategy&) { compiled.set_outputs(names); });
}

Tensor Model::compute_loss_nest(const Element&, const Element& y, const Element& y_pred,
                                const Element& sample_weight) {
  if (y_pred.is_tensor() || is_one_in_a_list(*this, compiled_.get(), y_pred)) {
    return compute_loss({}, tensor_of(y), y_pred[0].tensor(), tensor_of(sample_weight));
  }
  CompiledModel& compiled = checked("compute_loss");
  compiled.check_scope();
  know_outputs(y_pred);
  const int replicas = strategy_.num_replicas_in_sync();
  Tensor total, logged, last;
  const bool reduces_all = std::ranges::none_of(compiled.outputs, [](const CompiledOutput& output) {
    return output.loss && output.loss.reduction() == Reduction::kNone;
  });
  for (std::size_t i = 0; i < compiled.outputs.size(); ++i) {
    CompiledOutput& output = compiled.outputs[i];
    const OutputParts parts = parts_of_output(y, y_pred, sample_weight, i, compiled.outputs);
    last = parts.y_pred;
    if (!output.loss) continue;
    const StepOfLoss step = step_of_loss(compiled, replicas, rows_of_output(parts.y_pred));
    const ScaledLoss scaled = scaled_loss(output.loss, parts.y, parts.y_pred, parts.weight, step);
    const Share share = step.share_of(output.loss.reduction());
    output.tracker->add(scaled.logged(output.loss, share), share.weight, share.count);
    const auto add_to = [&](Tensor& sum, const Tensor& value) {
      const Tensor weighted = output.weight == 1 ? value : value * output.weight;
      sum = sum.defined() ? sum + weighted : weighted;
    };
    add_to(total, scaled.value);
    if (reduces_all) continue;
    add_to(logged, scaled.logged(output.loss, step.share_of(Reduction::kSumOverBatchSize)));
  }
  COHORT_CHECK_STATE(total.defined(),
                     "[compute_loss] expected a model with a loss, got one compiled without; give "
                     "compile() a .loss, or override train_step");
  total = with_penalties(total, last);
  const StepOfLoss step = step_of_loss(compiled, replicas, rows_of_output(last));
  const Share share = step.share_of(Reduction::kSumOverBatchSize);
  ReplicaStep* const running = ReplicaStep::running();
  const Tensor shown = running != nullptr ? running->shares.add(total) : total.detach();
  if (!reduces_all) logged = with_penalties(logged, last).detach();
  compiled.loss.add(reduces_all ? shown : logged, share.weight, share.count);
  return total;
}

namespace {
void update_metrics(const std::vector<Metric>& metrics, const std::vector<Metric>& weighted,
                    const Tensor& y, const Tensor& y_pred, const Tensor& sample_weight) {
  const Tensor predicted = internal::as_loss_type(y_pred);
  const Tensor mask = internal::mask_of(y_pred);
  const auto update = [&](const std::vector<Metric>& all, const Tensor& given) {
    const Tensor weight = internal::masked_weight(mask, given, Reduction::kSum);
    for (const Metric& metric : all) {
      metric.update_state(y, predicted, metric.base().heeds_masks() ? weight : given);
    }
  };
  update(metrics, {});
  update(weighted, sample_weight);
}
}  // namespace

Logs Model::compute_metrics(const Tensor&, const Tensor& y, const Tensor& y_pred,
                            const Tensor& sample_weight) {
  const c10::AutoGradMode no_grad(false);
  CompiledModel& compiled = checked("compute_metrics");
  if (!compiled.resolved()) [[unlikely]] {
    // All replicas come here in their first step: what makes variables is cross-replica.
    get_replica_context().merge_call(
        [&](Strategy&) { compiled.resolve_metrics({shape_of(y)}, {shape_of(y_pred)}); });
  }
  update_metrics(compiled.metrics, compiled.weighted_metrics, y, y_pred, sample_weight);
  return compiled.live;
}

Logs Model::compute_metrics_nest(const Element&, const Element& y, const Element& y_pred,
                                 const Element& sample_weight) {
  if (y_pred.is_tensor() || is_one_in_a_list(*this, compiled_.get(), y_pred)) {
    return compute_metrics({}, tensor_of(y), y_pred[0].tensor(), tensor_of(sample_weight));
  }
  const c10::AutoGradMode no_grad(false);
  CompiledModel& compiled = checked("compute_metrics");
  know_outputs(y_pred);
  std::vector<OutputParts> parts;
  for (std::size_t i = 0; i < compiled.outputs.size(); ++i) {
    parts.push_back(parts_of_output(y, y_pred, sample_weight, i, compiled.outputs));
  }
  if (!compiled.resolved()) [[unlikely]] {
    std::vector<Shape> labels, predictions;
    for (const OutputParts& part : parts) {
      labels.push_back(part.y.defined() ? shape_of(part.y) : Shape());
      predictions.push_back(shape_of(part.y_pred));
    }
    get_replica_context().merge_call(
        [&](Strategy&) { compiled.resolve_metrics(labels, predictions); });
  }
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const CompiledOutput& output = compiled.outputs[i];
    if (output.metrics.empty() && output.weighted_metrics.empty()) continue;
    COHORT_CHECK_ARG(parts[i].y.defined(), "[fit] expected labels for the metrics of output \"",
                     output.name, "\", got none");
    update_metrics(output.metrics, output.weighted_metrics, parts[i].y, parts[i].y_pred,
                   parts[i].weight);
  }
  return compiled.live;
}

}  // namespace cohort::keras
