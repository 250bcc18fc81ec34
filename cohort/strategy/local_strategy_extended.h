// SPDX-License-Identifier: Apache-2.0
//
// To write a strategy whose replicas all live in this process: derive, and override the hooks of
// StrategyExtended that are to be others. examples/local_sgd_strategy.cc is one.
//
//   class Counting : public LocalStrategyExtended {
//    public:
//     explicit Counting(std::vector<Device> devices)
//         : LocalStrategyExtended({.name = "Counting", .devices = std::move(devices)}) {}
//     int runs = 0;
//
//    protected:
//     void do_run(ReplicaBody body) override {
//       ++runs;
//       LocalStrategyExtended::do_run(body);
//     }
//   };
//   Strategy strategy(std::make_shared<Counting>(list_devices(DeviceKind::kCpu)));
#pragma once

#include "cohort/strategy/internal/local_strategy.h"
#include "cohort/strategy/strategy.h"

namespace cohort {

/// Threads, variables and reductions of MirroredStrategy, OneDeviceStrategy and
/// CentralStorageStrategy.
using LocalStrategyExtended = internal::strategy::LocalStrategy;
/// `.name` for error texts, `.devices`, one for each replica, and what a strategy changes:
/// `.cross_device_ops`, `.parameter_device`, `.variable_options`. Errors, of the constructor: as
/// MirroredStrategy.
using LocalStrategyOptions = internal::strategy::LocalStrategyOptions;

}  // namespace cohort
