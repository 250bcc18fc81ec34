// SPDX-License-Identifier: Apache-2.0
//
// The messages of a replicated server's parts (cohort/replication), as bytes.
#pragma once

#include <string>
#include <string_view>

#include "cohort/replication/messages.h"
#include "cohort/rpc/payload.h"

namespace cohort::internal::cluster {

std::string encode_group_message(replication::Message message);
/// Cost: no copy of what is large.
rpc::Payload encode_group_payload(replication::Message message);
// Errors, of both: DataLoss for bytes that are none.
replication::Message decode_group_message(std::string_view bytes);
/// Owns: a share of what is large, where the payload owns it.
replication::Message decode_group_payload(const rpc::Payload& bytes);

}  // namespace cohort::internal::cluster
