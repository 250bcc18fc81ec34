// SPDX-License-Identifier: Apache-2.0
#include "cohort/runtime/step_recording.h"

#include "cohort/base/check.h"
#include "cohort/runtime/step_recorder.h"

namespace cohort::internal::runtime {
namespace {

constexpr std::size_t kValueAlignment = 16;

ByDeviceType<StepRecorder>& recorders() {
  static ByDeviceType<StepRecorder> table(nullptr, "recorder");
  return table;
}

}  // namespace

constinit thread_local StepRecording* StepRecording::t_current = nullptr;

void StepRecording::begin_pass() {
  ++passes_;
  next_ = 0;
}

std::byte* StepRecording::value(std::size_t bytes, Fill fill) {
  if (passes_ > 1) {
    const Value& known = values_.at(next_++);
    COHORT_CHECK(known.bytes == bytes, "expected the step's code to ask for ", known.bytes,
                 " bytes again, got ", bytes);
    return bytes > 0 ? block_ + known.offset : nullptr;
  }
  const std::size_t offset = end_;
  const std::size_t taken = (bytes + kValueAlignment - 1) / kValueAlignment * kValueAlignment;
  if (offset + taken > capacity_) {
    throw RecordingRefused(str_cat("more than ", capacity_, " bytes change from step to step"));
  }
  end_ += taken;
  values_.push_back({offset, bytes, std::move(fill)});
  return bytes > 0 ? block_ + offset : nullptr;
}

void StepRecording::fill(std::span<std::byte> out) const {
  for (const Value& value : values_) value.fill(out.data() + value.offset);
}

void StepRecording::call_effects() const {
  for (const auto& effect : effects_) effect();
}

void throw_recording_refused(const char* why) { throw RecordingRefused(why); }

StepRecorder* find_step_recorder(const Device& device) {
  return recorders().find(device.at_device().type());
}

StepRecorder* exchange_step_recorder(c10::DeviceType type, StepRecorder* recorder) {
  return recorders().exchange(type, recorder);
}

}  // namespace cohort::internal::runtime
