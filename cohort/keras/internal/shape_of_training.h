// SPDX-License-Identifier: Apache-2.0
//
// Layers that keep the promise of compute_output_shape only while training; internal.
#pragma once

namespace cohort::keras {
class LayerBase;
}

namespace cohort::keras::internal {

/// Otherwise it may pass its inputs on in another size, as Keras's RandomCrop does, and so may what
/// stands behind it in a model.
struct ShapeOfTraining {};

/// Such a layer, or one that has such a layer in it.
bool has_shape_of_training(const LayerBase& layer);

}  // namespace cohort::keras::internal
