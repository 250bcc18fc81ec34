// SPDX-License-Identifier: Apache-2.0
//
// Who takes part in which case, and how to start them.
#pragma once

#include <string>
#include <vector>

#include "places.h"
#include "workload.h"

namespace cohort::bench {

/// Whom a contender belongs to: the summary line compares with the best of each family. A part of
/// Cohort's case is `fit`'s step without `fit`, or one replica without the others. A limit trains
/// nothing: it is what the machine leaves to anybody.
enum class Family { kCohort, kCohortPart, kLimit, kLibtorch, kJax, kKeras, kTorch };

/// "libtorch", as the summary line writes it.
const char* family_name(Family family);

/// One contender. Peers run in a virtual environment that `peers/setup` made.
struct ContenderSpec {
  std::string name;
  Family family = Family::kCohort;
  std::string missing;  ///< why it cannot take part, else empty
  std::vector<std::string> command;
  std::vector<std::string> environment;
  std::vector<std::string> models;
  int min_replicas = 1;
  int max_replicas = 1;
  bool same_work = true;  ///< false: it trains a part of the case, and need not come to its loss

  bool takes_part(const Case& c) const;
};

/// All contenders; without `peers` only those in C++.
std::vector<ContenderSpec> roster(const Places& places, bool peers);

}  // namespace cohort::bench
