// SPDX-License-Identifier: Apache-2.0
#include "cohort/variables/internal/update_layout.h"

#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "cohort/base/check.h"
#include "cohort/collectives/communicator.h"
#include "cohort/runtime/intra_op.h"
#include "cohort/runtime/replica_group.h"
#include "cohort/runtime/replica_scope.h"

namespace cohort::internal {
namespace {

// Shares of a run end on cache lines, which two replicas then never write both.
constexpr std::size_t kShareUnit = 16;

// AddressSanitizer builds keep the padding between variables poisoned, so a pass stops there.
#if defined(__SANITIZE_ADDRESS__)
constexpr bool kExactRuns = true;
#else
constexpr bool kExactRuns = false;
#endif

template <class T>
void update_run(const UpdateRun& run, const update_rules::Rule& rule,
                const UpdateRun::Sources& sources, int replica, Range range,
                std::size_t sources_begin, const update_rules::UpdateOptions& how) {
  const std::size_t copy = run.slots.size() > 1 ? static_cast<std::size_t>(replica) : 0;
  update_rules::Target<T> target;
  target.param = reinterpret_cast<T*>(run.parameters(replica)) + sources_begin;
  for (std::size_t s = 0; s < run.slots[copy].size(); ++s) {
    target.slots[s] = reinterpret_cast<T*>(run.slots[copy][s]->data()) + sources_begin;
  }
  c10::SmallVector<const T*, 8> from;
  for (const std::byte* source : sources) from.push_back(reinterpret_cast<const T*>(source));
  update_rules::fused_update<T>(rule, target, {from.data(), from.size()},
                                range.begin - sources_begin, range.end - sources_begin, how);
}

template <class T>
void block_squares(const UpdateRun& run, const UpdateRun::Sources& sources, std::size_t first,
                   std::span<double> out) {
  c10::SmallVector<const T*, 8> from;
  for (const std::byte* source : sources) from.push_back(reinterpret_cast<const T*>(source));
  update_rules::block_square_sums<T>({from.data(), from.size()}, run.size, first, out);
}

template <class T>
double squares(const UpdateRun::Sources& sources, std::size_t begin, std::size_t end) {
  c10::SmallVector<const T*, 8> from;
  for (const std::byte* source : sources) from.push_back(reinterpret_cast<const T*>(source));
  return update_rules::sum_of_squares<T>({from.data(), from.size()}, begin, end);
}

}  // namespace

void UpdateRun::update(const update_rules::Rule& rule, const Sources& sources, int replica,
                       Range range, std::size_t sources_begin,
                       const update_rules::UpdateOptions& how) const {
  update_in_pieces(range, [&](Range part) {
    if (arena->dtype() == kFloat32) {
      update_run<float>(*this, rule, sources, replica, part, sources_begin, how);
    } else {
      update_run<double>(*this, rule, sources, replica, part, sources_begin, how);
    }
  });
}

void update_in_pieces(Range range, FunctionRef<void(Range part)> update) {
  if (range.empty()) return;
  // An element is read from and written to memory in the time of so many operations; its new value
  // is the same in any range.
  constexpr double kOperations = 50;
  const int threads =
      threads_worth(kOperations * static_cast<double>(range.size()), intra_op_threads());
  if (threads == 1) return update(range);
  constexpr std::size_t kAlignment = 1024;
  const auto pieces = static_cast<std::size_t>(2 * threads);
  const std::size_t step = (range.size() / pieces / kAlignment + 1) * kAlignment;
  run_pieces(static_cast<int>(pieces), [&](int piece) {
    const std::size_t begin = range.begin + step * static_cast<std::size_t>(piece);
    const Range part = range.intersect({begin, begin + step});
    if (!part.empty()) update(part);
  });
}

double UpdateRun::sum_of_squares(const Sources& sources, std::size_t begin, std::size_t end) const {
  return arena->dtype() == kFloat32 ? squares<float>(sources, begin, end)
                                    : squares<double>(sources, begin, end);
}

void UpdateRun::block_square_sums(const Sources& sources, std::size_t first,
                                  std::span<double> out) const {
  if (arena->dtype() == kFloat32) {
    block_squares<float>(*this, sources, first, out);
  } else {
    block_squares<double>(*this, sources, first, out);
  }
}

UpdateLayout::UpdateLayout(std::vector<Variable> variables, const FusedUpdateOptions& options)
    : variables_(std::move(variables)), slot_count_(static_cast<int>(options.slot_initial.size())) {
  check_variables();
  std::vector<bool> decays(variables_.size(), true);
  if (!options.decays.empty()) decays = options.decays;
  if (!variables_.empty()) {
    strategy_ = dynamic_cast<const LocalVariables*>(variables_[0].impl().creator());
    COHORT_CHECK(strategy_ != nullptr, "variables of an unknown kind");
    schedule_ = choose_schedule();
    const auto& communicator = strategy_->options().communicator;
    if (communicator != nullptr && communicator->size() > 1) communicator_ = communicator;
  }
  for (std::size_t v = 0; v < variables_.size(); ++v) index_[&variables_[v].impl()] = v;
  make_runs(decays);
  if (communicator_ == nullptr) make_slots(options.slot_initial);
}

void UpdateLayout::check_variables() const {
  std::unordered_map<const VariableImpl*, int> seen;
  for (const Variable& v : variables_) {
    COHORT_CHECK_ARG(v.trainable() && v.impl().arena() != nullptr,
                     "[optimizer] expected trainable variables, got \"", v.name(),
                     "\", which is not trainable");
    COHORT_CHECK_ARG(v.dtype() == kFloat32 || v.dtype() == kFloat64,
                     "[optimizer] expected float32 or float64 variables, got \"", v.name(),
                     "\" of ", dtype_name(v.dtype()));
    COHORT_CHECK_ARG(v.impl().creator() == variables_[0].impl().creator(),
                     "[optimizer] expected variables of one strategy, got ",
                     label(variables_[0].impl()), " of ", owner_of(variables_[0].impl()), " and ",
                     label(v.impl()), " of ", owner_of(v.impl()));
    COHORT_CHECK_ARG(seen[&v.impl()]++ == 0, "[optimizer] expected each variable once, got ",
                     label(v.impl()), " twice");
  }
}

// Neighbours meet in the arena's order, whatever order the caller lists.
std::vector<std::size_t> UpdateLayout::arena_order() const {
  std::vector<std::size_t> order(variables_.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto place = [&](std::size_t v) {
    const VariableImpl& variable = variables_[v].impl();
    return std::pair(variable.arena()->number(), variable.offset());
  };
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return place(a) < place(b); });
  return order;
}

