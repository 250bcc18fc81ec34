// SPDX-License-Identifier: Apache-2.0
#define COHORT_KERNEL_ISA avx2
#define COHORT_VECTOR_BYTES 32
#include "cohort/reductions/internal/reduce_kernels.inc"
