// SPDX-License-Identifier: Apache-2.0
#include "cohort/variables/internal/update_layout.h"

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <numeric>

#include "cohort/base/check.h"
#include "cohort/base/sanitizers.h"
#include "cohort/collectives/communicator.h"
#include "cohort/runtime/replica_group.h"
#include "cohort/runtime/replica_scope.h"
#include "cohort/runtime/step_recording.h"
#include "cohort/variables/component.h"
#include "cohort/variables/recorded_rule.h"
#include "cohort/variables/rounded_update.h"

namespace cohort::internal::variables {
namespace {

// Shares of a run end on cache lines, which two replicas then never write both.
constexpr std::size_t kShareUnit = 16;

// AddressSanitizer builds keep the padding between variables poisoned, so a pass stops there.
constexpr bool kExactRuns = COHORT_ADDRESS_SANITIZER != 0;

// Where a variable lies in the arena; null: it owns its memory.
const ArenaRange* arena_range(VariableImpl& variable) {
  return local_impl(variable).leaf_of(0).range.get();
}

}  // namespace

void UpdateRun::update(const update_rules::Rule& rule, const Sources& sources, int replica,
                       Range range, std::size_t sources_begin,
                       const update_rules::UpdateOptions& how) const {
  if (range.empty()) return;
  const std::size_t skipped = sources_begin * element_size;
  RangeUpdate call{.dtype = arena->dtype(),
                   .parameters = parameters(replica) + skipped,
                   .sources = {sources.data(), sources.size()},
                   .begin = range.begin - sources_begin,
                   .end = range.end - sources_begin};
  const auto& own = slots[slots.size() > 1 ? static_cast<std::size_t>(replica) : 0];
  for (std::size_t s = 0; s < own.size(); ++s) call.slots[s] = own[s]->data() + skipped;
  UpdateKernels& kernels = update_kernels(device(replica));
  call.rule_at = recorded_rule(kernels, call.dtype, how, decays);
  kernels.update(call, rule, how);
}

void UpdateRun::update_rows(const update_rules::Rule& rule, const RowSum& sum, int replica,
                            Range range, std::size_t table,
                            const update_rules::UpdateOptions& how) const {
  runtime::refuse_recording("it updates some rows of a table, others in each step");
  const std::size_t width = sum.width();
  if (width == 0) return;
  const auto* const gradients = static_cast<const std::byte*>(sum.values.const_data_ptr());
  const auto place = [&](std::size_t i) {
    const std::size_t begin = table + static_cast<std::size_t>(sum.rows[i]) * width;
    return Range{begin, begin + width};
  };
  // Rows that two replicas share are cut like everything else.
  const auto update_cut = [&](std::size_t i) {
    update(rule, {gradients + i * width * element_size}, replica, place(i).intersect(range),
           place(i).begin, how);
  };
  std::size_t first = 0;
  std::size_t last = sum.rows.size();
  while (first < last && place(first).begin < range.begin) update_cut(first++);
  while (first < last && place(last - 1).end > range.end) update_cut(--last);
  if (first == last) return;
  const std::size_t skipped = table * element_size;
  RowsUpdate call{.dtype = arena->dtype(),
                  .parameters = parameters(replica) + skipped,
                  .gradients = gradients + first * width * element_size,
                  .rows = {sum.rows.data() + first, last - first},
                  .width = width};
  const auto& own = slots[slots.size() > 1 ? static_cast<std::size_t>(replica) : 0];
  for (std::size_t s = 0; s < own.size(); ++s) call.slots[s] = own[s]->data() + skipped;
  update_kernels(device(replica)).update_rows(call, rule, how);
}

double UpdateRun::sum_of_squares(const Sources& sources, int replica, std::size_t begin,
                                 std::size_t end) const {
  runtime::refuse_recording("its optimizer clips by norms, which the host computes with");
  return update_kernels(device(replica))
      .sum_of_squares(arena->dtype(), {sources.data(), sources.size()}, begin, end);
}

void UpdateRun::block_square_sums(const Sources& sources, int replica, std::size_t first,
                                  std::span<double> out) const {
  runtime::refuse_recording("its optimizer clips by norms, which the host computes with");
  update_kernels(device(replica))
      .block_square_sums(arena->dtype(), {sources.data(), sources.size()}, size, first, out);
}

std::unique_ptr<runtime::Region> UpdateRun::make_slot(int replica) const {
  auto made =
      runtime::device_backend(device(replica)).reserve(device(replica), size * element_size);
  made->use(0, size * element_size);
  return made;
}

Tensor UpdateRun::slot_view(std::size_t copy, std::size_t slot, std::size_t begin,
                            const Shape& shape) const {
  const Device& where = device(static_cast<int>(copy));
  return runtime::device_backend(where).view(
      where, slots[copy][slot]->data() + begin * element_size, shape, arena->dtype(), [](void*) {});
}

UpdateLayout::UpdateLayout(std::vector<Variable> variables, const UpdaterOptions& options)
    : variables_(std::move(variables)), slot_count_(static_cast<int>(options.slot_initial.size())) {
  check_variables();
  std::vector<bool> decays(variables_.size(), true);
  if (!options.decays.empty()) decays = options.decays;
  if (!variables_.empty()) {
    const ParameterStore* const store = variables_[0].impl().store();
    strategy_ = store == nullptr ? nullptr : store->local();
    COHORT_CHECK(strategy_ != nullptr, "expected variables of this process, got ",
                 label(variables_[0].impl()), " of ", owner_of(variables_[0].impl()));
    const auto& communicator = strategy_->options().communicator;
    if (communicator != nullptr && communicator->size() > 1) communicator_ = communicator;
  }
  for (std::size_t v = 0; v < variables_.size(); ++v) index_[&variables_[v].impl()] = v;
  make_runs(decays);
  if (strategy_ != nullptr) schedule_ = choose_schedule();
  check_devices();
  is_staged_ =
      communicator_ != nullptr && !runs_.empty() && runs_[0].device(0).kind() != DeviceKind::kCpu;
  if (is_staged_) schedule_ = UpdateSchedule::kPull;
  if (communicator_ == nullptr || is_staged_) make_slots(options.slot_initial);
}

void UpdateLayout::check_devices() const {
  for (const UpdateRun& run : runs_) {
    for (int r = 0; r < replicas(); ++r) {
      const Device& device = run.device(r);
      update_kernels(device);  // throws where there are none
      const DType dtype = run.arena->dtype();
      const bool is_narrow = dtype == kFloat16 || dtype == kBFloat16;
      if (is_narrow && device.kind() != DeviceKind::kCpu) {
        throw Unimplemented(
            str_cat("[optimizer] expected variables of float32 or float64 on ", device.short_name(),
                    ", got \"", variables_[run.members.front()].name(), "\" of ", dtype_name(dtype),
                    ": take a dtype policy that keeps weights in float32, such as mixed_bfloat16"));
      }
      if (communicator_ == nullptr || device.kind() == DeviceKind::kCpu) continue;
      const bool adds_here = cross_device_ops() == nullptr && !shares_parameters();
      if (adds_here && runtime::share_memory(device, run.device(0))) continue;
      throw Unimplemented(
          str_cat("[optimizer] several workers update variables on CPUs, or mirrored on logical "
                  "GPUs of one "
                  "card without cross_device_ops; got variables on ",
                  device.short_name(),
                  adds_here ? ", which is another card than " + run.device(0).short_name()
                            : ", with cross_device_ops or in CentralStorage"));
    }
  }
}

void UpdateLayout::check_variables() const {
  std::unordered_map<const VariableImpl*, int> seen;
  for (const Variable& v : variables_) {
    COHORT_CHECK_ARG(v.trainable() && arena_range(v.impl()) != nullptr,
                     "[optimizer] expected trainable variables, got \"", v.name(),
                     "\", which is not trainable");
    COHORT_CHECK_ARG(is_trained(v.dtype()),
                     "[optimizer] expected variables of float32, float64, float16 or bfloat16, "
                     "got \"",
                     v.name(), "\" of ", dtype_name(v.dtype()));
    COHORT_CHECK_ARG(v.impl().store() == variables_[0].impl().store(),
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
    const ArenaRange& range = *arena_range(variables_[v].impl());
    return std::pair(range.arena->number(), range.offset);
  };
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return place(a) < place(b); });
  return order;
}