void UpdateLayout::make_runs(const std::vector<bool>& decays) {
  places_.resize(variables_.size());
  for (const std::size_t v : arena_order()) {
    const VariableImpl& variable = variables_[v].impl();
    const auto size = static_cast<std::size_t>(
        kExactRuns ? variable.numel() : variable.arena()->padded(variable.numel()));
    UpdateRun* run = runs_.empty() ? nullptr : &runs_.back();
    const bool touches = !kExactRuns && run != nullptr && run->arena == variable.arena() &&
                         run->offset + static_cast<int64_t>(run->size) == variable.offset() &&
                         run->decays == decays[v];
    if (!touches) {
      run = &runs_.emplace_back();
      run->arena = variable.arena();
      run->offset = variable.offset();
      run->element_size = variable.arena()->element_size();
      run->start = total_;
      run->decays = decays[v];
    }
    places_[v] = {runs_.size() - 1, run->size, size};
    run->members.push_back(v);
    run->size += size;
    total_ += size;
  }
}

bool UpdateLayout::shares_parameters() const {
  return !variables_.empty() && variables_[0].impl().arena()->shares_parameters();
}

UpdateSchedule UpdateLayout::choose_schedule() const {
  // One copy: each replica updates its slice of it.
  if (shares_parameters()) return UpdateSchedule::kSharded;
  return cross_device_ops() != nullptr ? UpdateSchedule::kPull : strategy_->options().schedule;
}

void UpdateLayout::make_slots(const std::vector<double>& initial) {
  const int copies = schedule_ == UpdateSchedule::kSharded ? 1 : replicas();
  for (UpdateRun& run : runs_) {
    run.slots.resize(static_cast<std::size_t>(copies));
    for (auto& copy : run.slots) {
      for (const double value : initial) {
        copy.push_back(std::make_unique<Region>(run.size * run.element_size));
        copy.back()->make_usable();
        if (value == 0) continue;  // fresh memory is zero, and costs nothing until touched
        at::from_blob(copy.back()->data(), {static_cast<int64_t>(run.size)},
                      at::TensorOptions().dtype(run.arena->dtype()))
            .fill_(value);
      }
    }
  }
}

void UpdateLayout::split_slots() {
  for (UpdateRun& run : runs_) {
    while (static_cast<int>(run.slots.size()) < replicas()) {
      auto& copy = run.slots.emplace_back();
      for (const auto& slot : run.slots.front()) {
        copy.push_back(std::make_unique<Region>(run.size * run.element_size));
        copy.back()->make_usable();
        std::memcpy(copy.back()->data(), slot->data(), run.size * run.element_size);
      }
    }
  }
  schedule_ = UpdateSchedule::kPull;
}

std::size_t UpdateLayout::index_of(const Variable& variable, std::size_t hint) const {
  if (hint < variables_.size() && variables_[hint] == variable) return hint;
  const auto found = index_.find(&variable.impl());
  COHORT_CHECK_ARG(found != index_.end(),
                   "[optimizer.apply_gradients] expected a variable that the optimizer was built "
                   "with, got \"",
                   variable.name(), "\"");
  return found->second;
}

