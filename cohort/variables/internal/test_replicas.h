// SPDX-License-Identifier: Apache-2.0
//
// For tests: replicas on threads with the variables they share, and errors by their text.
#pragma once

#include <gtest/gtest.h>

#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "cohort/runtime/replica_group.h"
#include "cohort/variables/local_variables.h"

namespace cohort::internal::variables {

/// A group of replicas and the creator of their variables, without a strategy on top.
class ReplicasTest : public ::testing::Test {
 protected:
  explicit ReplicasTest(int replicas = 2,
                        ParameterPlacement placement = ParameterPlacement::kMirrored)
      : group_({.replicas = replicas}),
        creator_(std::make_shared<LocalVariables>(LocalVariablesOptions{
            .devices = devices(replicas), .placement = placement, .group = &group_})) {}

  Variable make(InitialValue initial, VariableOptions options = {}) {
    const VariableCreatorScope scope(creator_);
    return Variable(std::move(initial), std::move(options));
  }
  /// Every component's elements, as doubles.
  static std::vector<std::vector<double>> components(const Variable& v) {
    std::vector<std::vector<double>> out;
    for (const Variable& one : v.components()) out.push_back(to_vector<double>(one.value()));
    return out;
  }
  static std::vector<Device> devices(int replicas) {
    std::vector<Device> out;
    for (int r = 0; r < replicas; ++r) out.emplace_back(str_cat("CPU:", r));
    return out;
  }

  runtime::ReplicaGroup group_;
  const std::shared_ptr<LocalVariables> creator_;
};

}  // namespace cohort::internal::variables
