// SPDX-License-Identifier: Apache-2.0
//
// Steps as CUDA graphs: captured on a stream of their own, started on the one that the calling
// thread works on.
#pragma once

#include <map>
#include <memory>

#include "cohort/base/mutex.h"
#include "cohort/runtime/step_recorder.h"

namespace cohort::internal::cuda {

/// Capturing is the calling thread's: work of others goes on. Memory that is taken while a step is
/// captured comes from a pool of LibTorch's allocator that the graph alone uses. Threads:
/// thread-safe.
class CudaStepRecorder final : public runtime::StepRecorder {
 public:
  CudaStepRecorder();
  ~CudaStepRecorder() override;
  std::shared_ptr<runtime::RecordingMemory> make_memory(const Device& device) override;
  std::unique_ptr<runtime::RecordedStep> record(const Device& device,
                                                std::shared_ptr<runtime::RecordingMemory> memory,
                                                std::byte* block,
                                                const std::function<void()>& body) override;

 private:
  struct Desk;  // where the steps of a logical GPU are captured
  struct GraphMemory;
  class Graph;
  class Capture;

  base::Mutex mutex_;
  std::map<int, std::unique_ptr<Desk>> desks_ COHORT_GUARDED_BY(mutex_);  // never fewer
};

}  // namespace cohort::internal::cuda
