// SPDX-License-Identifier: Apache-2.0
//
// Handles: small classes whose copies share an object. One that was moved from, or made without
// anything, refers to none, and using it is an error that says so:
//
//   Dataset Dataset::unbatch() const { return Dataset(make_unbatch_node(held(node_, "Dataset"))); }
#pragma once

namespace cohort::internal::base {

/// FailedPrecondition "[dataset.unbatch] expected a Dataset, ...". An operation in brackets, such
/// as "[dataset.map]", is taken as it is.
[[noreturn]] void refuse_empty_handle(const char* handle_class, const char* operation);

/// `pointer` itself, a pointer or function that is not null. The operation is the calling function
/// unless it is given. Errors: FailedPrecondition that names class and operation.
template <class P>
const P& held(const P& pointer, const char* handle_class,
              const char* operation = __builtin_FUNCTION()) {
  if (!pointer) [[unlikely]]
    refuse_empty_handle(handle_class, operation);
  return pointer;
}

}  // namespace cohort::internal::base
