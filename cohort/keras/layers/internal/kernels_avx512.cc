// SPDX-License-Identifier: Apache-2.0
#define COHORT_KERNEL_ISA avx512
#define COHORT_KERNEL_LANES 16
#define COHORT_KERNEL_COLUMNS 4
#define COHORT_KERNEL_FAST_PRODUCTS true
#include "cohort/keras/layers/internal/kernels.inc"
