// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/optimizers/loss_scale_optimizer.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/aminmax.h>
#include <ATen/ops/stack.h>

#include <array>
#include <cmath>
#include <memory>
#include <utility>

#include "cohort/autograd/gradient_tape.h"
#include "cohort/base/check.h"
#include "cohort/checkpoint/trackable.h"
#include "cohort/keras/optimizers/internal/classes.h"
#include "cohort/keras/optimizers/internal/host_numbers.h"
#include "cohort/runtime/step_recording.h"
#include "cohort/strategy/replica_context.h"
#include "cohort/strategy/strategy.h"
#include "cohort/variables/component.h"
#include "cohort/variables/parameter_store.h"
#include "cohort/variables/step_undo.h"
#include "cohort/variables/tracked_variable.h"

namespace cohort::keras {
namespace {

constexpr const char* kLossScale = "LossScaleOptimizer";

bool all_finite(const Tensor& x) {
  if (x.numel() == 0) return true;
  const auto [low, high] = at::aminmax(x);  // both are NaN if one element is
  return std::isfinite(low.item<double>()) && std::isfinite(high.item<double>());
}

// Of devices: one read for all of them.
bool all_finite_on_device(const Gradients& gradients) {
  std::vector<Tensor> ends;
  for (const GradientAndVariable& pair : gradients) {
    if (!pair.gradient.has_value()) continue;
    const Tensor x =
        pair.gradient.is_sparse() ? pair.gradient.slices().values : Tensor(pair.gradient.dense());
    if (x.numel() == 0) continue;
    const auto [low, high] = at::aminmax(x);
    ends.push_back(low.to(kFloat64));
    ends.push_back(high.to(kFloat64));
  }
  return ends.empty() || at::stack(ends).isfinite().all().item<bool>();
}

bool all_finite(const Gradients& gradients) {
  for (const GradientAndVariable& pair : gradients) {
    if (!pair.gradient.has_value()) continue;
    const bool finite = pair.gradient.is_sparse() ? all_finite(pair.gradient.slices().values)
                                                  : all_finite(pair.gradient.dense());
    if (!finite) return false;
  }
  return true;
}

bool on_all_replicas(bool mine) {
  const ReplicaContext context = get_replica_context();
  if (!context || context.num_replicas_in_sync() == 1) return mine;
  const Tensor bad = context.all_reduce(ReduceOp::kSum, scalar(mine ? 0 : 1, kFloat32));
  return bad.item<float>() == 0;
}

/// What it once took as every optimizer does, and had no use for; Keras reads the defaults.
bool is_unused_default(const std::string& name, const Config& value) {
  static const std::array<const char*, 8> kUnused = {"weight_decay",
                                                     "clipnorm",
                                                     "global_clipnorm",
                                                     "clipvalue",
                                                     "ema_overwrite_frequency",
                                                     "loss_scale_factor",
                                                     "gradient_accumulation_steps",
                                                     ""};
  if (name == "dynamic") return value.boolean();
  if (name == "use_ema") return !value.boolean();
  if (name == "ema_momentum") return value.number() == 0.99;
  for (const char* unused : kUnused) {
    if (name == unused) return value.is_null();
  }
  return false;
}

class LossScaling final : public OptimizerBase {
 public:
  LossScaling(const Optimizer& inner, const LossScaleOptions& options)
      : OptimizerBase(0.0, options.name.empty() ? "loss_scale_optimizer" : options.name),
        inner_(inner),
        options_(options) {
    COHORT_CHECK_ARG(static_cast<bool>(inner_), "[", name(),
                     "] expected an inner optimizer, got an empty one");
    COHORT_CHECK_ARG(options_.initial_scale > 0 && std::isfinite(options_.initial_scale), "[",
                     name(), "] expected a finite initial_scale above 0, got ",
                     options_.initial_scale);
    COHORT_CHECK_ARG(options_.dynamic_growth_steps > 0, "[", name(),
                     "] expected dynamic_growth_steps of 1 or more, got ",
                     options_.dynamic_growth_steps);
  }

