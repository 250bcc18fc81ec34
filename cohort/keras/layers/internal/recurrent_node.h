// SPDX-License-Identifier: Apache-2.0
//
// What the nodes of LSTM and GRU have in common. Includes LibTorch's autograd headers.
//
//   struct LSTMNode : RecurrentNode { ... };
//   return finish<LSTMNode>(run, weights, trace);
#pragma once

#include <vector>

#include "cohort/autograd/layer_node.h"
#include "cohort/keras/layers/internal/recurrent_nodes.h"

namespace cohort::keras::internal {

using cohort::internal::autograd::SavedVariable;
using cohort::internal::autograd::variable_list;

/// What the forward pass of a node has computed, [t, b, ...]; states are [t + 1, b, units].
struct RecurrentTrace {
  std::vector<Tensor> states;  ///< Of each kind, before the first step and behind every one.
  std::vector<Tensor> kept;    ///< What else the backward pass reads.
  Tensor outputs;              ///< [t, b, units]; undefined: behind each step the first state.
  Tensor rows;                 ///< The inputs [t * b, in], contiguous.
};

/// Chooses between what a step has computed and what was before it, by the mask.
class StepMask {
 public:
  explicit StepMask(const SequenceRun& run)
      : mask_(run.mask), zero_output_(run.zero_output_for_mask) {}
  bool is_on() const { return mask_.defined(); }
  /// Behind step t: puts the states of rows that do not count back, and fills in the outputs.
  void settle(RecurrentTrace& trace, int64_t t) const;

 private:
  const Tensor mask_;
  const bool zero_output_;
};

/// Gradients on their way from the last step to the first one.
class StepGradients {
 public:
  /// `gradients` are those of the outputs and of the last states, undefined where there is none.
  StepGradients(const variable_list& gradients, const SequenceRun& run, const Shape& state);

  /// Those of the states that step t has computed: contiguous, to be changed in place. Those of
  /// rows that do not count are 0, and their own are put aside.
  std::vector<Tensor>& enter(int64_t t);
  /// Adds what was put aside.
  void leave();
  std::vector<Tensor>& states() { return states_; }

 private:
  const SequenceRun& run_;
  Tensor outputs_, carried_;
  std::vector<Tensor> states_, aside_;
};

class RecurrentNode : public cohort::internal::autograd::LayerNode {
 public:
  RecurrentNode(const SequenceRun& run, const RecurrentWeights& weights, RecurrentTrace trace);
  void release_variables() override;

 protected:
  /// The same in recorded operations; takes a bias that may be undefined.
  virtual Tensor plain(SequenceRun& run, const Tensor& kernel, const Tensor& recurrent_kernel,
                       const Tensor& bias) const = 0;
  variable_list differentiable_backward(variable_list&& gradients) override;

  std::size_t kinds() const { return states_.size(); }
  bool has_bias() const { return has_bias_; }
  /// Where the gradient of state i, or of the weights, goes.
  int input_count() const { return 1 + static_cast<int>(kinds()); }
  /// The gradients of x, kernel and recurrent kernel, of those of the products.
  /// Shapes: [t, b, columns].
  void products_backward(const Tensor& d_input, const Tensor& d_inner, variable_list& out);

  SequenceRun shape_;  // mask and flags; of steps and states nothing
  SavedVariable x_, kernel_, recurrent_kernel_, bias_;
  std::vector<SavedVariable> states_;  // the first ones
  RecurrentTrace trace_;

 private:
  const bool has_bias_;
};

/// [t, b, n] as [t * b, n].
Tensor all_rows(const Tensor& steps);

/// The products of all inputs, which are put into `trace`, with the kernel.
/// Shapes: [t, b, columns], contiguous.
Tensor input_gates(const Tensor& x, const Tensor& kernel, const Tensor& bias,
                   RecurrentTrace& trace);

/// Outputs and last states as a program may keep them, with `make_node`'s as their history where
/// gradients are wanted. `trace` is moved into it.
template <class Node>
Tensor finish(SequenceRun& run, const RecurrentWeights& weights, RecurrentTrace trace) {
  Tensor output;
  std::vector<Tensor> states;
  {
    const cohort::internal::autograd::BelowAutograd below;
    const Tensor all =
        trace.outputs.defined() ? trace.outputs : trace.states[0].narrow(0, 1, run.steps.size(0));
    // Copies: what a program does to its outputs must not reach what the backward pass reads.
    output = run.return_sequences ? all.transpose(0, 1).clone(at::MemoryFormat::Contiguous)
                                  : all[all.size(0) - 1].clone();
    for (const Tensor& state : trace.states) {
      states.push_back(state[state.size(0) - 1].clone());
    }
  }
  bool wanted = cohort::internal::autograd::needs_node(
      {&run.steps}, {&weights.kernel, &weights.recurrent_kernel, &weights.bias});
  for (const Tensor& state : run.states) {
    wanted = wanted || cohort::internal::autograd::needs_node({&state}, {});
  }
  if (wanted) {
    auto node = cohort::internal::runtime::make_node<Node>(run, weights, std::move(trace));
    cohort::internal::autograd::attach(output, node);
    for (Tensor& state : states) cohort::internal::autograd::attach(state, node);
  }
  run.states = std::move(states);
  return run.return_sequences ? output.transpose(0, 1) : output;
}

}  // namespace cohort::keras::internal
