// SPDX-License-Identifier: Apache-2.0
#include "cohort/autograd/embedding.h"

#include <ATen/ops/zeros.h>

#include "cohort/autograd/layer_node.h"
#include "cohort/values/internal/add_rows.h"

namespace cohort {
namespace {

using internal::autograd::BelowAutograd;
using internal::autograd::LayerNode;
using internal::autograd::SavedVariable;
using internal::autograd::variable_list;

class EmbeddingNode final : public LayerNode {
 public:
  EmbeddingNode(const Variable& table, const Tensor& flat_ids)
      : ids_(flat_ids, false), table_(table.shape()) {
    add_weight(table);
  }
  void release_variables() override { ids_.reset_data(); }

 protected:
  variable_list backward(variable_list&& gradients) override {
    variable_list out(1);
    if (!gradients[0].defined() || !wants_weight(0)) return out;
    const Tensor ids = ids_.unpack();
    // Kept by whoever asked for the gradient, who may write it: not what others still read.
    const bool mine = internal::autograd::owns(gradients[0]);
    const Tensor rows =
        rows_of(mine ? gradients[0] : gradients[0].clone(at::MemoryFormat::Contiguous));
    if (!add_rows(0, {.values = rows, .indices = ids, .dense_shape = table_})) {
      out[0] = at::zeros(table_, rows.options());
      internal::values::add_rows(out[0], ids, rows);
    }
    return out;
  }
  variable_list differentiable_backward(variable_list&& gradients) override {
    variable_list out(1);
    if (!gradients[0].defined() || !wants_weight(0)) return out;
    const Tensor rows = rows_of(gradients[0]);
    out[0] = at::zeros(table_, rows.options()).index_add(0, ids_.unpack(), rows);
    return out;
  }

 private:
  Tensor rows_of(const Tensor& gradient) const {
    Shape shape = table_;
    shape[0] = ids_.unpack().numel();
    return gradient.reshape(shape);
  }

  SavedVariable ids_;
  const Shape table_;
};

// Where the table is: ids that a layer of texts has made are the host's.
Tensor brought_to(const Variable& table, const Tensor& ids) {
  if (table.impl().local() == nullptr) return ids;
  const Tensor& leaf = table.impl().leaf().tensor;
  return leaf.device() == ids.device() ? ids : ids.to(leaf.device());
}

}  // namespace

Tensor embedding_lookup(const Variable& table, const Tensor& ids) {
  table.impl().check_rows("[embedding_lookup] ", ids);
  const Tensor flat = brought_to(table, ids).reshape({-1});
  Shape shape = shape_of(ids);
  shape.insert(shape.end(), table.shape().begin() + 1, table.shape().end());
  Tensor out;
  {
    const BelowAutograd below;
    out = table.impl().gather_rows(flat).view(shape);
  }
  if (internal::autograd::needs_node({}, {&table})) {
    internal::autograd::attach(out, internal::runtime::make_node<EmbeddingNode>(table, flat));
  }
  return out;
}

}  // namespace cohort
