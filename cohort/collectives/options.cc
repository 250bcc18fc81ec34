// SPDX-License-Identifier: Apache-2.0
#include "cohort/collectives/options.h"

#include "cohort/base/check.h"

namespace cohort::internal::collectives {

void check_call_options(const char* operation, const CommunicationOptions& options) {
  COHORT_CHECK_ARG(options.bytes_per_pack >= 0, operation,
                   "expected bytes_per_pack to be 0 or more, got ", options.bytes_per_pack);
  COHORT_CHECK_ARG(!options.bfloat16_gradients, operation,
                   "expected bfloat16_gradients in a strategy's communication_options, got it in "
                   "those of one call, which reduces values as they are");
}

}  // namespace cohort::internal::collectives
