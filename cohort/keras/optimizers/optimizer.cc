// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/optimizers/optimizer.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>

#include "cohort/base/check.h"
#include "cohort/base/handle.h"
#include "cohort/base/logging.h"
#include "cohort/checkpoint/trackable.h"
#include "cohort/keras/optimizers/internal/gradient_accumulator.h"
#include "cohort/keras/optimizers/internal/host_numbers.h"
#include "cohort/keras/optimizers/internal/rows_stay.h"
#include "cohort/keras/optimizers/internal/state_variable.h"
#include "cohort/runtime/replica_group.h"
#include "cohort/runtime/replica_scope.h"
#include "cohort/runtime/step_recording.h"
#include "cohort/strategy/strategy_extended.h"
#include "cohort/variables/parameter_store.h"
#include "cohort/variables/scope_check.h"
#include "cohort/variables/step_undo.h"

namespace cohort::keras {

using cohort::internal::runtime::Brought;
using cohort::internal::runtime::refuse_recording;
using cohort::internal::runtime::ReplicaGroup;
using cohort::internal::runtime::StepRecording;
using cohort::internal::variables::store_of;
using cohort::internal::variables::VariableImpl;

namespace {

// In the strategy that `like` belongs to, whatever scope the caller is in.
Variable make_beside(const Variable& like, const InitialValue& initial,
                     const VariableOptions& options) {
  return Variable(store_of("[optimizer.build] ", like).create(initial, options));
}

// A rate below 0 climbs the loss.
double checked_rate(const std::string& optimizer, double rate) {
  COHORT_CHECK_ARG(!(rate < 0) && std::isfinite(rate), "[", optimizer,
                   "] expected a finite learning rate of 0 or more, got ", rate);
  return rate;
}

constexpr const char* kApply = "[optimizer.apply_gradients] ";
constexpr const char* kBuild = "[optimizer.build] ";

// One strategy makes the slots and the steps of all of them.
void check_together(std::span<const Variable> variables) {
  const VariableImpl& first = variables.front().impl();
  for (const Variable& v : variables) {
    cohort::internal::variables::check_scope_of(kBuild, "an optimizer of", v.impl());
    COHORT_CHECK_ARG(v.impl().store() == first.store(), kBuild,
                     "expected variables of one strategy, got ",
                     cohort::internal::variables::label(first), " of ",
                     cohort::internal::variables::owner_of(first), " and ",
                     cohort::internal::variables::label(v.impl()), " of ",
                     cohort::internal::variables::owner_of(v.impl()));
  }
}

// Their gradients have to be summed, too.
void check_workers(const Variable& variable) {
  const cohort::internal::variables::ParameterStore* store = variable.impl().store();
  if (store == nullptr) return;
  const ReplicaLayout layout = store->layout();
  if (layout.workers() == 1) return;
  if (!store->reaches_workers()) cohort::internal::runtime::check_one_worker(kApply, layout);
  COHORT_CHECK_STATE(current_replica() >= 0, kApply,
                     "expected to be inside strategy.run, got cross-replica context of a strategy "
                     "with ",
                     layout.workers(), " workers");
}

}  // namespace

// What an id has left there would be the next one's.
void internal::check_rows_stay(const std::string& name, std::span<const Variable> variables,
                               const char* what) {
  for (const Variable& v : variables) {
    const cohort::internal::variables::ParameterStore* const store = v.impl().store();
    if (store == nullptr || !store->renews_rows(v)) continue;
    throw Unimplemented(str_cat(
        "[", name, "] expected no ", what, " for the rows of a DynamicTable, got ",
        cohort::internal::variables::label(v.impl()),
        ": they would have to begin anew with each id that gets a row; use SGD, Adagrad, Adam or "
        "another optimizer of update_rules, without it"));
  }
}

// A variable of it may be asked for before the optimizer is built, and outlive both.
struct OptimizerBase::CountBeforeBuild {
  std::shared_ptr<TrackedObject> tracked;
  int64_t steps;      // calls to an update
  int64_t first = 0;  // calls
  Variable calls;     // once it is built