  std::string class_name() const override { return kLossScale; }
  Config get_config() const override {
    Config config = Config::object();
    config.set("name", name());
    config.set("inner_optimizer", inner_.serialize());
    config.set("initial_scale", options_.initial_scale);
    config.set("dynamic_growth_steps", options_.dynamic_growth_steps);
    return config;
  }
  static std::shared_ptr<LossScaling> from_config(const Config& config) {
    Optimizer inner;
    LossScaleOptions options;
    for (const auto& [name, value] : config.members()) {
      if (name == "name") {
        if (!value.is_null()) options.name = value.text();
      } else if (name == "inner_optimizer") {
        inner = Optimizer::deserialize(value);
      } else if (name == "initial_scale") {
        options.initial_scale = value.number();
      } else if (name == "dynamic_growth_steps") {
        options.dynamic_growth_steps = ConfigValue<int>::read(value);
      } else {
        COHORT_CHECK_ARG(is_unused_default(name, value), "[", kLossScale,
                         "] expected name, inner_optimizer, initial_scale and "
                         "dynamic_growth_steps, got ",
                         name, " = ", value, ": give it to the inner optimizer");
      }
    }
    return std::make_shared<LossScaling>(inner, options);
  }

  Tensor scale_loss(const Tensor& loss) const override {
    return loss * (built() ? static_cast<double>(scale()) : scale_before_build());
  }
  void update(const Variable& variable, const Gradient& gradient) override {
    inner_.base().update(variable, gradient);
  }
  void minimize(const Tensor& loss, std::span<const Variable> variables,
                GradientTape& tape) override {
    cohort::internal::runtime::refuse_recording("its loss is scaled as the host decides");
    // Nobody else has these: they are divided where the inner optimizer reads them fastest.
    step_with(tape.gradient(scale_loss(loss), variables), {}, true);
  }
  void apply_gradients(const Gradients& gradients, const ApplyOptions& options) override {
    step_with(gradients, options, false);
  }

  const OptimizerBase* wrapped() const override { return &inner_.base(); }
  const Variable& iterations() const override { return inner_.iterations(); }
  double learning_rate() const override { return inner_.learning_rate(); }
  bool has_schedule() const override { return inner_.base().has_schedule(); }
  void set_learning_rate(double rate) override { inner_.set_learning_rate(rate); }
  void finalize_variable_values() override { inner_.finalize_variable_values(); }
  void swap_averages(bool into_model) override { inner_.base().swap_averages(into_model); }
  bool model_has_averages() const override { return inner_.base().model_has_averages(); }
  void note_model_has_averages(bool it_has) override {
    inner_.base().note_model_has_averages(it_has);
  }
  std::vector<Variable> variables() const override {
    if (!built()) return {};
    std::vector<Variable> all = {step_counter_, dynamic_scale_};
    for (const Variable& v : inner_.variables()) all.push_back(v);
    return all;
  }

 protected:
  void on_build(std::span<const Variable> variables) override {
    auto& store = cohort::internal::variables::store_of("[optimizer.build] ", variables.front());
    if (store.is_remote()) {
      throw Unimplemented(
          str_cat("[", name(), "] expected variables that all replicas update together, got ",
                  cohort::internal::variables::label(variables.front().impl()),
                  " of parameter servers, whose workers would scale each by "
                  "what others have just changed: compile with auto_scale_loss = false, or take "
                  "mixed_bfloat16, which needs no scale, or MultiWorkerMirroredStrategy"));
    }
    inner_.build(variables);
    if (internal::lives_on_device(variables.front())) return keep_on_host(variables.front());
    step_counter_ = own_copies(variables.front(), "step_counter", 0, kInt64);
    dynamic_scale_ =
        own_copies(variables.front(), "dynamic_scale", options_.initial_scale, kFloat32);
  }
  std::vector<Variable> stored_slots() const override {
    std::vector<Variable> all = {step_counter_, dynamic_scale_};
    for (const Variable& v : inner_.base().stored_variables()) all.push_back(v);
    return all;
  }
  TrackedParts tracked_parts() const override {
    TrackedParts parts{.growing = !built()};
    parts.children.emplace_back("inner_optimizer", inner_.trackable());
    if (!built()) return parts;
    parts.values.push_back(
        cohort::internal::variables::tracked_variable("step_counter", step_counter_));
    parts.values.push_back(
        cohort::internal::variables::tracked_variable("dynamic_scale", dynamic_scale_));
    return parts;
  }

