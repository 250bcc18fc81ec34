// SPDX-License-Identifier: Apache-2.0
#include "cohort/base/demangle.h"

#include <cxxabi.h>

#include <cstdlib>
#include <memory>

namespace cohort::internal::base {

std::string demangled(const char* name) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> text(
      abi::__cxa_demangle(name, nullptr, nullptr, &status), std::free);
  return text != nullptr ? text.get() : name;
}

}  // namespace cohort::internal::base
