// SPDX-License-Identifier: Apache-2.0
//
// The layer behind TextInput, and Keras's InputLayer of the type "string".
#pragma once

#include <memory>

#include "cohort/keras/layers/core.h"

namespace cohort::keras {

/// Takes strings, and gives them on.
class DeclaredTextInput : public DeclaredInput {
 public:
  using DeclaredInput::DeclaredInput;
  Element call_nest(const Element& inputs, const CallArgs&) override;
  ElementSpec compute_output_spec(const ElementSpec& inputs) const override { return inputs; }
  Config get_config() const override;
  Config serialize() const override;
  static std::shared_ptr<DeclaredInput> from_config(const Config& config);
};

}  // namespace cohort::keras
