// SPDX-License-Identifier: Apache-2.0
//
// The messages of a replicated server's parts (cohort/replication), as bytes.
#pragma once

#include <string>
#include <string_view>

#include "cohort/replication/messages.h"

namespace cohort::internal {

std::string encode_group_message(const replication::Message& message);
/// Errors: DataLoss for bytes that are none.
replication::Message decode_group_message(std::string_view bytes);

}  // namespace cohort::internal
