// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/layers/internal/draws.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <span>
#include <vector>

#include "cohort/base/check.h"
#include "cohort/base/mutex.h"
#include "cohort/runtime/device_random.h"
#include "cohort/runtime/replica_scope.h"
#include "cohort/runtime/step_recording.h"

namespace cohort::keras::internal {

using cohort::internal::runtime::RandomStream;
using cohort::internal::runtime::StepRecording;

namespace {

using cohort::internal::runtime::RandomFiller;

DType wide_dtype(const Tensor& like) {
  return like.scalar_type() == kFloat64 ? kFloat64 : kFloat32;
}

// Fills a new tensor of the shape by `fill`, in float32, or in float64 for such inputs.
template <class F>
Tensor filled(const Shape& shape, const Tensor& like, F fill) {
  const DType dtype = wide_dtype(like);
  Tensor out = empty(shape, dtype);
  const auto size = static_cast<std::size_t>(out.numel());
  if (dtype == kFloat64) {
    fill(std::span(out.data_ptr<double>(), size));
  } else {
    fill(std::span(out.data_ptr<float>(), size));
  }
  return out.to(like.options());
}

// On the device of `like`, by its own generator, in `dtype`; undefined where there is none.
template <class F>
Tensor filled_on_device(const Shape& shape, const Tensor& like, DType dtype, F fill) {
  using cohort::internal::runtime::random_filler;
  auto* const filler = like.is_cpu() ? nullptr : random_filler(like.device().type());
  if (filler == nullptr) return {};
  Tensor out = at::empty(shape, like.options().dtype(dtype).requires_grad(false));
  fill(*filler, out);
  return out.to(like.scalar_type());
}

}  // namespace

// Calls so far.
class Draws::Counts final : public cohort::internal::runtime::DrawCounts {
 public:
  uint64_t next(int replica) {
    const cohort::internal::base::MutexLock lock(mutex_);
    const std::size_t i = static_cast<std::size_t>(replica + 1);
    if (i >= steps_.size()) steps_.resize(i + 1, first_);
    return steps_[i]++;
  }
  void take_back(int replica, uint64_t first, uint64_t draws) override {
    const cohort::internal::base::MutexLock lock(mutex_);
    const std::size_t i = static_cast<std::size_t>(replica + 1);
    if (i < steps_.size() && steps_[i] == first + draws) steps_[i] = first;
  }
  uint64_t most() const {
    const cohort::internal::base::MutexLock lock(mutex_);
    uint64_t calls = first_;
    for (const uint64_t step : steps_) calls = std::max(calls, step);
    return calls;
  }
  void go_on_at(uint64_t step) {
    const cohort::internal::base::MutexLock lock(mutex_);
    first_ = step;
    steps_.clear();
  }

