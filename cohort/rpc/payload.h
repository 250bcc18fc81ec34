// SPDX-License-Identifier: Apache-2.0
//
// The bytes of one message, in pieces that are sent from where they lie:
//
//   Payload payload("a header");
//   payload.append({.bytes = rows, .owner = table});   // not copied: `table` keeps them alive
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace cohort::internal::rpc {

/// Threads: thread-compatible.
class Payload {
 public:
  struct Piece {
    std::span<const std::byte> bytes = {};
    std::shared_ptr<const void> owner = {};  ///< Keeps `bytes` there, and as they are.
  };

  Payload() = default;
  /// Copies the text.
  explicit Payload(std::string_view text);

  /// Owns: a share of the piece's owner, until the message is sent or the payload ends.
  void append(Piece piece);
  const std::vector<Piece>& pieces() const { return pieces_; }
  std::size_t size() const { return size_; }
  /// All pieces, one after the other. Cost: a copy.
  std::string text() const;

 private:
  std::vector<Piece> pieces_;
  std::size_t size_ = 0;
};

}  // namespace cohort::internal::rpc
