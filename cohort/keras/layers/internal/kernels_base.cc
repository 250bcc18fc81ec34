// SPDX-License-Identifier: Apache-2.0
#define COHORT_KERNEL_ISA base
#define COHORT_KERNEL_LANES 4
#define COHORT_KERNEL_COLUMNS 2
#define COHORT_KERNEL_FAST_PRODUCTS false
#include "cohort/keras/layers/internal/kernels.inc"
