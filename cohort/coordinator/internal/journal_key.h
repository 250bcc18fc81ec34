// SPDX-License-Identifier: Apache-2.0
//
// What a journal knows a scheduled function by.
#pragma once

#include <cstdint>
#include <string>

#include "cohort/coordinator/internal/call_codec.h"

namespace cohort::internal::coordinator {

/// What a scheduled function is, by its program's id; empty: it has none, and is not found again.
struct JournalKey {
  std::string id = {};
  std::string function = {};
  uint64_t bytes = 0;     ///< Of its arguments.
  uint64_t checksum = 0;  ///< Of the same.
};
JournalKey journal_key(std::string id, std::string function, const EncodedValues& arguments);
/// Errors: FailedPrecondition that names both, for other functions or arguments of one id.
void check_same(const JournalKey& before, const JournalKey& now);

}  // namespace cohort::internal::coordinator
