// SPDX-License-Identifier: Apache-2.0
//
// Every layer.
#pragma once

#include "cohort/keras/layers/convolution.h"    // IWYU pragma: export
#include "cohort/keras/layers/core.h"           // IWYU pragma: export
#include "cohort/keras/layers/normalization.h"  // IWYU pragma: export
#include "cohort/keras/layers/pooling.h"        // IWYU pragma: export
