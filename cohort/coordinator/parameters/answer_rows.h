// SPDX-License-Identifier: Apache-2.0
//
// What a parameter server answers with: numbers, written once, to where they are sent from.
// Included by sources alone.
#pragma once

#include <cstddef>

#include "cohort/coordinator/parameters/message.h"
#include "cohort/coordinator/parameters/stored_parameter.h"
#include "cohort/rpc/server.h"

namespace cohort::internal::coordinator {

/// Of so many bytes, as fill(to, filled) writes them: where they are sent from, if there is such a
/// place, which says how many of them are there.
template <class Fill>
rpc::Payload answer_with(const PayloadReader& data, std::size_t bytes, const Fill& fill) {
  rpc::Payload out = message({});
  const rpc::RpcReply::Room room = data.room(bytes);
  if (room.bytes.size() == bytes) {
    fill(room.bytes.data(), Filled(room.filled));
    out.append({.bytes = room.bytes, .owner = room.owner});
    return out;
  }
  const Tensor numbers = empty({static_cast<int64_t>(bytes)}, kUint8);
  fill(static_cast<std::byte*>(numbers.mutable_data_ptr()), Filled());
  append_bytes(out, numbers);
  return out;
}

inline rpc::Payload answer_with_rows(const PayloadReader& data, StoredParameter& parameter,
                                     const StoredPlace& place, RowRange range) {
  const std::size_t bytes = parameter.bytes_of(place, range);
  return answer_with(data, bytes, [&](std::byte* to, Filled filled) {
    parameter.read(place, range, {to, bytes}, filled);
  });
}

}  // namespace cohort::internal::coordinator
