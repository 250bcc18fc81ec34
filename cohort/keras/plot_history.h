// SPDX-License-Identifier: Apache-2.0
//
// Curves of a training as a picture. The callback Plot draws them while fit runs.
//
//   const keras::History history = model.fit(train, {.epochs = 2});
//   keras::utils::plot_history(history, "curves.svg");
#pragma once

#include <string>
#include <vector>

#include "cohort/keras/history.h"

namespace cohort::keras {

struct PlotOptions {
  std::vector<std::string> names = {};  ///< Without "val_". Empty: all.
  int width = 640;                      ///< In pixels, from 200 to 10,000, as the next.
  int height = 320;  ///< Of each of the diagrams, which stand one below the other.
};

namespace utils {

/// A diagram for each name, with the curves of it and of its "val_" over the epochs. Values that
/// are not finite are gaps. The file's ending says what: ".svg", or ".png". Whole or not at all.
/// Errors: InvalidArgument for another ending, sizes and names that are not there; Error with the
///         system's reason.
void plot_history(const History& history, const std::string& to_file,
                  const PlotOptions& options = {});

}  // namespace utils
}  // namespace cohort::keras
