// SPDX-License-Identifier: Apache-2.0
//
// A variable that parameter servers keep, in one piece or in shards.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "cohort/base/mutex.h"
#include "cohort/coordinator/parameters/pulled_leaf.h"
#include "cohort/coordinator/parameters/remote_variables.h"

namespace cohort::internal::coordinator {

class RemoteTable;

/// A read asks the servers: it gives what is there now, of this process's writes all. While a
/// recorded pass is under way the variable reads as that pass has read it, so that a gradient
/// belongs to one value. Lookups bring the rows that they name, never the table.
/// Threads: thread-safe; but passes that are recorded by several threads at once share the leaf.
class RemoteVariable final : public variables::VariableImpl {
 public:
  struct Owner {
    std::shared_ptr<RemoteVariables> store;
    bool ends = false;  ///< The servers forget the variable with this object.
    std::shared_ptr<RemoteVariable> whole = {};  ///< Of a shard.
    std::size_t shard = 0;
  };
  RemoteVariable(Description description, ParameterHandle handle, Owner owner);
  ~RemoteVariable() override;

  Tensor value() const override;
  Tensor gather_rows(const Tensor& rows) const override;
  using variables::VariableImpl::write;
  Tensor write(variables::Write kind, const Tensor& x) override;
  void scatter(variables::Scatter kind, const IndexedSlices& slices) override;
  /// The shards, "name/part_i"; of one piece itself.
  std::vector<Variable> components() override;
  Variable container() override;
  const void* identity() const override;
  variables::Leaf& leaf() override { return leaf_.leaf(); }
  RemoteVariable* remote() override { return this; }

  const ParameterHandle& handle() const { return handle_; }
  /// Somebody of this process has changed what the servers have.
  void note_change();
  /// What the servers have when a pass begins: its first read takes it, unless this process has
  /// written meanwhile.
  void begin_prefetch();
  void prefetched(const Tensor& value, uint64_t pass);

  /// Whom its rows belong to; null: they have numbers. A shard has none, and is read as it lies.
  std::shared_ptr<RemoteTable> table() const;
  /// The one that is there, else `made`.
  std::shared_ptr<RemoteTable> set_table(std::shared_ptr<RemoteTable> made);
  /// Updates that this process has made of lists that have it.
  int64_t updates() const { return updates_; }
  void note_update() { ++updates_; }

 private:
  Tensor read(bool in_cache) const COHORT_REQUIRES(mutex_);
  void check_by_numbers(const char* operation) const;

  const ParameterHandle handle_;
  const Owner owner_;
  mutable base::Mutex mutex_;
  mutable PulledLeaf leaf_;                                       // what replicas compute with
  mutable uint64_t read_in_ COHORT_GUARDED_BY(mutex_) = 0;        // pass
  mutable Tensor prefetched_ COHORT_GUARDED_BY(mutex_);           // undefined: nothing
  mutable uint64_t prefetched_in_ COHORT_GUARDED_BY(mutex_) = 0;  // pass
  mutable bool is_changed_ COHORT_GUARDED_BY(mutex_) = false;     // since it was read
  std::shared_ptr<RemoteTable> table_ COHORT_GUARDED_BY(mutex_);
  std::atomic<int64_t> updates_ = 0;
};

/// A copy for each worker.
class PerWorkerVariable final : public variables::VariableImpl {
 public:
  PerWorkerVariable(Description description, std::vector<std::shared_ptr<RemoteVariable>> copies,
                    const std::shared_ptr<RemoteVariables>& store);

  Tensor value() const override { return own("read").value(); }
  Tensor gather_rows(const Tensor& rows) const override { return own("read").gather_rows(rows); }
  using variables::VariableImpl::write;
  Tensor write(variables::Write kind, const Tensor& x) override {
    return own("write").write(kind, x);
  }
  void scatter(variables::Scatter kind, const IndexedSlices& slices) override {
    own("write").scatter(kind, slices);
  }
  std::vector<Variable> components() override;
  variables::Leaf& leaf() override { return own("use").leaf(); }

 private:
  /// Errors: FailedPrecondition in the coordinator.
  RemoteVariable& own(const char* use) const;

  const std::vector<std::shared_ptr<RemoteVariable>> copies_;
  const std::optional<int> worker_;
};

/// One that this process alone has and uses, made in the scope of a strategy of servers.
class OwnVariable final : public variables::VariableImpl {
 public:
  OwnVariable(std::shared_ptr<variables::VariableImpl> variable, RemoteVariables& store)
      : variables::VariableImpl(variable->description()), variable_(std::move(variable)) {
    store_ = &store;
  }

  Tensor value() const override { return variable_->value(); }
  Tensor gather_rows(const Tensor& rows) const override { return variable_->gather_rows(rows); }
  using variables::VariableImpl::write;
  Tensor write(variables::Write kind, const Tensor& x) override {
    return variable_->write(kind, x);
  }
  void scatter(variables::Scatter kind, const IndexedSlices& slices) override {
    variable_->scatter(kind, slices);
  }
  variables::Leaf& leaf() override { return variable_->leaf(); }
  variables::LocalImpl* local() override { return variable_->local(); }

 private:
  const std::shared_ptr<variables::VariableImpl> variable_;
};

}  // namespace cohort::internal::coordinator
