// SPDX-License-Identifier: Apache-2.0
#define COHORT_KERNEL_ISA avx512
#define COHORT_VECTOR_BYTES 64
#include "cohort/collectives/internal/reduce_kernels.inc"
