// SPDX-License-Identifier: Apache-2.0
//
// Pictures that the real Graphviz draws: what of the model is in them, and how large they are.
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <regex>
#include <string>
#include <vector>

#include "cohort/data/image/image.h"
#include "cohort/data/test_files.h"
#include "cohort/keras/layers/layers.h"
#include "cohort/keras/operations.h"
#include "cohort/keras/plot_model.h"
#include "cohort/keras/sequential.h"
#include "cohort/testing/expect_error.h"

namespace cohort::keras::utils {
namespace {

struct Size {
  double width = 0, height = 0;
};

// In points of SVG's.
Size size_of_svg(const std::string& svg) {
  std::smatch found;
  const std::regex size("<svg width=\"([0-9]+)pt\" height=\"([0-9]+)pt\"");
  if (!std::regex_search(svg, found, size)) return {};
  return {std::stod(found[1]), std::stod(found[2])};
}

class Graphviz : public testing::FilesTest {
 protected:
  void SetUp() override {
    const bool is_there = std::system("dot -V > /dev/null 2>&1") == 0;  // NOLINT(cert-env33-c)
    if (is_there) return;
    if (std::getenv("CI") != nullptr) FAIL() << "no dot in PATH: install the package graphviz";
    GTEST_SKIP() << "no dot in PATH: install the package graphviz";
  }

  /// The SVG, and a PNG of that size, drawn in black and white.
  std::string drawn(const Model& model, PlotModelOptions options) {
    options.dpi = 72;  // a pixel is a point
    plot_model(model, path("model.svg"), options);
    plot_model(model, path("model.png"), options);
    std::string svg = read("model.svg");
    const Tensor png = data::decode_image(read("model.png"));
    const Size size = size_of_svg(svg);
    EXPECT_NEAR(static_cast<double>(png.size(1)), size.width, 3) << svg;
    EXPECT_NEAR(static_cast<double>(png.size(0)), size.height, 3) << svg;
    const Tensor grey = png.slice(2, 0, 3).to(kFloat32).mean(2);
    const double dark = (grey < 64).to(kFloat32).mean().item<double>();
    const double bright = (grey > 192).to(kFloat32).mean().item<double>();
    EXPECT_GT(dark, 0.02);
    EXPECT_GT(bright, 0.2);
    return svg;
  }
};

void expect_boxes(const std::string& svg, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    EXPECT_NE(svg.find("<title>" + name + "</title>"), std::string::npos) << name << '\n' << svg;
  }
}

void expect_texts(const std::string& svg, const std::vector<std::string>& texts) {
  for (const std::string& text : texts) {
    EXPECT_NE(svg.find(">" + text + "</text>"), std::string::npos) << text << '\n' << svg;
  }
}

TEST_F(Graphviz, DrawsFunctionalModels) {
  const KerasTensor x = Input({4}, {.name = "x"});
  const KerasTensor left = Dense(3, {.activation = "relu", .name = "left"})(x);
  const KerasTensor right = Dense(3, {.name = "right"})(x) * 2;
  const Model model(x, Add({.name = "sum"})(KerasTensor::tuple({left, right})));
  const std::string svg = drawn(model, {.show_shapes = true, .show_layer_names = true});
  expect_boxes(
      svg, {"x", "left", "right", "sum", "x&#45;&gt;left", "x&#45;&gt;right", "left&#45;&gt;sum"});
  expect_texts(svg, {"left (Dense)", "sum (Add)", "Input shape: (None, 4)",
                     "Output shape: (None, 3)", "Input shape: (None, 3), (None, 3)"});
  EXPECT_EQ(svg.find("<title>right&#45;&gt;sum</title>"), std::string::npos) << "by the product";
}

TEST_F(Graphviz, DrawsChainsInBothDirections) {
  const Sequential model({InputLayer({4}), Dense(3, {.name = "first"}), ReLU({.name = "cut"}),
                          Dense(2, {.name = "a<b>&\"c\""})});
  const std::string down = drawn(model, {.show_layer_names = true});
  expect_boxes(down, {"first&#45;&gt;cut"});
  expect_texts(down, {"first (Dense)", "cut (ReLU)", "a&lt;b&gt;&amp;&quot;c&quot; (Dense)"});
  const std::string right = drawn(model, {.show_layer_names = true, .rankdir = "LR"});
  const Size tall = size_of_svg(down), wide = size_of_svg(right);
  EXPECT_GT(tall.height, 2 * wide.height);
  EXPECT_GT(wide.width, 2 * tall.width);
}

TEST_F(Graphviz, DrawsModelsInModels) {
  const auto inner = std::make_shared<Sequential>(
      std::vector<Layer>{InputLayer({4}), Dense(3, {.name = "first"}), Dense(2, {.name = "last"})},
      "inner");
  const KerasTensor x = Input({2}, {.name = "x"});
  const auto net = std::make_shared<Model>(x, Dense(2, {.name = "deep"})(x), "net");
  const Sequential model({InputLayer({4}), Layer(inner), Layer(net), Dense(1, {.name = "end"})});
  const std::string closed = drawn(model, {.show_layer_names = true});
  expect_boxes(closed, {"inner", "net", "end", "inner&#45;&gt;net"});
  expect_texts(closed, {"inner (Sequential)", "net (Functional)"});
  const std::string open = drawn(model, {.show_layer_names = true, .expand_nested = true});
  expect_boxes(open, {"cluster_inner", "cluster_net", "inner/first&#45;&gt;inner/last",
                      "inner/last&#45;&gt;net/x", "net/deep&#45;&gt;end"});
  expect_texts(open, {"inner", "net", "first (Dense)", "deep (Dense)"});
  EXPECT_GT(size_of_svg(open).height, 1.5 * size_of_svg(closed).height);
}

TEST_F(Graphviz, DrawsAsManyDotsAsItIsTold) {
  const Sequential model({InputLayer({4}), Dense(3)});
  std::array<int64_t, 2> width = {};
  for (std::size_t i = 0; i < width.size(); ++i) {
    plot_model(model, path("model.png"), {.dpi = i == 0 ? 72 : 216});
    width[i] = data::decode_image(read("model.png")).size(1);
  }
  EXPECT_NEAR(static_cast<double>(width[1]), 3.0 * static_cast<double>(width[0]), 6);
}

TEST_F(Graphviz, SaysWhatItCannotWrite) {
  const Sequential model({InputLayer({4}), Dense(3)});
  testing::expect_error<FailedPrecondition>({"model.nothing"},
                                            [&] { plot_model(model, path("model.nothing")); });
  EXPECT_TRUE(std::filesystem::is_empty(std::filesystem::path(path("model.svg")).parent_path()));
}

}  // namespace
}  // namespace cohort::keras::utils
