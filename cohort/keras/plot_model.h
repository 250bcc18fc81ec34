// SPDX-License-Identifier: Apache-2.0
//
// Pictures of models.
//
//   keras::utils::plot_model(model, "model.dot", {.show_shapes = true});
#pragma once

#include <string>

#include "cohort/keras/model.h"

namespace cohort::keras::utils {

struct PlotModelOptions {
  bool show_shapes = false;
  bool show_dtype = false;  ///< What layers compute in.
  bool show_layer_names = false;
  std::string rankdir = "TB";  ///< Or "LR", "BT", "RL": where the graph goes to.
  bool expand_nested = false;  ///< Models in the model are drawn in boxes of their own.
  int dpi = 200;               ///< Of PNG.
  bool show_layer_activations = false;
  bool show_trainable = false;
};

/// The model in Graphviz's language, DOT: layers and operations, and what goes where. A model that
/// is a class of its own is one box.
/// Errors: InvalidArgument for an unknown rankdir. TF: keras.utils.model_to_dot.
std::string model_to_dot(const Model& model, const PlotModelOptions& options = {});

/// Writes a file; its ending says what: ".dot" or ".gv" needs nothing, all others (".png", ".svg",
/// ".pdf") Graphviz's program dot. Blocks: until that has ended.
/// Errors: as model_to_dot, InvalidArgument for a path without an ending; FailedPrecondition
///         without dot, naming its package, and where dot fails; Error with the system's
///         reason.
/// TF: keras.utils.plot_model.
void plot_model(const Model& model, const std::string& to_file = "model.png",
                const PlotModelOptions& options = {});

}  // namespace cohort::keras::utils
