// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/remote_steps.h"

#include <ATen/core/grad_mode.h>

#include "cohort/base/check.h"
#include "cohort/base/logging.h"
#include "cohort/cluster/cluster_resolver.h"
#include "cohort/coordinator/internal/coordinator_access.h"
#include "cohort/keras/config.h"
#include "cohort/keras/dataset_creator.h"

namespace cohort::keras::internal {
namespace {

// For each worker: what it runs, what is under way to it, and what lies ready.
constexpr std::size_t kAhead = 16;
constexpr std::size_t kSentAhead = 4;

// Also where serialize() would only warn.
std::string config_of(const keras::Model& model) {
  try {
    keras::Config config = model.serialize();
    config.set("compile_config", model.get_compile_config());
    return config.to_json();
  } catch (const Unimplemented& e) {
    throw Unimplemented(
        str_cat("[fit] with a ParameterServerStrategy workers make the model by its config, so "
                "classes of layers, losses and metrics have to say what they are made with "
                "(get_config, COHORT_REGISTER_SERIALIZABLE); got: ",
                e.what()));
  }
}

// What a worker has summed and not applied is lost with it: no execution may end with such sums.
void check_accumulation(const keras::CompileOptions& options) {
  const keras::Config config = options.optimizer.get_config();
  const keras::Config* const given = config.find("gradient_accumulation_steps");
  const int64_t steps = given == nullptr || given->is_null() ? 1 : given->integer();
  COHORT_CHECK_ARG(options.steps_per_execution % steps == 0,
                   "[fit] expected steps_per_execution to be a multiple of ",
                   "gradient_accumulation_steps with a ParameterServerStrategy, for a worker sums "
                   "the gradients of its own steps, got ",
                   options.steps_per_execution, " and ", steps);
}

template <class Variables>
std::vector<std::string> names_of(const Variables& variables) {
  std::vector<std::string> names;
  for (const Variable& v : variables) names.push_back(v.name());
  return names;
}

// What workers count is added up: a state that is no sum cannot be.
void check_is_sum(const Variable& state) {
  COHORT_CHECK_ARG(state.synchronization() == Synchronization::kOnRead &&
                       state.aggregation() == Aggregation::kSum,
                   "[fit] expected metrics whose states are sums (MetricBase::add_variable), for "
                   "several workers count them, got \"",
                   state.name(), "\"");
}

}  // namespace

RemoteSteps::RemoteSteps(keras::Model& model, CompiledModel& compiled, const Tensor& class_weights,
                         bool trains)
    : model_(model),
      compiled_(compiled),
      coordinator_(model.strategy()),
      workers_(model.strategy().cluster_resolver()->cluster_spec().num_tasks("worker")),
      logs_(compiled.live) {
  for (const Variable& state : compiled_.metric_variables()) check_is_sum(state);
  const keras::Optimizer& optimizer = compiled_.options.optimizer;
  std::vector<Tensor> weights_of_classes;
  if (class_weights.defined()) weights_of_classes.push_back(class_weights);
  if (trains) check_accumulation(compiled_.options);
  models_ = coordinator_.create_per_worker_resource(
      make_worker_model, config_of(model_), names_of(model_.variables()),
      trains ? names_of(optimizer.variables()) : std::vector<std::string>(), weights_of_classes);
}

RemoteSteps::~RemoteSteps() {
  if (begun_.empty()) return;
  try {
    coordinator_.join();
  } catch (const std::exception& e) {
    COHORT_LOG(kWarning, "[fit] a step that was still running has failed: ", e.what());
  }
}

bool RemoteSteps::may_begin(bool sent) const {
  return begun_.size() < static_cast<std::size_t>(workers_) * (sent ? kSentAhead : kAhead);
}

// Schedules follow the count of updates; another rate is this process's.
double RemoteSteps::rate() const {
  const keras::Optimizer& optimizer = compiled_.options.optimizer;
  return optimizer.base().has_schedule() ? -1 : optimizer.learning_rate();
}

PerWorkerDataset RemoteSteps::dataset_of(const DatasetRecipe& recipe,
                                         const std::optional<InputContext>& context) {
  COHORT_CHECK_ARG(recipe.function != nullptr,
                   "[fit] expected a DatasetCreator of a function that is registered "
                   "(COHORT_REGISTER_FUNCTION), for workers call it by its name, got a lambda or "
                   "another object that is called");
  return cohort::internal::coordinator::CoordinatorAccess::make_dataset(
      coordinator_, recipe.function, context, recipe.write_arguments);
}

void RemoteSteps::train_from(const DatasetRecipe& recipe, int64_t steps) {
  if (!trained_) trained_ = coordinator_.make_iterator(dataset_of(recipe, std::nullopt));
  begun_.push_back(coordinator_.schedule(train_worker_from, models_, *trained_, steps, rate()));
}

void RemoteSteps::train_on(const std::vector<std::string>& packed_batches) {
  begun_.push_back(coordinator_.schedule(train_worker_on, models_, packed_batches, rate()));
}

void RemoteSteps::test_on(const std::vector<std::string>& packed_batches) {
  begun_.push_back(
      coordinator_.schedule({.is_step = false}, test_worker_on, models_, packed_batches));
}

void RemoteSteps::test_shard(const DatasetRecipe& recipe, int64_t steps, int64_t shards,
                             int64_t shard) {
  if (!tested_ || tested_->first != &recipe) {
    tested_.emplace(&recipe, dataset_of(recipe, InputContext()));
  }
  begun_.push_back(coordinator_.schedule({.is_step = false}, test_worker_shard, models_,
                                         tested_->second, steps, shards, shard));
}

StepsDone RemoteSteps::take() {
  StepsDone done;
  try {
    done = begun_.front().get();
  } catch (...) {
    begun_.clear();
    coordinator_.join();  // throws the first error; this one may be what came of it
    throw;
  }
  begun_.pop_front();
  if (done.steps == 0) return done;
  add(done);
  take_logs(done);
  if (done.stops != 0) model_.stop_training();
  return done;
}

void RemoteSteps::add(const StepsDone& done) {
  const at::NoGradGuard no_grad;
  if (compiled_.resolve_as(done.shapes)) {
    for (const Variable& state : compiled_.metric_variables()) check_is_sum(state);
  }
  const std::vector<Variable> states = compiled_.metric_variables();
  COHORT_CHECK_STATE(states.size() == done.states.size(), "[fit] expected ", states.size(),
                     " states of metrics from a worker, as the chief has, got ",
                     done.states.size());
  for (std::size_t i = 0; i < states.size(); ++i) {
    states[i].assign(states[i].value() + done.states[i]);
  }
}

void RemoteSteps::take_logs(const StepsDone& done) {
  logs_ = compiled_.live;
  if (done.logged.empty()) return;
  keras::Logs logs;
  for (const std::string& name : done.logged) {
    const auto found = done.values.find(name);
    if (found != done.values.end()) {
      logs.set(name, found->second);
    } else {
      logs.set(name, [live = compiled_.live, name] { return live.value(name); });
    }
  }
  logs_ = std::move(logs);
}

}  // namespace cohort::keras::internal
