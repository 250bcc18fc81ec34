// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/plot_model.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "cohort/keras/layers/layers.h"
#include "cohort/keras/operations.h"
#include "cohort/keras/sequential.h"
#include "cohort/testing/expect_error.h"

namespace cohort::keras::utils {
namespace {

using cohort::testing::expect_error;

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(PlotModel, SaysWhatGoesWhere) {
  const KerasTensor x = Input({4}, {.name = "x"});
  const KerasTensor y = Dense(3, {.activation = "relu", .name = "left"})(x);
  const Layer right = Dense(3, {.name = "right"});
  right.set_trainable(false);
  const Model model(x, Add({.name = "sum"})(KerasTensor::tuple({y, right(x) * 2})));
  const std::string dot = model_to_dot(model, {.show_shapes = true,
                                               .show_dtype = true,
                                               .show_layer_names = true,
                                               .rankdir = "LR",
                                               .show_layer_activations = true,
                                               .show_trainable = true});
  for (const char* part :
       {"rankdir=LR", "\"x\" -> \"left\";", "\"x\" -> \"right\";", "\"left\" -> \"sum\";",
        "left (Dense)", "Activation: relu", "Input shape: (None, 4)", "Output shape: (None, 3)",
        "Input shape: (None, 3), (None, 3)", "Trainable: False", "(Multiply)",
        "Output dtype: float32"}) {
    EXPECT_TRUE(has(dot, part)) << part << dot;
  }
  EXPECT_FALSE(has(dot, "\"right\" -> \"sum\""));  // the product stands between
  EXPECT_FALSE(has(model_to_dot(model), "shape:"));
}

TEST(PlotModel, ALayerThatIsCalledTwiceIsOneBox) {
  const KerasTensor a = Input({4}, {.name = "a"}), b = Input({4}, {.name = "b"});
  const Layer shared = Dense(2, {.name = "shared"});
  const Model model({a, b}, Add({.name = "sum"})(KerasTensor::tuple({shared(a), shared(b)})));
  const std::string dot = model_to_dot(model);
  for (const char* part :
       {"\"a\" -> \"shared\";", "\"b\" -> \"shared\";", "\"shared\" -> \"sum\";"}) {
    const std::size_t at = dot.find(part);
    ASSERT_NE(at, std::string::npos) << part << dot;
    EXPECT_EQ(dot.find(part, at + 1), std::string::npos) << dot;
  }
}

TEST(PlotModel, NestedModelsAreBoxes) {
  const auto inner = std::make_shared<Sequential>(
      std::vector<Layer>{InputLayer({4}), Dense(3, {.name = "first"}), Dense(2, {.name = "last"})},
      "inner");
  const KerasTensor x = Input({2}, {.name = "x"});
  const auto drawn = std::make_shared<Model>(x, Dense(2, {.name = "deep"})(x), "drawn");
  const Sequential model({InputLayer({4}), Layer(inner), Layer(drawn), Dense(1, {.name = "end"})});
  const std::string closed = model_to_dot(model);
  EXPECT_TRUE(has(closed, "\"inner\" -> \"drawn\";")) << closed;
  EXPECT_FALSE(has(closed, "cluster"));
  const std::string open = model_to_dot(model, {.show_shapes = true, .expand_nested = true});
  for (const char* part : {"subgraph \"cluster_inner\"", "\"inner/first\" -> \"inner/last\";",
                           "\"inner/last\" -> \"drawn/x\";", "\"drawn/x\" -> \"drawn/deep\";",
                           "\"drawn/deep\" -> \"end\";", "Output shape: (None, 1)"}) {
    EXPECT_TRUE(has(open, part)) << part << open;
  }
}

struct OwnNet : Model {
  Tensor call(const Tensor& x, const CallArgs&) override { return x; }
};

TEST(PlotModel, AClassOfItsOwnIsOneBox) {
  const std::string dot = model_to_dot(OwnNet());
  EXPECT_TRUE(has(dot, "OwnNet")) << dot;
  EXPECT_FALSE(has(dot, "->")) << dot;
}

TEST(PlotModel, WritesFilesByTheirEnding) {
  const auto folder = std::filesystem::temp_directory_path() / ("plot_" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  const Sequential model({InputLayer({4}), Dense(3)});
  plot_model(model, folder / "model.dot");
  EXPECT_EQ(text_of(folder / "model.dot"), model_to_dot(model));

  // Not Graphviz: what is asked of it, and what comes of its end.
  const std::string path = std::getenv("PATH");
  setenv("PATH", folder.c_str(), 1);
  expect_error<FailedPrecondition>({"graphviz"}, [&] { plot_model(model, folder / "a.png"); });
  std::ofstream(folder / "dot")
      << "#!/bin/sh\n[ $1 = -Tsvg ] && read line < $4 && echo \"$line\" > $3\n";
  chmod((folder / "dot").c_str(), 0755);
  plot_model(model, folder / "a.svg");
  expect_error<FailedPrecondition>({"a.png"}, [&] { plot_model(model, folder / "a.png"); });
  setenv("PATH", path.c_str(), 1);
  EXPECT_EQ(text_of(folder / "a.svg"), "digraph model {\n");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder), {}), 3);
  std::filesystem::create_symlink("/dev/full", folder / "full.dot");
  for (const auto& [name, why] : {std::pair("full.dot", "No space left on device"),
                                  std::pair("none/a.dot", "No such file or directory")}) {
    expect_error<Error>({str_cat("failed to write ", (folder / name).string(), ": ", why)},
                        [&, path = folder / name] { plot_model(model, path); });
  }
  std::filesystem::remove_all(folder);

  expect_error<InvalidArgument>({"rankdir"}, [&] { model_to_dot(model, {.rankdir = "up"}); });
  expect_error<InvalidArgument>({"ending"}, [&] { plot_model(model, "model"); });
}

}  // namespace
}  // namespace cohort::keras::utils
