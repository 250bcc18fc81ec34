// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/layers/text_input_layer.h"

#include "cohort/base/check.h"

namespace cohort::keras {

Element DeclaredTextInput::call_nest(const Element& inputs, const CallArgs&) {
  COHORT_CHECK_ARG(inputs[0].is_string(), "[", name(), "] expected strings, got ",
                   inputs.spec().to_string());
  return inputs[0];
}

Config DeclaredTextInput::get_config() const {
  Config config = DeclaredInput::get_config();
  config.set("dtype", "string");
  return config;
}

Config DeclaredTextInput::serialize() const {
  return Config::object({{"module", "keras.layers"},
                         {"class_name", "InputLayer"},
                         {"config", get_config()},
                         {"registered_name", nullptr}});
}

std::shared_ptr<DeclaredInput> DeclaredTextInput::from_config(const Config& config) {
  Config of_numbers = config;
  of_numbers.set("dtype", "float32");  // which says nothing
  return std::make_shared<DeclaredTextInput>(
      options_of<InputLayerConfig>(of_numbers, "InputLayer"));
}

}  // namespace cohort::keras
