// SPDX-License-Identifier: Apache-2.0
#include <span>

#include "cohort/base/strings.h"
#include "cohort/keras/compiled_model.h"
#include "cohort/keras/internal/graph.h"
#include "cohort/keras/model.h"
#include "cohort/keras/progress_bar.h"
#include "cohort/keras/summary.h"
#include "cohort/keras/terminal.h"

namespace cohort::keras {

namespace {

using internal::SummaryFoot;
using internal::SummaryRow;

SummaryFoot::Count count_of(std::span<const Variable> variables) {
  SummaryFoot::Count count;
  for (const Variable& v : variables) {
    const int64_t parameters = internal::parameters_of(v);
    count.parameters += parameters;
    count.bytes += parameters * static_cast<int64_t>(c10::elementSize(v.dtype()));
  }
  return count;
}

}  // namespace

int64_t Model::count_params() const { return count_of(variables()).parameters; }

struct Model::SummaryRows {
  const SummaryOptions options;
  std::vector<SummaryRow> rows = {};

  void add(const Model& model, int depth) {
    if (model.is_functional()) return add_drawn(model, depth);
    const std::vector<Shape> shapes = model.layer_output_shapes();
    for (std::size_t i = 0; i < model.layers().size(); ++i) {
      const LayerBase& layer = model.layers()[i].base();
      if (layer.class_name() == "InputLayer") continue;
      add_row(layer, depth, i < shapes.size() ? internal::column_shape_text(shapes[i]) : "?", "-");
    }
  }

  // Calls in models in the model are not of this drawing.
  void add_drawn(const Model& model, int depth) {
    for (const internal::GraphRow& row : model.graph_->summary_rows()) {
      if (depth > 0 && !row.is_layer) continue;
      add_row(row.layer.base(), depth, row.output_shape, depth > 0 ? "-" : row.connected_to);
    }
  }

  void add_row(const LayerBase& layer, int depth, const std::string& shape,
               const std::string& connected_to) {
    std::string prefix;
    for (int i = 0; i < depth; ++i) prefix += "   ";
    if (depth > 0) prefix += "\u2514 ";
    const int64_t count = count_of(layer.variables()).parameters;
    const bool unbuilt = count == 0 && layer.class_name() != "InputLayer" &&
                         (!layer.built() || !layer.waiting_sub_layer().empty());
    rows.push_back({.layer = str_cat(prefix, layer.name(), " (", layer.class_name(), ")"),
                    .output_shape = shape,
                    .parameters = unbuilt ? "0 (unbuilt)" : internal::grouped(count),
                    .connected_to = connected_to,
                    .trainable = layer.variables().empty() ? "-"
                                 : layer.trainable()       ? "Y"
                                                           : "N"});
    const auto* inner = dynamic_cast<const Model*>(&layer);
    if (options.expand_nested && inner != nullptr) add(*inner, depth + 1);
  }
};

std::string Model::summary_text(const SummaryOptions& options) const {
  SummaryRows all{options};
  all.add(*this, 0);
  SummaryFoot foot{.trainable = count_of(trainable_variables()),
                   .non_trainable = count_of(non_trainable_variables())};
  if (compiled_ && compiled_->options.optimizer.base().built()) {
    foot.optimizer = count_of(compiled_->options.optimizer.variables());
  }
  const internal::SummaryColumns more = {.connected_to = is_functional() && !graph_->is_chain(),
                                         .trainable = options.show_trainable};
  return internal::summary_table(name(), all.rows, foot, internal::terminal().columns, more);
}

void Model::summary(const SummaryOptions& options) const {
  const std::string text = summary_text(options);
  if (strategy_.extended().should_save_summary()) internal::print_out(text);
}

}  // namespace cohort::keras
