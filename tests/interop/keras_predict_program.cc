// SPDX-License-Identifier: Apache-2.0
//
// A process that knows nothing of training: what models answer that keras_interop_program exported.
//
//   keras_predict_program FOLDER CASE...
//
// Of each case: FOLDER/CASE.exported.keras answers CASE.x.npy in CASE.answered.npy.
#include <cstdio>
#include <exception>
#include <string>

#include "cohort/data/formats/npy/npy.h"
#include "cohort/keras/model.h"

int main(int argc, char** argv) {
  using namespace cohort;
  std::string name = "keras_predict_program FOLDER CASE...";
  try {
    if (argc < 2) throw InvalidArgument("expected " + name);
    for (int i = 2; i < argc; ++i) {
      name = argv[i];
      const std::string path = std::string(argv[1]) + "/" + name;
      const auto model = keras::load_model(path + ".exported.keras");
      if (model->compiled())
        throw DataLoss("expected a model without training, got a compiled one");
      const Tensor x = data::read_npy(path + ".x.npy");
      data::write_npy(path + ".answered.npy",
                      model->predict(x, {.verbose = keras::Verbose::kSilent}));
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", name.c_str(), error.what());
    return 1;
  }
  return 0;
}
