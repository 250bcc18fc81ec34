// SPDX-License-Identifier: Apache-2.0
#include "cohort/cuda/step_recorder.h"

#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <utility>

#include "cohort/cuda/backend.h"
#include "cohort/cuda/internal/check_cuda.h"
#include "cohort/cuda/internal/step_values.h"

namespace cohort::internal::cuda {
namespace {

using c10::cuda::CUDAStream;
namespace allocator = c10::cuda::CUDACachingAllocator;

// LibTorch from 2.12 on wants to be told.
template <class A>
void mark_capture(A* of, c10::DeviceIndex card, bool begins) {
  if constexpr (requires { of->markCaptureBegin(card); }) {
    begins ? of->markCaptureBegin(card) : of->markCaptureEnd(card);
  }
}

CUDAStream new_stream(c10::DeviceIndex card) {
  const c10::cuda::CUDAGuard here(card);
  cudaStream_t made = nullptr;
  check_cuda("[step] making a stream", cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking));
  return c10::cuda::getStreamFromExternal(made, card);
}

}  // namespace

// Not the device's own, which may be CUDA's default one, that captures nothing; nor one of
// LibTorch's pool, which others may be given, too. Libraries have a workspace for each stream, so
// graphs that may run at the same time have other ones.
struct CudaStepRecorder::Desk {
  explicit Desk(c10::DeviceIndex index) : card(index), stream(new_stream(index)) {}
  const c10::DeviceIndex card;
  const CUDAStream stream;
  base::Mutex capturing;  // one at a time
};

struct CudaStepRecorder::GraphMemory final : runtime::RecordingMemory {
  explicit GraphMemory(Desk& of) : desk(of), card(of.card), pool(at::cuda::graph_pool_handle()) {
    allocator::createOrIncrefPool(card, pool);
  }
  ~GraphMemory() override { allocator::releasePool(card, pool); }

  Desk& desk;
  const c10::DeviceIndex card;
  const c10::MempoolId_t pool;
};

class CudaStepRecorder::Graph final : public runtime::RecordedStep {
 public:
  Graph(std::shared_ptr<GraphMemory> memory, cudaGraphExec_t graph, std::byte* block)
      : memory_(std::move(memory)), graph_(graph), block_(block) {}
  ~Graph() override {
    static_cast<void>(cudaGraphExecDestroy(graph_));
    allocator::releasePool(memory_->card, memory_->pool);
  }

  void start(std::span<const std::byte> values) override {
    const c10::cuda::CUDAGuard here(memory_->card);
    const CUDAStream stream = c10::cuda::getCurrentCUDAStream(memory_->card);
    check_cuda("[step] sending values",
               launch_values(values.data(), values.size(), block_, stream.stream()));
    check_cuda("[step] starting a graph", cudaGraphLaunch(graph_, stream.stream()));
  }

 private:
  const std::shared_ptr<GraphMemory> memory_;
  const cudaGraphExec_t graph_;  // has one use of the pool
  std::byte* const block_;
};

/// From its beginning to end(), or to an exception, whose work is as if it had never been.
class CudaStepRecorder::Capture {
 public:
  explicit Capture(std::shared_ptr<GraphMemory> memory) : memory_(std::move(memory)) {
    const cudaStream_t own = memory_->desk.stream.stream();
    allocator::beginAllocateToPool(memory_->card, memory_->pool,
                                   [own](cudaStream_t stream) { return stream == own; });
    const cudaError_t began = cudaStreamBeginCapture(own, cudaStreamCaptureModeThreadLocal);
    if (began == cudaSuccess) mark_capture(allocator::get(), memory_->card, true);
    is_open_ = began == cudaSuccess;
    if (is_open_) return;
    leave();
    check_cuda("[step] beginning a capture", began);
  }
  ~Capture() {
    if (is_open_) leave();
  }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  /// Errors: Internal where something was done that cannot be captured.
  cudaGraphExec_t end() {
    cudaGraphExec_t made = nullptr;
    const cudaError_t ended = close();
    cudaError_t result = ended;
    if (ended == cudaSuccess) {
      result = cudaGraphInstantiate(&made, graph_, cudaGraphInstantiateFlagAutoFreeOnLaunch);
    }
    drop_graph();
    if (result != cudaSuccess) allocator::releasePool(memory_->card, memory_->pool);
    check_cuda("[step] capturing", result);
    return made;
  }

 private:
  cudaError_t close() {
    const cudaError_t result = cudaStreamEndCapture(memory_->desk.stream.stream(), &graph_);
    mark_capture(allocator::get(), memory_->card, false);
    allocator::endAllocateToPool(memory_->card, memory_->pool);
    is_open_ = false;
    return result;
  }
  void drop_graph() {
    if (graph_ != nullptr) static_cast<void>(cudaGraphDestroy(graph_));
    graph_ = nullptr;
    static_cast<void>(cudaGetLastError());  // or the next launch would be told of it
  }
  // Undoes what the constructor did.
  void leave() {
    if (is_open_) {
      static_cast<void>(close());
    } else {
      allocator::endAllocateToPool(memory_->card, memory_->pool);
    }
    drop_graph();
    allocator::releasePool(memory_->card, memory_->pool);
  }

  const std::shared_ptr<GraphMemory> memory_;
  cudaGraph_t graph_ = nullptr;
  bool is_open_ = false;
};

CudaStepRecorder::CudaStepRecorder() = default;
CudaStepRecorder::~CudaStepRecorder() = default;

std::shared_ptr<runtime::RecordingMemory> CudaStepRecorder::make_memory(const Device& device) {
  const base::MutexLock lock(mutex_);
  std::unique_ptr<Desk>& desk = desks_[device.index()];
  if (desk == nullptr) desk = std::make_unique<Desk>(backend().place(device).index());
  return std::make_shared<GraphMemory>(*desk);
}

std::unique_ptr<runtime::RecordedStep> CudaStepRecorder::record(
    const Device& /*device*/, std::shared_ptr<runtime::RecordingMemory> memory, std::byte* block,
    const std::function<void()>& body) {
  const auto graphs = std::static_pointer_cast<GraphMemory>(std::move(memory));
  const base::MutexLock lock(graphs->desk.capturing);
  const c10::cuda::CUDAStreamGuard here(graphs->desk.stream);
  Capture capture(graphs);
  body();
  return std::make_unique<Graph>(graphs, capture.end(), block);
}

}  // namespace cohort::internal::cuda
