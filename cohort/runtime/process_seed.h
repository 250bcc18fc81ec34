// SPDX-License-Identifier: Apache-2.0
//
// Whether the program has chosen the seed that random.h draws with.
#pragma once

namespace cohort::internal::runtime {

/// False until the first set_seed() of this process. Threads: any.
bool has_process_seed();

}  // namespace cohort::internal::runtime
