// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/optimizers/internal/slot_variable.h"

#include "cohort/base/check.h"
#include "cohort/runtime/replica_scope.h"
#include "cohort/variables/variable_impl.h"

namespace cohort::keras::internal {
namespace {

using cohort::internal::Component;
using cohort::internal::FusedUpdate;
using cohort::internal::VariableImpl;
using cohort::internal::Write;

class SlotVariable final : public VariableImpl {
 public:
  SlotVariable(Description description, std::shared_ptr<FusedUpdate> fused, std::size_t variable,
               int slot)
      : VariableImpl(std::move(description)),
        fused_(std::move(fused)),
        variable_(variable),
        slot_(slot) {
    const VariableImpl& owner = fused_->variables()[variable].impl();
    numel_ = owner.numel();
    creator_ = owner.creator();
  }

  Tensor value() const override {
    check_context("value");
    return fused_->slot(variable_, slot_);
  }

  Tensor write(Write kind, const Tensor& x) override {
    check_context("assign");
    COHORT_CHECK_ARG(x.dim() == 0 || shape_of(x) == description_.shape,
                     "[variable.assign] expected shape ", bracketed(description_.shape),
                     " for slot \"", description_.name, "\", got ", bracketed(x.sizes()));
    Tensor result = fused_->slot(variable_, slot_);
    switch (kind) {
      case Write::kAssign:
        result.copy_(x);
        break;
      case Write::kAdd:
        result.add_(x);
        break;
      case Write::kSub:
        result.sub_(x);
        break;
    }
    fused_->set_slot(variable_, slot_, result);
    return result;
  }
  Tensor write(Write kind, double literal) override { return write(kind, scalar(literal)); }
  void write(Write, const PerReplica<Tensor>&) override {
    throw InvalidArgument(str_cat("[variable.assign] expected one tensor for slot \"",
                                  description_.name,
                                  "\", which is equal on all replicas, got a "
                                  "value per replica"));
  }
  std::vector<Variable> components() override { return {Variable(shared_from_this())}; }

  Component& local_component() override { return component(0); }
  Component& component(int) override {
    throw FailedPrecondition(
        str_cat("[variable] expected a variable with storage of its own, got "
                "the optimizer's slot \"",
                description_.name, "\"; use value() and assign()"));
  }
  int component_count() const override { return 1; }

 private:
  void check_context(const char* what) const {
    COHORT_CHECK_STATE(current_replica() < 0 || current_replica_count() == 1, "[variable.", what,
                       "] expected cross-replica context for the optimizer's slot \"",
                       description_.name, "\", got a replica");
  }

  const std::shared_ptr<FusedUpdate> fused_;
  const std::size_t variable_;
  const int slot_;
};

}  // namespace

Variable slot_variable(std::shared_ptr<FusedUpdate> fused, std::size_t variable, int slot,
                       std::string name) {
  const VariableImpl::Description& owner = fused->variables()[variable].impl().description();
  VariableImpl::Description description;
  description.name = std::move(name);
  description.shape = owner.shape;
  description.dtype = owner.dtype;
  description.trainable = false;
  description.devices = owner.devices;
  return Variable(
      std::make_shared<SlotVariable>(std::move(description), std::move(fused), variable, slot));
}

}  // namespace cohort::keras::internal
