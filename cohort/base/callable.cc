// SPDX-License-Identifier: Apache-2.0
#include "cohort/base/callable.h"

#include "cohort/base/check.h"

namespace cohort::internal::base {

void refuse_empty_function(const char* operation, const char* what) {
  throw InvalidArgument(str_cat(operation, " expected ", what,
                                ", got one that is empty: a std::function that holds nothing, or a "
                                "null pointer"));
}

}  // namespace cohort::internal::base
