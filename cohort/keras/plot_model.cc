// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/plot_model.h"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iomanip>
#include <map>
#include <set>
#include <vector>

#include "cohort/base/check.h"
#include "cohort/base/display.h"
#include "cohort/base/scope_exit.h"
#include "cohort/base/strings.h"
#include "cohort/keras/internal/call_node.h"
#include "cohort/keras/sequential.h"
#include "cohort/keras/summary.h"

namespace cohort::keras::utils {
namespace {

using cohort::internal::base::markup_escaped;

std::string text_of_shapes(const ElementSpec& spec) {
  std::vector<std::string> shapes;
  for (const TensorSpec& one : spec.flat()) {
    shapes.push_back(one.known_rank ? internal::shape_text(one.shape) : "?");
  }
  return shapes.empty() ? "?" : join(shapes, ", ");
}

class DotWriter {
 public:
  explicit DotWriter(const PlotModelOptions& options) : options_(options) {}

  std::string write(const Model& model) {
    out_ =
        str_cat("digraph model {\n  graph [rankdir=", options_.rankdir, ", dpi=", options_.dpi,
                ", labeljust=l, fontname=Helvetica];\n  node [shape=plain, fontname=Helvetica];\n");
    add_model(model, "");
    std::string all = out_;
    for (const std::string& edge : edges_) all += edge;
    return all + "}\n";
  }

 private:
  // Where edges to and from a layer end.
  struct Ends {
    std::vector<std::string> in, out;
  };
  using EndsByLayer = std::map<const LayerBase*, Ends>;

  static bool has_parts(const Model& model) {
    return model.is_functional() || dynamic_cast<const Sequential*>(&model) != nullptr;
  }

  Ends add_model(const Model& model, const std::string& path) {
    if (model.is_functional()) return add_functional(model, path);
    if (has_parts(model)) return add_chain(model, path);
    return add_box(model, path, {}, {});
  }

  Ends add_chain(const Model& model, const std::string& path) {
    Ends all;
    const std::vector<Shape> shapes = model.layer_output_shapes();
    const Config built = model.get_build_config();
    const Config* input = built.is_null() ? nullptr : built.find("input_shape");
    ElementSpec before;
    if (input != nullptr && !input->is_null()) before = spec_of(ShapeValue::read(*input));
    for (std::size_t i = 0; i < model.layers().size(); ++i) {
      const ElementSpec after = i < shapes.size() ? spec_of(shapes[i]) : ElementSpec();
      const Ends ends = add_layer(model.layers()[i].base(), path, before, after);
      connect(all.out, ends.in);
      if (i == 0) all.in = ends.in;
      all.out = ends.out;
      before = after;
    }
    return all;
  }

  static ElementSpec spec_of(const Shape& shape) { return TensorSpec{shape, DType::Undefined}; }

  Ends add_functional(const Model& model, const std::string& path) {
    EndsByLayer ends;
    for (const internal::CallNode* call : calls_of(model)) {
      const LayerBase& layer = call->layer.base();
      if (!ends.contains(&layer)) {
        const ElementSpec in = call->inputs.has_value() ? call->inputs.spec() : ElementSpec();
        ends[&layer] = add_layer(layer, path, in, call->outputs);
      }
      for (const KerasTensor& from : call->needs()) {
        connect(ends.at(&from.node()->layer.base()).out, ends.at(&layer).in);
      }
    }
    return {nodes_of(model.inputs(), ends, &Ends::in), nodes_of(model.outputs(), ends, &Ends::out)};
  }

  // In the order in which they were drawn.
  static std::vector<const internal::CallNode*> calls_of(const Model& model) {
    std::set<const internal::CallNode*> seen;
    std::vector<const internal::CallNode*> all, next;
    const auto reach = [&](const KerasTensor& tensor) {
      const internal::CallNode* call = tensor.node().get();
      if (seen.insert(call).second) next.push_back(call);
    };
    for (const KerasTensor& output : model.outputs().flat()) reach(output);
    for (const KerasTensor& input : model.inputs().flat()) reach(input);
    while (!next.empty()) {
      all.push_back(next.back());
      next.pop_back();
      for (const KerasTensor& needed : all.back()->needs()) reach(needed);
    }
    std::ranges::sort(all, {}, &internal::CallNode::number);
    return all;
  }

  static std::vector<std::string> nodes_of(const KerasTensor& tensors, const EndsByLayer& ends,
                                           std::vector<std::string> Ends::*which) {
    std::vector<std::string> nodes;
    for (const KerasTensor& one : tensors.flat()) {
      for (const std::string& node : ends.at(&one.node()->layer.base()).*which) {
        if (std::ranges::count(nodes, node) == 0) nodes.push_back(node);
      }
    }
    return nodes;
  }

  Ends add_layer(const LayerBase& layer, const std::string& path, const ElementSpec& in,
                 const ElementSpec& out) {
    const auto* model = dynamic_cast<const Model*>(&layer);
    if (model == nullptr || !options_.expand_nested || !has_parts(*model)) {
      return add_box(layer, path, in, out);
    }
    const std::string id = path + layer.name();
    out_ += str_cat("  subgraph ", std::quoted("cluster_" + id),
                    " {\n  label=", std::quoted(layer.name()), ";\n");
    const Ends ends = add_model(*model, id + "/");
    out_ += "  }\n";
    return ends;
  }

