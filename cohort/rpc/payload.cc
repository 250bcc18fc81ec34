// SPDX-License-Identifier: Apache-2.0
#include "cohort/rpc/payload.h"

#include <utility>

namespace cohort::internal::rpc {

Payload::Payload(std::string_view text) {
  auto owner = std::make_shared<const std::string>(text);
  const auto bytes = std::as_bytes(std::span(*owner));
  append({.bytes = bytes, .owner = std::move(owner)});
}

void Payload::append(Piece piece) {
  if (piece.bytes.empty()) return;
  size_ += piece.bytes.size();
  pieces_.push_back(std::move(piece));
}

std::string Payload::text() const {
  std::string out;
  out.reserve(size_);
  for (const Piece& piece : pieces_) {
    out.append(reinterpret_cast<const char*>(piece.bytes.data()), piece.bytes.size());
  }
  return out;
}

}  // namespace cohort::internal::rpc
