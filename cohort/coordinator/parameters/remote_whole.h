// SPDX-License-Identifier: Apache-2.0
//
// Steps that look at variables as a whole, of variables that parameter servers keep.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "cohort/coordinator/parameters/parameter_servers.h"
#include "cohort/variables/variable.h"
#include "cohort/variables/whole_updater.h"

namespace cohort::internal::coordinator {

class RemoteVariable;
class RemoteVariables;

/// A step has two phases (variables/whole_step.h). Between them others may push: the step is scaled
/// by the values that the first phase has seen, and is applied to those that are there, of which
/// nothing is lost. A server that dies between them changes nothing: the first one writes nothing,
/// and the second one is a change as all others, which has all its numbers, is done once, and is in
/// the log of copies. Of a shard it is one step to all who read it, up to 4 MiB.
/// Threads: as RemoteUpdater.
class RemoteWhole final : public variables::WholeUpdater {
 public:
  /// Errors: as RemoteVariables::make_whole_updater.
  RemoteWhole(std::shared_ptr<RemoteVariables> store, std::vector<Variable> variables,
              const std::string& optimizer, std::vector<std::vector<variables::SlotForm>> forms);
  ~RemoteWhole() override;

  void apply(std::vector<Part> parts) override;
  std::vector<Tensor> first_slots(const std::vector<std::size_t>& variables) override;
  Tensor slot(std::size_t variable, std::size_t slot) override;
  void set_slot(std::size_t variable, std::size_t slot, const Tensor& value) override;

 private:
  RemoteVariable& remote(std::size_t variable) const;
  ParameterHandle slot_handle(std::size_t variable, std::size_t slot) const;

  const std::shared_ptr<RemoteVariables> store_;
  const std::vector<Variable> variables_;
  const std::vector<std::vector<variables::SlotForm>> forms_;
  const std::string slots_;
};

}  // namespace cohort::internal::coordinator
