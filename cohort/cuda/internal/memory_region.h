// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/Device.h>

#include <memory>
#include <string>

#include "cohort/runtime/device_backend.h"

namespace cohort::internal::cuda {

/// Address space of a GPU, backed by memory in pieces of 2 MiB where it is used. Where the driver
/// cannot do that, all of it is backed at once.
/// Errors: Error kResourceExhausted.
std::unique_ptr<runtime::Region> reserve_region(c10::Device place, std::size_t bytes);

/// "of 81559 MB 12 are free, ..."; see DeviceBackend.
std::string memory_in_words(c10::Device place);

}  // namespace cohort::internal::cuda