  Ends add_box(const LayerBase& layer, const std::string& path, const ElementSpec& in,
               const ElementSpec& out) {
    const std::string id = path + layer.name();
    out_ += str_cat("  ", std::quoted(id), " [label=<", label(layer, in, out), ">];\n");
    return {{id}, {id}};
  }

  std::string label(const LayerBase& layer, const ElementSpec& in, const ElementSpec& out) const {
    std::string title = markup_escaped(layer.class_name());
    if (options_.show_layer_names) title = str_cat(markup_escaped(layer.name()), " (", title, ")");
    std::string rows = str_cat("<tr><td bgcolor=\"black\"><font color=\"white\"><b>", title,
                               "</b></font></td></tr>");
    const auto row = [&](const std::string& text) {
      rows += str_cat("<tr><td>", markup_escaped(text), "</td></tr>");
    };
    if (options_.show_layer_activations) {
      if (const std::string name = activation_of(layer); !name.empty()) row("Activation: " + name);
    }
    if (options_.show_dtype) {
      row(str_cat("Output dtype: ", dtype_name(layer.dtype_policy().compute_dtype())));
    }
    if (options_.show_shapes) {
      if (!in.flat().empty()) row("Input shape: " + text_of_shapes(in));
      row("Output shape: " + text_of_shapes(out));
    }
    if (options_.show_trainable && layer.may_have_weights()) {
      row(layer.trainable() ? "Trainable: True" : "Trainable: False");
    }
    return str_cat("<table border=\"0\" cellborder=\"1\" cellspacing=\"0\" cellpadding=\"6\">",
                   rows, "</table>");
  }

  // Empty: none, or a class that does not say.
  static std::string activation_of(const LayerBase& layer) {
    if (dynamic_cast<const Model*>(&layer) != nullptr) return {};
    try {
      const Config config = layer.get_config();
      const Config* activation = config.find("activation");
      return activation != nullptr && activation->is_text() ? activation->text() : std::string();
    } catch (const Unimplemented&) {
      return {};
    }
  }

  void connect(const std::vector<std::string>& from, const std::vector<std::string>& to) {
    for (const std::string& a : from) {
      for (const std::string& b : to) {
        const std::string edge = str_cat("  ", std::quoted(a), " -> ", std::quoted(b), ";\n");
        if (known_.insert(edge).second) edges_.push_back(edge);
      }
    }
  }

  const PlotModelOptions options_;
  std::string out_;
  std::vector<std::string> edges_;
  std::set<std::string> known_;
};

std::string ending_of(const std::string& path) {
  const std::size_t dot = path.rfind('.');
  COHORT_CHECK_ARG(
      dot != std::string::npos && dot + 1 < path.size() && path.find('/', dot) == std::string::npos,
      "[plot_model] expected a path with an ending, as model.png, got ", path);
  return path.substr(dot + 1);
}

void write_dot(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text << std::flush;
  const int why = errno;  // of what failed so far: close() writes over it
  const bool is_written = static_cast<bool>(file);
  file.close();
  if (file) return;
  throw Error(ErrorCode::kFailedPrecondition, str_cat("[plot_model] failed to write ", path, ": ",
                                                      std::strerror(is_written ? errno : why)));
}

void run_dot(const std::string& from, const std::string& to, const std::string& ending) {
  std::vector<std::string> words = {"dot", "-T" + ending, "-o", to, from};
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  pid_t child = 0;
  const int failed = ::posix_spawnp(&child, "dot", nullptr, nullptr, arguments.data(), ::environ);
  if (failed == ENOENT) {
    throw FailedPrecondition(
        "[plot_model] expected Graphviz's program \"dot\", got none in PATH: install the package "
        "graphviz, or write a .dot file");
  }
  int status = 0;
  while (failed == 0 && ::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (failed != 0 || !WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    throw FailedPrecondition(str_cat("[plot_model] dot could not write ", to));
  }
}

}  // namespace

std::string model_to_dot(const Model& model, const PlotModelOptions& options) {
  constexpr std::array kDirections = {"TB", "LR", "BT", "RL"};
  COHORT_CHECK_ARG(std::ranges::count(kDirections, options.rankdir) == 1,
                   "[plot_model] expected a rankdir of TB, LR, BT or RL, got ", options.rankdir);
  return DotWriter(options).write(model);
}

void plot_model(const Model& model, const std::string& to_file, const PlotModelOptions& options) {
  const std::string ending = ending_of(to_file);
  const std::string text = model_to_dot(model, options);
  if (ending == "dot" || ending == "gv") return write_dot(to_file, text);
  const std::string beside = str_cat(to_file, ".", ::getpid(), ".dot");
  const cohort::internal::base::ScopeExit remove([&] { std::remove(beside.c_str()); });
  write_dot(beside, text);
  run_dot(beside, to_file, ending);
}

}  // namespace cohort::keras::utils
