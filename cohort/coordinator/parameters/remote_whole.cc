// SPDX-License-Identifier: Apache-2.0
#include "cohort/coordinator/parameters/remote_whole.h"

#include <ATen/core/grad_mode.h>

#include <utility>

#include "cohort/base/check.h"
#include "cohort/coordinator/parameters/remote_variable.h"
#include "cohort/coordinator/parameters/remote_variables.h"
#include "cohort/variables/rounded_update.h"

namespace cohort::internal::coordinator {
namespace {

constexpr const char* kBuild = "[optimizer.build] ";
constexpr const char* kApplyWhole = "[optimizer.apply_gradients] ";

void check_variable(const RemoteVariables& store, const Variable& variable) {
  variables::VariableImpl& v = variable.impl();
  COHORT_CHECK_ARG(v.remote() != nullptr && v.store() == &store, kBuild, "expected variables of ",
                   store.owner(), ", got ", variables::label(v), " of ", variables::owner_of(v));
  COHORT_CHECK_ARG(v.description().trainable, kBuild, "expected trainable variables, got ",
                   variables::label(v));
  COHORT_CHECK_ARG(variables::is_trained(v.description().dtype), kBuild,
                   "expected variables of float32, float64, float16 or bfloat16, got ",
                   variables::label(v), " of ", dtype_name(v.description().dtype));
}

std::vector<Variable> checked(const RemoteVariables& store, std::vector<Variable> variables,
                              const std::string& optimizer) {
  for (const Variable& each : variables) check_variable(store, each);
  if (!store.options().sync_pushes.is_on()) return variables;
  throw Unimplemented(
      str_cat("[", optimizer, "] expected an optimizer whose rule goes element by element with ",
              "sync_replicas, got one that looks at variables as a whole: it would need ",
              "statistics of the mean of gradients, which only servers have; use Adam or another ",
              "one, or leave sync_replicas out"));
}

}  // namespace

RemoteWhole::RemoteWhole(std::shared_ptr<RemoteVariables> store, std::vector<Variable> variables,
                         const std::string& optimizer,
                         std::vector<std::vector<variables::SlotForm>> forms)
    : store_(std::move(store)),
      variables_(checked(*store_, std::move(variables), optimizer)),
      forms_(std::move(forms)),
      slots_(store_->take_slots_name(optimizer)) {
  for (std::size_t i = 0; i < variables_.size(); ++i) {
    store_->servers().make_slots(remote(i).handle(), slots_,
                                 std::vector<double>(forms_[i].size(), 0), forms_[i]);
  }
}

RemoteWhole::~RemoteWhole() {
  if (!store_->is_coordinator()) return;
  store_->free_slots_name(slots_);
  for (std::size_t i = 0; i < variables_.size(); ++i) {
    store_->servers().drop_slots(remote(i).handle(), slots_);
  }
}

RemoteVariable& RemoteWhole::remote(std::size_t variable) const {
  return static_cast<RemoteVariable&>(variables_[variable].impl());
}

// A slot as if it were a variable that lies where the slot does.
ParameterHandle RemoteWhole::slot_handle(std::size_t variable, std::size_t slot) const {
  const variables::SlotForm& form = forms_[variable][slot];
  ParameterHandle out = remote(variable).handle();
  out.shape = variables::shape_of(form, out.shape);
  if (form.kind != variables::SlotForm::Kind::kShared) return out;
  out.shards.resize(1);
  out.shards[0].place.first = 0;
  out.shards[0].place.rows = out.rows();
  return out;
}

std::vector<Tensor> RemoteWhole::first_slots(const std::vector<std::size_t>& variables) {
  std::vector<ParameterHandle> handles;
  std::vector<const ParameterHandle*> asked;
  for (const std::size_t each : variables) handles.push_back(slot_handle(each, 0));
  for (const ParameterHandle& each : handles) asked.push_back(&each);
  return store_->servers().pull_all(asked, {.slots = slots_, .slot = 0});
}

void RemoteWhole::apply(std::vector<Part> parts) {
  const at::NoGradGuard no_grad;
  std::vector<WholePush> pushes, summed;
  std::vector<std::size_t> whose;  // of the sums
  for (Part& part : parts) {
    const RemoteVariable& v = remote(part.variable);
    COHORT_CHECK_ARG(shape_of(part.by.gradient) == v.description().shape, kApplyWhole,
                     "expected a gradient of shape ", bracketed(v.description().shape), " for \"",
                     v.handle().name, "\", got ", bracketed(part.by.gradient.sizes()));
    for (Tensor* x :
         {&part.by.gradient, &part.by.update, &part.by.row_means, &part.by.column_means}) {
      if (x->defined()) *x = x->contiguous();
    }
    pushes.push_back({v.handle(), {part.rule, part.weight_decay, slots_}, std::move(part.by)});
    if (!variables::needs_sums(part.rule)) continue;
    summed.push_back(pushes.back());
    whose.push_back(pushes.size() - 1);
  }
  const std::vector<variables::WholeSums> sums = store_->servers().sums(summed);
  for (std::size_t i = 0; i < sums.size(); ++i) {
    WholePush& push = pushes[whose[i]];
    variables::resolve(push.step.rule, sums[i], push.by.gradient.numel());
  }
  // Whatever becomes of it, some of it may have been done.
  for (const Part& part : parts) remote(part.variable).note_change();
  ParameterServers::Push push(store_->servers());
  for (const WholePush& each : pushes) push.whole(each);
  push.wait();
  for (const Part& part : parts) remote(part.variable).note_change();
}

Tensor RemoteWhole::slot(std::size_t variable, std::size_t slot) {
  return store_->servers().pull(slot_handle(variable, slot), {.slots = slots_, .slot = slot});
}

void RemoteWhole::set_slot(std::size_t variable, std::size_t slot, const Tensor& value) {
  const ParameterHandle whole = slot_handle(variable, slot);
  const Tensor numbers = value.detach().to(whole.dtype).expand(whole.shape).contiguous();
  const auto write = [&](const ParameterHandle& to) {
    store_->servers().write(to, {.slots = slots_, .slot = slot}, variables::Write::kAssign,
                            numbers);
  };
  if (forms_[variable][slot].kind != variables::SlotForm::Kind::kShared) return write(whole);
  for (const BoundShard& shard : remote(variable).handle().shards) {
    ParameterHandle one = whole;
    one.shards[0].id = shard.id;
    one.shards[0].place.server = shard.place.server;
    write(one);
  }
}

}  // namespace cohort::internal::coordinator
