// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/fit_position.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <span>
#include <typeinfo>
#include <utility>

#include "cohort/base/check.h"
#include "cohort/base/demangle.h"
#include "cohort/base/logging.h"
#include "cohort/checkpoint/saving_group.h"
#include "cohort/data/core/internal/state.h"
#include "cohort/keras/compiled_model.h"
#include "cohort/keras/input_stream.h"
#include "cohort/keras/model.h"
#include "cohort/runtime/random.h"
#include "cohort/variables/parameter_store.h"
#include "cohort/variables/variable_impl.h"

namespace cohort::keras::internal {
namespace {

constexpr int64_t kToTheEnd = -1;  // of the data

std::span<std::byte> bytes_of_component(const Variable& v, int replica) {
  const Tensor& tensor = v.impl().leaf_of(replica).tensor;
  return {static_cast<std::byte*>(tensor.mutable_data_ptr()), tensor.nbytes()};
}

// The components of this process, to the last bit.
std::string components_of(std::span<const Variable> variables) {
  std::string out;
  for (const Variable& v : variables) {
    for (int r = 0; r < v.impl().leaf_count(); ++r) {
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
    for (int r = 0; r < v.impl().leaf_count(); ++r) size += bytes_of_component(v, r).size();
  }
  if (size != bytes.size()) return;
  for (const Variable& v : variables) {
    for (int r = 0; r < v.impl().leaf_count(); ++r) {
      const auto to = bytes_of_component(v, r);
      std::memcpy(to.data(), bytes.data(), to.size());
      bytes.remove_prefix(to.size());
    }
  }
}

std::vector<Variable> metric_variables(const CompiledModel& compiled) {
  std::vector<Variable> out;
  for (const keras::Metric& metric : compiled.all_metrics()) {
    if (metric.is_name()) continue;
    for (const Variable& v : metric.variables()) out.push_back(v);
  }
  for (const CompiledOutput& output : compiled.outputs) {
    if (!output.tracker) continue;
    for (const Variable& v : output.tracker->variables()) out.push_back(v);
  }
  return out;
}

// Components of variables of one worker.
struct SavedParts {
  int64_t replicas;
  std::string_view bytes;
};

// Adds what `workers` saved of sums, of which every replica of theirs had a part. Nothing if they
// are of other sizes.
std::vector<std::pair<Variable, Tensor>> sums_of(std::span<const Variable> variables,
                                                 std::span<const SavedParts> workers) {
  std::vector<std::pair<Variable, Tensor>> sums;
  for (const Variable& v : variables) sums.emplace_back(v, zeros(v.shape(), v.dtype()));
  for (const SavedParts& worker : workers) {
    std::string_view bytes = worker.bytes;
    for (auto& [variable, sum] : sums) {
      Tensor part = empty(variable.shape(), variable.dtype());
      for (int64_t r = 0; r < worker.replicas; ++r) {
        if (bytes.size() < part.nbytes()) return {};
        std::memcpy(part.mutable_data_ptr(), bytes.data(), part.nbytes());
        bytes.remove_prefix(part.nbytes());
        sum.add_(part);
      }
    }
    if (!bytes.empty()) return {};
  }
  return sums;
}

// Each replica of each worker gets its share. What is no sum has one value, which the checkpoint of
// the model has set.
void assign_sums(std::span<const std::pair<Variable, Tensor>> sums) {
  for (const auto& [variable, sum] : sums) {
    if (variable.aggregation() == Aggregation::kSum) variable.assign(sum);
  }
}

std::string text_of(cohort::internal::data::StateReader& in) { return std::string(in.get_text()); }

std::vector<std::string> texts_of(cohort::internal::data::StateReader& in) {
  std::vector<std::string> out(static_cast<std::size_t>(in.get_count(in.bytes_left())));
  for (std::string& one : out) one = text_of(in);
  return out;
}

void put_texts(cohort::internal::data::StateWriter& out, const std::vector<std::string>& texts) {
  out.put_int(static_cast<int64_t>(texts.size()));
  for (const std::string& one : texts) out.put_text(one);
}

// With its namespace: the same in each run of a program.
std::string class_of(const keras::Callback& callback) {
  const keras::CallbackBase& base = callback.base();
  return cohort::internal::base::demangled(typeid(base).name());
}

}  // namespace

// What one worker has saved. A position that all have in common is the chief's, and the others have
// an empty text.
struct FitPosition::Saved {
  // What the epoch's last step logged by one name.
  struct Log {
    std::string name;
    bool is_read_anew = false;
    Tensor value = {};  // none: what the metric of its name says
  };
  int64_t replicas = 0;
  int64_t epoch = 0, step = 0;
  bool has_begun = false, is_over = false;
  int64_t steps_asked = kToTheEnd;
  std::string train = {};
  std::optional<std::string> validation = {};
  std::string random_numbers = {};
  std::string own = {}, metrics = {};
  std::vector<std::string> callbacks = {};
  // Empty in backups of older programs.
  std::vector<std::string> callback_classes = {};
  std::vector<Shape> shapes = {};  // CompiledModel::resolved_for()
  std::vector<std::string> outputs = {};
  std::optional<std::vector<Log>> logs = {};  // none: those of loss and metrics

