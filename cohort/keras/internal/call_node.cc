// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/internal/call_node.h"

#include <atomic>
#include <utility>

#include "cohort/base/check.h"
#include "cohort/keras/internal/layer_call.h"

namespace cohort::keras {

std::vector<KerasTensor> internal::CallNode::needs() const {
  std::vector<KerasTensor> all = inputs.flat();
  for (const KerasTensor* more : {&args.mask, &args.initial_state, &args.attention_mask}) {
    for (KerasTensor& one : more->flat()) all.push_back(std::move(one));
  }
  return all;
}

KerasTensor internal::draw_call(const Layer& of, const KerasTensor& inputs, DrawnArgs args) {
  static std::atomic<uint64_t> calls{0};
  COHORT_CHECK_ARG(inputs.has_value(), "[", of.name(),
                   "] expected inputs that keras::Input or a layer gave, got nothing");
  LayerBase& layer = of.base();
  const ElementSpec spec = inputs.spec();
  layer.ensure_built_for(spec);
  ElementSpec outputs;
  const internal::LayerCall here(layer, spec);
  try {
    outputs = layer.compute_output_spec(spec);
  } catch (...) {
    here.rethrow("compute_output_shape");
  }
  auto node = std::make_shared<const internal::CallNode>(
      internal::CallNode{of, inputs, std::move(args), outputs, calls.fetch_add(1)});
  int first = 0;
  return KerasTensor::of_node(node, outputs, first);
}

KerasTensor Layer::operator()(const KerasTensor& inputs, const SymbolicArgs& args) const {
  return internal::draw_call(*this, inputs, {args});
}

}  // namespace cohort::keras