  int64_t first_calls() const {
    const Tensor waiting = tracked->waiting_value("iteration");
    return waiting.defined() ? waiting.item<int64_t>() : first;
  }
  Tensor read() const {
    if (calls) return calls.value().floor_divide(steps);
    const int64_t whole = first_calls() / steps;
    return full({}, static_cast<double>(whole), kInt64);
  }
  void write(const Tensor& updates) {
    if (calls) {
      calls.assign(updates * steps);
    } else {
      first = updates.item<int64_t>() * steps;
    }
  }
};

OptimizerBase::OptimizerBase(LearningRate learning_rate, std::string name,
                             const OptimizerOptions& options)
    : name_(std::move(name)),
      rate_(learning_rate),
      constant_rate_(rate_.is_schedule() ? 0 : checked_rate(name_, rate_(0))),
      options_(options),
      tracked_(std::make_shared<TrackedObject>([this] { return tracked_parts(); })),
      count_(std::make_shared<CountBeforeBuild>(
          CountBeforeBuild{tracked_, options.gradient_accumulation_steps, 0, {}})) {
  iterations_ =
      internal::state_variable({.name = name_ + "/iterations", .dtype = kInt64},
                               {.read = [count = count_] { return count->read(); },
                                .write = [count = count_](const Tensor& x) { count->write(x); },
                                .in_replicas = true});
  COHORT_CHECK_ARG(options.gradient_accumulation_steps > 0, "[", name_,
                   "] expected gradient_accumulation_steps of 1 or more, got ",
                   options.gradient_accumulation_steps);
  COHORT_CHECK_ARG(options.ema_momentum >= 0 && options.ema_momentum <= 1, "[", name_,
                   "] expected ema_momentum in [0, 1], got ", options.ema_momentum);
  COHORT_CHECK_ARG(options.ema_overwrite_frequency.value_or(1) > 0, "[", name_,
                   "] expected ema_overwrite_frequency of 1 or more, got ",
                   options.ema_overwrite_frequency.value_or(1));
}

OptimizerBase::~OptimizerBase() { tracked_->release(); }

void OptimizerBase::build(std::span<const Variable> variables) {
  if (built()) return;
  COHORT_CHECK_ARG(!variables.empty(),
                   "[optimizer.build] expected at least one variable, got none");
  COHORT_CHECK_STATE(current_replica() < 0 || current_replica_count() == 1,
                     "[optimizer.build] expected cross-replica context, got a replica");
  check_together(variables);
  trained_.assign(variables.begin(), variables.end());
  index_.clear();
  components_.clear();
  constrained_.clear();
  const auto& store = store_of("[optimizer.build] ", trained_.front());
  is_remote_ = store.is_remote();
  for (std::size_t i = 0; i < trained_.size(); ++i) {
    index_[&trained_[i].impl()] = i;
    // One that is kept in shards is updated as a whole: they are its store's business. The only
    // component of each of several workers is not the whole.
    const bool is_whole =
        trained_[i].impl().leaf_count() == 1 && (is_remote_ || store.layout().workers() == 1);
    components_.push_back(is_whole ? std::vector{trained_[i]} : trained_[i].components());
    for (const Variable& component : components_.back()) index_[&component.impl()] = i;
    if (trained_[i].impl().description().constraint) constrained_.push_back(i);
  }
  replicas_ = trained_.front().impl().leaf_count();
  shares_parameters_ = trained_.front().impl().copies() < replicas_;
  check_remote();
  if (options_.use_ema) internal::check_rows_stay(name_, trained_, "use_ema");
  if (options_.gradient_accumulation_steps > 1)
    internal::check_rows_stay(name_, trained_, "gradient_accumulation_steps");
  make_counters();
  make_kept();
  slots_.clear();
  on_build(trained_);
  built_.store(true, std::memory_order_release);
  tracked_parts_grown();
}

void OptimizerBase::make_counters() {
  VariableOptions options{.name = name_ + "/iteration",
                          .trainable = false,
                          .aggregation = Aggregation::kOnlyFirstReplica};
  // Each replica counts its own copy, also where other variables have one copy for all.
  if (shares_parameters_) options.synchronization = Synchronization::kOnRead;
  const Variable& beside = trained_.front();
  if (internal::lives_on_device(beside)) {
    host_calls_ =
        std::make_shared<internal::HostNumbers<int64_t>>(beside.impl().leaf_count(), count_->first);
    calls_ = internal::HostNumbers<int64_t>::as_variable(host_calls_, beside, options.name);
  } else {
    calls_ = make_beside(beside, full({}, static_cast<double>(count_->first), kInt64), options);
  }
  if (is_remote_) calls_.value();  // step() has a number from here on
  count_->calls = calls_;
  iterations_ = calls_;
  const int64_t steps = options_.gradient_accumulation_steps;
  if (steps == 1) return;
  iterations_ = internal::state_variable(
      calls_, {.name = name_ + "/iterations", .dtype = kInt64},
      {.read = [calls = calls_, steps] { return calls.value().floor_divide(steps); },
       .write = [calls = calls_, steps](const Tensor& x) { calls.assign(x * steps); },
       .in_replicas = true});
}

void OptimizerBase::make_kept() {
  averages_.clear();
  model_has_averages_ = false;
  kept_.clear();
  if (options_.gradient_accumulation_steps > 1) {
    accumulator_ = std::make_shared<internal::GradientAccumulator>(trained_, replicas_);
  }
  for (std::size_t i = 0; i < trained_.size(); ++i) {
    const Variable& v = trained_[i];
    if (options_.use_ema) {
      averages_.push_back(make_beside(v, zeros(v.shape(), v.dtype()),
                                      {.name = state_name(v, "average"), .trainable = false}));
      kept_.push_back({averages_.back(), i, "average"});
    }
    if (accumulator_ == nullptr) continue;
    const char* const name = "gradient_accumulator";
    const Variable sum = internal::state_variable(
        v, {.name = state_name(v, name), .shape = v.shape(), .dtype = v.dtype()},
        {.read = [sums = accumulator_, i] { return sums->value_of_all(i); },
         .write = [sums = accumulator_, i](const Tensor& x) { sums->assign(i, x); }});
    kept_.push_back({sum, i, name});
  }
}

void OptimizerBase::ensure_built(const Gradients& gradients) {
  if (built()) return;
  std::vector<Variable> variables;
  for (const GradientAndVariable& pair : gradients) variables.push_back(pair.variable);
  ReplicaGroup* group = cohort::internal::runtime::current_replica_group();
  if (group == nullptr || group->size() == 1) return build(variables);
  group->merge("optimizer.build", *this, [&](Brought<OptimizerBase> optimizers) {
    for (const OptimizerBase& other : optimizers) {
      COHORT_CHECK_STATE(&other == this,
                         "[optimizer.apply_gradients] expected every replica to "
                         "apply the same optimizer here, got another one");
    }
    build(variables);
  });
}

void OptimizerBase::check_gradients(const Gradients& gradients) {
  const auto given = static_cast<std::size_t>(
      std::count_if(gradients.begin(), gradients.end(),
                    [](const GradientAndVariable& pair) { return pair.gradient.has_value(); }));
  COHORT_CHECK_ARG(given > 0,
                   "[optimizer.apply_gradients] expected a gradient for at least one of ",
                   gradients.size(), " variables, got no gradients");
  const int components = gradients[0].variable.impl().leaf_count();
  COHORT_CHECK_STATE(components == 1 || current_replica() >= 0,
                     "[optimizer.apply_gradients] expected to be inside strategy.run, got "
                     "cross-replica context of a strategy with ",
                     components, " replicas");
  COHORT_CHECK_STATE(components == current_replica_count() || current_replica() < 0,
                     "[optimizer.apply_gradients] expected variables made under the strategy's "
                     "scope, got ",
                     cohort::internal::variables::label(gradients[0].variable.impl()), " of ",
                     cohort::internal::variables::owner_of(gradients[0].variable.impl()), " with ",
                     components, " components in a strategy of ", current_replica_count(),
                     " replicas");
  if (given == gradients.size() || warned_.exchange(true)) return;
  for (const GradientAndVariable& pair : gradients) {
    if (pair.gradient.has_value()) continue;
    COHORT_LOG(kWarning, "[optimizer.apply_gradients] no gradient for variable ",
               cohort::internal::variables::label(pair.variable.impl()), " (first of ",
               gradients.size() - given, "): the loss does not depend on it; it stays as it is",
               components > 1 ? ", unless another replica has one" : "");
    return;
  }
}

bool OptimizerBase::accumulate(const Gradients& gradients) {
  for (const GradientAndVariable& pair : gradients) {
    if (pair.gradient.has_value()) index_of(pair.variable);  // what can throw, throws here
  }
  const int64_t steps = options_.gradient_accumulation_steps;
  if (accumulator_->forget_after_failure()) {
    is_remote_ ? accumulator_->forget_calls() : void(calls() -= calls() % steps);
  }
  for (const GradientAndVariable& pair : gradients) {
    if (pair.gradient.has_value()) accumulator_->add(index_of(pair.variable), pair.gradient);
  }
  // Each worker of parameter servers sums its own calls, of which calls() counts all workers'.
  return (is_remote_ ? accumulator_->count_call() : calls() + 1) % steps == 0;
}

class OptimizerBase::Step final : public OptimizerStep {
 public:
  explicit Step(OptimizerBase& optimizer) : optimizer_(optimizer) {}
  int64_t iterations() const override {
    refuse_recording("its strategy decides on the host how gradients are applied");
    return optimizer_.step();
  }
  void apply_together(const Gradients& gradients) override {
    optimizer_.apply(gradients, {});
    together_ = true;
  }
  void apply_alone(const Gradients& gradients) override {
    optimizer_.check_own_copies(gradients);
    optimizer_.apply(gradients, {.skip_gradients_aggregation = true});
  }
  bool was_together() const { return together_; }

