// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/callbacks/plot.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>

#include "cohort/data/dataset.h"
#include "cohort/data/image/image.h"
#include "cohort/data/test_files.h"
#include "cohort/keras/callbacks/callbacks.h"
#include "cohort/keras/layers/layers.h"
#include "cohort/keras/sequential.h"
#include "cohort/testing/expect_error.h"

namespace cohort::keras {
namespace {

using cohort::testing::expect_error;
using utils::plot_history;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

struct Plots : cohort::testing::FilesTest {
  std::string text_of(const std::string& name) const {
    std::ifstream file(path(name));
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
  }
  static int count(const std::string& text, const std::string& part) {
    int found = 0;
    for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
      ++found;
    }
    return found;
  }
  static History history() {
    return {.epoch = {0, 1, 2, 3},
            .history = {{"accuracy", {0.5, 0.6, 0.7, 0.8}},
                        {"loss", {4, 2, kNaN, 1}},
                        {"val_loss", {4, 3, 2.5, 2}}}};
  }
};

constexpr const char* kBlue = "stroke=\"#1f77b4\" stroke-width=\"2\"";
constexpr const char* kOrange = "stroke=\"#ff7f0e\" stroke-width=\"2\"";

TEST_F(Plots, HaveADiagramForEachNameWithItsValidation) {
  plot_history(history(), path("a.svg"));
  const std::string svg = text_of("a.svg");
  EXPECT_EQ(svg.rfind("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"640\" height=\"640\"", 0),
            0u);
  EXPECT_LT(svg.find(">loss<"), svg.find(">accuracy<"));
  EXPECT_EQ(count(svg, ">training<"), 2);
  EXPECT_EQ(count(svg, ">validation<"), 1);
  EXPECT_EQ(count(svg, ">epoch<"), 2);
  // The curve of the loss from one edge to the gap, the last value alone, and the legend's line.
  EXPECT_EQ(count(svg, kBlue), 2 + 2) << svg;
  EXPECT_EQ(count(svg, kOrange), 1 + 1);
  EXPECT_EQ(count(svg, "stroke=\"#1f77b4\" stroke-width=\"5\""), 1);
  EXPECT_EQ(count(svg, ">0<"), 2);  // the first epoch
  // Linear between the diagram's corners: 4 is 20/21 of the way up, 0.05 of the range from the top.
  EXPECT_NE(svg.find("<polyline points=\"72,48.8 255.3,"), std::string::npos) << svg;
}

TEST_F(Plots, ShowTheNamesThatAreAskedFor) {
  plot_history(history(), path("a.svg"), {.names = {"accuracy"}, .width = 300, .height = 200});
  const std::string svg = text_of("a.svg");
  EXPECT_NE(svg.find("width=\"300\" height=\"200\""), std::string::npos);
  EXPECT_EQ(svg.find(">loss<"), std::string::npos);
}

TEST_F(Plots, AreImagesWhoseLinesAreWhereTheValuesAre) {
  const History level{.epoch = {0, 1}, .history = {{"loss", {2, 2}}}};
  plot_history(level, path("a.png"), {.width = 400, .height = 300});
  const Tensor image = data::decode_image(data::read_file(path("a.png")));
  ASSERT_EQ(shape_of(image), (Shape{300, 400, 3}));
  const auto color = [&](int64_t y, int64_t x) { return to_vector<uint8_t>(image[y][x]); };
  const int64_t middle = (38 + 300 - 44) / 2;
  for (const int64_t x : {75, 200, 380}) {
    EXPECT_EQ(color(middle, x), (std::vector<uint8_t>{31, 119, 180})) << x;
    EXPECT_NE(color(middle + 3, x), (std::vector<uint8_t>{31, 119, 180})) << x;
  }
  EXPECT_EQ(color(1, 1), (std::vector<uint8_t>{255, 255, 255}));
  // There are texts, and their edges are soft.
  const Tensor title = image.slice(0, 8, 30).slice(1, 72, 120).select(2, 0).to(kInt64);
  EXPECT_GT((title < 100).sum().item<int64_t>(), 20);
  EXPECT_GT((title > 100).logical_and(title < 240).sum().item<int64_t>(), 20);
}

TEST_F(Plots, RefuseWhatIsNoPicture) {
  expect_error<InvalidArgument>({".svg or .png", "a.gif"},
                                [&] { plot_history(history(), path("a.gif")); });
  expect_error<InvalidArgument>(
      {"\"other\""}, [&] { plot_history(history(), path("a.svg"), {.names = {"other"}}); });
  expect_error<InvalidArgument>({"sizes"},
                                [&] { plot_history(history(), path("a.svg"), {.width = 10}); });
  expect_error<InvalidArgument>({"none"}, [&] { plot_history({}, path("a.svg")); });
  EXPECT_THROW(plot_history(history(), path("missing/a.svg")), Error);
  expect_error<InvalidArgument>({".svg or .png"}, [] { Plot("a.txt"); });
}

TEST_F(Plots, AreDrawnByTheCallbackAfterEachEpoch) {
  Sequential model({Dense(1)});
  model.compile({.loss = "mse", .metrics = {"mae"}});
  std::vector<int> curves;
  const LambdaCallback script({.on_epoch_end = [&](int epoch, Logs& logs) {
    curves.push_back(count(text_of("a.svg"), kBlue));
    if (epoch == 1) logs.set("late", 3.0);
  }});
  const Tensor x = ones({4, 2}), y = ones({4, 1});
  const History history = model.fit(x, y,
                                    {.epochs = 3,
                                     .validation_data = Dataset::from_tensors({x, y}),
                                     .callbacks = {script, Plot(path("a.svg"))},
                                     .verbose = Verbose::kSilent});
  EXPECT_EQ(curves[0], 0);  // no file yet
  EXPECT_GT(curves[2], 0);
  const std::string svg = text_of("a.svg");
  EXPECT_EQ(count(svg, ">validation<"), 2);
  EXPECT_EQ(count(svg, ">late<"), 1);

  // What the callback knows is what the history has.
  plot_history(history, path("b.svg"), {.names = {"loss", "mae"}});
  Callback again = Plot(path("c.svg"), {.names = {"loss", "mae"}});
  model.fit(x, y, {.epochs = 1, .callbacks = {again}, .verbose = Verbose::kSilent});
  const Callback other = Plot(path("d.svg"));
  other.base().restore_state(again.base().save_state());
  EXPECT_EQ(other.base().save_state(), again.base().save_state());
  EXPECT_THROW(other.base().restore_state("\x01"), InvalidArgument);
}

}  // namespace
}  // namespace cohort::keras
