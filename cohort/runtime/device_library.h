// SPDX-License-Identifier: Apache-2.0
//
// Internal: the shared object that a kind of device brings along. The library proper needs nothing
// of a GPU's software; what does is in libcohort_cuda.so (cohort/cuda), which is opened when a
// program first asks for a GPU. It takes part by the abstract classes of the floors alone, each of
// which asks for its own by name:
//
// device_part(c10::kCUDA, "update_kernels") is an UpdateKernels* of the variables' floor.
//
// It is looked for where COHORT_CUDA_LIBRARY says (a file; an empty value: nowhere), else along the
// program's run path, where the build and the installed package put it.
#pragma once

#include <c10/core/DeviceType.h>

#include <string>

namespace cohort::internal::runtime {

/// What the library of a kind of device has by this name; null if it has none, or there is no such
/// library. Owns: nothing; it lives as long as the process. Threads: thread-safe.
void* device_part(c10::DeviceType type, const char* name);

/// Opens those that are there. LibTorch looks once, at its first backward pass, whether there are
/// GPUs, and takes that as final: so Cohort does this when it makes its first variable.
/// Threads: thread-safe. Cost: a check, but for the first call.
void open_device_libraries();

/// Why the library of a kind of device is not there ("libcohort_cuda.so was not found"), for
/// errors; empty if it is.
std::string device_library_problem(c10::DeviceType type);

/// The version that a device library must have been built from: Cohort's and LibTorch's.
std::string device_library_version();

}  // namespace cohort::internal::runtime
