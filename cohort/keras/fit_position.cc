// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/fit_position.h"

#include <cstring>
#include <span>

#include "cohort/base/check.h"
#include "cohort/checkpoint/saving_group.h"
#include "cohort/data/core/internal/state.h"
#include "cohort/keras/compiled_model.h"
#include "cohort/keras/input_stream.h"
#include "cohort/keras/model.h"
#include "cohort/runtime/random.h"
#include "cohort/variables/parameter_store.h"
#include "cohort/variables/variable_impl.h"

namespace cohort::internal {
namespace {

constexpr int64_t kMostTexts = int64_t{1} << 40;

std::span<std::byte> bytes_of_component(const Variable& v, int replica) {
  const Tensor& tensor = v.impl().component(replica).tensor;
  return {static_cast<std::byte*>(tensor.mutable_data_ptr()), tensor.nbytes()};
}

// The components of this process, to the last bit.
std::string components_of(std::span<const Variable> variables) {
  std::string out;
  for (const Variable& v : variables) {
    for (int r = 0; r < v.impl().component_count(); ++r) {
      const auto bytes = bytes_of_component(v, r);
      out.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    }
  }
  return out;
}

// Nothing if they are of other sizes.
void set_components(std::span<const Variable> variables, std::string_view bytes) {
  std::size_t size = 0;
  for (const Variable& v : variables) {
    for (int r = 0; r < v.impl().component_count(); ++r) size += bytes_of_component(v, r).size();
  }
  if (size != bytes.size()) return;
  for (const Variable& v : variables) {
    for (int r = 0; r < v.impl().component_count(); ++r) {
      const auto to = bytes_of_component(v, r);
      std::memcpy(to.data(), bytes.data(), to.size());
      bytes.remove_prefix(to.size());
    }
  }
}

std::vector<Variable> metric_variables(const CompiledModel& compiled) {
  std::vector<Variable> out;
  for (const auto* metrics : {&compiled.options.metrics, &compiled.options.weighted_metrics}) {
    for (const keras::Metric& metric : *metrics) {
      if (metric.is_name()) continue;
      for (const Variable& v : metric.variables()) out.push_back(v);
    }
  }
  return out;
}

std::string text_of(StateReader& in) { return std::string(in.get_text()); }

}  // namespace

std::shared_ptr<SavingGroup> FitPosition::group() const {
  return parts_.model.strategy().extended().parameter_store()->saving_group();
}

// Statistics such as BatchNormalization's, whose one value is a mean that rounds, and the loss.
std::vector<Variable> FitPosition::own_of_replicas() const {
  std::vector<Variable> out;
  for (const Variable& v : parts_.model.variables()) {
    if (v.synchronization() == Synchronization::kOnRead) out.push_back(v);
  }
  for (const Variable& v : parts_.compiled.loss.variables()) out.push_back(v);
  return out;
}

std::string FitPosition::save_here() const {
  StateWriter out;
  out.put_int(parts_.model.strategy().extended().num_local_replicas());
  out.put_int(epoch);
  out.put_int(step);
  out.put_int(has_begun ? 1 : 0);
  out.put_int(is_over ? 1 : 0);
  // A position that all have in common is the chief's.
  const bool chief = is_chief(group().get());
  const auto position_of = [&](InputStream& input) {
    return chief || !input.is_common() ? input.save() : std::string();
  };
  out.put_text(position_of(parts_.train));
  const bool validates = parts_.validation != nullptr;
  out.put_int(validates ? 1 : 0);
  if (validates) out.put_text(position_of(*parts_.validation));
  out.put_text(save_random_numbers());
  out.put_text(components_of(own_of_replicas()));
  out.put_text(components_of(metric_variables(parts_.compiled)));
  out.put_int(static_cast<int64_t>(parts_.callbacks.size()));
  for (const keras::Callback& callback : parts_.callbacks) {
    out.put_text(callback.base().save_state());
  }
  return std::move(out).take();
}

std::string FitPosition::save() {
  const auto all = group();
  const std::vector<std::string> each =
      all == nullptr ? std::vector{save_here()} : all->gather(save_here());
  StateWriter out;
  out.put_int(static_cast<int64_t>(each.size()));
  for (const std::string& one : each) out.put_text(one);
  return std::move(out).take();
}

TrackableRef FitPosition::trackable() {
  TrackedValue value = tracked_bytes(
      {}, [this] { return save(); }, [this](std::string_view state) { restored_ = state; });
  value.identity = this;
  value.group = group();
  return trackable_value(std::move(value));
}

void FitPosition::go_on() {
  const auto all = group();
  StateReader in(restored_);
  std::vector<std::string> each(static_cast<std::size_t>(in.get_count(in.bytes_left())));
  for (std::string& one : each) one = text_of(in);
  const int workers = all == nullptr ? 1 : all->size();
  const bool as_many = static_cast<int>(each.size()) == workers;
  const bool is_common =
      parts_.train.is_common() && (parts_.validation == nullptr || parts_.validation->is_common());
  COHORT_CHECK_ARG(as_many || is_common, "[backup_and_restore] expected the backup to be of ",
                   workers, " workers, which read batches of their own, got one of ", each.size());
  restore_here(each.at(0), false);
  if (as_many) restore_here(each[all == nullptr ? 0 : static_cast<std::size_t>(all->rank())], true);
  restored_.clear();
}

// What follows the data is each worker's own.
void FitPosition::restore_here(std::string_view state, bool same_layout) {
  StateReader in(state);
  const bool as_many_replicas =
      in.get_int() == parts_.model.strategy().extended().num_local_replicas();
  epoch = static_cast<int>(in.get_int());
  step = in.get_int();
  has_begun = in.get_flag();
  is_over = in.get_flag();
  if (const auto train = in.get_text(); !train.empty()) parts_.train.restore(train);
  if (in.get_flag()) {
    const auto validation = in.get_text();
    if (parts_.validation != nullptr && !validation.empty()) parts_.validation->restore(validation);
  }
  restore_random_numbers(in.get_text());
  const std::string own = text_of(in), metrics = text_of(in);
  if (same_layout && as_many_replicas) {
    set_components(own_of_replicas(), own);
    CompiledModel& compiled = parts_.compiled;
    if (!has_begun) {
      // The next epoch begins with none.
    } else if (compiled.resolved()) {
      set_components(metric_variables(compiled), metrics);
    } else {
      compiled.when_resolved = [&compiled, metrics] {
        set_components(metric_variables(compiled), metrics);
      };
    }
  }
  const int64_t callbacks = in.get_count(kMostTexts);
  if (callbacks != static_cast<int64_t>(parts_.callbacks.size())) return;
  for (const keras::Callback& callback : parts_.callbacks) {
    callback.base().restore_state(in.get_text());
  }
}

}  // namespace cohort::internal
