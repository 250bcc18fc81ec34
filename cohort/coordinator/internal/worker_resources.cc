// SPDX-License-Identifier: Apache-2.0
#include "cohort/coordinator/internal/worker_resources.h"

#include <utility>

#include "cohort/base/check.h"
#include "cohort/base/failpoint.h"
#include "cohort/strategy/distributed_dataset.h"
#include "cohort/variables/variable_impl.h"

namespace cohort::internal::coordinator {
namespace {

// A dataset is made anew whenever its worker is, and a variable would be there already.
class RefusesVariables final : public variables::VariableCreator {
 public:
  std::shared_ptr<variables::VariableImpl> create(const InitialValue& /*initial*/,
                                                  const VariableOptions& options) override {
    throw InvalidArgument(
        str_cat("[create_per_worker_dataset] expected a function that makes no variables, got \"",
                options.name, "\"; make it before, and give it to the functions that need it"));
  }
};

// Of servers, or a network, that may be back.
bool may_pass(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const Error& e) {
    return e.code() == ErrorCode::kUnavailable || e.code() == ErrorCode::kDeadlineExceeded ||
           e.code() == ErrorCode::kCancelled || e.code() == ErrorCode::kAborted;
  } catch (...) {
    return false;
  }
}

}  // namespace

std::shared_ptr<void> WorkerResources::resource(uint64_t id, const std::type_info& type) {
  auto found = made_.find(id);
  if (found != made_.end() && found->second.again) {
    const ResourceRecipe recipe = *found->second.again;
    made_.erase(found);
    make(recipe);
    found = made_.find(id);
  }
  COHORT_CHECK_STATE(found != made_.end(), "[schedule] worker ", options_.worker,
                     " has no resource ", id,
                     ": its PerWorkerValues are gone; keep them until functions that take them "
                     "have run");
  const Made& made = found->second;
  if (made.error) std::rethrow_exception(made.error);
  COHORT_CHECK_ARG(
      *made.resource.type == type, "[schedule] expected a parameter of the type that was made, ",
      readable_signature(made.resource.type->name()), ", got ", readable_signature(type.name()));
  return made.resource.value;
}

Variable WorkerResources::variable(const std::string& name) {
  if (options_.variable && options_.strategy) return options_.variable(*options_.strategy, name);
  throw Unimplemented(str_cat("[schedule] the variable \"", name,
                              "\" cannot be given to a function: this job's strategy has no "
                              "variables that workers reach"));
}

void WorkerResources::make(const ResourceRecipe& recipe) {
  if (made_.count(recipe.id) > 0) return;
  Made made;
  try {
    base::failpoint("worker.make_resource");
    made.resource = resource_of(recipe);
    COHORT_CHECK_ARG(made.resource.value != nullptr, "[create_per_worker_resource] expected \"",
                     recipe.function, "\" to return an object, got null");
  } catch (...) {
    made.error = std::current_exception();
    if (may_pass(made.error)) made.again = recipe;
  }
  made_[recipe.id] = std::move(made);
}

MadeResource WorkerResources::resource_of(const ResourceRecipe& recipe) {
  if (recipe.kind == ResourceRecipe::Kind::kIterator) {
    const auto dataset = resource(recipe.dataset, typeid(Dataset));
    const auto steps = get_strategy().distribute_dataset(*static_cast<Dataset*>(dataset.get()));
    return {std::make_shared<DistributedIterator>(steps.make_iterator()),
            &typeid(DistributedIterator)};
  }
  const RegisteredFunction& entry =
      registered_function(recipe.function, "[create_per_worker_resource] ");
  COHORT_CHECK_ARG(entry.make != nullptr, "[create_per_worker_resource] expected \"",
                   recipe.function, "\" to return std::shared_ptr<T> or Dataset");
  const RunningFunction running(options_.worker);
  ValueReader in(recipe.arguments);
  std::optional<variables::VariableCreatorScope> none;
  if (entry.makes_dataset) none.emplace(std::make_shared<RefusesVariables>());
  return entry.make(entry.function, in, *this);
}

}  // namespace cohort::internal::coordinator
