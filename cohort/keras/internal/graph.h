// SPDX-License-Identifier: Apache-2.0
//
// The graph of a functional model, ready to run; internal.
#pragma once

#include <atomic>
#include <string>
#include <vector>

#include "cohort/keras/internal/call_node.h"
#include "cohort/keras/layer.h"

namespace cohort::keras::internal {

/// A layer or an operation, as Model::summary shows it.
struct GraphRow {
  Layer layer;
  bool is_layer = true;      ///< Not an operation.
  std::string output_shape;  ///< Of its last call: "(None, 3)", "[(None, 3), (None, 4)]".
  std::string connected_to;  ///< "dense[0][0], lstm[0][1]": layer, its call, output; "-": nothing.
};

/// Threads: immutable; run() on all replicas at once.
class Graph {
 public:
  /// Errors: InvalidArgument for tensors that no Input made, outputs that need other inputs than
  ///         these, and two layers of one name.
  Graph(KerasTensor inputs, KerasTensor outputs);

  Element run(const Element& inputs, const CallArgs& args) const;
  /// What inputs like these lead to, which may say more than the Inputs do.
  ElementSpec output_spec(const ElementSpec& inputs) const;

  const KerasTensor& inputs() const { return inputs_; }
  const KerasTensor& outputs() const { return outputs_; }
  /// Each once, in Keras's order: by the longest way to an output. Without operations.
  const std::vector<Layer>& layers() const { return layers_; }
  /// Of one output, and of several, by the layers that give them, or the names in the nest.
  std::vector<std::string> output_names() const;
  /// What the layers and operations are called with, in the order of layers().
  Config layers_config() const;
  /// What each gives when it is first called.
  std::vector<Shape> layer_shapes() const;
  /// Layers and operations in Keras's order.
  std::vector<GraphRow> summary_rows() const;
  /// One behind the other, each called once with one tensor: who is connected goes without saying.
  bool is_chain() const;
  Config input_layers() const { return places(inputs_); }
  Config output_layers() const { return places(outputs_); }

 private:
  using Node = std::shared_ptr<const CallNode>;
  /// A nest of places of values.
  struct Nest {
    int slot = -1;  // none: nothing
    bool is_tuple = false;
    std::vector<Nest> parts;
    std::vector<std::string> names;
  };
  struct Step {
    Node node;
    Nest inputs, mask, initial_state, attention_mask;
    int first = 0;              // slot of its first output
    std::vector<int> after;     // slots that nobody needs any more
    bool is_rectified = false;  // by the step behind it, which then passes on what it gets
    bool passes = false;
  };
  struct Search;

  void check_connected() const;
  void sort_layers(const Search& search);
  void make_steps();
  void join_steps();
  Nest nest_of(const KerasTensor& x) const;
  static Element gather(const Nest& nest, const std::vector<Element>& slots);
  static ElementSpec gather_specs(const Nest& nest, const std::vector<TensorSpec>& slots);
  void put_inputs(const Element& inputs, const CallArgs& args, std::vector<Element>& slots) const;
  static void run_step(const Step& step, bool training, std::vector<Element>& slots);
  /// False: what the layer gives has another size than while training, and what is behind it may.
  static bool check_promises(const Step& step, bool training, const std::vector<Element>& slots);
  Element part_for_input(const Element& inputs, std::size_t i) const;

  int index_of(const CallNode& node) const;
  Config tensor_config(const KerasTensor& x) const;
  Config nest_config(const KerasTensor& x) const;
  Config node_config(const CallNode& node) const;
  Config places(const KerasTensor& x) const;

  const KerasTensor inputs_, outputs_;
  std::vector<KerasTensor> flat_inputs_;
  std::vector<Node> nodes_;        // each behind those whose values it needs
  std::vector<Layer> operations_;  // in Keras's word: layers, too
  std::vector<Layer> layers_;
  std::vector<std::pair<const CallNode*, int>> first_slots_;
  std::vector<Step> steps_;
  Nest output_slots_;
  int slots_ = 0;
  mutable std::atomic<bool> shapes_hold_{false};  // a call has had them
};

/// While it lives, graphs that this thread makes have their layers in this order, and those that
/// are not in it behind.
class LayerOrder {
 public:
  explicit LayerOrder(const std::vector<const LayerBase*>& order);
  ~LayerOrder();
  LayerOrder(const LayerOrder&) = delete;
  LayerOrder& operator=(const LayerOrder&) = delete;
};

}  // namespace cohort::keras::internal
