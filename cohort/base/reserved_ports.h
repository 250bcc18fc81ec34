// SPDX-License-Identifier: Apache-2.0
//
// Ports for programs that are yet to be started, or started again. A port that was merely free a
// moment ago can be anybody's when the program listens: the system takes those of outgoing
// connections, and of whoever asks for any port, from the same range.
#pragma once

#include <cstddef>
#include <vector>

namespace cohort::internal::base {

/// Ports below that range (ip_local_port_range) where nobody listens, all different. As long as it
/// lives, no other ReservedPorts of this network namespace gets them, whatever the process. Where
/// the range leaves no room, they are merely free.
/// Threads: immutable.
class ReservedPorts {
 public:
  /// Errors: ResourceExhausted if there are not so many.
  explicit ReservedPorts(std::size_t count);
  ~ReservedPorts();
  ReservedPorts(ReservedPorts&&) noexcept = default;
  ReservedPorts& operator=(ReservedPorts&&) = delete;

  const std::vector<int>& all() const { return ports_; }
  int operator[](std::size_t i) const { return ports_.at(i); }

 private:
  ReservedPorts() = default;

  std::vector<int> ports_;
  std::vector<int> claims_;  // descriptors
};

}  // namespace cohort::internal::base
