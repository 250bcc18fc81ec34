// SPDX-License-Identifier: Apache-2.0
#include "cohort/strategy/internal/build_name.h"

#include <ATen/Version.h>

#include "cohort/base/strings.h"

namespace cohort::internal::strategy {

std::string build_name() {
  return str_cat("Cohort ", COHORT_VERSION, " (commit ", COHORT_COMMIT, "), LibTorch ",
                 COHORT_LIBTORCH_VERSION, ", CPU capability ", at::get_cpu_capability(),
                 " (ATEN_CPU_CAPABILITY lowers it)");
}

}  // namespace cohort::internal::strategy
