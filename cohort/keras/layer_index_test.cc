// SPDX-License-Identifier: Apache-2.0
//
// Every name in keras.layers (golden/layer_index.json, which golden/write_layers.py writes) is a
// class that configs may name, or is refused with a reason.
#include <gtest/gtest.h>

#include <string>

#include "cohort/base/error.h"
#include "cohort/keras/layer.h"
#include "cohort/keras/test_golden.h"

namespace cohort::keras {
namespace {

enum class Answer { kKnown, kRefused, kUnknown };

Answer ask(const std::string& class_name) {
  const Config config = Config::object({{"module", "keras.layers"}, {"class_name", class_name}});
  try {
    Layer::deserialize(config);
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

TEST(LayerIndex, WhatIsRefusedSaysWhy) {
  for (const char* name :
       {"JaxLayer", "FlaxLayer", "Lambda", "TorchModuleWrapper", "TFSMLayer", "Wrapper"}) {
    EXPECT_EQ(ask(name), Answer::kRefused) << name;
  }
}

}  // namespace
}  // namespace cohort::keras
