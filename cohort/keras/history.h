// SPDX-License-Identifier: Apache-2.0
//
// What fit returns.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace cohort::keras {

/// One entry for each epoch that ended. TF: keras.callbacks.History.
struct History {
  std::vector<int> epoch = {};                              ///< Numbers, from 0.
  std::map<std::string, std::vector<double>> history = {};  ///< "loss", "val_loss", metrics.
  bool interrupted = false;  ///< Ctrl-C ended fit; the epoch it fell into is not listed.
};

}  // namespace cohort::keras
