// SPDX-License-Identifier: Apache-2.0
//
// A child of fork has its parent's sockets open, and as long as it lives, nobody at their other
// ends learns that the parent has died. What belongs to one process alone is closed in children:
//
//   close_in_children(fd);
//   ...
//   if (close_no_more_in_children(fd)) ::close(fd);
#pragma once

namespace cohort::internal::base {

/// Threads: any. Cost: lock-free.
void close_in_children(int fd);
/// False if it was closed, because this is a child. Threads: any.
bool close_no_more_in_children(int fd);

}  // namespace cohort::internal::base
