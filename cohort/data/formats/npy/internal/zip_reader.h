// SPDX-License-Identifier: Apache-2.0
//
// The members of a zip archive in memory, stored or deflated.
//
// Written here, not with libzip: even its check for consistency takes members that lie inside each
// other, by which a small archive stands for any amount of memory, and it copies stored members.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace cohort::internal::data {

/// Calls use(name, bytes) for each member in the order of the archive's directory.
/// Errors: DataLoss that begins with `where` for a damaged archive, members that overlap or a wrong
/// checksum; Unimplemented for encryption, archives above 4 GB and other compression; Error
/// kResourceExhausted if the members have more than max_bytes.
void for_each_zip_member(std::string_view archive, const std::string& where, int64_t max_bytes,
                         const std::function<void(std::string, std::string_view)>& use);

}  // namespace cohort::internal::data
