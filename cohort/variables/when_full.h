// SPDX-License-Identifier: Apache-2.0
//
// What a table of fixed size does with an id that is to have a row when all are taken.
#pragma once

namespace cohort {

enum class WhenFull {
  kRefuse,               ///< It has none, and asks again when it is seen next.
  kLeastRecentlyUsed,    ///< It gets that of the id that was not seen for the longest time.
  kLeastFrequentlyUsed,  ///< It gets that of the id seen least often; of several the longest ago.
};

}  // namespace cohort
