// SPDX-License-Identifier: Apache-2.0
//
// What the library proper asks for, by name (runtime/device_library.h).
#include <cstring>

#include "cohort/cuda/backend.h"
#include "cohort/cuda/random.h"
#include "cohort/cuda/range_reducer.h"
#include "cohort/cuda/row_kernels.h"
#include "cohort/cuda/step_recorder.h"
#include "cohort/cuda/update_kernels.h"
#include "cohort/runtime/device_library.h"

namespace {

struct Part {
  const char* name;
  void* (*get)();
};

// As the floors cast it back: a pointer to the abstract class.
template <class Base, class Derived>
void* as(Derived& part) {
  return static_cast<Base*>(&part);
}

constexpr Part kParts[] = {
    {"backend",
     [] {
       return as<cohort::internal::runtime::DeviceBackend>(cohort::internal::cuda::backend());
     }},
    {"random",
     [] {
       static cohort::internal::cuda::CudaRandomFiller filler;
       return as<cohort::internal::runtime::RandomFiller>(filler);
     }},
    {"range_reducer",
     [] {
       static cohort::internal::cuda::CudaRangeReducer reducer;
       return as<cohort::internal::reductions::RangeReducer>(reducer);
     }},
    {"recorder",
     [] {
       static auto& recorder = *new cohort::internal::cuda::CudaStepRecorder;
       return as<cohort::internal::runtime::StepRecorder>(recorder);
     }},
    {"row_kernels",
     [] {
       static cohort::internal::cuda::CudaRowKernels kernels;
       return as<cohort::internal::values::RowKernels>(kernels);
     }},
    {"update_kernels",
     [] {
       static cohort::internal::cuda::CudaUpdateKernels kernels;
       return as<cohort::internal::variables::UpdateKernels>(kernels);
     }},
};

}  // namespace

extern "C" {

__attribute__((visibility("default"))) void* cohort_cuda_part(const char* name) {
  for (const Part& part : kParts) {
    if (std::strcmp(part.name, name) == 0) return part.get();
  }
  return nullptr;
}

__attribute__((visibility("default"))) const char* cohort_cuda_version() {
  static const std::string version = cohort::internal::runtime::device_library_version();
  return version.c_str();
}
}