Range UpdateLayout::slice(const UpdateRun& run, int replica) const {
  if (schedule_ == UpdateSchedule::kPull || replicas() == 1) return {0, run.size};
  return share(run, replica, replicas());
}

Range UpdateLayout::share(const UpdateRun& run, int part, int parts) const {
  const auto border = [&](int p) {
    const auto at = static_cast<std::size_t>(p);
    const auto all = static_cast<std::size_t>(parts);
    return at == all ? total_ : total_ / kShareUnit * at / all * kShareUnit;
  };
  const auto inside = [&](std::size_t x) {
    return std::clamp(x, run.start, run.start + run.size) - run.start;
  };
  return {inside(border(part)), inside(border(part + 1))};
}

Tensor UpdateLayout::pad(std::size_t variable, const Tensor& gradient) const {
  const VariableImpl& v = variables_[variable].impl();
  COHORT_CHECK_ARG(shape_of(gradient) == v.description().shape,
                   "[optimizer.apply_gradients] expected a gradient of shape ",
                   bracketed(v.description().shape), " for \"", v.description().name, "\", got ",
                   bracketed(gradient.sizes()));
  Tensor out = zeros({static_cast<int64_t>(places_[variable].size)}, v.description().dtype);
  out.narrow(0, 0, v.numel()).copy_(gradient.reshape({-1}));
  return out;
}

void UpdateLayout::check_slot(std::size_t variable, int slot) const {
  COHORT_CHECK_ARG(variable < variables_.size() && slot >= 0 && slot < slot_count_,
                   "[optimizer.slot] expected slot 0 to ", slot_count_ - 1, ", got ", slot);
}

Tensor UpdateLayout::slot_view(std::size_t variable, std::size_t copy, int slot) const {
  const UpdateRun& run = run_of(variable);
  std::byte* data = run.slots[copy][static_cast<std::size_t>(slot)]->data() +
                    places_[variable].begin * run.element_size;
  return at::from_blob(data, variables_[variable].shape(),
                       at::TensorOptions().dtype(run.arena->dtype()));
}

Tensor UpdateLayout::read_slot(std::size_t variable, int slot) const {
  return slot_view(variable, 0, slot).clone();
}

void UpdateLayout::write_slot(std::size_t variable, int slot, const Tensor& value) {
  for (std::size_t copy = 0; copy < run_of(variable).slots.size(); ++copy) {
    slot_view(variable, copy, slot).copy_(value);
  }
}

namespace {

ReducedGradients batch_reduce(const UpdateLayout& layout, std::span<const void* const> arguments,
                              CrossDeviceOps& ops) {
  const std::size_t count = layout.variables().size();
  std::vector<std::vector<Gradient>> values(count);
  for (const void* argument : arguments) {
    const auto& gradients = *static_cast<const Gradients*>(argument);
    std::vector<Gradient> own(count);
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      own[layout.index_of(gradients[i].variable, i)] = gradients[i].gradient;
    }
    for (std::size_t v = 0; v < count; ++v) values[v].push_back(own[v]);
  }
  std::vector<ReduceItem> items;
  std::vector<std::string> names;
  std::vector<std::size_t> places;
  for (std::size_t v = 0; v < count; ++v) {
    auto& of = values[v];
    if (std::none_of(of.begin(), of.end(), [](const Gradient& g) { return g.has_value(); }))
      continue;
    for (Gradient& g : of) {
      if (!g.has_value()) g = zeros(layout.variables()[v].shape(), layout.variables()[v].dtype());
    }
    places.push_back(v);
    items.push_back({PerReplica<Gradient>(std::move(of)),
                     Destinations(layout.variables()[v].impl().description().devices)});
    names.push_back(layout.variables()[v].name());
  }
  std::vector<Mirrored<Gradient>> reduced = ops.batch_reduce(ReduceOp::kSum, items, {}, names);
  ReducedGradients out(count);
  for (std::size_t i = 0; i < places.size(); ++i) out[places[i]] = reduced[i];
  return out;
}

}  // namespace

std::shared_ptr<const ReducedGradients> reduce_gradients(const UpdateLayout& layout,
                                                         const Gradients& gradients,
                                                         CrossDeviceOps& ops) {
  static const char tag = 0;
  const auto body = [&](std::span<const void* const> arguments) -> std::shared_ptr<void> {
    return std::make_shared<ReducedGradients>(batch_reduce(layout, arguments, ops));
  };
  ReplicaGroup* group = current_replica_group();
  const void* own = &gradients;
  const std::shared_ptr<void> result = group != nullptr
                                           ? group->merge(&tag, own, body)
                                           : body(std::span<const void* const>(&own, 1));
  return std::static_pointer_cast<const ReducedGradients>(result);
}

}  // namespace cohort::internal