void UpdateLayout::make_runs(const std::vector<bool>& decays) {
  places_.resize(variables_.size());
  for (const std::size_t v : arena_order()) {
    const VariableImpl& variable = variables_[v].impl();
    const ArenaRange& range = *arena_range(variables_[v].impl());
    const auto size = static_cast<std::size_t>(kExactRuns ? variable.numel()
                                                          : range.arena->padded(variable.numel()));
    UpdateRun* run = runs_.empty() ? nullptr : &runs_.back();
    const bool touches = !kExactRuns && run != nullptr && run->arena == range.arena &&
                         run->offset + static_cast<int64_t>(run->size) == range.offset &&
                         run->decays == decays[v];
    if (!touches) {
      run = &runs_.emplace_back();
      run->arena = range.arena;
      run->offset = range.offset;
      run->element_size = range.arena->element_size();
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
  return !variables_.empty() && arena_range(variables_[0].impl())->arena->shares_parameters();
}

UpdateSchedule UpdateLayout::choose_schedule() const {
  // One copy: each replica updates its slice of it.
  if (shares_parameters()) return UpdateSchedule::kSharded;
  if (cross_device_ops() != nullptr) return UpdateSchedule::kPull;
  const UpdateSchedule wanted = strategy_->options().schedule;
  if (wanted != UpdateSchedule::kBySize) return wanted;
  // From here on slices save more time than the meeting and the copies between them take, about
  // 20 us, at some TB/s.
  constexpr std::size_t kSlicedBytes = std::size_t{8} << 20;
  std::size_t bytes = 0;
  for (const UpdateRun& run : runs_) bytes += run.size * run.element_size;
  return bytes < kSlicedBytes ? UpdateSchedule::kPull : UpdateSchedule::kSharded;
}

void UpdateLayout::make_slots(const std::vector<double>& initial) {
  const int copies = schedule_ == UpdateSchedule::kSharded ? 1 : replicas();
  for (UpdateRun& run : runs_) {
    run.slots.resize(static_cast<std::size_t>(copies));
    for (int copy = 0; copy < copies; ++copy) {
      const auto c = static_cast<std::size_t>(copy);
      for (std::size_t s = 0; s < initial.size(); ++s) {
        run.slots[c].push_back(run.make_slot(copy));
        // Fresh memory is zero, and costs nothing until touched.
        if (initial[s] == 0) continue;
        run.slot_view(c, s, 0, {static_cast<int64_t>(run.size)}).fill_(initial[s]);
      }
    }
  }
}

void UpdateLayout::split_slots() {
  for (UpdateRun& run : runs_) {
    while (static_cast<int>(run.slots.size()) < replicas()) {
      const auto replica = static_cast<int>(run.slots.size());
      auto& copy = run.slots.emplace_back();
      for (const auto& slot : run.slots.front()) {
        copy.push_back(run.make_slot(replica));
        runtime::copy_memory(run.device(replica), copy.back()->data(), run.device(0), slot->data(),
                             run.size * run.element_size);
      }
    }
  }
  schedule_ = UpdateSchedule::kPull;
}

void UpdateLayout::make_own_slots() {
  schedule_ = UpdateSchedule::kPull;
  make_slots(std::vector<double>(static_cast<std::size_t>(slot_count_), 0));
}

std::size_t UpdateLayout::index_of(const Variable& variable, std::size_t hint) const {
  if (hint < variables_.size() && variables_[hint] == variable) return hint;
  const auto found = index_.find(&variable.impl());
  COHORT_CHECK_ARG(found != index_.end(),
                   "[optimizer.apply_gradients] expected a variable that the optimizer was built "
                   "with, got \"",
                   variable.name(),
                   "\"; to train others, such as those of a layer that was thawed, make a new "
                   "optimizer: by calling compile() again");
  return found->second;
}

std::size_t UpdateLayout::row_width(std::size_t variable) const {
  const VariableImpl& v = variables_[variable].impl();
  const Shape& shape = v.description().shape;
  return shape.empty() || shape[0] == 0 ? 0 : static_cast<std::size_t>(v.numel() / shape[0]);
}

Range UpdateLayout::slice(const UpdateRun& run, int replica) const {
  if (schedule_ == UpdateSchedule::kPull || replicas() == 1) return {0, run.size};
  return share(run, replica, replicas());
}

Range UpdateLayout::share(const UpdateRun& run, Range all, int part, int parts) {
  const auto border = [&](int p) {
    const auto at = static_cast<std::size_t>(p);
    const auto of = static_cast<std::size_t>(parts);
    return at == of ? all.end : all.begin + all.size() / kShareUnit * at / of * kShareUnit;
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
                   bracketed(v.description().shape), " for ", label(v), ", got ",
                   bracketed(gradient.sizes()));
  Tensor out = at::zeros({static_cast<int64_t>(places_[variable].size)},
                         gradient.options().requires_grad(false).dtype(v.description().dtype));
  out.narrow(0, 0, v.numel()).copy_(gradient.reshape({-1}));
  return out;
}

void UpdateLayout::check_slot(std::size_t variable, int slot) const {
  COHORT_CHECK_ARG(variable < variables_.size() && slot >= 0 && slot < slot_count_,
                   "[optimizer.slot] expected slot 0 to ", slot_count_ - 1, ", got ", slot);
}

Tensor UpdateLayout::slot_view(std::size_t variable, std::size_t copy, int slot) const {
  return run_of(variable).slot_view(copy, static_cast<std::size_t>(slot), places_[variable].begin,
                                    variables_[variable].shape());
}

Tensor UpdateLayout::read_slot(std::size_t variable, int slot) const {
  return slot_view(variable, 0, slot).clone();
}

void UpdateLayout::write_slot(std::size_t variable, int slot, const Tensor& value) {
  for (std::size_t copy = 0; copy < run_of(variable).slots.size(); ++copy) {
    slot_view(variable, copy, slot).copy_(value);
  }
}

void UpdateLayout::fill_slot_rows(std::size_t variable, const Tensor& rows,
                                  const std::vector<double>& numbers) {
  for (std::size_t copy = 0; copy < run_of(variable).slots.size(); ++copy) {
    for (int slot = 0; slot < slot_count_; ++slot) {
      Tensor to = slot_view(variable, copy, slot);
      to.index_fill_(0, rows.to(to.device(), kInt64), numbers[static_cast<std::size_t>(slot)]);
    }
  }
}

std::optional<std::size_t> UpdateLayout::find(const Variable& variable) const {
  const auto found = index_.find(&variable.impl());
  return found == index_.end() ? std::nullopt : std::optional(found->second);
}

namespace {

Gradient no_rows(const Variable& variable) {
  Shape shape = variable.shape();
  shape[0] = 0;
  return IndexedSlices{zeros(shape, variable.dtype()), zeros({0}, kInt64), variable.shape()};
}

Gradient dense_zeros(const Variable& variable) { return zeros(variable.shape(), variable.dtype()); }

ReducedGradients batch_reduce(const UpdateLayout& layout, runtime::Brought<Gradients> all,
                              CrossDeviceOps& ops) {
  const std::size_t count = layout.variables().size();
  std::vector<std::vector<Gradient>> values(count);
  for (const Gradients& gradients : all) {
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
    const Variable& variable = layout.variables()[v];
    const bool by_rows = std::all_of(
        of.begin(), of.end(), [](const Gradient& g) { return !g.has_value() || g.is_sparse(); });
    for (Gradient& g : of) {
      if (!g.has_value()) g = by_rows ? no_rows(variable) : dense_zeros(variable);
    }
    places.push_back(v);
    items.push_back(
        {PerReplica<Gradient>(std::move(of)), Destinations(variable.impl().description().devices)});
    names.push_back(variable.name());
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
  const auto reduce = [&](runtime::Brought<Gradients> all) {
    return batch_reduce(layout, all, ops);
  };
  if (runtime::ReplicaGroup* group = runtime::current_replica_group()) {
    return group->merge("optimizer.reduce_gradients", gradients, reduce);
  }
  const void* const own = &gradients;
  return std::make_shared<const ReducedGradients>(
      reduce(runtime::Brought<Gradients>(std::span(&own, 1))));
}

}  // namespace cohort::internal::variables
