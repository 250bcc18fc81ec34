// SPDX-License-Identifier: Apache-2.0
//
// First values of weights: a name, an initializer of Keras's list, or any callable.
//
//   keras::Dense(64, {.kernel_initializer = "he_normal"});
//   keras::Dense(64, {.bias_initializer = [](const Shape& s, DType t) { return full(s, 0.1, t);
//   }});
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>

#include "cohort/base/callable.h"
#include "cohort/keras/serializable.h"
#include "cohort/runtime/tensor.h"

namespace cohort::keras {

/// Derive to write an initialiser with a config. Threads: immutable. TF: keras.Initializer.
class InitializerBase : public Serializable {
 public:
  using Kind = InitializerBase;
  static constexpr const char* kKind = "Initializer";
  static void base_fields(auto&, auto&&) {}

  virtual Tensor make(const Shape& shape, DType dtype) const = 0;
};

/// Threads: immutable; random ones draw from the process's seed (set_seed) or their own.
class Initializer : public internal::ObjectHandle<InitializerBase> {
 public:
  /// "glorot_uniform", "zeros", ... Errors: InvalidArgument that lists the known names.
  Initializer(const char* name);         // NOLINT: implicit by design
  Initializer(const std::string& name);  // NOLINT
  template <std::derived_from<InitializerBase> I>
  Initializer(std::shared_ptr<I> object) : ObjectHandle(std::move(object)) {  // NOLINT
    check_object();
  }
  template <class F>
  requires std::is_invocable_r_v<Tensor, F, const Shape&, DType> Initializer(F make)  // NOLINT
      : Initializer(of_function(
            cohort::internal::base::checked_function("[initializer]", std::move(make)))) {}
  // Copied where it is moved, so that there is none without a function.
  Initializer(const Initializer&) = default;
  Initializer& operator=(const Initializer&) = default;

  Tensor operator()(const Shape& shape, DType dtype) const;
  /// A name, or what serialize() gives. TF: keras.initializers.deserialize.
  static Initializer deserialize(const Config& config);

 private:
  using Function = std::function<Tensor(const Shape&, DType)>;
  static Initializer of_function(Function make);
  /// Errors: InvalidArgument for an empty pointer.
  void check_object() const;
};

Initializer Zeros();
Initializer Ones();
Initializer Constant(double value);
/// Shapes: 2 axes. Errors: InvalidArgument for another rank.
Initializer Identity(double gain = 1.0);
/// Rows or columns orthonormal times `gain`, all axes but the last counted as rows.
Initializer Orthogonal(double gain = 1.0, std::optional<uint64_t> seed = {});
struct RandomOptions {
  double mean = 0.0;
  double stddev = 0.05;
  std::optional<uint64_t> seed = {};
  static void fields(auto& c, auto&& f) {
    f("seed", c.seed);
    f("mean", c.mean);
    f("stddev", c.stddev);
  }
};
Initializer RandomNormal(RandomOptions options = {});
Initializer TruncatedNormal(RandomOptions options = {});
struct RandomUniformOptions {
  double minval = -0.05;
  double maxval = 0.05;
  std::optional<uint64_t> seed = {};
  static void fields(auto& c, auto&& f) {
    f("seed", c.seed);
    f("minval", c.minval);
    f("maxval", c.maxval);
  }
};
Initializer RandomUniform(RandomUniformOptions options = {});

enum class FanMode { kFanIn, kFanOut, kFanAvg };
enum class Distribution { kUniform, kTruncatedNormal, kUntruncatedNormal };
template <>
struct ConfigValue<FanMode> {
  static Config write(FanMode value);
  static FanMode read(const Config& config);
};
template <>
struct ConfigValue<Distribution> {
  static Config write(Distribution value);
  static Distribution read(const Config& config);
};

struct VarianceScalingOptions {
  double scale = 1.0;
  FanMode mode = FanMode::kFanIn;
  Distribution distribution = Distribution::kTruncatedNormal;
  std::optional<uint64_t> seed = {};
  static void fields(auto& c, auto&& f) {
    f("seed", c.seed);
    f("scale", c.scale);
    f("mode", c.mode);
    f("distribution", c.distribution);
    f.newer("input_axes", nullptr);
    f.newer("output_axes", nullptr);
  }
};
/// Shapes: fans as Keras counts them: the last axis is out, the one before in, the rest receptive.
Initializer VarianceScaling(VarianceScalingOptions options = {});
Initializer GlorotUniform(std::optional<uint64_t> seed = {});
Initializer GlorotNormal(std::optional<uint64_t> seed = {});
Initializer HeUniform(std::optional<uint64_t> seed = {});
Initializer HeNormal(std::optional<uint64_t> seed = {});
Initializer LecunUniform(std::optional<uint64_t> seed = {});
Initializer LecunNormal(std::optional<uint64_t> seed = {});

namespace internal {
template <>
ClassTable& class_table<InitializerBase>();
}  // namespace internal
}  // namespace cohort::keras
