// SPDX-License-Identifier: Apache-2.0
//
// Several pushes of gradients that are one update (ParameterServerOptions::sync_replicas), for who
// makes and uses optimizers.
#pragma once

#include <cstdint>

namespace cohort {
class Variable;
namespace internal::variables {
class Updater;
}  // namespace internal::variables
}  // namespace cohort

namespace cohort::internal::coordinator {

/// How a job's pushes become updates.
struct SyncPushes {
  uint64_t needed = 0;  ///< For one update; 0: each is applied when it arrives.
  bool drops_late = true;
  bool is_on() const { return needed > 0; }
};

/// Whether the variable's servers make one update of several pushes: an optimizer does not count
/// its updates itself then.
bool aggregates_pushes(const Variable& variable);
/// From here on the servers count in `iterations`, an int64 of one number, each update that they
/// make of what `updater` pushes. Where they do not aggregate it changes nothing.
void count_updates_in(variables::Updater& updater, const Variable& iterations);
/// Nobody pushes now, and nothing that waits shall meet what is pushed from here on: it is an
/// update, with the mean of so many. Where nothing waits, or servers do not aggregate, it changes
/// nothing. Blocks: until the servers have done it. `iterations`: those of an optimizer that this
/// process has built.
void complete_updates(const Variable& iterations);

}  // namespace cohort::internal::coordinator
