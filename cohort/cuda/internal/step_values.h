// SPDX-License-Identifier: Apache-2.0
//
// The door to the kernel that brings a recorded step its values: they travel as arguments of
// launches, so that nobody has to wait until memory of the host may be written again.
#pragma once

#include <driver_types.h>

#include <cstddef>

namespace cohort::internal::cuda {

/// to[0, bytes) = from, on the device, in the stream's order. Order: `bytes` and `to` are multiples
/// of 8; `from` may be changed when it returns.
cudaError_t launch_values(const std::byte* from, std::size_t bytes, std::byte* to,
                          cudaStream_t stream);

}  // namespace cohort::internal::cuda
