// SPDX-License-Identifier: Apache-2.0
//
// What a DynamicTable does where its ids and rows are in this process, and where a store keeps
// them.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "cohort/autograd/dynamic_table.h"
#include "cohort/base/mutex.h"
#include "cohort/variables/id_table.h"

namespace cohort {

class DynamicTable::Impl {
 public:
  Impl(Variable rows, DynamicTableOptions options);
  virtual ~Impl() = default;
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  /// Where the variable's store has it. Errors: as DynamicTable's.
  static std::shared_ptr<Impl> make(const Variable& rows, const DynamicTableOptions& options);

  virtual void see(const Tensor& ids) = 0;
  virtual Tensor lookup(const Tensor& ids) = 0;
  virtual internal::variables::IdTable::Counts counts() = 0;
  virtual internal::variables::IdMapState state() = 0;
  virtual void restore(const internal::variables::IdMapState& state) = 0;

  const Variable& rows() const { return rows_; }
  const Shape& row_shape() const { return row_shape_; }
  Tensor first_rows(std::span<const int64_t> ids) const;
  /// Numbers of a state, at most.
  int64_t most_saved() const;

 protected:
  class Here;
  class Stored;
  const internal::variables::IdTableOptions& id_options() const { return id_options_; }
  /// Shapes: as the ids that were given, and a row's.
  Tensor shaped(const Tensor& found, const Tensor& ids) const;
  void warn_when_full() const;
  /// Whether each of several keepers has some of the rows, and gives those alone to ids.
  virtual bool is_shared_out() const { return false; }
  /// Of ids without a row. Shapes: [ids, row...].
  Tensor rows_of_unknown(std::span<const int64_t> ids) const;

  const Variable rows_;

 private:
  const DynamicTableOptions options_;
  const Shape row_shape_;
  const internal::variables::IdTableOptions id_options_;
};

namespace internal::autograd {

/// On the host, as one list. Errors: InvalidArgument for what are no integers.
Tensor host_ids(const char* operation, const Tensor& ids);
inline std::span<const int64_t> numbers_of(const Tensor& ids) {
  return {ids.const_data_ptr<int64_t>(), static_cast<std::size_t>(ids.numel())};
}

}  // namespace internal::autograd
}  // namespace cohort