 private:
  mutable cohort::internal::base::Mutex mutex_;
  uint64_t first_ COHORT_GUARDED_BY(mutex_) = 0;           // of replicas that have not called yet
  std::vector<uint64_t> steps_ COHORT_GUARDED_BY(mutex_);  // [replica + 1]
};

// What later layers draw depends on whether this one took a number, so each class keeps to its way.
Draws::Draws(std::optional<uint64_t> seed, Number number)
    : seed_(seed), operation_(1), counts_(std::make_shared<Counts>()) {
  if (seed && number == Number::kOfTheUnseeded) return;
  const uint64_t next = cohort::internal::runtime::next_operation_number();
  if (!seed) operation_ = next;
}

RandomStream Draws::next() {
  cohort::internal::runtime::refuse_recording("it draws random numbers on the host");
  const int replica = current_replica();
  const uint64_t step = counts_->next(replica);
  cohort::internal::runtime::note_draw(counts_, replica, step);
  return {seed_.value_or(cohort::internal::runtime::current_seed()), operation_, step,
          cohort::internal::runtime::current_global_replica()};
}

// In a recording it is read where each start finds that start's.
RandomStream Draws::recorded_or_next(const Tensor& like) {
  StepRecording* const recording = StepRecording::current();
  if (recording == nullptr) return next();
  if (!like.is_cpu()) {
    if (cohort::internal::runtime::random_filler(like.device().type()) == nullptr) return next();
    return RandomStream::at(
        recording->value(RandomStream::kPlaceBytes, [this](std::byte* out) { next().put(out); }));
  }
  const std::byte* const place = recording->value(sizeof(RandomStream), [this](std::byte* out) {
    const RandomStream now = next();
    std::memcpy(out, &now, sizeof now);
  });
  std::array<std::byte, sizeof(RandomStream)> bytes;
  std::memcpy(bytes.data(), place, bytes.size());
  return std::bit_cast<RandomStream>(bytes);
}

Tensor Draws::keep_mask(const Shape& shape, double rate, const Tensor& like) {
  const RandomStream stream = recorded_or_next(like);
  // Numbers of 16 bits need no wider ones before them.
  const bool is_half = like.scalar_type() == kFloat16 || like.scalar_type() == kBFloat16;
  const Tensor there =
      filled_on_device(shape, like, is_half ? like.scalar_type() : wide_dtype(like),
                       [&](RandomFiller& by, Tensor& out) { by.keep_mask(stream, rate, out); });
  if (there.defined()) return there;
  return filled(shape, like,
                [&](auto out) { cohort::internal::runtime::fill_keep_mask(stream, rate, out); });
}

Tensor Draws::normal(double mean, double stddev, const Tensor& like) {
  const RandomStream stream = recorded_or_next(like);
  const Tensor there = filled_on_device(
      shape_of(like), like, wide_dtype(like),
      [&](RandomFiller& by, Tensor& out) { by.normal(stream, mean, stddev, out); });
  if (there.defined()) return there;
  return filled(shape_of(like), like, [&]<class T>(std::span<T> out) {
    cohort::internal::runtime::fill_normal(stream, static_cast<T>(mean), static_cast<T>(stddev),
                                           out);
  });
}

Tensor Draws::uniform(double low, double high, const Shape& shape) {
  const cohort::internal::runtime::RandomStream stream = next();
  Tensor out = empty(shape, kFloat32);
  const std::span numbers(out.data_ptr<float>(), static_cast<std::size_t>(out.numel()));
  cohort::internal::runtime::fill_uniform(stream, static_cast<float>(low), static_cast<float>(high),
                                          numbers);
  return out;
}

void Draws::add_to(TrackedParts& parts) {
  parts.values.push_back({.name = "random",
                          .dtype = kInt64,
                          .shape = Shape{3},
                          .read = [this] { return position(); },
                          .write = [this](const Tensor& x) { set_position(x); },
                          .identity = &operation_});
}

Tensor Draws::position() const {
  const uint64_t seed = seed_.value_or(cohort::internal::runtime::current_seed());
  return from_vector<int64_t>({static_cast<int64_t>(seed), static_cast<int64_t>(operation_),
                               static_cast<int64_t>(counts_->most())},
                              {3});
}

void Draws::set_position(const Tensor& position) {
  const std::vector<int64_t> numbers = to_vector<int64_t>(position);
  seed_ = static_cast<uint64_t>(numbers[0]);
  operation_ = static_cast<uint64_t>(numbers[1]);
  counts_->go_on_at(static_cast<uint64_t>(numbers[2]));
}

Shape mask_shape(const std::string& name, const std::optional<Shape>& noise_shape,
                 const Tensor& x) {
  Shape shape = shape_of(x);
  if (!noise_shape) return shape;
  const Shape& noise = *noise_shape;
  bool fits = noise.size() == shape.size();
  for (std::size_t i = 0; fits && i < noise.size(); ++i) {
    if (noise[i] == kUnknownDim) continue;
    fits = noise[i] == 1 || noise[i] == shape[i];
    shape[i] = noise[i];
  }
  COHORT_CHECK_ARG(fits, "[", name, "] expected a noise shape that broadcasts to ",
                   bracketed(x.sizes()), ", got ", bracketed(noise));
  return shape;
}

}  // namespace cohort::keras::internal
