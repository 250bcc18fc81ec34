// SPDX-License-Identifier: Apache-2.0
//
// What every contender of gpu_bench trains. One folder has it, as keras_tasks.h says, with the
// numbers of the training besides (peers/gpu_task.py reads the same):
//
//   write_gpu_task(find_gpu_task("mlp:32", false), folder);
//   GpuTaskFiles files(folder);
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cohort/keras/model.h"

namespace cohort::bench {

/// One table of the benchmark.
struct GpuTask {
  std::string name;  ///< "mlp:32"
  std::string model;
  std::int64_t batch = 32;
  std::int64_t batches = 8;           ///< Different ones; they are used in turn.
  std::string precision = "float32";  ///< Or "tf32" (float32 whose products are), "bf16" (mixed).
  std::string optimizer = "adam";     ///< Or "sgd".
  double learning_rate = 1e-3;
  double momentum = 0;
  /// How far a contender's losses of the first steps may be from the median of all, of its size.
  double tolerance = 1e-3;
  bool tiny = false;  ///< The same layers of small sizes, to try the programs on a CPU.
};

/// All tasks, in their order. Those in plain float32, "..._f32", are no part of a run that names
/// none.
std::vector<GpuTask> gpu_tasks(bool tiny);
/// Errors: InvalidArgument that lists the tasks.
GpuTask find_gpu_task(const std::string& name, bool tiny);

/// Writes model.keras, weights by name, inputs, labels and `case.txt` into the folder.
void write_gpu_task(const GpuTask& task, const std::string& folder);

/// A folder that was written. Threads: immutable.
struct GpuTaskFiles {
  explicit GpuTaskFiles(const std::string& folder);

  std::string model_file;
  std::string precision;
  std::int64_t batch = 0;
  std::int64_t batches = 0;
  std::vector<Tensor> inputs;  ///< Rows of all batches.
  Tensor labels;

  /// The rows of a batch of `whole`.
  Tensor batch_of(const Tensor& whole, std::int64_t i) const;
  /// Inputs and labels, as fit takes them.
  Dataset rows() const;
};

}  // namespace cohort::bench
