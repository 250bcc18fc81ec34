// SPDX-License-Identifier: Apache-2.0
//
// LayerNode: the base of Cohort's autograd nodes. Internal: sources of layers include it, public
// headers never do (it includes LibTorch's autograd headers: 9 s a unit).
//
// A layer is one node with edges to its inputs and to the leaves of its weights, as any LibTorch
// node. The contract with the tape:
//  - While tape.gradient has the slot of a weight open, weight_gradient() writes into it: the
//    first use of a pass stores, later ones add, and the edge carries an undefined tensor. So a
//    layer that is used twice accumulates, slots need no zeroing, and sources that are not asked
//    for are not computed.
//  - With no slot open (plain backward(), torch::autograd::grad, a graph that is to be
//    differentiated again) gradients return as from any LibTorch node.
//  - Under create_graph the engine runs nodes with grad mode on: differentiable_backward() is
//    called, which uses recorded LibTorch operations, so derivatives of any order are right.
//  - A node never writes into an incoming gradient unless owns() says that nobody else has it.
//  - Tensors of the forward pass are kept in SavedVariable: changed weights between forward and
//    backward are LibTorch's error, not a wrong number.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <span>
#include <utility>
#include <vector>

#include "cohort/runtime/libtorch.h"
#include "cohort/variables/variable_impl.h"

namespace cohort::internal::autograd {

using torch::autograd::SavedVariable;
using torch::autograd::variable_list;

/// Threads: forward and backward on one replica's thread, on every device: tapes and the threads of
/// replicas turn LibTorch's device threads off (internal/on_calling_thread.h).
class LayerNode : public torch::autograd::Node {
 public:
  variable_list apply(variable_list&& gradients) final;

  /// Edges in the order of calls; add inputs before weights.
  void add_input(const Tensor& x);
  /// An empty handle adds an edge that wants nothing.
  void add_weight(const Variable& weight);

 protected:
  /// Gradients of all inputs, then of all weights; undefined where not wanted or already in the
  /// slot. Runs with recording off.
  virtual variable_list backward(variable_list&& gradients) = 0;
  /// The same with recorded operations only, no slots.
  virtual variable_list differentiable_backward(variable_list&& gradients) = 0;

  bool wants_input(int i) { return task_should_compute_output(static_cast<std::size_t>(i)); }
  bool wants_weight(int i) {
    return task_should_compute_output(static_cast<std::size_t>(inputs_) +
                                      static_cast<std::size_t>(i));
  }

  /// compute(out, accumulate): writes (accumulate: adds) weight i's gradient into `out`, which has
  /// the weight's shape and is contiguous. Returns what the edge carries.
  template <class F>
  Tensor weight_gradient(int i, F&& compute) {
    variables::Leaf& leaf = *weights_[static_cast<std::size_t>(i)];
    if (leaf.has_open_slot()) {
      const bool accumulate = std::exchange(leaf.slot.written, true);
      compute(leaf.slot.view, accumulate);
      return {};
    }
    Tensor out = empty_gradient(leaf.tensor);
    compute(out, false);
    return out;
  }

  /// For a weight of which only some rows were used: true if its slot is open and took them; the
  /// edge then carries an undefined tensor. `rows` must be nobody else's.
  bool add_rows(int i, IndexedSlices rows) {
    variables::Leaf& leaf = *weights_[static_cast<std::size_t>(i)];
    if (!leaf.has_open_slot()) return false;
    leaf.slot.rows.push_back(std::move(rows));
    return true;
  }

 private:
  static Tensor empty_gradient(const Tensor& weight);
  void add_input_edge_of_weight(const Tensor& leaf);

  int inputs_ = 0;
  std::vector<variables::Leaf*> weights_;
  std::vector<Variable> keep_alive_;
};

/// True if an operation on these has to be recorded: grad mode is on and one requires gradients.
/// Undefined tensors and empty handles count as constants.
bool needs_node(std::initializer_list<const Tensor*> inputs,
                std::initializer_list<const Variable*> weights);

/// Makes `node` the history of `output`, which must be fresh (computed below autograd).
void attach(Tensor& output, runtime::GraphNodePtr<LayerNode> node);

/// True if nobody else can see `gradient`, so that a node may reuse its memory.
bool owns(const Tensor& gradient);

/// Runs what is inside below autograd: operations record nothing and return fresh tensors.
class [[nodiscard]] BelowAutograd {
 public:
  BelowAutograd();
  ~BelowAutograd();
  BelowAutograd(const BelowAutograd&) = delete;
  BelowAutograd& operator=(const BelowAutograd&) = delete;

 private:
  c10::impl::ExcludeDispatchKeyGuard guard_;
};

}  // namespace cohort::internal::autograd
