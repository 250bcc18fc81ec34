// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/optimizers/internal/state_variable.h"

#include "cohort/base/check.h"
#include "cohort/runtime/replica_scope.h"
#include "cohort/variables/variable_impl.h"

namespace cohort::keras::internal {
namespace {

using cohort::internal::variables::Leaf;
using cohort::internal::variables::VariableImpl;
using cohort::internal::variables::Write;

class StateVariable final : public VariableImpl {
 public:
  StateVariable(Description description, const VariableImpl* like, StateAccess access)
      : VariableImpl(std::move(description)), access_(std::move(access)) {
    if (like != nullptr) store_ = like->store();
  }

  Tensor value() const override {
    if (!access_.in_replicas) check_context("value");
    return access_.read();
  }

  using VariableImpl::write;
  Tensor write(Write kind, const Tensor& x) override {
    check_context("assign");
    COHORT_CHECK_ARG(x.dim() == 0 || shape_of(x) == description_.shape,
                     "[variable.assign] expected shape ", bracketed(description_.shape), " for \"",
                     description_.name, "\", got ", bracketed(x.sizes()));
    Tensor result = access_.read();
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
    access_.write(result);
    return result;
  }
  void write(Write, const PerReplica<Tensor>&) override {
    throw InvalidArgument(str_cat("[variable.assign] expected one tensor for \"", description_.name,
                                  "\", the optimizer's own state, got a value per replica"));
  }

  std::vector<TrackedPiece> pieces() const {
    if (access_.pieces == nullptr) return {};
    return access_.pieces();
  }

  Leaf& leaf() override {
    throw FailedPrecondition(
        str_cat("[variable] expected a variable with storage of its own, got the optimizer's \"",
                description_.name, "\"; use value() and assign()"));
  }

 private:
  void check_context(const char* what) const {
    COHORT_CHECK_STATE(current_replica() < 0 || current_replica_count() == 1, "[variable.", what,
                       "] expected cross-replica context for the optimizer's \"", description_.name,
                       "\", got a replica");
  }

  const StateAccess access_;
};

Variable make(const VariableImpl* like, StateOptions options, StateAccess access) {
  VariableImpl::Description description;
  description.name = std::move(options.name);
  description.shape = std::move(options.shape);
  description.dtype = options.dtype;
  description.trainable = false;
  if (like != nullptr) description.devices = like->description().devices;
  return Variable(std::make_shared<StateVariable>(std::move(description), like, std::move(access)));
}

}  // namespace

Variable state_variable(const Variable& like, StateOptions options, StateAccess access) {
  return make(&like.impl(), std::move(options), std::move(access));
}

Variable state_variable(StateOptions options, StateAccess access) {
  return make(nullptr, std::move(options), std::move(access));
}

std::vector<TrackedPiece> pieces_of(const Variable& variable) {
  const auto* const state = dynamic_cast<const StateVariable*>(&variable.impl());
  if (state == nullptr) return {};
  return state->pieces();
}

}  // namespace cohort::keras::internal
