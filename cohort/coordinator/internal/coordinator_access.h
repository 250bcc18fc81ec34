// SPDX-License-Identifier: Apache-2.0
//
// What the layers above ask of a ClusterCoordinator without types.
#pragma once

#include <functional>
#include <optional>
#include <utility>

#include "cohort/coordinator/cluster_coordinator.h"

namespace cohort::internal::coordinator {

struct CoordinatorAccess {
  /// A dataset of each worker that fn, registered, makes of a context and the arguments that
  /// `write` writes. nullopt: the worker's own context.
  static PerWorkerDataset make_dataset(ClusterCoordinator& coordinator, AnyFunction fn,
                                       const std::optional<cohort::data::InputContext>& context,
                                       const std::function<void(ValueWriter&)>& write) {
    ValueWriter out;
    write_context(out, context);
    write(out);
    return PerWorkerDataset(
        coordinator.add_resource(fn, ClusterCoordinator::Arguments(std::move(out))));
  }
};

}  // namespace cohort::internal::coordinator
