// SPDX-License-Identifier: Apache-2.0
//
// What a worker has its own of, by the numbers that the coordinator has given:
//
//   WorkerResources resources({.worker = 1});
//   resources.make(recipe);
//   function.call(function.function, arguments, resources, result);
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "cohort/coordinator/function.h"
#include "cohort/coordinator/internal/run_messages.h"
#include "cohort/strategy/strategy.h"

namespace cohort::internal::coordinator {

/// Threads: thread-compatible.
class WorkerResources final : public CallSite {
 public:
  struct Options {
    int worker = 0;
    int workers = 1;
    std::optional<Strategy> strategy = {};
    /// The strategy's variable of a name.
    std::function<Variable(const Strategy&, const std::string& name)> variable = {};
  };
  explicit WorkerResources(Options options) : options_(std::move(options)) {}

  std::shared_ptr<void> resource(uint64_t id, const std::type_info& type) override;
  /// Errors: Unimplemented where the strategy has none that workers reach.
  Variable variable(const std::string& name) override;
  cohort::data::InputContext input_context() override {
    return {.num_input_pipelines = options_.workers, .input_pipeline_id = options_.worker};
  }

  /// What is there stays. An error is kept for those functions that use it; where servers could not
  /// be reached, it is made again for each of them.
  void make(const ResourceRecipe& recipe);
  void drop(uint64_t id) { made_.erase(id); }

 private:
  struct Made {
    MadeResource resource = {};
    std::exception_ptr error = {};
    std::optional<ResourceRecipe> again = {};  // what another time may make
  };
  MadeResource resource_of(const ResourceRecipe& recipe);

  const Options options_;
  std::map<uint64_t, Made> made_;
};

}  // namespace cohort::internal::coordinator
