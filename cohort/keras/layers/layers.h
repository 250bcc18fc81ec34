// SPDX-License-Identifier: Apache-2.0
//
// Every layer.
#pragma once

#include "cohort/keras/layers/activation.h"              // IWYU pragma: export
#include "cohort/keras/layers/adapting.h"                // IWYU pragma: export
#include "cohort/keras/layers/attention.h"               // IWYU pragma: export
#include "cohort/keras/layers/conv_lstm.h"               // IWYU pragma: export
#include "cohort/keras/layers/convolution.h"             // IWYU pragma: export
#include "cohort/keras/layers/core.h"                    // IWYU pragma: export
#include "cohort/keras/layers/dynamic_embedding.h"       // IWYU pragma: export
#include "cohort/keras/layers/einsum_dense.h"            // IWYU pragma: export
#include "cohort/keras/layers/embedding.h"               // IWYU pragma: export
#include "cohort/keras/layers/hashing.h"                 // IWYU pragma: export
#include "cohort/keras/layers/identity.h"                // IWYU pragma: export
#include "cohort/keras/layers/image_colors.h"            // IWYU pragma: export
#include "cohort/keras/layers/image_geometry.h"          // IWYU pragma: export
#include "cohort/keras/layers/image_mixing.h"            // IWYU pragma: export
#include "cohort/keras/layers/layer_normalization.h"     // IWYU pragma: export
#include "cohort/keras/layers/lookup.h"                  // IWYU pragma: export
#include "cohort/keras/layers/merging.h"                 // IWYU pragma: export
#include "cohort/keras/layers/normalization.h"           // IWYU pragma: export
#include "cohort/keras/layers/pipeline.h"                // IWYU pragma: export
#include "cohort/keras/layers/pooling.h"                 // IWYU pragma: export
#include "cohort/keras/layers/preprocessing.h"           // IWYU pragma: export
#include "cohort/keras/layers/recurrent.h"               // IWYU pragma: export
#include "cohort/keras/layers/regularization.h"          // IWYU pragma: export
#include "cohort/keras/layers/reshaping.h"               // IWYU pragma: export
#include "cohort/keras/layers/resizing.h"                // IWYU pragma: export
#include "cohort/keras/layers/rnn_cells.h"               // IWYU pragma: export
#include "cohort/keras/layers/rnn_wrappers.h"            // IWYU pragma: export
#include "cohort/keras/layers/spectral_normalization.h"  // IWYU pragma: export
#include "cohort/keras/layers/spectrogram.h"             // IWYU pragma: export
#include "cohort/keras/layers/text_vectorization.h"      // IWYU pragma: export
