// SPDX-License-Identifier: Apache-2.0
//
// What the update kernel of a GPU makes of the memory's bandwidth.
#pragma once

#include <cstdint>

#include "cohort/runtime/device.h"

namespace cohort::bench {

struct UpdateBandwidth {
  double update_gbytes = 0;  ///< A second; a step of Adam reads 16 bytes a weight and writes 12.
  double copy_gbytes = 0;    ///< Of a copy within the device of as many bytes.
  double share() const { return copy_gbytes > 0 ? update_gbytes / copy_gbytes : 0; }
};

/// Adam's update of so many float32 weights by one gradient, without what comes before it in a step
/// (a gradient outside of the arena is copied there first). Medians of `samples` by the device's
/// own clock, copies and updates in turn. Cost: 7 x 4 bytes of device memory a weight, twice.
UpdateBandwidth measure_update(const Device& gpu, std::int64_t weights = std::int64_t{1} << 26,
                               int samples = 21);
/// Its share of the copy's bandwidth.
double update_bandwidth_share(const Device& gpu);

}  // namespace cohort::bench
