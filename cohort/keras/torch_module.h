// SPDX-License-Identifier: Apache-2.0
//
// Existing LibTorch models, and their training code, under a strategy. The only header that
// includes torch/nn (about 10 s a unit); cohort.h does not include it.
//
//   keras::Sequential model({keras::TorchModule([] { return std::make_shared<Net>(); })});
//   model.compile({...});                                      // and fit, as any Keras model
//
// Or the usual loop of LibTorch, where the strategy, the first lines and `run` are new:
//
//   MirroredStrategy strategy;
//   auto scope = strategy.scope();
//   keras::DistributedModule model([] { return std::make_shared<Net>(); });
//   const torch::optim::AdamOptions adam(1e-3);
//   keras::DistributedOptimizer<torch::optim::Adam> optimizer(model, adam);
//   for (auto& batch : strategy.distribute_dataset(batches)) {
//     strategy.run([&](const Tensor& x, const Tensor& y) {
//       optimizer.zero_grad();
//       Tensor loss = torch::nll_loss(model->forward(x), y);
//       loss.backward();
//       optimizer.step();                                // on the mean of the replicas' gradients
//     }, batch);
//   }
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <concepts>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "cohort/autograd/leaf_gradients.h"
#include "cohort/base/callable.h"
#include "cohort/keras/layer.h"
#include "cohort/keras/torch_layer.h"

namespace cohort::keras {

/// A module that can be a layer: one tensor in, one out.
template <class M>
concept TorchForward = std::derived_from<M, torch::nn::Module> && requires(M& m, const Tensor& x) {
  { m.forward(x) } -> std::convertible_to<Tensor>;
};

}  // namespace cohort::keras

namespace cohort::keras::internal {

// A module comes as std::shared_ptr<M>, as a holder (torch::nn::Linear), or as what returns one.
template <class M>
std::shared_ptr<M> pointer_of(const std::shared_ptr<M>& module) {
  return module;
}
template <class H>
requires std::derived_from<H, torch::nn::ModuleHolder<typename H::ContainedType>>
auto pointer_of(const H& holder) {
  return holder.is_empty() ? std::shared_ptr<typename H::ContainedType>() : holder.ptr();
}
template <class T>
concept HoldsTorchModule = requires(const T& t) {
  pointer_of(t);
};
template <HoldsTorchModule T>
auto made_by(T& module) {
  return pointer_of(module);
}
template <class F>
requires(!HoldsTorchModule<F>) && requires(F& make) { pointer_of(make()); }
auto made_by(F& make) { return pointer_of(make()); }

/// The module's class.
template <class F>
using ModuleOf = typename decltype(made_by(std::declval<F&>()))::element_type;
template <class F>
concept TorchSource = requires {
  typename ModuleOf<F>;
};

template <class M>
TorchReplica replica_of(const std::shared_ptr<M>& module) {
  static_assert(
      std::derived_from<M, torch::nn::Module>,
      "[torch_module] expected a std::shared_ptr to a torch::nn::Module, a module holder, "
      "or a function that returns one of them");
  TorchReplica replica{module, {}};
  if constexpr (keras::TorchForward<M>) {
    // The module is the replica's; this one only borrows it.
    replica.forward = [raw = module.get()](const Tensor& x) -> Tensor { return raw->forward(x); };
  }
  return replica;
}

template <TorchSource F>
TorchFactory factory_of(F make) {
  if constexpr (HoldsTorchModule<F>) {
    return [module = pointer_of(make)](const TorchReplica* first) {
      if (first == nullptr) return replica_of(module);
      return replica_of(std::dynamic_pointer_cast<ModuleOf<F>>(cloned(*first->module)));
    };
  } else {
    cohort::internal::base::checked_function("[torch_module]", make);
    return [make = std::move(make)](const TorchReplica*) mutable {
      return replica_of(pointer_of(make()));
    };
  }
}

}  // namespace cohort::keras::internal