  static Saved read(std::string_view state);
};

FitPosition::Saved FitPosition::Saved::read(std::string_view state) {
  cohort::internal::data::StateReader in(state);
  Saved out;
  out.replicas = in.get_int();
  out.epoch = in.get_int();
  out.step = in.get_int();
  out.has_begun = in.get_flag();
  out.is_over = in.get_flag();
  out.steps_asked = in.get_int();
  out.train = text_of(in);
  if (in.get_flag()) out.validation = text_of(in);
  out.random_numbers = text_of(in);
  out.own = text_of(in);
  out.metrics = text_of(in);
  out.callbacks.resize(static_cast<std::size_t>(in.get_count(in.bytes_left())));
  for (std::string& one : out.callbacks) one = text_of(in);
  if (in.bytes_left() == 0) return out;
  out.callback_classes = texts_of(in);
  out.shapes.resize(static_cast<std::size_t>(in.get_count(in.bytes_left())));
  for (Shape& shape : out.shapes) {
    shape.resize(static_cast<std::size_t>(in.get_count(in.bytes_left())));
    for (int64_t& size : shape) size = in.get_int();
  }
  out.outputs = texts_of(in);
  if (in.get_flag()) return out;
  out.logs.emplace();
  for (std::string& name : texts_of(in)) {
    Log& log = out.logs->emplace_back(Log{std::move(name), in.get_flag()});
    if (in.get_flag()) log.value = in.get_element().tensor();
  }
  return out;
}

std::shared_ptr<cohort::internal::checkpoint::SavingGroup> FitPosition::group() const {
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
  cohort::internal::data::StateWriter out;
  out.put_int(parts_.model.strategy().extended().num_local_replicas());
  out.put_int(epoch);
  out.put_int(step);
  out.put_int(has_begun ? 1 : 0);
  out.put_int(is_over ? 1 : 0);
  out.put_int(parts_.train.steps_asked().value_or(kToTheEnd));
  const bool chief = cohort::internal::checkpoint::is_chief(group().get());
  const auto position_of = [&](InputStream& input) {
    return chief || !input.is_common() ? input.save() : std::string();
  };
  out.put_text(position_of(parts_.train));
  const bool validates = parts_.validation != nullptr;
  out.put_int(validates ? 1 : 0);
  if (validates) out.put_text(position_of(*parts_.validation));
  out.put_text(cohort::internal::runtime::save_random_numbers());
  out.put_text(components_of(own_of_replicas()));
  out.put_text(components_of(metric_variables(parts_.compiled)));
  out.put_int(static_cast<int64_t>(parts_.callbacks.size()));
  for (const keras::Callback& callback : parts_.callbacks) {
    out.put_text(callback.base().save_state());
  }
  std::vector<std::string> classes;
  for (const keras::Callback& callback : parts_.callbacks) classes.push_back(class_of(callback));
  put_texts(out, classes);
  write_logs(out);
  return std::move(out).take();
}

void FitPosition::write_logs(cohort::internal::data::StateWriter& out) const {
  const CompiledModel& compiled = parts_.compiled;
  out.put_int(static_cast<int64_t>(compiled.resolved_for().size()));
  for (const Shape& shape : compiled.resolved_for()) {
    out.put_int(static_cast<int64_t>(shape.size()));
    for (const int64_t size : shape) out.put_int(size);
  }
  std::vector<std::string> outputs;
  for (const CompiledOutput& output : compiled.outputs) outputs.push_back(output.name);
  put_texts(out, outputs);
  const bool are_metrics = logs.same_as(compiled.live);
  out.put_int(are_metrics ? 1 : 0);
  if (are_metrics) return;
  put_texts(out, logs.names());
  for (const std::string& name : logs.names()) {
    const Tensor value = logs.value(name);
    const bool is_read_anew = logs.is_read_anew(name);
    const bool is_metric =
        is_read_anew && compiled.live.contains(name) && value.equal(compiled.live.value(name));
    out.put_int(is_read_anew ? 1 : 0);
    out.put_int(is_metric ? 0 : 1);
    if (!is_metric) out.put_element(value.detach().to(at::kCPU));
  }
}

std::string FitPosition::save() {
  const auto all = group();
  const std::vector<std::string> each =
      all == nullptr ? std::vector{save_here()} : all->gather(save_here());
  cohort::internal::data::StateWriter out;
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
  cohort::internal::data::StateReader in(restored_);
  std::vector<Saved> each(static_cast<std::size_t>(in.get_count(in.bytes_left())));
  for (Saved& one : each) one = Saved::read(in.get_text());
  const int workers = all == nullptr ? 1 : all->size();
  const bool as_many = static_cast<int>(each.size()) == workers;
  COHORT_CHECK_ARG(as_many || (was_common(each) && is_common()),
                   "[backup_and_restore] expected as many workers as the backup has, ", each.size(),
                   ", for they read batches of their own, got ", workers,
                   "; start as many, or remove the backup to begin anew");
  const auto here = as_many && all != nullptr ? static_cast<std::size_t>(all->rank()) : 0;
  restore_here(each[here], each[0]);
  const int64_t replicas = parts_.model.strategy().extended().num_local_replicas();
  const bool same_layout = as_many && std::all_of(each.begin(), each.end(), [&](const Saved& one) {
                             return one.replicas == replicas;
                           });
  same_layout ? restore_own(each[here]) : restore_sums(each);
  restored_.clear();
}

bool FitPosition::is_common() const {
  return parts_.train.is_common() &&
         (parts_.validation == nullptr || parts_.validation->is_common());
}

bool FitPosition::was_common(std::span<const Saved> each) {
  return std::all_of(each.begin() + 1, each.end(), [](const Saved& one) {
    return one.train.empty() && one.validation.value_or("").empty();
  });
}

// An epoch of another length has no such place.
void FitPosition::check_steps(int64_t before) const {
  const int64_t now = parts_.train.steps_asked().value_or(kToTheEnd);
  const auto text = [](int64_t steps) {
    return steps == kToTheEnd ? std::string("none") : std::to_string(steps);
  };
  COHORT_CHECK_ARG(!has_begun || before == now,
                   "[backup_and_restore] expected the same steps_per_epoch as in the backup, which "
                   "was made after step ",
                   step, " of epoch ", epoch + 1, ": got ", text(now), " now and ", text(before),
                   " then; start again with those, or remove the backup to begin anew");
}

// `saved`: this worker's, where there are as many.
void FitPosition::restore_here(const Saved& saved, const Saved& chiefs) {
  epoch = static_cast<int>(saved.epoch);
  step = saved.step;
  has_begun = saved.has_begun;
  is_over = saved.is_over;
  check_steps(saved.steps_asked);
  parts_.train.restore(saved.train.empty() ? chiefs.train : saved.train);
  if (parts_.validation != nullptr && saved.validation) {
    parts_.validation->restore(saved.validation->empty() ? chiefs.validation.value_or("")
                                                         : *saved.validation);
  }
  cohort::internal::runtime::restore_random_numbers(saved.random_numbers);
  resolve_metrics(saved);
  restore_logs(saved);
  restore_callbacks(saved);
}

// Outputs are known, and metrics of names made, in the first step; of this epoch there may be none
// left.
void FitPosition::resolve_metrics(const Saved& saved) {
  CompiledModel& compiled = parts_.compiled;
  if (!has_begun) return;
  const auto scope = parts_.model.strategy().scope();
  if (compiled.outputs.empty() && !saved.outputs.empty()) compiled.set_outputs(saved.outputs);
  compiled.resolve_as(saved.shapes);
}

// What the epoch's end shows, where no step comes before it.
void FitPosition::restore_logs(const Saved& saved) {
  logs = {};
  if (!has_begun) return;
  const keras::Logs& live = parts_.compiled.live;
  if (!saved.logs) {
    logs = live;
    return;
  }
  for (const auto& [name, is_read_anew, value] : *saved.logs) {
    if (value.defined()) {
      // A metric's several results have a mean, a step's own tensor has none.
      is_read_anew ? logs.set(name, [value = value] { return value; }) : logs.set(name, value);
    } else if (live.contains(name)) {
      logs.set(name, [live, name = name] { return live.value(name); });
    }
  }
}

// The n-th of a class is the n-th of it that was saved, whatever stands between them.
void FitPosition::restore_callbacks(const Saved& saved) {
  const auto& now = parts_.callbacks;
  if (saved.callback_classes.size() != saved.callbacks.size()) {
    if (saved.callbacks.size() != now.size()) return;
    for (std::size_t i = 0; i < now.size(); ++i) now[i].base().restore_state(saved.callbacks[i]);
    return;
  }
  std::vector<bool> taken(saved.callbacks.size());
  for (const keras::Callback& callback : now) {
    const std::string name = class_of(callback);
    std::size_t i = 0;
    while (i < taken.size() && (taken[i] || saved.callback_classes[i] != name)) ++i;
    if (i < taken.size()) {
      taken[i] = true;
      callback.base().restore_state(saved.callbacks[i]);
    } else if (!callback.base().save_state().empty()) {
      COHORT_LOG(kWarning, "[backup_and_restore] the backup has no state of a callback ", name,
                 ", which begins anew");
    }
  }
  for (std::size_t i = 0; i < taken.size(); ++i) {
    if (taken[i] || saved.callbacks[i].empty()) continue;
    COHORT_LOG(kWarning, "[backup_and_restore] the backup has a state of a callback ",
               saved.callback_classes[i], ", of which fit was given ",
               "none or fewer now: what it has seen so far is left out");
  }
}

// To the last bit.
void FitPosition::restore_own(const Saved& saved) {
  set_components(own_of_replicas(), saved.own);
  if (!has_begun) return;  // the next epoch begins with no metrics
  with_metrics([&compiled = parts_.compiled, metrics = saved.metrics] {
    set_components(metric_variables(compiled), metrics);
  });
}

// In another layout: what all replicas have counted together is not lost.
void FitPosition::restore_sums(const std::vector<Saved>& each) {
  if (!has_begun) return;
  std::vector<SavedParts> own;
  for (const Saved& one : each) own.push_back({one.replicas, one.own});
  assign_sums(sums_of(own_of_replicas(), own));
  with_metrics([&compiled = parts_.compiled, each] {
    std::vector<SavedParts> metrics;
    for (const Saved& one : each) metrics.push_back({one.replicas, one.metrics});
    assign_sums(sums_of(metric_variables(compiled), metrics));
  });
}

// Metrics of names are made in the first step.
void FitPosition::with_metrics(std::function<void()> set) {
  CompiledModel& compiled = parts_.compiled;
  compiled.resolved() ? set() : void(compiled.when_resolved = std::move(set));
}

}  // namespace cohort::keras::internal