 private:
  OptimizerBase& optimizer_;
  bool together_ = false;
};

bool OptimizerBase::make_step(const Gradients& gradients, const ApplyOptions& options) {
  const cohort::internal::runtime::ThreadContext& here =
      cohort::internal::runtime::current_context();
  const bool strategy_says = here.strategy != nullptr && here.replica >= 0;
  if (options.skip_gradients_aggregation || !strategy_says) {
    apply(gradients, options);
    return !options.skip_gradients_aggregation;
  }
  Step step(*this);
  here.strategy->apply_gradients(gradients, step);
  return step.was_together();
}

void OptimizerBase::check_own_copies(const Gradients& gradients) const {
  if (!shares_parameters_) return;
  throw Unimplemented(
      str_cat("[optimizer.apply_gradients] expected gradients that are summed over replicas, got "
              "skip_gradients_aggregation for \"",
              gradients[0].variable.name(),
              "\", of which all replicas share one copy; leave it out, or "
              "use MirroredStrategy, where every replica has a copy of its own"));
}

void OptimizerBase::apply_gradients(const Gradients& gradients, const ApplyOptions& options) {
  check_gradients(gradients);
  if (!options.skip_gradients_aggregation) check_workers(gradients[0].variable);
  ensure_built(gradients);
  if (options.skip_gradients_aggregation) check_own_copies(gradients);
  const at::NoGradGuard no_grad;
  // Also behind build(): a table may have been made of the variable since.
  if (accumulator_ != nullptr) {
    internal::check_rows_stay(name_, trained_, "gradient_accumulation_steps");
  }
  if (options_.use_ema) internal::check_rows_stay(name_, trained_, "use_ema");
  if (accumulator_ != nullptr) refuse_recording("its optimizer accumulates gradients");
  if (options_.use_ema) refuse_recording("its optimizer averages weights");
  if (is_remote_) {
    // Both read behind the update.
    const char* const what = options_.use_ema ? "use_ema" : "constraints";
    if (options_.use_ema || !constrained_.empty()) {
      store_of("[optimizer.apply_gradients] ", trained_.front())
          .check_reads_behind_writes("optimizer.apply_gradients", what);
    }
    const bool counts = needs_step() || rate_.is_schedule() || options_.use_ema;
    if (counts) calls_.value();  // as all workers have counted
  }
  const int64_t before = step();
  const bool updates = accumulator_ == nullptr || accumulate(gradients);
  bool together = false;
  std::vector<std::size_t> due;
  const auto update = [&](const Gradients& all) {
    const Touched touched = touched_by(all);
    together = make_step(all, options);
    due = to_constrain(touched);
  };
  if (accumulator_ == nullptr) {
    update(gradients);
  } else if (updates) {
    update(accumulator_->take(options_.gradient_accumulation_steps));
  } else {
    due = constrained_;  // another replica's gradients are not known; copies have to stay equal
  }
  if (auto* undo = cohort::internal::variables::StepUndo::current(); updates && undo != nullptr) {
    undo->commit();  // all replicas have come this far, and the weights are written
  }
  // Equal on all replicas, each counts its own copy: no merge point. Ahead of what may throw on one
  // worker alone.
  count_call();
  if (updates && options_.use_ema) average(before);
  // As Keras, in calls that only accumulate, too; on servers that would undo what others push.
  if (!constrained_.empty() && (updates || !is_remote_)) {
    constrain(std::move(due), together, updates);
  }
}

void OptimizerBase::count_call() {
  if (is_remote_) {
    // Else the servers count what they have made.
    const auto& store = store_of("[optimizer.apply_gradients] ", calls_);
    if (!store.aggregates_pushes(calls_)) calls_.assign_add(1);
  } else if (StepRecording* const recording = StepRecording::current()) {
    recording->after([this] { ++calls(); });
  } else {
    ++calls();
  }
}

void OptimizerBase::on_build(std::span<const Variable>) {}
std::vector<SlotVariable> OptimizerBase::slot_variables() const { return slots_; }

const Variable& OptimizerBase::iterations() const { return iterations_; }

int64_t& OptimizerBase::calls() const {
  if (host_calls_) return host_calls_->own();
  return *calls_.impl().leaf().tensor.mutable_data_ptr<int64_t>();
}

double OptimizerBase::learning_rate() const {
  cohort::internal::runtime::refuse_recording("it computes with the learning rate on the host");
  return rate_now();
}

double OptimizerBase::rate_now() const {
  if (!rate_.is_schedule()) return constant_rate_.load(std::memory_order_relaxed);
  const int64_t step = built() ? calls() : count_->first_calls();
  const double rate = rate_(step);
  COHORT_CHECK_ARG(rate >= 0 && std::isfinite(rate), "[", name_,
                   "] expected the schedule to give a finite learning rate of 0 or more, got ",
                   rate, " for step ", step);
  return rate;
}

void OptimizerBase::set_learning_rate(double rate) {
  COHORT_CHECK_STATE(!rate_.is_schedule(),
                     "[optimizer.set_learning_rate] expected an optimizer "
                     "with a constant learning rate, got \"",
                     name_, "\", whose schedule decides");
  constant_rate_.store(checked_rate(name_, rate), std::memory_order_relaxed);
}

std::vector<Variable> OptimizerBase::variables() const {
  if (!built()) return {};
  std::vector<Variable> all = {calls_};
  for (const SlotVariable& kept : kept_) all.push_back(kept.variable);
  for (const SlotVariable& slot : slot_variables()) all.push_back(slot.variable);
  return all;
}

std::size_t OptimizerBase::index_of(const Variable& variable) const {
  const auto found = index_.find(&variable.impl());
  COHORT_CHECK_ARG(found != index_.end(), "[optimizer] expected one of the ", trained_.size(),
                   " variables that \"", name_, "\" was built with, got ",
                   cohort::internal::variables::label(variable.impl()));
  return found->second;
}

std::string OptimizerBase::state_name(const Variable& owner, const std::string& what) const {
  std::string variable = owner.name();
  std::replace(variable.begin(), variable.end(), '/', '_');
  return str_cat(name_, "/", variable, "_", what);
}

Variable OptimizerBase::add_slot(const Variable& like, const std::string& name, double initial,
                                 const std::optional<Shape>& shape) {
  internal::check_rows_stay(name_, {&like, 1}, "slots of its own class");
  const Variable slot = make_beside(like, full(shape.value_or(like.shape()), initial, like.dtype()),
                                    {.name = state_name(like, name), .trainable = false});
  slots_.push_back({slot, index_of(like), name});
  return slot;
}

OptimizerBase& Optimizer::base() const {
  return *cohort::internal::base::held(optimizer_, "Optimizer", "");
}

}  // namespace cohort::keras
