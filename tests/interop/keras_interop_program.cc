// SPDX-License-Identifier: Apache-2.0
//
// Cohort's part of the comparison with real Keras (keras_interop.py):
//
//   keras_interop_program FOLDER CASE...
//
// For each case: FOLDER/CASE.keras, or the folder FOLDER/CASE.folder, which Keras wrote, is opened,
// asked, saved, exported and, where there is something to learn (CASE.y.npy), trained on. Then
// models of this program are trained, saved and exported; their names are printed, a line each.
// What ONNX is not written of is told in CASE.refused.txt.
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>

#include "cohort/data/formats/npy/npy.h"
#include "cohort/keras/keras.h"
#include "cohort/runtime/random.h"

namespace {

using namespace cohort;

constexpr int kSteps = 3;

struct Case {
  std::string folder, name;
  std::string file(const std::string& ending) const { return folder + "/" + name + ending; }
  bool has(const std::string& what) const {
    return std::filesystem::exists(file("." + what + ".npy"));
  }
  Tensor read(const std::string& what) const { return data::read_npy(file("." + what + ".npy")); }
  void write(const std::string& what, const Tensor& values) const {
    data::write_npy(file("." + what + ".npy"), values);
  }
};

Tensor losses_of(keras::Model& model, const Tensor& x, const Tensor& y, int steps = kSteps) {
  std::vector<double> losses;
  for (int i = 0; i < steps; ++i) losses.push_back(model.train_on_batch(x, y).number("loss"));
  return from_vector<double>(losses, {steps});
}

Tensor predicted(keras::Model& model, const Tensor& x) {
  return model.predict(x, {.verbose = keras::Verbose::kSilent});
}

void export_model(const Case& as, const keras::Model& model) {
  model.export_to(as.file(".exported.keras"));
  try {
    model.export_to(as.file(".onnx"));
  } catch (const Unimplemented& error) {
    std::ofstream(as.file(".refused.txt")) << error.what() << '\n';
  }
}

void open_and_train(const Case& of) {
  const Tensor x = of.read("x");
  const std::string folder = of.file(".folder");
  const auto model =
      keras::load_model(std::filesystem::exists(folder) ? folder : of.file(".keras"));
  of.write("predicted", predicted(*model, x));
  model->save(of.file(".cohort.keras"));
  export_model(of, *model);
  if (!of.has("y")) return;  // it is not trained in Keras, either
  const Tensor y = of.read("y");
  model->save_weights(of.file(".cohort.weights.h5"));
  of.write("losses", losses_of(*model, x, y));
  model->save(of.file(".trained.keras"));
  // Keras's weights alone, and its optimizer's state with them.
  model->load_weights(of.file(".weights.h5"));
  if (!predicted(*model, x).allclose(of.read("predicted"), 1e-6, 1e-6)) {
    throw DataLoss(of.name + ": load_weights of Keras's file gives another model than load_model");
  }
}

struct Own {
  const char* name;
  std::function<keras::Sequential()> make;
  Shape input, output;
  bool is_saved = true;  // false: with a loss that files do not know
};

std::vector<Own> own_models() {
  using namespace keras;  // NOLINT: as programs write it
  const auto mlp = [] {
    Sequential model({InputLayer({4}),
                      Dense(6, {.activation = "relu", .kernel_regularizer = L2(0.01)}),
                      BatchNormalization(), Dense(3, {.kernel_initializer = Orthogonal()})});
    model.compile({.optimizer = SGD({.learning_rate = 0.05, .momentum = 0.9}),
                   .loss = "mse",
                   .metrics = {"mae"}});
    return model;
  };
  const auto cnn = [] {
    Sequential model({Conv2D(4, 3, {.padding = "same", .activation = "tanh", .name = "first"}),
                      MaxPooling2D(2), Conv2D(2, 2), Flatten(), Dense(3, {.name = "out"})},
                     "pictures");
    model.compile({.optimizer = Adam({.learning_rate = ExponentialDecay(0.01, 2, 0.5)}),
                   .loss = MeanAbsoluteError()});
    model.ensure_built({kUnknownDim, 6, 6, 2});
    return model;
  };
  // Windows that go over the edge, leave gaps, and come back.
  const auto windows = [] {
    Sequential model({InputLayer({9, 7, 4}),
                      Conv2D(4, 3, {.strides = 2, .padding = "same", .activation = "silu"}),
                      Conv2D(6, 3, {.padding = "same", .dilation_rate = 2, .groups = 2}),
                      Conv2DTranspose(3, 3, {.strides = 2, .output_padding = 1}),
                      AveragePooling2D(3, {.strides = 2, .padding = "same"}), LayerNormalization(),
                      MaxPooling2D(2, {.padding = "same"}), Flatten(),
                      Dense(3, {.activation = "gelu"})});
    model.compile({.optimizer = SGD(), .loss = "mse"});
    return model;
  };
  const auto own_loss = [] {
    Sequential model({InputLayer({4}), Dense(5, {.activation = "tanh"}), Dense(3)});
    const auto fourth_power = [](const Tensor& y, const Tensor& p) {
      return (y - p).pow(4).mean(-1);
    };
    model.compile({.optimizer = Adam(), .loss = fourth_power, .metrics = {fourth_power}});
    return model;
  };
  return {{"own_mlp", mlp, {8, 4}, {8, 3}},
          {"own_cnn", cnn, {8, 6, 6, 2}, {8, 3}},
          {"own_windows", windows, {8, 9, 7, 4}, {8, 3}},
          {"own_loss", own_loss, {8, 4}, {8, 3}, false}};
}

void make_and_save(const Case& as, const Own& own) {
  keras::Sequential model = own.make();
  const Tensor x = random_normal(own.input), y = random_normal(own.output);
  losses_of(model, x, y);
  if (own.is_saved) model.save(as.file(".cohort.keras"));
  export_model(as, model);
  as.write("x", x);
  as.write("y", y);
  as.write("predicted", predicted(model, x));
  as.write("losses", losses_of(model, x, y));
}

}  // namespace

int main(int argc, char** argv) {
  std::string name = "keras_interop_program FOLDER CASE...";
  try {
    if (argc < 2) throw InvalidArgument("expected " + name);
    set_seed(1);
    const std::string folder = argv[1];
    for (int i = 2; i < argc; ++i) open_and_train({folder, name = argv[i]});
    for (const Own& own : own_models()) {
      make_and_save({folder, name = own.name}, own);
      std::puts(own.name);
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", name.c_str(), error.what());
    return 1;
  }
  return 0;
}
