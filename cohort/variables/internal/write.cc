// SPDX-License-Identifier: Apache-2.0
#include "cohort/variables/internal/write.h"

#include <ATen/core/grad_mode.h>

namespace cohort::internal {

const char* operation_name(Write kind) {
  switch (kind) {
    case Write::kAssign:
      return "[variable.assign] ";
    case Write::kAdd:
      return "[variable.assign_add] ";
    case Write::kSub:
      return "[variable.assign_sub] ";
  }
  return "[variable.assign] ";
}

void write_tensor(Tensor& to, Write kind, const Tensor& x) {
  const at::NoGradGuard no_grad;
  switch (kind) {
    case Write::kAssign:
      to.copy_(x);
      break;
    case Write::kAdd:
      to.add_(x.to(to.scalar_type()));
      break;
    case Write::kSub:
      to.sub_(x.to(to.scalar_type()));
      break;
  }
}

}  // namespace cohort::internal
