// SPDX-License-Identifier: Apache-2.0
//
// What Model::summary says of a drawing.
#include <map>
#include <set>

#include "cohort/base/strings.h"
#include "cohort/keras/internal/graph.h"
#include "cohort/keras/internal/operation.h"
#include "cohort/keras/summary.h"

namespace cohort::keras::internal {
namespace {

std::string summary_shapes(const ElementSpec& outputs) {
  std::vector<std::string> shapes;
  for (const TensorSpec& one : outputs.flat()) {
    shapes.push_back(one.known_rank ? internal::column_shape_text(one.shape) : "?");
  }
  if (shapes.size() == 1) return shapes[0];
  return shapes.empty() ? "?" : str_cat("[", join(shapes, ", "), "]");
}

}  // namespace

// Each call needs one tensor at most, and each but the last is needed by one other call.
bool Graph::is_chain() const {
  if (flat_inputs_.size() != 1 || operations_.size() != nodes_.size()) return false;
  std::set<const CallNode*> needed;
  for (const Node& node : nodes_) {
    const std::vector<KerasTensor> needs = node->needs();
    if (needs.size() > 1) return false;
    if (needs.size() == 1 && !needed.insert(needs[0].node().get()).second) return false;
  }
  return true;
}

std::vector<GraphRow> Graph::summary_rows() const {
  std::vector<GraphRow> rows;
  for (const Layer& operation : operations_) {
    std::map<uint64_t, const CallNode*> calls;  // as they were drawn
    for (const Node& node : nodes_) {
      if (&node->layer.base() == &operation.base()) calls.emplace(node->number, node.get());
    }
    std::vector<std::string> from;
    for (const auto& [number, call] : calls) {
      for (const KerasTensor& need : call->needs()) {
        const CallNode& node = *need.node();
        from.push_back(str_cat(node.layer.name(), "[", index_of(node), "][", need.output(), "]"));
      }
    }
    rows.push_back({.layer = operation,
                    .is_layer = dynamic_cast<const Operation*>(&operation.base()) == nullptr,
                    .output_shape = summary_shapes(calls.rbegin()->second->outputs),
                    .connected_to = from.empty() ? "-" : join(from, ", ")});
  }
  return rows;
}

}  // namespace cohort::keras::internal
