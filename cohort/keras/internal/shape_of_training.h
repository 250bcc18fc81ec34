// SPDX-License-Identifier: Apache-2.0
//
// Layers that keep the promise of compute_output_shape only while training; internal.
#pragma once

namespace cohort::keras::internal {

/// Otherwise it may pass its inputs on in another size, as Keras's RandomCrop does, and so may what
/// stands behind it in a model.
struct ShapeOfTraining {};

}  // namespace cohort::keras::internal
