// SPDX-License-Identifier: Apache-2.0
#include "cohort/strategy/internal/arguments.h"

#include "cohort/data/core/internal/rows/upload.h"
#include "cohort/runtime/device_backend.h"

namespace cohort::internal::strategy {

void move_leaf(const Device& device, Tensor& t) { t = runtime::argument_on(device, t); }

void move_leaf(const Device& device, IndexedSlices& rows) {
  move_leaf(device, rows.values);
  move_leaf(device, rows.indices);
}

void move_leaf(const Device& device, Gradient& gradient) {
  if (!gradient.has_value()) return;
  if (gradient.is_sparse()) {
    IndexedSlices rows = gradient.slices();
    move_leaf(device, rows);
    gradient = rows;
  } else {
    Tensor dense = gradient.dense();
    move_leaf(device, dense);
    gradient = dense;
  }
}

void move_leaf(const Device& device, cohort::data::Element& element) {
  if (!element.has_value()) return;
  element = internal::data::map_tensors(
      element.materialize(), [&](const Tensor& t) { return runtime::argument_on(device, t); });
}

void note_leaf(const Tensor& t) { runtime::note_use(t); }

void note_leaf(const IndexedSlices& rows) {
  note_leaf(rows.values);
  note_leaf(rows.indices);
}

void note_leaf(const Gradient& gradient) {
  if (!gradient.has_value()) return;
  gradient.is_sparse() ? note_leaf(gradient.slices()) : note_leaf(gradient.dense());
}

void note_leaf(const cohort::data::Element& element) {
  if (!element.has_value() || element.uncomputed() != nullptr) return;
  internal::data::map_tensors(element, [](const Tensor& t) {
    runtime::note_use(t);
    return t;
  });
}

}  // namespace cohort::internal::strategy
