// SPDX-License-Identifier: Apache-2.0
//
// A variable with one component per local replica: a copy each, or leaves over one copy.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/base/function_ref.h"
#include "cohort/collectives/options.h"
#include "cohort/runtime/meeting.h"
#include "cohort/variables/component.h"
#include "cohort/variables/local_variables.h"

namespace cohort::internal::variables {

/// The table of variable.h, for replicas that share this process.
class LocalVariable final : public LocalImpl {
 public:
  /// `range` is null for a variable that is not trainable: it owns its memory.
  LocalVariable(Description description, const Tensor& initial, std::shared_ptr<ArenaRange> range,
                std::shared_ptr<LocalVariables> creator);

  Tensor value() const override;
  Tensor gather_rows(const Tensor& rows) const override;
  Tensor write(Write kind, const Tensor& x) override;
  Tensor write(Write kind, double literal) override;
  void write(Write kind, const PerReplica<Tensor>& x) override;
  void scatter(Scatter kind, const IndexedSlices& slices) override;
  std::vector<Variable> components() override;

  Component& leaf() override { return leaf_of(local_index()); }
  Component& leaf_of(int replica) override {
    return components_[static_cast<std::size_t>(replica)];
  }
  int leaf_count() const override { return static_cast<int>(components_.size()); }
  int copies() const override { return shares_memory_ ? 1 : leaf_count(); }

 private:
  /// What one replica brings to a write that all replicas agree on.
  struct Contribution {
    const LocalVariable* variable;
    const char* operation;
    const Tensor* value = nullptr;
    bool is_literal = false;  ///< `value` was given as a number.
    const IndexedSlices* slices = nullptr;
  };
  using Contributions = runtime::Brought<Contribution>;

  int local_index() const;
  void check_replica(const char* operation) const;
  void check_writable(const char* operation) const;
  void make_component(int replica, const Tensor& initial);
  bool writes_own_component() const;
  /// True where one component is the whole variable, in this process and in all.
  bool is_alone() const;
  void check_aggregation(const char* operation) const;
  ReduceOp reduce_op() const;
  std::string text(std::string_view operation) const;
  bool is_one_object(Contributions all, bool is_same) const;
  Tensor reduced(const char* operation, std::span<const Tensor> values) const;
  /// Calls write(tensor, replica) once per copy.
  void write_copies(base::FunctionRef<void(Tensor& to, int replica)> write);
  Tensor apart(const Tensor& x) const;
  IndexedSlices apart(const IndexedSlices& slices) const;
  Tensor write_everywhere(Write kind, const Tensor& x);
  /// True where value() is the one component that this thread may read.
  bool reads_component() const;
  /// What `part` takes of each component, of all replicas together.
  Tensor reduced_value(base::FunctionRef<Tensor(const Tensor& component)> part) const;

  /// A merge point; `body` runs once, with every replica's contribution.
  void merge(const Contribution& own, base::FunctionRef<void(Contributions)> body);
  /// `exchange` finds out, with all workers, what a merge writes.
  void agree(const Contribution& first, base::FunctionRef<void()> exchange) const;
  Tensor write_merged(Write kind, const Tensor& x, bool is_literal);
  /// Whether the replicas brought one number, tensor or list of rows. Errors: InvalidArgument if
  /// that would have to be summed.
  bool is_one_value(Contributions all) const;
  bool are_same_rows(Contributions all) const;
  Tensor aggregated(Contributions all, bool same) const;
  IndexedSlices joined(Contributions all, bool same) const;
  IndexedSlices joined_across(collectives::Communicator& others, const char* operation,
                              const IndexedSlices& rows, bool only_first) const;
  void check_summable(const Contribution& first, bool is_same, const char* what) const;

  const std::shared_ptr<LocalVariables> strategy_;
  const runtime::ReplicaGroup* const
      group_;  // whose replicas own the components; null: any of that size
  bool shares_memory_ = false;
  const bool is_plain_;  // made outside of every strategy: readable in the replicas of all
  std::vector<Component> components_;
};

}  // namespace cohort::internal::variables
