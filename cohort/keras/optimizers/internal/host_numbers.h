// SPDX-License-Identifier: Apache-2.0
//
// Numbers that an optimizer decides by: they stay on the host where variables are devices', so that
// a step has nothing to wait for. Internal.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "cohort/keras/optimizers/internal/state_variable.h"
#include "cohort/runtime/replica_scope.h"
#include "cohort/variables/variable_impl.h"

namespace cohort::keras::internal {

/// Whether a replica's part of `variable` is in a device's memory.
inline bool lives_on_device(const Variable& variable) {
  cohort::internal::variables::VariableImpl& impl = variable.impl();
  return impl.local() != nullptr && !impl.leaf_of(0).tensor.is_cpu();
}

/// One number for each replica, equal on all of them between steps.
/// Threads: a replica uses its own; cross-replica use needs all replicas at rest.
template <class T>
class HostNumbers {
 public:
  HostNumbers(int replicas, T initial)
      : all_(static_cast<std::size_t>(replicas), Number{initial}) {}

  /// The calling replica's, or the first.
  T& own() { return all_[static_cast<std::size_t>(std::max(0, current_replica()))].value; }

  /// As a variable beside `like`: reads a replica's own, writes all.
  static Variable as_variable(const std::shared_ptr<HostNumbers>& numbers, const Variable& like,
                              std::string name) {
    return state_variable(
        like, {.name = std::move(name), .dtype = cohort::internal::runtime::dtype_of<T>},
        {.read = [numbers] { return from_vector<T>({numbers->own()}, {}); },
         .write =
             [numbers](const Tensor& x) {
               for (Number& number : numbers->all_) number.value = x.item<T>();
             },
         .in_replicas = true});
  }

 private:
  struct alignas(64) Number {
    T value;
  };
  std::vector<Number> all_;
};

}  // namespace cohort::keras::internal
