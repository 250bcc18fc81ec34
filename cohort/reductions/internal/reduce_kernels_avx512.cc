// SPDX-License-Identifier: Apache-2.0
#define COHORT_KERNEL_ISA avx512
#define COHORT_VECTOR_BYTES 64
#include "cohort/reductions/internal/reduce_kernels.inc"
