// SPDX-License-Identifier: Apache-2.0
//
// Which layer of which model is at work on this thread, for the texts of errors.
#pragma once

#include <string>

#include "cohort/runtime/tensor.h"

namespace cohort::keras {
class LayerBase;
}

namespace cohort::keras::internal {

/// A call or build of a layer for its lifetime, inside those that are going on. Threads: bound to
/// one. Cost: two writes of a thread's variable.
class [[nodiscard]] LayerCall {
 public:
  LayerCall(const LayerBase& layer, const Tensor& input);
  LayerCall(const LayerBase& layer, const Shape& input_shape);
  ~LayerCall();
  LayerCall(const LayerCall&) = delete;
  LayerCall& operator=(const LayerCall&) = delete;

  /// For a catch block: throws the caught exception anew in its category, with the layer's path and
  /// class, `method` and the input added by the innermost layer. LibTorch's lose their stack trace;
  /// what is neither theirs nor ours stays as it is.
  [[noreturn]] void rethrow(const char* method) const;

 private:
  std::string described(const char* method) const;

  const LayerBase& layer_;
  const Tensor* const input_ = nullptr;
  const Shape* const shape_ = nullptr;
  const LayerCall* const outer_;
};

/// "[None, 4]"
std::string none_shape(const Shape& shape);

}  // namespace cohort::keras::internal
