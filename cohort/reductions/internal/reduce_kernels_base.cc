// SPDX-License-Identifier: Apache-2.0
#define COHORT_KERNEL_ISA base
#define COHORT_VECTOR_BYTES 16
#include "cohort/reductions/internal/reduce_kernels.inc"
