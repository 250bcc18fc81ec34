// SPDX-License-Identifier: Apache-2.0
#define COHORT_KERNEL_ISA avx2
#define COHORT_KERNEL_LANES 8
#define COHORT_KERNEL_COLUMNS 2
#define COHORT_KERNEL_FAST_PRODUCTS true
#include "cohort/keras/layers/internal/kernels.inc"