 private:
  // Each replica has its own, which all change alike, also where they share the weights.
  Variable own_copies(const Variable& like, const char* what, double initial, DType dtype) const {
    auto& store = cohort::internal::variables::store_of("[optimizer.build] ", like);
    VariableOptions options{.name = str_cat(name(), "/", what),
                            .trainable = false,
                            .aggregation = Aggregation::kOnlyFirstReplica};
    if (like.impl().copies() < like.impl().leaf_count()) {
      options.synchronization = Synchronization::kOnRead;
    }
    return Variable(store.create(full({}, initial, dtype), options));
  }
  void keep_on_host(const Variable& beside) {
    const int replicas = beside.impl().leaf_count();
    const auto scale = static_cast<float>(options_.initial_scale);
    host_counter_ = std::make_shared<internal::HostNumbers<int64_t>>(replicas, 0);
    host_scale_ = std::make_shared<internal::HostNumbers<float>>(replicas, scale);
    step_counter_ = internal::HostNumbers<int64_t>::as_variable(host_counter_, beside,
                                                                name() + "/step_counter");
    dynamic_scale_ =
        internal::HostNumbers<float>::as_variable(host_scale_, beside, name() + "/dynamic_scale");
  }
  float& scale() const {
    if (host_scale_) return host_scale_->own();
    return *dynamic_scale_.impl().leaf().tensor.mutable_data_ptr<float>();
  }
  // A restored scale waits for the variable, which is there when the gradients are divided.
  double scale_before_build() const {
    const auto tracked = std::dynamic_pointer_cast<TrackedObject>(trackable());
    const Tensor waiting = tracked ? tracked->waiting_value("dynamic_scale") : Tensor();
    return waiting.defined() ? waiting.item<double>() : options_.initial_scale;
  }
  int64_t& counter() const {
    if (host_counter_) return host_counter_->own();
    return *step_counter_.impl().leaf().tensor.mutable_data_ptr<int64_t>();
  }

  void divide(Gradients& gradients, bool in_place) const {
    const double by = scale();
    for (GradientAndVariable& pair : gradients) {
      if (!pair.gradient.has_value()) continue;
      if (pair.gradient.is_sparse()) {
        IndexedSlices slices = pair.gradient.slices();
        slices.values = slices.values / by;
        pair.gradient = std::move(slices);
        continue;
      }
      const Tensor values = pair.gradient.dense();
      // Elsewhere two variables may have one tensor as their gradient.
      if (in_place && cohort::internal::variables::is_in_arena(pair.variable.impl(), values)) {
        values.div_(by);
      } else {
        pair.gradient = values / by;
      }
    }
  }

  void step_with(Gradients gradients, const ApplyOptions& options, bool in_place) {
    ensure_built(gradients);
    const at::NoGradGuard no_grad;
    const bool mine = host_scale_ ? all_finite_on_device(gradients) : all_finite(gradients);
    if (!on_all_replicas(mine)) {
      // Skipped by all: what the forward pass moved stays, as in Keras.
      if (auto* undo = cohort::internal::variables::StepUndo::current(); undo != nullptr)
        undo->commit();
      scale() *= 0.5F;
      counter() = 0;
      return;
    }
    divide(gradients, in_place);
    inner_.apply_gradients(std::move(gradients), options);
    const bool grows = counter() == options_.dynamic_growth_steps - 1;
    if (grows) scale() *= 2;
    counter() = grows ? 0 : counter() + 1;
  }

  const Optimizer inner_;
  const LossScaleOptions options_;
  Variable step_counter_;
  Variable dynamic_scale_;
  std::shared_ptr<internal::HostNumbers<int64_t>> host_counter_;  // null: the variables have them
  std::shared_ptr<internal::HostNumbers<float>> host_scale_;
};

}  // namespace

void internal::add_loss_scale_optimizer(ClassTable& table) {
  table.add_builtin<LossScaling>(kLossScale);
}

LossScaleOptimizer::LossScaleOptimizer(const Optimizer& inner_optimizer, LossScaleOptions options)
    : Optimizer(std::make_shared<LossScaling>(inner_optimizer, options)) {}

}  // namespace cohort::keras
