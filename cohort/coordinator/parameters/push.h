// SPDX-License-Identifier: Apache-2.0
//
// What gradients on their way are kept in. Included by sources alone.
#pragma once

#include "cohort/coordinator/parameters/calls.h"
#include "cohort/coordinator/parameters/parameter_servers.h"

namespace cohort::internal::coordinator {

struct ParameterServers::Push::Impl {
  explicit Impl(ParameterServers& all) : servers(all), calls(all.options_.timeout) {}
  ParameterServers& servers;
  int late_parts = 0;  // before the calls, which may still add to it when they end
  Calls calls;
  void accumulate(const BoundShard& shard, const char* method, const rpc::Payload& request);
};

}  // namespace cohort::internal::coordinator
