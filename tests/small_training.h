// SPDX-License-Identifier: Apache-2.0
//
// What the proofs have in common: small data, small networks, and how weights are compared.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "cohort/autograd/gradient_tape.h"
#include "cohort/data/dataset.h"
#include "cohort/keras/layers/layers.h"
#include "cohort/keras/losses/losses.h"
#include "cohort/keras/optimizers/optimizers.h"
#include "cohort/keras/sequential.h"
#include "cohort/runtime/random.h"
#include "cohort/strategy/loss_scaling.h"
#include "cohort/strategy/strategies.h"

namespace cohort::proof {

/// Mirrored over so many logical CPUs; 0: the default strategy.
inline Strategy strategy_of(int replicas) {
  if (replicas == 0) return get_strategy();
  std::vector<Device> devices;
  for (int i = 0; i < replicas; ++i) devices.emplace_back("CPU:" + std::to_string(i));
  return MirroredStrategy(std::move(devices));
}

struct Data {
  Tensor x, y;
  Dataset dataset() const { return Dataset::from_tensor_slices({x, y}); }
};

/// Normal numbers of `shape`, whose class is the largest of ten fixed linear functions of them.
inline Data ten_classes(const Shape& shape, DType dtype = kFloat32) {
  constexpr uint64_t kSeed = 1;
  int64_t numbers = 1;
  for (int64_t size : shape) numbers *= size;
  const int64_t columns = numbers / shape[0];
  std::vector<double> x(static_cast<std::size_t>(numbers));
  std::vector<double> w(static_cast<std::size_t>(columns * 10));
  internal::runtime::fill_normal<double>(internal::runtime::RandomStream(kSeed, 0, 0, -1), 0, 1, x);
  internal::runtime::fill_normal<double>(internal::runtime::RandomStream(kSeed, 1, 0, -1), 0, 1, w);
  const Tensor rows = from_vector(x, {shape[0], columns});
  return {rows.reshape(shape).to(dtype), rows.matmul(from_vector(w, {columns, 10})).argmax(-1)};
}

inline constexpr int64_t kFeatures = 20;

/// 20-32-32-10.
inline std::vector<keras::Layer> mlp() {
  return {keras::InputLayer({kFeatures}), keras::Dense(32, {.activation = "relu"}),
          keras::Dense(32, {.activation = "relu"}), keras::Dense(10)};
}

inline constexpr int64_t kPixels = 10;

/// conv-pool-conv-flatten-dense, without BatchNormalization, whose statistics are each replica's.
inline std::vector<keras::Layer> cnn() {
  return {keras::InputLayer({kPixels, kPixels, 1}),
          keras::Conv2D(16, 3, {.activation = "relu"}),
          keras::MaxPooling2D(),
          keras::Conv2D(16, 3, {.padding = "same", .activation = "relu"}),
          keras::Flatten(),
          keras::Dense(10)};
}

/// The largest norm(a - b) / norm(b) of a variable; infinite where one is not finite.
inline double worst_difference(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (a.size() != b.size()) return kInfinity;
  double worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const Tensor x = a[i].to(kFloat64), y = b[i].to(kFloat64);
    const double difference = (x - y).norm().item<double>() / y.norm().item<double>();
    if (!std::isfinite(difference)) return kInfinity;
    worst = std::max(worst, difference);
  }
  return worst;
}

/// True if all weights have the same bits.
inline bool same_bits(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (!a[i].equal(b[i])) return false;
  }
  return true;
}

/// FNV-1a over the bits of all weights.
inline uint64_t hash_of(const std::vector<Tensor>& weights) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const Tensor& weight : weights) {
    for (float value : to_vector<float>(weight)) {
      for (uint32_t bits = std::bit_cast<uint32_t>(value), i = 0; i < 4; ++i, bits >>= 8) {
        hash = (hash ^ (bits & 0xff)) * 0x100000001b3u;
      }
    }
  }
  return hash;
}

}  // namespace cohort::proof
