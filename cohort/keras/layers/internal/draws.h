// SPDX-License-Identifier: Apache-2.0
//
// The random numbers of one layer: what it has drawn belongs to its state, so that checkpoints go
// on with the next.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include "cohort/checkpoint/trackable.h"
#include "cohort/runtime/random.h"
#include "cohort/runtime/tensor.h"

namespace cohort::keras::internal {

/// Order: draws depend on the seed, the layer's number, how often this replica has drawn in steps
/// that did not fail, and the replica; threads do not matter. Threads: thread-safe.
class Draws {
 public:
  /// Who takes a number of the process's operations.
  enum class Number { kAlways, kOfTheUnseeded };
  /// Unset: the process's seed. Order: made where the program is sequential.
  explicit Draws(std::optional<uint64_t> seed, Number number = Number::kAlways);

  /// Of this replica, the next.
  cohort::internal::runtime::RandomStream next();
  /// 0 with probability `rate`, else 1 / (1 - rate), of this shape and the options of `like`.
  Tensor keep_mask(const Shape& shape, double rate, const Tensor& like);
  /// Normal numbers of the shape and the options of `like`.
  Tensor normal(double mean, double stddev, const Tensor& like);
  /// Numbers in [low, high) of this shape, in float32. Where both are one number, that number.
  Tensor uniform(double low, double high, const Shape& shape);
  /// What a checkpoint keeps: "random".
  void add_to(TrackedParts& parts);

 private:
  class Counts;
  /// next(), also in a step that is recorded.
  cohort::internal::runtime::RandomStream recorded_or_next(const Tensor& like);
  /// seed, operation, calls: where the draws go on, on every replica.
  Tensor position() const;
  void set_position(const Tensor& position);

  std::optional<uint64_t> seed_;
  uint64_t operation_;
  std::shared_ptr<Counts> counts_;  // a step that fails may outlive the layer
};

/// The shape of a mask for `x`: the noise shape, where kUnknownDim is the input's size.
/// Errors: InvalidArgument, prefixed by `name`, for what does not broadcast to x.
Shape mask_shape(const std::string& name, const std::optional<Shape>& noise_shape, const Tensor& x);

}  // namespace cohort::keras::internal
