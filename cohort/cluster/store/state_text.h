// SPDX-License-Identifier: Apache-2.0
//
// How a store's texts say times and states.
#pragma once

#include <chrono>
#include <string>

#include "cohort/base/strings.h"
#include "cohort/cluster/store/state.h"

namespace cohort::internal::cluster {

/// "2.1 s", in whole milliseconds.
template <class Rep, class Period>
std::string store_seconds(std::chrono::duration<Rep, Period> time) {
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(time);
  return str_cat(static_cast<double>(ms.count()) / 1000, " s");
}

inline std::chrono::milliseconds store_milliseconds(StoreState::Time::duration time) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(time);
}

inline const char* state_name(StoreMember::State state) {
  switch (state) {
    case StoreMember::State::kAlive:
      return "lives";
    case StoreMember::State::kLeft:
      return "has ended";
    case StoreMember::State::kDead:
      return "was not heard of for longer than its lease";
  }
  return "";
}

}  // namespace cohort::internal::cluster
