// SPDX-License-Identifier: Apache-2.0
//
// Gradients with the variables they belong to, as tape.gradient returns and optimizers take them.
#pragma once

#include <initializer_list>
#include <memory>
#include <utility>
#include <vector>

#include "cohort/values/gradient.h"
#include "cohort/variables/variable.h"

namespace cohort {

namespace internal::variables {
class GradientLease;
}

struct GradientAndVariable {
  Gradient gradient;
  Variable variable;
};

/// In the order of the sources. The gradients are ordinary tensors: whoever keeps one keeps its
/// numbers, whatever is computed next, and may write it, also once it was applied.
class Gradients {
 public:
  Gradients() = default;
  Gradients(std::vector<GradientAndVariable> pairs,  // NOLINT: zip(grads, vars) is written {...}
            std::shared_ptr<internal::variables::GradientLease> lease = nullptr)
      : pairs_(std::move(pairs)), lease_(std::move(lease)) {}
  /// apply_gradients({{g, v}, {h, w}}).
  Gradients(std::initializer_list<GradientAndVariable> pairs) : pairs_(pairs) {}  // NOLINT

  std::size_t size() const { return pairs_.size(); }
  bool empty() const { return pairs_.empty(); }
  GradientAndVariable& operator[](std::size_t i) & { return pairs_[i]; }
  const GradientAndVariable& operator[](std::size_t i) const& { return pairs_[i]; }
  GradientAndVariable operator[](std::size_t i) && { return std::move(pairs_[i]); }
  auto begin() { return pairs_.begin(); }
  auto end() { return pairs_.end(); }
  auto begin() const { return pairs_.begin(); }
  auto end() const { return pairs_.end(); }

  /// Internal: keeps the buffers that gradients lie in, where optimizers read them fastest.
  const std::shared_ptr<internal::variables::GradientLease>& lease() const { return lease_; }

 private:
  std::vector<GradientAndVariable> pairs_;
  std::shared_ptr<internal::variables::GradientLease> lease_;
};

}  // namespace cohort
