// SPDX-License-Identifier: Apache-2.0
//
// Internal: how a device writes down what a step asks of it, to do it again later by one call, as a
// CUDA graph is. A kind of device that can has a part "recorder" (device_library.h); CPUs have
// none. What the code of a step does for it says step_recording.h.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>

#include "cohort/runtime/device_backend.h"

namespace cohort::internal::runtime {

/// What was written down. Threads: one at a time, inside a guard of the device.
class RecordedStep {
 public:
  virtual ~RecordedStep() = default;
  RecordedStep(const RecordedStep&) = delete;
  RecordedStep& operator=(const RecordedStep&) = delete;
  /// Puts the values into the block that record() was told of, and then does what was written down,
  /// all behind what the calling thread has started. Blocks: not until it is done; the values may
  /// be changed when it returns.
  virtual void start(std::span<const std::byte> values) = 0;

 protected:
  RecordedStep() = default;
};

/// Memory of the device for what steps make in between, which recordings share that never run at
/// the same time. Threads: immutable.
class RecordingMemory {
 public:
  virtual ~RecordingMemory() = default;
  RecordingMemory(const RecordingMemory&) = delete;
  RecordingMemory& operator=(const RecordingMemory&) = delete;

 protected:
  RecordingMemory() = default;
};

/// Threads: thread-safe; what others start on their own streams meanwhile is not recorded.
class StepRecorder {
 public:
  virtual ~StepRecorder() = default;
  virtual std::shared_ptr<RecordingMemory> make_memory(const Device& device) = 0;
  /// Calls `body`, on the calling thread, which is inside a guard of the device. Kernels, copies
  /// within the device and the like are written down and not done. `block`: where start() puts the
  /// values, of the device. Owns: what it returns keeps `memory`; one for devices that cannot write
  /// down may keep `body` instead and call it in each start.
  /// Errors: what `body` throws; LibTorch's or the device's error where something cannot be
  ///         recorded, such as a read of the device's memory by the host. The device is as before.
  virtual std::unique_ptr<RecordedStep> record(const Device& device,
                                               std::shared_ptr<RecordingMemory> memory,
                                               std::byte* block,
                                               const std::function<void()>& body) = 0;
};

/// Null for a kind of device that has none.
StepRecorder* find_step_recorder(const Device& device);
/// Returns the one before; see exchange_device_backend.
StepRecorder* exchange_step_recorder(c10::DeviceType type, StepRecorder* recorder);

}  // namespace cohort::internal::runtime
