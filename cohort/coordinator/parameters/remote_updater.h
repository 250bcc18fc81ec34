// SPDX-License-Identifier: Apache-2.0
//
// Sends gradients to where the variables are, which apply the rule there.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "cohort/coordinator/parameters/parameter_servers.h"
#include "cohort/coordinator/parameters/remote_variables.h"
#include "cohort/variables/updater.h"

namespace cohort::internal::coordinator {

class RemoteVariable;

/// As Updater, but for what follows from there being many who update: each one's gradients are
/// applied when they arrive, and a step that fails on one server may have been made on others.
/// Norms to clip by are of this process's gradients, which are all of the step.
class RemoteUpdater final : public variables::Updater {
 public:
  /// Errors: as RemoteVariables::make_updater; FailedPrecondition for slots of this optimizer that
  ///         another process has made in another way.
  RemoteUpdater(std::shared_ptr<RemoteVariables> store, std::vector<Variable> variables,
                variables::UpdaterOptions options);
  ~RemoteUpdater() override;

  void apply(const Gradients& gradients, const update_rules::Rule& rule,
             double weight_decay = 0) override;
  /// The same: there is one copy.
  void apply_own(const Gradients& gradients, const update_rules::Rule& rule,
                 double weight_decay = 0) override {
    apply(gradients, rule, weight_decay);
  }

  void count_in(const Variable& iterations) override;

  const std::vector<Variable>& variables() const override { return variables_; }
  int slot_count() const override { return static_cast<int>(options_.slot_initial.size()); }
  Tensor slot(std::size_t variable, int slot) const override;
  void set_slot(std::size_t variable, int slot, const Tensor& value) override;

 private:
  /// What a step brings for one variable: one of the two.
  struct Part {
    std::size_t variable;
    Tensor dense = {};
    variables::RowSum rows = {};
    double squares = 0;
    bool is_dense() const { return dense.defined(); }
  };
  RemoteVariable& remote(std::size_t variable) const;
  std::vector<Part> parts_of(const Gradients& gradients) const;
  Part part_of(const GradientAndVariable& pair) const;
  Part part_by_ids(std::size_t variable, const Gradient& gradient) const;
  bool has_slots() const {
    return !options_.slot_initial.empty() || store_->options().sync_pushes.is_on();
  }
  void send(ParameterServers::Push& push, const Part& part, const UpdateStep& step) const;
  PushStamp stamp_now() const;
  void check_sent(const std::vector<Part>& parts) const;
  void count_push();
  void warn_of_late(int parts);
  bool clips_norms() const { return options_.clipnorm || options_.global_clipnorm; }
  double scale_of(const Part& part, double global) const;
  double global_scale(const std::vector<Part>& parts) const;

  const std::shared_ptr<RemoteVariables> store_;
  const std::vector<Variable> variables_;
  const variables::UpdaterOptions options_;
  const std::string slots_;
  std::unordered_map<const variables::VariableImpl*, std::size_t> index_;
  Variable iterations_ = {};                   // where servers aggregate pushes
  std::shared_ptr<SeenUpdates> updates_ = {};  // of it
  std::atomic<bool> has_warned_ = false;       // of a late one
};

}  // namespace cohort::internal::coordinator
