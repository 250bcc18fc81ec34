// SPDX-License-Identifier: Apache-2.0
//
// Models as ONNX. Internal.
#pragma once

#include <string>

namespace cohort::keras {
class Model;
}

namespace cohort::keras::internal::onnx {

/// The bytes of an .onnx file that predicts as the model does outside of training: its inputs and
/// outputs have the names that Keras gives them, and any batch.
/// Errors: Unimplemented that names the first layer, or what it is told, that is not written.
std::string file_of(const Model& model);

}  // namespace cohort::keras::internal::onnx
