// SPDX-License-Identifier: Apache-2.0
//
// Every name in keras.layers (golden/layer_index.json, which golden/write_layers.py writes) is a
// class that configs may name, or is refused with a reason.
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "cohort/base/error.h"
#include "cohort/keras/layer.h"
#include "cohort/keras/test_golden.h"
#include "cohort/testing/expect_error.h"

namespace cohort::keras {
namespace {

enum class Answer { kKnown, kRefused, kUnknown };

Config named(const std::string& class_name) {
  return Config::object({{"module", "keras.layers"}, {"class_name", class_name}});
}

Answer ask(const std::string& class_name) {
  try {
    Layer::deserialize(named(class_name));
  } catch (const Unimplemented& e) {
    const bool refused = std::string(e.what()).find("cannot be made here") != std::string::npos;
    return refused ? Answer::kRefused : Answer::kUnknown;
  } catch (const InvalidArgument&) {
    // The class wants options that this config has not.
  }
  return Answer::kKnown;
}

TEST(LayerIndex, EveryLayerOfKerasIsHereOrRefused) {
  const Config index = testing::read_golden(COHORT_GOLDEN "/layer_index.json");
  EXPECT_GT(index.members().size(), 150U);
  for (const auto& [name, class_name] : index.members()) {
    EXPECT_NE(ask(class_name.text()), Answer::kUnknown) << name;
  }
}

// These and no others.
TEST(LayerIndex, WhatIsRefusedSaysWhy) {
  const std::map<std::string, std::string> reasons = {
      {"FlaxLayer", "of Python"},
      {"JaxLayer", "of Python"},
      {"Lambda", "of Python"},
      {"Layer", "others derive of"},
      {"MaxNumBoundingBoxes", "bounding boxes"},
      {"TFSMLayer", "SavedModel of TensorFlow"},
      {"TorchModuleWrapper", "of Python"},
      {"Wrapper", "others derive of"},
  };
  for (const auto& refused : reasons) {
    cohort::testing::expect_error<Unimplemented>({"cannot be made here", refused.second},
                                                 [&] { Layer::deserialize(named(refused.first)); });
  }
  const Config index = testing::read_golden(COHORT_GOLDEN "/layer_index.json");
  for (const auto& [name, class_name] : index.members()) {
    const std::string& kind = class_name.text();
    EXPECT_EQ(ask(kind) == Answer::kRefused, reasons.contains(kind)) << name;
  }
}

}  // namespace
}  // namespace cohort::keras
