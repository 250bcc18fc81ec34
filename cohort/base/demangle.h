// SPDX-License-Identifier: Apache-2.0
//
// Names of types as they are written in C++.
#pragma once

#include <string>

namespace cohort::internal::base {

/// Of what std::type_info::name() gives, or a compiler's symbol: with its namespaces, the same in
/// each run of a program. What is no such name comes back as it is.
std::string demangled(const char* name);

}  // namespace cohort::internal::base
