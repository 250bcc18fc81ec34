// SPDX-License-Identifier: Apache-2.0
#define COHORT_KERNEL_ISA base
#define COHORT_KERNEL_LANES 4
#define COHORT_KERNEL_COLUMNS 2
#include "cohort/keras/layers/internal/kernels.inc"
