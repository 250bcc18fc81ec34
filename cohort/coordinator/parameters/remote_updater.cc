// SPDX-License-Identifier: Apache-2.0
#include "cohort/coordinator/parameters/remote_updater.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "cohort/base/check.h"
#include "cohort/base/logging.h"
#include "cohort/coordinator/parameters/remote_table.h"
#include "cohort/coordinator/parameters/remote_variable.h"
#include "cohort/update_rules/update.h"
#include "cohort/variables/rounded_update.h"

namespace cohort::internal::coordinator {
namespace {

constexpr const char* kApply = "[optimizer.apply_gradients] ";

double squares_of(const Tensor& contiguous) {
  const auto size = static_cast<std::size_t>(contiguous.numel());
  return variables::with_trained_type(contiguous.scalar_type(), [&]<class T>(T) {
    const T* const sources[] = {contiguous.const_data_ptr<T>()};
    return variables::squares_of_elements<T>(sources, 0, size);
  });
}

}  // namespace

RemoteUpdater::RemoteUpdater(std::shared_ptr<RemoteVariables> store,
                             std::vector<Variable> variables, variables::UpdaterOptions options)
    : store_(std::move(store)),
      variables_(std::move(variables)),
      options_(std::move(options)),
      slots_(store_->take_slots_name(options_.name)) {
  for (std::size_t i = 0; i < variables_.size(); ++i) {
    const variables::VariableImpl& v = variables_[i].impl();
    COHORT_CHECK_ARG(variables_[i].impl().remote() != nullptr && v.store() == store_.get(),
                     "[optimizer] expected variables of ", store_->owner(), ", got ",
                     variables::label(v), " of ", variables::owner_of(v));
    const variables::VariableImpl::Description& d = v.description();
    COHORT_CHECK_ARG(d.trainable, "[optimizer] expected trainable variables, got ",
                     variables::label(v));
    COHORT_CHECK_ARG(variables::is_trained(d.dtype),
                     "[optimizer] expected variables of float32, float64, float16 or bfloat16, "
                     "got ",
                     variables::label(v), " of ", dtype_name(d.dtype));
    COHORT_CHECK_ARG(index_.emplace(&v, i).second, "[optimizer] expected each variable once, got ",
                     variables::label(v), " twice");
  }
  if (!has_slots()) return;
  for (std::size_t i = 0; i < variables_.size(); ++i) {
    store_->servers().make_slots(remote(i).handle(), slots_, options_.slot_initial);
  }
}

RemoteUpdater::~RemoteUpdater() {
  if (!store_->is_coordinator()) return;
  store_->free_slots_name(slots_);
  if (!has_slots()) return;
  for (std::size_t i = 0; i < variables_.size(); ++i) {
    store_->servers().drop_slots(remote(i).handle(), slots_);
  }
}

RemoteVariable& RemoteUpdater::remote(std::size_t variable) const {
  return static_cast<RemoteVariable&>(variables_[variable].impl());
}

RemoteUpdater::Part RemoteUpdater::part_of(const GradientAndVariable& pair) const {
  const variables::VariableImpl& v = pair.variable.impl();
  const auto found = index_.find(&v);
  COHORT_CHECK_ARG(found != index_.end(), kApply, "expected one of the ", variables_.size(),
                   " variables that the optimizer was built with, got ", variables::label(v));
  Part part{.variable = found->second};
  if (remote(part.variable).table() != nullptr) return part_by_ids(part.variable, pair.gradient);
  const variables::VariableImpl::Description& d = v.description();
  const bool has_rows = !d.shape.empty() && v.numel() > 0;
  if (pair.gradient.is_sparse() && has_rows) {
    v.check_slices(kApply, pair.gradient.slices());
    part.rows = variables::sum_rows(pair.gradient.slices(), d.dtype);
    if (clips_norms()) part.squares = squares_of(part.rows.values);
    return part;
  }
  const Tensor gradient = pair.gradient.as_tensor();
  COHORT_CHECK_ARG(shape_of(gradient) == d.shape, kApply, "expected a gradient of shape ",
                   bracketed(d.shape), " for \"", d.name, "\", got ", bracketed(gradient.sizes()));
  part.dense = gradient.detach().to(d.dtype).contiguous();
  if (clips_norms()) part.squares = squares_of(part.dense);
  return part;
}

// Rows of lookups, by their ids: whose they are says the server.
RemoteUpdater::Part RemoteUpdater::part_by_ids(std::size_t variable,
                                               const Gradient& gradient) const {
  const variables::VariableImpl::Description& d = variables_[variable].impl().description();
  const bool is_by_ids = gradient.is_sparse() && !gradient.slices().dense_shape.empty() &&
                         gradient.slices().dense_shape[0] == variables::kRowsOfIds;
  if (!is_by_ids) {
    throw Unimplemented(str_cat(
        kApply, "expected for \"", d.name,
        "\", a DynamicTable's on parameter servers, a gradient "
        "of its lookups alone, as a GradientTape gives it, got one by the numbers of rows"));
  }
  const IndexedSlices& slices = gradient.slices();
  Shape expected = d.shape;
  expected[0] = slices.indices.numel();
  COHORT_CHECK_ARG(shape_of(slices.values) == expected, kApply, "expected rows of shape ",
                   bracketed(expected), " for \"", d.name, "\", got ",
                   bracketed(slices.values.sizes()));
  Part part{.variable = variable};
  part.rows = sum_by_ids(slices, d.dtype);
  if (clips_norms()) part.squares = squares_of(part.rows.values);
  return part;
}

std::vector<RemoteUpdater::Part> RemoteUpdater::parts_of(const Gradients& gradients) const {
  std::vector<Part> parts;
  for (const GradientAndVariable& pair : gradients) {
    if (!pair.gradient.has_value()) continue;
    parts.push_back(part_of(pair));
    const bool twice = std::any_of(parts.begin(), parts.end() - 1, [&](const Part& other) {
      return other.variable == parts.back().variable;
    });
    COHORT_CHECK_ARG(!twice, kApply, "expected each variable once, got \"", pair.variable.name(),
                     "\" twice");
  }
  return parts;
}

double RemoteUpdater::global_scale(const std::vector<Part>& parts) const {
  if (!options_.global_clipnorm) return 1;
  double squares = 0;
  for (const Part& part : parts) squares += part.squares;
  return update_rules::global_norm_clip_scale(std::sqrt(squares), *options_.global_clipnorm);
}

double RemoteUpdater::scale_of(const Part& part, double global) const {
  if (!options_.clipnorm) return global;
  return update_rules::norm_clip_scale(std::sqrt(part.squares), *options_.clipnorm);
}

void RemoteUpdater::apply(const Gradients& gradients, const update_rules::Rule& rule,
                          double weight_decay) {
  const at::NoGradGuard no_grad;
  COHORT_CHECK_STATE(updates_ != nullptr || !store_->options().sync_pushes.is_on(), kApply,
                     "expected a count of updates with sync_replicas, got none");
  const std::vector<Part> parts = parts_of(gradients);
  check_sent(parts);
  const double global = global_scale(parts);
  ParameterServers::Push push(store_->servers());
  for (const Part& part : parts) {
    UpdateStep step{.rule = rule, .how = {}, .slots = slots_};
    step.how.gradient_scale = scale_of(part, global);
    if (options_.clipvalue) step.how.clip_value = *options_.clipvalue;
    const bool decays = options_.decays.empty() || options_.decays[part.variable];
    step.how.weight_decay = decays ? weight_decay : 0;
    send(push, part, step);
  }
  // Whatever becomes of it, some of it may have been done.
  for (const Part& part : parts) remote(part.variable).note_change();
  for (std::size_t i = 0; i < variables_.size(); ++i) remote(i).note_update();
  push.wait();
  warn_of_late(push.late_parts());
  count_push();
  for (const Part& part : parts) remote(part.variable).note_change();
}

// All of them ahead of the first: half of a push would stay in the sums.
void RemoteUpdater::check_sent(const std::vector<Part>& parts) const {
  if (updates_ == nullptr) return;
  for (const Part& part : parts) {
    const ParameterHandle& handle = remote(part.variable).handle();
    part.is_dense() ? ParameterServers::Push::check(handle)
                    : ParameterServers::Push::check(handle, part.rows);
  }
}

void RemoteUpdater::send(ParameterServers::Push& push, const Part& part,
                         const UpdateStep& step) const {
  const ParameterHandle& handle = remote(part.variable).handle();
  // A scale that is none makes zeros none, too.
  const bool others_stay = step.how.weight_decay == 0 && std::isfinite(step.how.gradient_scale) &&
                           update_rules::ignores_zero_gradients(step.rule);
  const bool others_too = !options_.lazy_rows && !others_stay;
  if (remote(part.variable).table() != nullptr) {
    return push.ids(handle, step, part.rows, others_too);
  }
  if (updates_ == nullptr) {
    part.is_dense() ? push.dense(handle, step, part.dense)
                    : push.rows(handle, step, part.rows, others_too);
    return;
  }
  const PushStamp stamp = stamp_now();
  part.is_dense() ? push.accumulate(handle, step, stamp, part.dense)
                  : push.accumulate_rows(handle, step, stamp, part.rows, others_too);
}

PushStamp RemoteUpdater::stamp_now() const {
  const SyncPushes& how = store_->options().sync_pushes;
  return {.needed = how.needed, .drops_late = how.drops_late, .step = updates_->step};
}

void RemoteUpdater::warn_of_late(int parts) {
  if (parts == 0 || has_warned_.exchange(true)) return;
  COHORT_LOG(kWarning, kApply, "a gradient for \"", slots_, "\" arrived after the update that it ",
             "was for, in ", parts,
             " of its parts (variables, or shards of them), and was dropped ",
             "there; later ones are dropped without a message. Have workers wait for each other "
             "(staleness_bound), or let late ones count (drop_late = false)");
}

// Behind all parts: when it is the last one of an update, all servers have made that. What this
// process has read before there was another one is older than what the next push says of it, also
// where this one had no gradient.
void RemoteUpdater::count_push() {
  if (updates_ == nullptr) return;
  const auto count = store_->servers().count_push(updates_->counter, stamp_now());
  if (count && updates_->step.exchange(count->step) != count->step) {
    for (std::size_t i = 0; i < variables_.size(); ++i) remote(i).note_change();
  }
  static_cast<RemoteVariable&>(iterations_.impl()).note_change();
}

void RemoteUpdater::count_in(const Variable& iterations) {
  if (!store_->options().sync_pushes.is_on()) return;
  const RemoteVariable* const remote = iterations.impl().remote();
  COHORT_CHECK_ARG(
      remote != nullptr && remote->handle().dtype == kInt64 && remote->handle().shape.empty(),
      "[optimizer.build] expected a count of updates on the parameter servers, got ",
      variables::label(iterations.impl()));
  iterations_ = iterations;
  std::vector<ParameterHandle> updated;
  for (std::size_t i = 0; i < variables_.size(); ++i) updated.push_back(this->remote(i).handle());
  updates_ = store_->follow_updates(remote->handle(), std::move(updated), slots_);
}

Tensor RemoteUpdater::slot(std::size_t variable, int slot) const {
  const RemoteVariable& of = remote(variable);
  const Tensor stored =
      store_->servers().pull(of.handle(), {.slots = slots_, .slot = static_cast<uint64_t>(slot)});
  const auto table = of.table();
  return table == nullptr ? stored : table->by_numbers(stored);
}

void RemoteUpdater::set_slot(std::size_t variable, int slot, const Tensor& value) {
  const RemoteVariable& of = remote(variable);
  const variables::VariableImpl::Description& d = of.description();
  of.check_value("[optimizer.set_slot] ", value);
  Tensor numbers = value.detach().to(d.dtype).expand(d.shape).contiguous();
  if (const auto table = of.table()) numbers = table->as_stored(numbers);
  store_->servers().write(of.handle(), {.slots = slots_, .slot = static_cast<uint64_t>(slot)},
                          variables::Write::kAssign, numbers);
}

}  // namespace cohort::internal::coordinator
