// SPDX-License-Identifier: Apache-2.0
//
// Which task of a job this process is, for the lines of its log: "[worker-0] ".
#pragma once

#include <string>

namespace cohort::internal::base {

/// From here on all lines have it; "" takes it away. Threads: any.
void set_log_tag(const std::string& task);

}  // namespace cohort::internal::base