namespace cohort::keras {

/// A LibTorch module as a layer: `make` is a std::shared_ptr<M>, a module holder, or a function
/// that returns one of them, M a torch::nn::Module whose forward(Tensor) returns a Tensor. Each
/// local replica has a module of its own: what the function returns, called once per replica, or
/// clones of a given one (a torch::nn::Cloneable), which itself is replica 0's.
///
/// Parameters become trainable variables (those that require no gradients: non-trainable ones),
/// named "layer/" and the name in named_parameters(), with replica 0's values. Buffers become
/// variables that are kOnRead: each replica writes its own; a read gives the mean, of integers the
/// first. The modules' tensors themselves are the variables' components, so a given module is the
/// trained one afterwards.
///
/// In a call the module runs as it is, in the call's mode (train() or eval(), for the whole module
/// where it differs); freezing the layer freezes parameters and leaves the mode alone. A replica
/// without examples runs on a row of zeros in eval() mode, and drops it. Building runs replica 0's
/// module once on zeros to learn the shape of its output.
/// Errors: InvalidArgument if modules of replicas differ, share tensors, or cannot be cloned;
///         Unimplemented for tensors that are not on the CPU. In a call: FailedPrecondition outside
///         the strategy it was built for; cross-replica with several replicas while training or
///         with buffers; or if a parameter was given other memory (to(), set_data, torch::load)
///         after the layer was built. LibTorch's own errors pass.
/// Threads: as a layer. Random operations of LibTorch's (torch::nn::Dropout) draw from its one
/// generator for all threads. TF: none.
template <internal::TorchSource F>
Layer TorchModule(F make, std::string name = "torch_module") {
  static_assert(TorchForward<internal::ModuleOf<F>>,
                "[torch_module] expected a torch::nn::Module with forward(Tensor) that returns a "
                "Tensor; wrap another signature, or use keras::DistributedModule");
  return internal::torch_layer(internal::factory_of(std::move(make)), std::move(name));
}

/// The same for programs that call the module by themselves: model->forward(...) with whatever
/// signature, parameters, submodules. It is built at once, in the current scope; as a layer it
/// behaves like TorchModule. The program sets the mode: for_each([](Net& m) { m.eval(); }).
/// Errors: as TorchModule; InvalidArgument where it is called as a layer without forward(Tensor).
template <std::derived_from<torch::nn::Module> M>
class DistributedModule : public Layer {
 public:
  template <internal::TorchSource F>
  requires std::same_as<internal::ModuleOf<F>, M>
  explicit DistributedModule(F make, std::string name = "torch_module")
      : Layer(internal::torch_layer(internal::factory_of(std::move(make)), std::move(name))) {
    internal::build_torch_layer(base());
  }

  /// This replica's module. Cross-replica: replica 0's, to be read.
  /// Errors: FailedPrecondition outside the strategy it was built for; as in a call if a parameter
  ///         was given other memory.
  M* operator->() const { return &local(); }
  M& local() const { return static_cast<M&>(internal::local_module(base())); }
  /// fn(M&) for the module of every local replica, in order; replicas must be at rest.
  template <std::invocable<M&> Fn>
  void for_each(const Fn& fn) const {
    for (torch::nn::Module* module : internal::all_modules(base())) fn(static_cast<M&>(*module));
  }
};
template <internal::TorchSource F>
DistributedModule(F, std::string = {}) -> DistributedModule<internal::ModuleOf<F>>;

/// A torch::optim optimizer for each local replica, over its components of the variables. Their
/// states agree because the gradients do. Where replicas share one copy of the variables
/// (CentralStorageStrategy), replica 0's makes the step for all.
/// Threads: construct cross-replica; the rest on every replica's thread at once.
template <class O>
class DistributedOptimizer {
 public:
  /// `options` go to O's constructor after the parameters.
  /// Errors: FailedPrecondition in a replica of several.
  template <class... A>
  explicit DistributedOptimizer(const Layer& model, const A&... options)
      : DistributedOptimizer(model.trainable_variables(), options...) {}
  template <class... A>
  explicit DistributedOptimizer(std::span<const Variable> variables, const A&... options)
      : variables_(variables.begin(), variables.end()) {
    for (std::vector<Tensor>& parameters : internal::leaves_per_replica(variables)) {
      replicas_.push_back(std::make_unique<O>(std::move(parameters), options...));
    }
  }

  /// all_reduce_grad of all gradients at once, then this replica's optimizer. `op`: kSum for losses
  /// that are divided by the global batch already. Parameters without `.grad` stay as they are.
  /// Order: a merge point. Errors: as all_reduce_grad.
  void step(ReduceOpArg op = ReduceOp::kMean) {
    all_reduce_grad(variables_, op);
    internal::step_once_per_copy(variables_, [this] { local().step(); });
  }
  void zero_grad() { local().zero_grad(); }

  /// This replica's optimizer; cross-replica: replica 0's, to be read.
  O& local() const { return replica(internal::local_replica(replicas_.size())); }
  /// For schedulers and saving. Replicas must be at rest.
  O& replica(std::size_t r) const { return *replicas_.at(r); }
  std::size_t replicas() const { return replicas_.size(); }

 private:
  std::vector<Variable> variables_;
  std::vector<std::unique_ptr<O>> replicas_;
};

}  // namespace cohort::keras
