// SPDX-License-Identifier: Apache-2.0
//
// Random access to the rows of a dataset in memory: what the index path gathers from.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "cohort/data/core/element.h"

namespace cohort::internal::data {

/// Rows by number. Threads: immutable.
class RowSource : public std::enable_shared_from_this<RowSource> {
 public:
  virtual ~RowSource() = default;
  virtual int64_t size() const = 0;
  /// Of one row.
  virtual const ElementSpec& spec() const = 0;
  virtual Element row(int64_t index) const = 0;
  /// A batch of the rows: fresh tensors.
  virtual Element gather(std::span<const int64_t> rows) const = 0;

  /// Row numbers also come out of positions, which anybody may have written.
  /// Errors: InvalidArgument, as of a position, for a row that there is not.
  void check(int64_t row) const;

  /// A batch that is gathered at its first access.
  Element gather_later(std::shared_ptr<const std::vector<int64_t>> rows) const;
};

/// The slices of `element` along axis 0. uint8 components whose divisor is not 0 come out as
/// float32, divided by it.
/// Shapes: every leaf [n, ...]. Errors: InvalidArgument on scalars or unlike n.
std::shared_ptr<const RowSource> make_tensor_rows(const Element& element,
                                                  std::vector<float> divisors = {});

/// begin, begin + step, ... below (above) end, as int64.
std::shared_ptr<const RowSource> make_range_rows(int64_t begin, int64_t end, int64_t step);

}  // namespace cohort::internal::data
