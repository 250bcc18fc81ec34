// SPDX-License-Identifier: Apache-2.0
#include "cohort/runtime/device_library.h"

#include <dlfcn.h>
#include <torch/headeronly/version.h>

#include <cstdlib>

#include "cohort/base/logging.h"
#include "cohort/base/strings.h"
#include "cohort/base/version.h"

namespace cohort::internal::runtime {
namespace {

constexpr const char* kCudaLibrary = "libcohort_cuda.so";

using PartFunction = void* (*)(const char*);
using VersionFunction = const char* (*)();

struct DeviceLibrary {
  PartFunction part = nullptr;
  std::string problem;
};

DeviceLibrary open_cuda_library() {
  const char* const chosen = std::getenv("COHORT_CUDA_LIBRARY");
  const std::string file = chosen != nullptr ? chosen : kCudaLibrary;
  if (file.empty()) return {nullptr, "COHORT_CUDA_LIBRARY is empty"};
  void* const handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* const text = dlerror();
    const std::string why = text != nullptr ? text : "no reason given";
    // Most builds have none, and say so only when somebody names a GPU.
    const bool absent = why.starts_with(str_cat(file, ": cannot open shared object file"));
    if (!absent || chosen != nullptr) {
      COHORT_LOG(kWarning, "[device] GPUs cannot be used: ", why);
    }
    return {nullptr, absent ? str_cat(file,
                                      " was not found; build Cohort with a CUDA LibTorch "
                                      "and nvcc")
                            : why};
  }
  const auto version = reinterpret_cast<VersionFunction>(dlsym(handle, "cohort_cuda_version"));
  const auto part = reinterpret_cast<PartFunction>(dlsym(handle, "cohort_cuda_part"));
  const std::string found = version != nullptr ? version() : "none";
  if (part == nullptr || found != device_library_version()) {
    const std::string why = str_cat("expected ", file, " of version ", device_library_version(),
                                    ", got ", found, "; build both together");
    COHORT_LOG(kWarning, "[device] GPUs cannot be used: ", why);
    return {nullptr, why};
  }
  return {part, ""};
}

const DeviceLibrary& library_of(c10::DeviceType type) {
  // Never closed: what it handed out may be in use until the process ends.
  static const DeviceLibrary& cuda = *new DeviceLibrary(open_cuda_library());
  static const DeviceLibrary& none = *new DeviceLibrary{nullptr, "not supported in this version"};
  return type == c10::kCUDA ? cuda : none;
}

}  // namespace

void* device_part(c10::DeviceType type, const char* name) {
  if (type == c10::kCPU) return nullptr;
  const DeviceLibrary& library = library_of(type);
  return library.part != nullptr ? library.part(name) : nullptr;
}

void open_device_libraries() { library_of(c10::kCUDA); }

std::string device_library_problem(c10::DeviceType type) { return library_of(type).problem; }

std::string device_library_version() {
  return str_cat(kVersion, "-", TORCH_VERSION_MAJOR, ".", TORCH_VERSION_MINOR);
}

}  // namespace cohort::internal::runtime
