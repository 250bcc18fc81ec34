// SPDX-License-Identifier: Apache-2.0
//
// Internal: what the templates of torch_module.h call.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cohort/keras/layer.h"

namespace torch::nn {
class Module;
}

namespace cohort::keras::internal {

/// One replica's module, and how to call it; empty for one without forward(Tensor).
struct TorchReplica {
  std::shared_ptr<torch::nn::Module> module = {};
  std::function<Tensor(const Tensor&)> forward = {};
};

/// Makes a replica's module; it is given replica 0's, for that itself nullptr.
using TorchFactory = std::function<TorchReplica(const TorchReplica* first)>;

/// Errors: InvalidArgument that says what to do if it cannot be cloned.
std::shared_ptr<torch::nn::Module> cloned(const torch::nn::Module& module);

keras::Layer torch_layer(TorchFactory make, std::string name);
/// Makes modules and variables now. For layers of torch_layer(), as the next two.
void build_torch_layer(keras::LayerBase& layer);
torch::nn::Module& local_module(keras::LayerBase& layer);
std::vector<torch::nn::Module*> all_modules(keras::LayerBase& layer);

/// [replica] The components' tensors, in the variables' order.
std::vector<std::vector<Tensor>> leaves_per_replica(std::span<const Variable> variables);
/// Calls `step`, which writes this replica's leaves of the variables: on every replica, or on
/// replica 0 only while the others wait, where all leaves are one copy. Order: then a meeting of
/// all replicas.
void step_once_per_copy(std::span<const Variable> variables, const std::function<void()>& step);
/// The calling replica's index into something that has `count` replicas.
std::size_t local_replica(std::size_t count);

}  // namespace cohort::keras::internal
