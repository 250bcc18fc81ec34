// SPDX-License-Identifier: Apache-2.0
//
// Elements on their way to a device: staged in memory of the host that it reads without waiting,
// then uploaded beside what it computes. Strings, datasets and rows of unlike lengths stay on the
// host, which cuts them.
#pragma once

#include "cohort/base/function_ref.h"
#include "cohort/data/core/element.h"
#include "cohort/runtime/device.h"

namespace cohort::internal::data {

/// The structure of an element with f(tensor) in the place of each of its tensors; what stays on
/// the host as it is.
Element map_tensors(const Element& element, base::FunctionRef<Tensor(const Tensor&)> f);

/// The element in memory for uploads to `device`; computed. Cost: a copy of what is not there; rows
/// in memory are gathered there.
Element staged(const Device& device, const Element& element);
/// The element with its host tensors on `device` (DeviceBackend::upload).
Element uploaded(const Device& device, const Element& element);

/// Memory for a batch that the calling thread gathers: for uploads while it stages one.
Tensor batch_memory(const Shape& shape, DType dtype);

}  // namespace cohort::internal::data
