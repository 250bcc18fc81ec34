// SPDX-License-Identifier: Apache-2.0
#define COHORT_KERNEL_ISA avx512
#include "cohort/update_rules/internal/kernels.inc"
