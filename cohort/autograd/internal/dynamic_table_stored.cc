// SPDX-License-Identifier: Apache-2.0
#include "cohort/autograd/internal/dynamic_table_stored.h"

#include <ATen/core/grad_mode.h>

#include <utility>
#include <vector>

#include "cohort/autograd/layer_node.h"
#include "cohort/base/check.h"

namespace cohort {
namespace {

using internal::autograd::BelowAutograd;
using internal::autograd::host_ids;
using internal::autograd::LayerNode;
using internal::autograd::numbers_of;
using internal::autograd::SavedVariable;
using internal::autograd::variable_list;

Tensor tensor_of(const std::vector<int64_t>& x) {
  return from_vector(x, {static_cast<int64_t>(x.size())});
}

/// Its gradient names ids, whatever rows they have when it arrives.
class IdsNode final : public LayerNode {
 public:
  /// `known`: which of the looked up rows have one of the table's, and whose these are.
  IdsNode(const Variable& table, const Tensor& known, const Tensor& ids)
      : known_(known, false), ids_(ids, false), table_(table.shape()) {
    table_[0] = internal::variables::kRowsOfIds;
    add_weight(table);
  }
  void release_variables() override {
    known_.reset_data();
    ids_.reset_data();
  }

 protected:
  variable_list backward(variable_list&& gradients) override {
    variable_list out(1);
    if (!gradients[0].defined() || !wants_weight(0)) return out;
    Shape shape = table_;
    shape[0] = -1;
    if (gradients[0].numel() == 0) shape[0] = 0;
    const Tensor rows = gradients[0].reshape(shape).index_select(0, known_.unpack());
    if (!add_rows(0, {.values = rows, .indices = ids_.unpack(), .dense_shape = table_})) {
      refuse("a GradientTape");
    }
    return out;
  }
  variable_list differentiable_backward(variable_list&&) override {
    refuse("gradients of a first order");
    return {};
  }

 private:
  static void refuse(const char* expected) {
    throw Unimplemented(str_cat("[dynamic_table.lookup] expected ", expected, " for a table on ",
                                "parameter servers, got another way to its gradient: rows have no "
                                "places here that a tensor could have"));
  }

  SavedVariable known_;
  SavedVariable ids_;
  Shape table_;
};

}  // namespace

DynamicTable::Impl::Stored::Stored(Variable rows, DynamicTableOptions options,
                                   internal::variables::IdTableStore& store, const char* why)
    : Impl(std::move(rows), options), table_(store.table_of(rows_, id_options(), why)) {}

void DynamicTable::Impl::Stored::see(const Tensor& given) {
  rows_.impl().leaf();  // of this strategy's replicas?
  const Tensor ids = host_ids("[dynamic_table.see] ", given);
  const internal::variables::CountedIds counted = internal::variables::counted(numbers_of(ids));
  const internal::base::MutexLock lock(mutex_);
  const int64_t updates = table_->updates();
  const int64_t refused = table_->see(counted.ids, counted.counts, updates != updates_);
  updates_ = updates;
  if (refused > 0 && !std::exchange(has_warned_, true)) warn_when_full();
}

Tensor DynamicTable::Impl::Stored::lookup(const Tensor& given) {
  const Tensor ids = host_ids("[dynamic_table.lookup] ", given);
  const internal::variables::CountedIds counted = internal::variables::counted(numbers_of(ids));
  internal::variables::IdTable::Found found = table_->find(counted.ids);
  std::vector<int64_t> unknown_ids, unknown, known, known_ids;
  for (std::size_t i = 0; i < counted.ids.size(); ++i) {
    if (found.has_row[i] != 0) continue;
    unknown_ids.push_back(counted.ids[i]);
    unknown.push_back(static_cast<int64_t>(i));
  }
  for (std::size_t i = 0; i < counted.position.size(); ++i) {
    const auto which = static_cast<std::size_t>(counted.position[i]);
    if (found.has_row[which] == 0) continue;
    known.push_back(static_cast<int64_t>(i));
    known_ids.push_back(counted.ids[which]);
  }
  Tensor out;
  {
    const BelowAutograd below;
    if (!unknown.empty()) {
      found.rows.index_copy_(0, tensor_of(unknown), rows_of_unknown(unknown_ids));
    }
    out = shaped(found.rows.index_select(0, tensor_of(counted.position)), given);
  }
  if (internal::autograd::needs_node({}, {&rows_})) {
    internal::autograd::attach(
        out, internal::runtime::make_node<IdsNode>(rows_, tensor_of(known), tensor_of(known_ids)));
  }
  return out;
}

void DynamicTable::Impl::Stored::restore(const internal::variables::IdMapState& state) {
  table_->restore(state);
  const internal::base::MutexLock lock(mutex_);
  updates_ = -1;
}

}  // namespace cohort
