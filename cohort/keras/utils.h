// SPDX-License-Identifier: Apache-2.0
//
// Labels and rows made ready for training.
//
//   Tensor y = keras::to_categorical(labels, 10);
//   train = train.map([](const Element& e) { return Element{e[0], one_hot(e[1].tensor(), 10)}; });
#pragma once

#include <cstdint>
#include <optional>

#include "cohort/runtime/tensor.h"

namespace cohort {

struct OneHotOptions {
  double on_value = 1;
  double off_value = 0;
  int64_t axis = -1;  ///< Where the new axis goes; negative counts from the end of the result.
  DType dtype = kFloat32;
};

/// on_value at each index along a new axis of `depth`, off_value elsewhere. An index outside of
/// [0, depth) gives off_value only. Shapes: [...] to [..., depth].
/// Errors: InvalidArgument for indices that are no integers, depth < 0, or an axis that is not
///         there. TF: tf.one_hot.
Tensor one_hot(const Tensor& indices, int64_t depth, const OneHotOptions& options = {});

namespace keras {

/// Class numbers as float32 rows of zeros and a one. num_classes: the greatest label + 1 if it is
/// not given; a negative label counts from the last class. Shapes: [...] or [..., 1] to
/// [..., num_classes]. Errors: InvalidArgument for a label outside of [-classes, classes), or no
/// labels and no num_classes. TF: keras.utils.to_categorical.
Tensor to_categorical(const Tensor& x, std::optional<int64_t> num_classes = {});

/// x over its norms of that order along the axis; where the norm is 0, x. Integers become float32.
/// Errors: InvalidArgument for an axis that is not there or an order below 1.
/// TF: keras.utils.normalize.
Tensor normalize(const Tensor& x, int64_t axis = -1, double order = 2);

}  // namespace keras
}  // namespace cohort
