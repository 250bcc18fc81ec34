// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cohort/runtime/device_backend.h"

namespace cohort::internal::runtime {

/// All logical CPUs: one memory, threads without a state of their own, nothing to wait for.
DeviceBackend& cpu_backend();

}  // namespace cohort::internal::runtime
