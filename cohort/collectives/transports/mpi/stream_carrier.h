// SPDX-License-Identifier: Apache-2.0
//
// What carries the bytes of a stream where its connection does not.
#pragma once

#include <cstddef>
#include <span>

namespace cohort::internal::collectives {

/// Bytes between this rank and another one, in both directions, in their order. Blocks: never.
/// Threads: thread-compatible; those of a job one at a time.
class StreamCarrier {
 public:
  StreamCarrier() = default;
  virtual ~StreamCarrier() = default;
  StreamCarrier(const StreamCarrier&) = delete;
  StreamCarrier& operator=(const StreamCarrier&) = delete;

  /// Takes as much as there is room for and returns it.
  virtual std::size_t write(std::span<const std::byte> bytes) = 0;
  /// Sends what was taken.
  virtual void publish() = 0;
  /// Whether all that was taken has left.
  virtual bool has_sent_all() = 0;
  /// Reads what is there, up to so much; returns how much.
  virtual std::size_t read(std::span<std::byte> bytes) = 0;
};

}  // namespace cohort::internal::collectives
