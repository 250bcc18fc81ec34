// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/model.h"

#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>

#include "cohort/autograd/gradient_tape.h"
#include "cohort/base/check.h"
#include "cohort/base/logging.h"
#include "cohort/keras/compiled_model.h"
#include "cohort/keras/internal/graph.h"
#include "cohort/keras/trainer.h"
#include "cohort/strategy/replica_context.h"

namespace cohort::keras {

using internal::CompiledModel;
using internal::Trainer;

namespace {

// Of x or y, with as many in each part.
int64_t rows_of(const char* operation, const char* name, const Element& data) {
  if (!data.is_tuple() || data.is_ragged()) {
    const bool undefined = !data.has_value() || (data.is_tensor() && !data.tensor().defined());
    COHORT_CHECK_ARG(!undefined && data.rows() >= 0, "[", operation, "] expected rows of data as ",
                     name, ", got ", undefined ? "an undefined tensor" : "a scalar");
    return data.rows();
  }
  std::optional<int64_t> rows;
  for (std::size_t i = 0; i < data.size(); ++i) {
    const int64_t own = rows_of(operation, name, data[i]);
    COHORT_CHECK_ARG(rows.value_or(own) == own, "[", operation,
                     "] expected as many rows in each part of ", name, ", got ", rows.value_or(0),
                     " and ", own);
    rows = own;
  }
  return rows.value_or(0);
}

void check_labels(const char* operation, int64_t rows, const Element& y) {
  const int64_t labels = rows_of(operation, "y", y);
  COHORT_CHECK_ARG(rows == labels, "[", operation, "] expected as many labels as inputs, got ",
                   rows, " inputs and ", labels, " labels");
}

void check_sample_weight(const char* operation, int64_t rows, const Tensor& weight) {
  COHORT_CHECK_ARG(weight.dim() > 0 && weight.size(0) == rows, "[", operation,
                   "] expected sample_weight to have a row for each of the ", rows,
                   " rows of x, got sample_weight of shape ", bracketed(weight.sizes()));
}

Dataset arrays(const char* operation, const Element& x, const Element& y, const Tensor& weight) {
  const int64_t rows = rows_of(operation, "x", x);
  check_labels(operation, rows, y);
  COHORT_CHECK_ARG(rows > 0, "[", operation, "] expected data, got inputs of 0 rows");
  if (!weight.defined()) return Dataset::from_tensor_slices({x, y});
  check_sample_weight(operation, rows, weight);
  return Dataset::from_tensor_slices({x, y, weight});
}

int64_t rows_per_batch(const char* operation, const std::optional<int64_t>& batch_size,
                       const char* option = "batch_size") {
  constexpr int64_t kKerasDefault = 32;
  const int64_t rows = batch_size.value_or(kKerasDefault);
  COHORT_CHECK_ARG(rows > 0, "[", operation, "] expected ", option, " > 0, got ", rows);
  return rows;
}

void check_no_batch_size(const char* operation, const std::optional<int64_t>& batch_size) {
  COHORT_CHECK_ARG(!batch_size, "[", operation, "] expected no batch_size with a dataset, got ",
                   batch_size.value_or(0),
                   ": it is for arrays; a dataset's batches are what its batch(n) makes");
}

// With batches in place of rows to validate on.
FitOptions validating_on_batches(FitOptions options) {
  constexpr const char* kOption = "validation_batch_size";
  const auto batch_size = std::exchange(options.validation_batch_size, std::nullopt);
  const ValidationData::Rows* const rows = options.validation_data.rows();
  if (rows == nullptr) {
    const char* const beside =
        options.validation_data ? " with a dataset to validate on" : " without validation_data";
    COHORT_CHECK_ARG(!batch_size, "[fit] expected no ", kOption, beside, ", got ",
                     batch_size.value_or(0),
                     ": it is for arrays; a dataset's batches are what its batch(n) makes");
    return options;
  }
  const Dataset all = arrays("fit, validation", rows->x, rows->y, rows->sample_weight);
  options.validation_data = all.batch(rows_per_batch("fit", batch_size, kOption));
  return options;
}

std::string described(const Strategy& strategy) {
  const int replicas = strategy.num_replicas_in_sync();
  return str_cat(strategy.extended().description(), " (", replicas,
                 replicas == 1 ? " replica)" : " replicas)");
}

}  // namespace

XYWeight unpack_x_y_sample_weight(const Element& batch) {
  if (!batch.is_tuple()) return {batch.tensor(), {}, {}};
  COHORT_CHECK_ARG(batch.size() >= 1 && batch.size() <= 3,
                   "[fit] expected elements (x), (x, y) or (x, y, sample_weight), got ",
                   batch.size(), " components: ", batch.spec().to_string());
  XYWeight out;
  out.x = batch[0].tensor();
  if (batch.size() > 1) out.y = batch[1].tensor();
  if (batch.size() > 2) out.sample_weight = batch[2].tensor();
  return out;
}

Model::Model(std::string name) : LayerBase(std::move(name)), strategy_(get_strategy()) {
  set_autocast(false);  // its layers do
}
Model::~Model() = default;

// NOLINTNEXTLINE(performance-noexcept-move-constructor)
Model::Model(Model&& other)
    : LayerBase(std::move(other.resting())),
      // A copy: what was moved from can still be asked.
      strategy_(other.strategy_),  // NOLINT(performance-move-constructor-init)
      compiled_(std::move(other.compiled_)),
      graph_(other.graph_),
      stop_training_(other.stop_training_.load()) {}

// NOLINTNEXTLINE(performance-noexcept-move-constructor)
Model& Model::operator=(Model&& other) {
  if (this == &other) return *this;
  resting();
  LayerBase::operator=(std::move(other.resting()));
  strategy_ = other.strategy_;
  compiled_ = std::move(other.compiled_);
  graph_ = other.graph_;
  stop_training_ = other.stop_training_.load();
  return *this;
}

Model& Model::resting() {
  COHORT_CHECK_STATE(running_ == 0, "[move] expected model \"", name(),
                     "\" to be at rest, got one whose fit, evaluate or predict is running");
  return *this;
}

Scope Model::enter(const char* operation) const {
  check_not_moved(operation);
  if (!has_strategy()) return strategy_.scope();
  COHORT_CHECK_STATE(in_cross_replica_context(), "[", operation, "] expected model \"", name(),
                     "\" outside of strategy.run, got replica ", current_replica(), ": ", operation,
                     " works on all replicas itself; call it where run is called, and inside of "
                     "run the model: model(x)");
  const Strategy here = get_strategy();
  COHORT_CHECK_STATE(here == strategy_, "[", operation, "] expected model \"", name(),
                     "\" to be made in the scope of the strategy it is used in, ", described(here),
                     ", got one made under ", described(strategy_),
                     ": make the model, its layers and its metrics after `auto scope = "
                     "strategy.scope();`, and call compile() there");
  return strategy_.scope();
}

void Model::check_weights_made_in_scope(const char* operation) const {
  for (const Variable& v : variables()) {
    COHORT_CHECK_STATE(strategy_.extended().variable_created_in_scope(v), "[", operation,
                       "] expected the weights of model \"", name(),
                       "\" to be made in the scope it was made in, of ", described(strategy_),
                       ", got ", cohort::internal::variables::label(v.impl()),
                       " made outside of it: call no layer before `auto scope = "
                       "strategy.scope();`, which makes its weights");
  }
}

const std::vector<Layer>& Model::layers() const {
  check_not_moved("layers");
  return sub_layers();
}

// Here, because callbacks do not know the class.
void CallbackBase::set_model(Model* model) { place_ = model != nullptr ? model->place() : nullptr; }

Model& CallbackBase::model() const {
  COHORT_CHECK_STATE(place_ != nullptr,
                     "[callback] expected a hook called by fit, evaluate or predict, got a "
                     "callback without a model");
  COHORT_CHECK_STATE(*place_ != nullptr,
                     "[callback] expected the model of the last fit, evaluate or predict, got a "
                     "model that has ended");
  return static_cast<Model&>(**place_);
}

void Model::compile(CompileOptions options) {
  const Scope scope = enter("compile");
  Optimizer given = options.optimizer;
  const bool scales = options.auto_scale_loss && given && given.base().wrapped() == nullptr &&
                      dtype_policy().name() == "mixed_float16";
  if (scales) options.optimizer = LossScaleOptimizer(given);
  const std::unique_ptr<CompiledModel> before = std::exchange(
      compiled_, std::make_unique<CompiledModel>(std::move(options), strategy_, output_names()));
  if (before != nullptr) compiled_->take_updated(*before);
  if (scales) compiled_->scaled_optimizer = std::move(given);
  tracked_parts_grown();
}

CompiledModel& Model::checked(const char* operation) const {
  if (compiled_ == nullptr) [[unlikely]] {
    check_not_moved(operation);
  }
  COHORT_CHECK_STATE(compiled_ != nullptr, "[", operation,
                     "] expected a compiled model: call compile() first");
  return *compiled_;
}

const Optimizer& Model::optimizer() const { return checked("optimizer").options.optimizer; }

std::vector<Metric> Model::metrics() const { return checked("metrics").all_metrics(); }

History Model::fit(const DataSource& data, const FitOptions& options) {
  check_no_batch_size("fit", options.batch_size);
  COHORT_CHECK_ARG(
      options.validation_split == 0 && !options.sample_weight.defined(),
      "[fit] validation_split and sample_weight are for arrays; split the dataset with "
      "take and skip, and give weights as its third component");
  return Trainer(*this, "fit").fit(data, validating_on_batches(options));
}

History Model::fit_arrays(const Element& x, const Element& y, const FitOptions& options) {
  COHORT_CHECK_ARG(options.validation_split >= 0 && options.validation_split < 1,
                   "[fit] expected 0 <= validation_split < 1, got ", options.validation_split);
  const int64_t batch_size = rows_per_batch("fit", options.batch_size);
  FitOptions rest = options;
  rest.batch_size.reset();
  rest.validation_split = 0;
  rest.sample_weight = Tensor();
  Dataset train = arrays("fit", x, y, options.sample_weight);
  if (options.validation_split > 0) {
    COHORT_CHECK_ARG(!options.validation_data,
                     "[fit] expected validation_split or validation_data, got both");
    const int64_t rows = x.rows();
    const auto split = static_cast<int64_t>(
        std::floor(static_cast<double>(rows) * (1 - options.validation_split)));
    COHORT_CHECK_ARG(split > 0 && split < rows,
                     "[fit] validation_split = ", options.validation_split, " leaves one part of ",
                     rows, " rows empty");
    const auto asked = std::exchange(rest.validation_batch_size, std::nullopt);
    rest.validation_data = train.skip(split).batch(
        rows_per_batch("fit", asked.value_or(batch_size), "validation_batch_size"));
    train = train.take(split);
  } else if (options.validation_data.rows() != nullptr) {
    rest.validation_batch_size = options.validation_batch_size.value_or(batch_size);
  }
  if (options.shuffle) train = train.shuffle(train.cardinality());
  return fit(DataSource(train.batch(batch_size)), rest);
}

Logs Model::evaluate(const DataSource& data, const EvaluateOptions& options) {
  check_no_batch_size("evaluate", options.batch_size);
  COHORT_CHECK_ARG(!options.sample_weight.defined(),
                   "[evaluate] sample_weight is for arrays; give weights as the dataset's third "
                   "component");
  return Trainer(*this, "evaluate").evaluate(data, options);
}

Logs Model::evaluate_arrays(const Element& x, const Element& y, const EvaluateOptions& options) {
  EvaluateOptions rest = options;
  rest.sample_weight = Tensor();
  rest.batch_size.reset();
  return evaluate(arrays("evaluate", x, y, options.sample_weight)
                      .batch(rows_per_batch("evaluate", options.batch_size)),
                  rest);
}

Tensor Model::predict(const DataSource& data, const PredictOptions& options) {
  check_no_batch_size("predict", options.batch_size);
  return Trainer(*this, "predict").predict(data, options, false).tensor();
}

Element Model::predict_nest(const DataSource& data, const PredictOptions& options) {
  check_no_batch_size("predict", options.batch_size);
  return Trainer(*this, "predict").predict(data, options, true);
}

// (x): two inputs are not an input and its labels.
Element Model::predict_arrays(const Element& x, const PredictOptions& options) {
  PredictOptions rest = options;
  rest.batch_size.reset();
  return predict_nest(Dataset::from_tensor_slices(Element::tuple({x}))
                          .batch(rows_per_batch("predict", options.batch_size)),
                      rest);
}

Tensor Model::predict(const Tensor& x, const PredictOptions& options) {
  PredictOptions rest = options;
  rest.batch_size.reset();
  return predict(
      Dataset::from_tensor_slices(x).batch(rows_per_batch("predict", options.batch_size)), rest);
}

namespace {
// Nests may have parts of unlike lengths, as graphs have, and losses that need no labels.
Element batch_of(const char* operation, const Element& x, const Element& y, const Tensor& weight) {
  if (x.has_value() && x.is_tensor() && y.has_value() && y.is_tensor()) {
    const int64_t rows = rows_of(operation, "x", x);
    check_labels(operation, rows, y);
    if (weight.defined()) check_sample_weight(operation, rows, weight);
  }
  return weight.defined() ? Element{x, y, weight} : Element{x, y};
}

Element inputs_of_batch(const Element& x) {
  if (x.has_value() && !x.is_tensor()) return Element::tuple({x});
  rows_of("predict_on_batch", "x", x);
  return x;
}
}  // namespace

Tensor Model::predict_on_batch(const Element& x) {
  return Trainer(*this, "predict_on_batch").predict_on(inputs_of_batch(x), false).tensor();
}

Element Model::predict_nest_on_batch(const Element& x) {
  return Trainer(*this, "predict_on_batch").predict_on(inputs_of_batch(x), true);
}

Logs Model::train_on_batch(const Element& x, const Element& y, const Tensor& sample_weight) {
  const Element batch = batch_of("train_on_batch", x, y, sample_weight);
  return Trainer(*this, "train_on_batch").step_on(batch, Trainer::Mode::kTrain);
}

Logs Model::test_on_batch(const Element& x, const Element& y, const Tensor& sample_weight) {
  const Element batch = batch_of("test_on_batch", x, y, sample_weight);
  return Trainer(*this, "test_on_batch").step_on(batch, Trainer::Mode::kTest);
}

void Model::reset_metrics() {
  const Scope scope = enter("reset_metrics");
  checked("reset_metrics").reset_metrics();
}

struct Model::Parts {
  Element x = {}, y = {}, sample_weight = {};
};

// Names that are those of the inputs are the inputs; other tuples are x, y and weights.
Model::Parts Model::parts_of(const Element& batch) const {
  if (!batch.is_tuple() || batch.is_ragged()) return {.x = batch};
  if (is_functional() && !batch.names().empty()) {
    const auto has = [&](const KerasTensor& input) {
      return std::ranges::count(batch.names(), input.node()->layer.name()) > 0;
    };
    if (std::ranges::all_of(inputs().flat(), has)) return {.x = batch};
  }
  COHORT_CHECK_ARG(batch.size() >= 1 && batch.size() <= 3,
                   "[fit] expected elements (x), (x, y) or (x, y, sample_weight), got ",
                   batch.size(), " components: ", batch.spec().to_string());
  Parts parts{.x = batch[0]};
  if (batch.size() > 1) parts.y = batch[1];
  if (batch.size() > 2) parts.sample_weight = batch[2];
  return parts;
}

Logs Model::train_step(const Element& batch) {
  const Parts parts = parts_of(batch);
  GradientTape tape;
  const Element y_pred = (*this)(parts.x, {.training = true});
  const Tensor loss = compute_loss_nest(parts.x, parts.y, y_pred, parts.sample_weight);
  // Keras's are behind the update. Here nothing of a program's is, so that what throws on any
  // replica leaves the step undone.
  Logs logs = compute_metrics_nest(parts.x, parts.y, y_pred, parts.sample_weight);
  if (const auto weights = trainable_variables(); !weights.empty()) {
    optimizer().minimize(loss, weights, tape);
  } else if (!compiled_->warned_untrained.exchange(true)) {
    COHORT_LOG(kWarning, "[fit] model \"", name(),
               "\" has no trainable weights: nothing is trained");
  }
  return logs;
}

Logs Model::test_step(const Element& batch) {
  const c10::AutoGradMode no_grad(false);
  const Parts parts = parts_of(batch);
  const Element y_pred = (*this)(parts.x);
  compute_loss_nest(parts.x, parts.y, y_pred, parts.sample_weight);
  return compute_metrics_nest(parts.x, parts.y, y_pred, parts.sample_weight);
}

Tensor Model::predict_step(const Element& batch) {
  const Element out = (*this)(parts_of(batch).x);
  COHORT_CHECK_ARG(out.is_tensor(), "[predict] expected a model with one output, got ",
                   out.spec().to_string(), ": predict_nest returns several");
  return out.tensor();
}

Element Model::predict_nest_step(const Element& batch) { return (*this)(parts_of(batch).x); }

}  // namespace cohort::keras
