// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/step_capture.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <utility>

#include "cohort/base/check.h"
#include "cohort/base/logging.h"
#include "cohort/base/scope_exit.h"
#include "cohort/keras/compiled_model.h"
#include "cohort/keras/internal/layer_call.h"
#include "cohort/keras/internal/leaves.h"
#include "cohort/keras/internal/structure_version.h"
#include "cohort/keras/model.h"
#include "cohort/variables/component.h"
#include "cohort/variables/step_undo.h"

namespace cohort::keras::internal {

using cohort::internal::runtime::RecordedStep;
using cohort::internal::runtime::RecordingScope;
using cohort::internal::runtime::StepRecorder;
using cohort::internal::runtime::StepRecording;
using cohort::internal::variables::StepUndo;
using keras::Logs;

namespace {

// A device's libraries choose their ways and make their workspaces in the first steps, optimizers
// their slots. Of a further shape there are only ways to choose.
constexpr int kStepsByHand = 3;
constexpr int kStepsByHandOfFurther = 1;
constexpr std::size_t kMostShapes = 8;
// Shapes that come and go cost more than they give.
constexpr int kMostDropped = 32;
// For values that change from step to step: some hundred bytes each.
constexpr int64_t kBlockBytes = 64 << 10;

void add_shapes(const Element& nest, std::vector<int64_t>& shapes) {
  if (nest.is_tuple()) {
    shapes.push_back(-1 - static_cast<int64_t>(nest.size()));
    for (const std::string& name : nest.names()) {
      shapes.push_back(static_cast<int64_t>(std::hash<std::string>()(name)));
    }
    for (std::size_t i = 0; i < nest.size(); ++i) add_shapes(nest[i], shapes);
    return;
  }
  const Tensor& leaf = nest.tensor();
  shapes.push_back(static_cast<int64_t>(leaf.scalar_type()));
  shapes.push_back(leaf.dim());
  shapes.insert(shapes.end(), leaf.sizes().begin(), leaf.sizes().end());
}

// Empty: it can be. `place`: where LibTorch has the device's tensors.
std::string reason_against_batch(const Element& nest, c10::Device place) {
  if (nest.is_ragged()) return "rows of its batches have other lengths in each step";
  if (nest.is_tuple()) {
    for (std::size_t i = 0; i < nest.size(); ++i) {
      if (std::string why = reason_against_batch(nest[i], place); !why.empty()) return why;
    }
    return {};
  }
  if (!nest.is_tensor()) return "its batches have other parts than tensors";
  const c10::Device here = nest.tensor().device();
  const bool is_there =
      here.type() == place.type() && (!place.has_index() || here.index() == place.index());
  return is_there ? "" : str_cat("its batches are on ", here.str(), ", not on ", place.str());
}

// Whether the object does what Cohort says, and nothing that only the program knows.
std::string reason_against_object(const ClassTable& table, const Serializable& object,
                                  const std::string& what) {
  if (!table.has_builtin(object)) {
    return str_cat(what, " is of the program's own class ", object.class_name());
  }
  try {
    object.get_config();
  } catch (const Error&) {
    return str_cat(what, " has a function of the program");
  }
  return {};
}

std::string reason_against_layer(const keras::LayerBase& layer) {
  for (const keras::Layer& below : layer.sub_layers()) {
    if (std::string why = reason_against_layer(below.base()); !why.empty()) return why;
  }
  const std::string what = str_cat("layer \"", layer.name(), "\"");
  if (layer.sub_layers().empty()) {
    return reason_against_object(class_table<keras::LayerBase>(), layer, what);
  }
  // What those below are told is known.
  return class_table<keras::LayerBase>().has_builtin(layer)
             ? ""
             : str_cat(what, " is of the program's own class ", layer.class_name());
}

std::string reason_against_compiled(const CompiledModel& compiled) {
  const auto against_loss = [](const keras::Loss& loss) {
    if (!loss) return std::string();
    return reason_against_object(class_table<keras::LossBase>(), loss.base(), "its loss");
  };
  if (std::string why = against_loss(compiled.one_loss); !why.empty()) return why;
  for (const CompiledOutput& output : compiled.outputs) {
    if (std::string why = against_loss(output.loss); !why.empty()) return why;
  }
  for (const keras::Metric& metric : compiled.all_metrics()) {
    std::string why = reason_against_object(class_table<keras::MetricBase>(), metric.base(),
                                            str_cat("metric \"", metric.name(), "\""));
    if (!why.empty()) return why;
  }
  return {};
}

// Null: its tensors are not where a recorder for such devices looks for them, or there is none.
StepRecorder* recorder_of(const Device& device, c10::Device place) {
  if (device.at_device().type() != place.type()) return nullptr;
  return cohort::internal::runtime::find_step_recorder(device);
}

// What a step may write, in this process's memory.
std::vector<Tensor> state_of(const keras::Model& model, const CompiledModel& compiled) {
  std::vector<Tensor> state;
  const auto add = [&state](std::span<const Variable> variables) {
    for (const Variable& v : variables) {
      if (v.impl().local() != nullptr) state.push_back(v.impl().local()->leaf_of(0).tensor);
    }
  };
  add(model.variables());
  add(compiled.metric_variables());
  add(compiled.options.optimizer.variables());
  return state;
}

// What was recorded stays on the stream that it was recorded on.
void renew_accumulators(const keras::Model& model) {
  for (const Variable& v : model.trainable_variables()) {
    auto* const local = v.impl().local();
    if (local != nullptr) cohort::internal::variables::renew_accumulator(local->leaf_of(0));
  }
}

std::vector<uint64_t> versions_of(const std::vector<Tensor>& tensors) {
  std::vector<uint64_t> versions;
  for (const Tensor& t : tensors) versions.push_back(static_cast<uint64_t>(t._version()));
  return versions;
}

Tensor own_copy(const Tensor& t) {
  const at::NoGradGuard no_grad;
  return t.detach().clone();
}

// The model's own logs are read when somebody asks for them.
template <class F>
Logs with_values(const Logs& logs, const Logs& live, const F& value_of) {
  if (logs.same_as(live)) return logs;
  Logs out = logs;
  for (const std::string& name : logs.names()) {
    if (!logs.is_read_anew(name)) out.set(name, value_of(logs.value(name)));
  }
  return out;
}

}  // namespace

struct StepCapture::Recording {
  std::vector<Tensor> batch;      // what it reads
  Tensor block;                   // of values
  std::vector<Tensor> written;    // whose versions grow
  std::vector<std::byte> values;  // of the next start
  Logs logs;                      // what the code returned
  std::unique_ptr<StepRecording> host;
  std::unique_ptr<RecordedStep> device;  // gone before what it uses
};

struct StepCapture::Known {
  Shapes shapes;
  int by_hand = 0;  // steps of it so far
  std::unique_ptr<Recording> recording = nullptr;
};

std::shared_ptr<StepCapture> StepCapture::make(const Strategy& strategy,
                                               const keras::CompileOptions& options) {
  return std::shared_ptr<StepCapture>(new StepCapture(strategy, options));
}

StepCapture::StepCapture(const Strategy& strategy, const keras::CompileOptions& options)
    : device_(strategy.extended().device_list()->front()),
      place_(cohort::internal::runtime::device_backend(device_).place(device_)),
      recorder_(recorder_of(device_, place_)),
      must_(options.jit_compile.value_or(false)),
      alone_(strategy.extended().layout().total() == 1) {
  off_ = recorder_ == nullptr || options.run_eagerly || !options.jit_compile.value_or(true);
}

StepCapture::~StepCapture() = default;

Logs StepCapture::step(keras::Model& model, CompiledModel& compiled,
                       cohort::internal::strategy::ReplicaStep& step, const Element& batch) {
  const bool is_free = !is_off() && !busy_.exchange(true, std::memory_order_acquire);
  if (!is_free) return model.train_step(batch);
  const cohort::internal::base::ScopeExit done(
      [this] { busy_.store(false, std::memory_order_release); });
  return step_here({model, compiled, step, batch});
}

Logs StepCapture::step_here(const Call& call) {
  drop_if_layers_changed();
  std::string why =
      alone_ ? reason_against_batch(call.batch, place_) : "there are several replicas";
  if (!why.empty()) {
    turn_off(why, call.model);
    return call.model.train_step(call.batch);
  }
  Shapes shapes = {call.step.rows, call.step.global_rows};
  add_shapes(call.batch, shapes);
  Known& known = find(std::move(shapes));
  if (known.recording == nullptr) {
    const bool is_first =
        std::ranges::none_of(known_, [](const auto& other) { return other->recording != nullptr; });
    if (known.by_hand++ < (is_first ? kStepsByHand : kStepsByHandOfFurther))
      return call.model.train_step(call.batch);
    known.recording = record(call, why);
    if (known.recording == nullptr) {
      turn_off(why, call.model);
      return call.model.train_step(call.batch);
    }
  }
  return start(call, *known.recording);
}

std::string StepCapture::reason_against(const Call& call) const {
  if (dropped_ >= kMostDropped) return "its batches have too many shapes";
  if (must_) return {};
  std::string why = reason_against_layer(call.model);
  return why.empty() ? reason_against_compiled(call.compiled) : why;
}

void StepCapture::drop_if_layers_changed() {
  const uint64_t now = structure_version();
  if (std::exchange(structure_, now) != now) known_.clear();
}

StepCapture::Known& StepCapture::find(Shapes shapes) {
  auto found = std::ranges::find_if(known_, [&](const auto& k) { return k->shapes == shapes; });
  if (found == known_.end()) {
    if (known_.size() == kMostShapes) {
      if (known_.back()->recording != nullptr) ++dropped_;
      known_.pop_back();
    }
    known_.push_back(std::make_unique<Known>(Known{std::move(shapes)}));
    found = std::prev(known_.end());
  }
  std::rotate(known_.begin(), found, std::next(found));
  return *known_.front();
}

std::unique_ptr<StepCapture::Recording> StepCapture::record(const Call& call, std::string& why) {
  why = reason_against(call);
  if (!why.empty()) return nullptr;
  auto made = std::make_unique<Recording>();
  for (const Tensor& leaf : leaves_of(call.batch)) made->batch.push_back(own_copy(leaf));
  made->block = at::zeros({kBlockBytes}, made->batch.front().options().dtype(at::kByte));
  auto* const block = static_cast<std::byte*>(made->block.mutable_data_ptr());
  made->host = std::make_unique<StepRecording>(block, kBlockBytes, store_);
  const bool on_stream = device_.kind() != DeviceKind::kCpu;
  const auto code = [r = made.get(), &model = call.model, on_stream,
                     batch = with_leaves(call.batch, made->batch)] {
    const RecordingScope recording(*r->host);
    r->host->begin_pass();
    if (on_stream) renew_accumulators(model);
    r->logs = model.train_step(batch);
    forget_added_losses();
  };
  const std::vector<Tensor> state = state_of(call.model, call.compiled);
  const std::vector<uint64_t> before = versions_of(state);
  try {
    if (memory_ == nullptr) memory_ = recorder_->make_memory(device_);
    made->device = recorder_->record(device_, memory_, block, code);
  } catch (const std::exception& e) {
    if (StepUndo* const undo = StepUndo::current(); undo != nullptr) undo->roll_back();
    forget_added_losses();
    why = e.what();
    why = why.substr(0, why.find('\n'));  // LibTorch's has its stack
  }
  call.step.shares.clear();
  if (on_stream) renew_accumulators(call.model);
  if (!why.empty()) return nullptr;
  made->logs =
      with_values(made->logs, call.compiled.live, [](const Tensor& t) { return t.detach(); });
  for (std::size_t i = 0; i < state.size(); ++i) {
    if (static_cast<uint64_t>(state[i]._version()) != before[i]) made->written.push_back(state[i]);
  }
  made->values.resize(made->host->bytes());
  return made;
}

Logs StepCapture::start(const Call& call, Recording& recording) {
  const std::vector<Tensor> leaves = leaves_of(call.batch);
  {
    const at::NoGradGuard no_grad;
    for (std::size_t i = 0; i < leaves.size(); ++i) recording.batch[i].copy_(leaves[i]);
  }
  recording.host->fill(recording.values);
  recording.device->start(recording.values);
  recording.host->call_effects();
  for (const Tensor& t : recording.written) t.unsafeGetTensorImpl()->bump_version();
  if (StepUndo* const undo = StepUndo::current(); undo != nullptr) undo->commit();
  return with_values(recording.logs, call.compiled.live, own_copy);
}

void StepCapture::turn_off(const std::string& why, const keras::Model& model) {
  known_.clear();
  if (must_) {
    throw FailedPrecondition(
        str_cat("[fit] expected a step that can be recorded, for compile() "
                "was told jit_compile = true, got model \"",
                model.name(), "\": ", why));
  }
  off_ = true;
  COHORT_LOG(kInfo, "[fit] training steps of model \"", model.name(),
             "\" are not recorded for the device but made operation by operation: ", why);
}

}  // namespace cohort::keras::internal
