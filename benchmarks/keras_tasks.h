// SPDX-License-Identifier: Apache-2.0
//
// What every contender of keras_bench trains: a compiled model, its first weights, and batches. One
// folder has them, for whoever opens `.keras` files and for whoever builds the model by hand:
//
//   write_task(parse_keras_case("lstm:32:1"), folder);
//   KerasTask task(folder);   // here; peers/keras_task.py reads the same
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cohort/keras/model.h"

namespace cohort::bench {

/// One row of the benchmark. "lstm:32:2": the model, rows a replica sees in a step, replicas.
struct KerasCase {
  std::string model;
  std::int64_t batch = 32;
  int replicas = 1;

  std::int64_t global_batch() const { return batch * replicas; }
  std::string name() const;
};

/// The models, "mlp" 784-256-256-10, "cnn" with batch normalisation, "resnet20" on images of 32 x
/// 32, "lstm", "transformer", "wide_deep"; "mlp_bf16" and "transformer_bf16" in mixed_bfloat16.
const std::vector<std::string>& keras_models();

/// Errors: InvalidArgument that lists the models.
KerasCase parse_keras_case(const std::string& text);

/// Writes model.keras, weights by name, inputs, labels and `case.txt` into the folder.
/// Cost: kTaskBatches global batches of random numbers from a fixed seed.
void write_task(const KerasCase& c, const std::string& folder);

inline constexpr std::int64_t kTaskBatches = 24;

/// The policy of layers that are made, and of models that are saved, while it lives: a file has the
/// policy that is set when it is written.
struct PolicyScope {
  explicit PolicyScope(bool mixed_bfloat16);
  ~PolicyScope();
  PolicyScope(const PolicyScope&) = delete;
  PolicyScope& operator=(const PolicyScope&) = delete;
};

/// The layers of one of keras_models() without "_bf16", in the current policy, not compiled.
std::shared_ptr<keras::Model> layers_of(const std::string& model);

/// Whole numbers of [0, end), int32.
Tensor random_below(std::int64_t end, const Shape& shape);

/// A file for each weight, "<folder>dense_a.kernel.npy". Errors: as data::write_npy.
void write_weights(const keras::Model& model, const std::string& folder);

/// A folder that was written. Threads: immutable.
struct KerasTask {
  explicit KerasTask(const std::string& folder);

  KerasCase benchmark_case;
  std::string model_file;
  std::vector<Tensor> inputs;
  Tensor labels;

  /// Inputs and labels, as fit takes them.
  Dataset rows() const;
};

}  // namespace cohort::bench
