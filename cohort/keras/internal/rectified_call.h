// SPDX-License-Identifier: Apache-2.0
//
// A layer and the ReLU behind it in one: a model that sees that nobody else looks at what lies
// between them calls the first in a RectifiedCall, and skips the second.
#pragma once

namespace cohort::keras {
class LayerBase;
}

namespace cohort::keras::internal {

/// Whether calls of `layer` heed a RectifiedCall. Exactly of the class: one that derives from it
/// has a call of its own.
bool can_rectify(const LayerBase& layer);
/// Whether `layer` is max(x, 0), and nothing else.
bool is_rectifier(const LayerBase& layer);
/// Both, and in one type.
bool can_join(const LayerBase& layer, const LayerBase& next);

/// While it lives, calls of this layer on this thread give max(y, 0) for y.
class [[nodiscard]] RectifiedCall {
 public:
  explicit RectifiedCall(const LayerBase& layer);
  ~RectifiedCall();
  RectifiedCall(const RectifiedCall&) = delete;
  RectifiedCall& operator=(const RectifiedCall&) = delete;
  static bool of(const LayerBase& layer);

 private:
  const LayerBase* const outer_;
};

}  // namespace cohort::keras::internal
