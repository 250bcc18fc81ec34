// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/initializers.h"

#include <ATen/ops/eye.h>
#include <ATen/ops/linalg_qr.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <span>

#include "cohort/base/check.h"
#include "cohort/keras/internal/initial_draws.h"
#include "cohort/runtime/random.h"

namespace cohort::keras {
namespace {

using cohort::internal::runtime::RandomStream;
using Seed = std::optional<uint64_t>;

constexpr std::array<std::pair<const char*, FanMode>, 3> kFanModes = {
    {{"fan_in", FanMode::kFanIn}, {"fan_out", FanMode::kFanOut}, {"fan_avg", FanMode::kFanAvg}}};
constexpr std::array<std::pair<const char*, Distribution>, 4> kDistributions = {
    {{"uniform", Distribution::kUniform},
     {"truncated_normal", Distribution::kTruncatedNormal},
     {"normal", Distribution::kTruncatedNormal},  // as Keras reads it
     {"untruncated_normal", Distribution::kUntruncatedNormal}}};

// A given seed repeats its values; without one, every weight is an operation of its own.
RandomStream stream_of(const Seed& seed) {
  if (seed) return {*seed, 0, 0, -1};
  return {internal::InitialDraws::next_number(), 0, -1};
}

// Fills in the dtype's own precision, other floating types through float32.
template <class Fill>
Tensor filled(const Shape& shape, DType dtype, const Seed& seed, Fill fill) {
  COHORT_CHECK_ARG(at::isFloatingType(dtype), "[initializer] expected a floating type, got ",
                   dtype_name(dtype));
  const RandomStream stream = stream_of(seed);
  if (!internal::InitialDraws::are_made()) return zeros({}, dtype).expand(shape);
  if (dtype == kFloat64) {
    Tensor out = empty(shape, kFloat64);
    fill(stream, std::span(out.data_ptr<double>(), static_cast<std::size_t>(out.numel())));
    return out;
  }
  Tensor out = empty(shape, kFloat32);
  fill(stream, std::span(out.data_ptr<float>(), static_cast<std::size_t>(out.numel())));
  return out.to(dtype);
}

template <class T>
T as(double value) {
  return static_cast<T>(value);
}

Tensor normal(const Shape& shape, DType dtype, const RandomOptions& o) {
  return filled(shape, dtype, o.seed, [&]<class T>(const RandomStream& stream, std::span<T> out) {
    cohort::internal::runtime::fill_normal(stream, as<T>(o.mean), as<T>(o.stddev), out);
  });
}

Tensor truncated_normal(const Shape& shape, DType dtype, const RandomOptions& o) {
  return filled(shape, dtype, o.seed, [&]<class T>(const RandomStream& stream, std::span<T> out) {
    cohort::internal::runtime::fill_truncated_normal(stream, as<T>(o.mean), as<T>(o.stddev), out);
  });
}

Tensor uniform(const Shape& shape, DType dtype, const RandomUniformOptions& o) {
  return filled(shape, dtype, o.seed, [&]<class T>(const RandomStream& stream, std::span<T> out) {
    cohort::internal::runtime::fill_uniform(stream, as<T>(o.minval), as<T>(o.maxval), out);
  });
}

struct Fans {
  double in = 1;
  double out = 1;
};

Fans fans_of(const Shape& shape) {
  if (shape.empty()) return {};
  const auto size = [&](std::size_t i) { return static_cast<double>(shape[i]); };
  if (shape.size() == 1) return {size(0), size(0)};
  double receptive = 1;
  for (std::size_t i = 0; i + 2 < shape.size(); ++i) receptive *= size(i);
  return {size(shape.size() - 2) * receptive, size(shape.size() - 1) * receptive};
}

Tensor variance_scaling(const Shape& shape, DType dtype, const VarianceScalingOptions& o) {
  const Fans fans = fans_of(shape);
  const double fan = o.mode == FanMode::kFanIn    ? fans.in
                     : o.mode == FanMode::kFanOut ? fans.out
                                                  : (fans.in + fans.out) / 2;
  const double variance = o.scale / std::max(1.0, fan);
  if (o.distribution == Distribution::kUniform) {
    const double limit = std::sqrt(3 * variance);
    return uniform(shape, dtype, {.minval = -limit, .maxval = limit, .seed = o.seed});
  }
  const double stddev = std::sqrt(variance);
  if (o.distribution == Distribution::kUntruncatedNormal) {
    return normal(shape, dtype, {.mean = 0, .stddev = stddev, .seed = o.seed});
  }
  // The standard deviation of a normal distribution that is cut at two of its own.
  constexpr double kTruncated = 0.87962566103423978;
  return truncated_normal(shape, dtype, {.mean = 0, .stddev = stddev / kTruncated, .seed = o.seed});
}

Tensor orthogonal(const Shape& shape, DType dtype, double gain, const Seed& seed) {
  COHORT_CHECK_ARG(shape.size() >= 2, "[orthogonal] expected at least 2 axes, got shape ",
                   bracketed(shape));
  if (!internal::InitialDraws::are_made()) return normal(shape, dtype, {.seed = seed});
  int64_t rows = 1;
  for (std::size_t i = 0; i + 1 < shape.size(); ++i) rows *= shape[i];
  const int64_t columns = shape.back();
  const Shape tall = {std::max(rows, columns), std::min(rows, columns)};
  const Tensor flat = normal(tall, kFloat64, {.mean = 0, .stddev = 1, .seed = seed});
  const auto [q, r] = at::linalg_qr(flat);
  const Tensor unique = q.mul(r.diagonal().sign());  // of the two signs each, always the same
  const Tensor out = rows < columns ? unique.t() : unique;
  return out.reshape(shape).mul(gain).to(dtype).contiguous();
}

/// An initialiser with its options.
template <class C>
class InitializerImpl : public InitializerBase {
 public:
  using Options = C;
  explicit InitializerImpl(C options) : options_(std::move(options)) {}
  std::string class_name() const override { return internal::class_name_of(typeid(*this), kKind); }
  Config get_config() const override { return config_of(options_); }

 protected:
  const C options_;
};

// The classes have Keras's names, with Initializer behind them.

struct NoInitializerOptions {
  static void fields(auto&, auto&&) {}
};
struct ConstantOptions {
  double value = 0;
  static void fields(auto& c, auto&& f) { f("value", c.value); }
};
struct IdentityOptions {
  double gain = 1;
  static void fields(auto& c, auto&& f) { f.extra("gain", c.gain, 1.0); }
};
struct OrthogonalOptions {
  double gain = 1;
  Seed seed = {};
  static void fields(auto& c, auto&& f) {
    f("seed", c.seed);
    f("gain", c.gain);
  }
};
struct SeedInitializerOptions {
  Seed seed = {};
  static void fields(auto& c, auto&& f) {
    f("seed", c.seed);
    f.newer("input_axes", nullptr);
    f.newer("output_axes", nullptr);
  }
};

struct ZerosInitializer final : InitializerImpl<NoInitializerOptions> {
  using InitializerImpl::InitializerImpl;
  Tensor make(const Shape& shape, DType dtype) const override { return full(shape, 0, dtype); }
};
struct OnesInitializer final : InitializerImpl<NoInitializerOptions> {
  using InitializerImpl::InitializerImpl;
  Tensor make(const Shape& shape, DType dtype) const override { return full(shape, 1, dtype); }
};
struct ConstantInitializer final : InitializerImpl<ConstantOptions> {
  using InitializerImpl::InitializerImpl;
  Tensor make(const Shape& shape, DType dtype) const override {
    return full(shape, options_.value, dtype);
  }
};
struct IdentityInitializer final : InitializerImpl<IdentityOptions> {
  using InitializerImpl::InitializerImpl;
  Tensor make(const Shape& shape, DType dtype) const override {
    COHORT_CHECK_ARG(shape.size() == 2, "[identity] expected 2 axes, got shape ", bracketed(shape));
    return at::eye(shape[0], shape[1], at::TensorOptions().dtype(dtype)) * options_.gain;
  }
};
struct OrthogonalInitializer final : InitializerImpl<OrthogonalOptions> {
  using InitializerImpl::InitializerImpl;
  Tensor make(const Shape& shape, DType dtype) const override {
    return orthogonal(shape, dtype, options_.gain, options_.seed);
  }
};
struct RandomNormalInitializer final : InitializerImpl<RandomOptions> {
  using InitializerImpl::InitializerImpl;
  Tensor make(const Shape& shape, DType dtype) const override {
    return normal(shape, dtype, options_);
  }
};
struct TruncatedNormalInitializer final : InitializerImpl<RandomOptions> {
  using InitializerImpl::InitializerImpl;
  Tensor make(const Shape& shape, DType dtype) const override {
    return truncated_normal(shape, dtype, options_);
  }
};
struct RandomUniformInitializer final : InitializerImpl<RandomUniformOptions> {
  using InitializerImpl::InitializerImpl;
  Tensor make(const Shape& shape, DType dtype) const override {
    return uniform(shape, dtype, options_);
  }
};
struct VarianceScalingInitializer final : InitializerImpl<VarianceScalingOptions> {
  explicit VarianceScalingInitializer(VarianceScalingOptions options) : InitializerImpl(options) {
    COHORT_CHECK_ARG(options.scale > 0, "[variance_scaling] expected scale > 0, got ",
                     options.scale);
  }
  Tensor make(const Shape& shape, DType dtype) const override {
    return variance_scaling(shape, dtype, options_);
  }
};

/// The named cases of variance scaling.
template <int kScale, FanMode kMode, Distribution kDistribution>
struct Scaled : InitializerImpl<SeedInitializerOptions> {
  using InitializerImpl::InitializerImpl;
  Tensor make(const Shape& shape, DType dtype) const override {
    return variance_scaling(shape, dtype,
                            {.scale = kScale,
                             .mode = kMode,
                             .distribution = kDistribution,
                             .seed = this->options_.seed});
  }
};
constexpr auto kFansIn = FanMode::kFanIn;
constexpr auto kFansAvg = FanMode::kFanAvg;
constexpr auto kUniformScaled = Distribution::kUniform;
constexpr auto kNormalScaled = Distribution::kTruncatedNormal;
struct GlorotUniformInitializer final : Scaled<1, kFansAvg, kUniformScaled> {
  using Scaled::Scaled;
};
struct GlorotNormalInitializer final : Scaled<1, kFansAvg, kNormalScaled> {
  using Scaled::Scaled;
};
struct HeUniformInitializer final : Scaled<2, kFansIn, kUniformScaled> {
  using Scaled::Scaled;
};
struct HeNormalInitializer final : Scaled<2, kFansIn, kNormalScaled> {
  using Scaled::Scaled;
};
struct LecunUniformInitializer final : Scaled<1, kFansIn, kUniformScaled> {
  using Scaled::Scaled;
};
struct LecunNormalInitializer final : Scaled<1, kFansIn, kNormalScaled> {
  using Scaled::Scaled;
};

/// A function of the program, which no file can hold.
class FunctionInitializer final : public InitializerBase {
 public:
  explicit FunctionInitializer(std::function<Tensor(const Shape&, DType)> function)
      : function_(std::move(function)) {}
  Tensor make(const Shape& shape, DType dtype) const override { return function_(shape, dtype); }
  Config get_config() const override {
    throw Unimplemented(
        "[initializer.get_config] expected an initializer with a class, got a function: derive "
        "from keras::InitializerBase and register the class");
  }

 private:
  const std::function<Tensor(const Shape&, DType)> function_;
};

}  // namespace

namespace internal {

void add_stft(ClassTable& table);  // of stft.h, which stands on this one

template <>
ClassTable& class_table<InitializerBase>() {
  static auto* table = [] {
    auto* made = new ClassTable("Initializer", "keras.initializers");
    made->add_builtin<ZerosInitializer>();
    made->add_builtin<OnesInitializer>();
    made->add_builtin<ConstantInitializer>();
    made->add_builtin<IdentityInitializer>("IdentityInitializer");
    made->add_builtin<IdentityInitializer>();
    made->add_builtin<OrthogonalInitializer>();
    made->add_builtin<OrthogonalInitializer>("OrthogonalInitializer");  // every Keras 3 reads it
    made->add_builtin<RandomNormalInitializer>();
    made->add_builtin<TruncatedNormalInitializer>();
    made->add_builtin<RandomUniformInitializer>();
    made->add_builtin<VarianceScalingInitializer>();
    made->add_builtin<GlorotUniformInitializer>();
    made->add_builtin<GlorotNormalInitializer>();
    made->add_builtin<HeUniformInitializer>();
    made->add_builtin<HeNormalInitializer>();
    made->add_builtin<LecunUniformInitializer>();
    made->add_builtin<LecunNormalInitializer>();
    add_stft(*made);
    return made;
  }();
  return *table;
}

}  // namespace internal

namespace {

using Maker = Initializer (*)();
const std::map<std::string, Maker>& table() {
  static const auto* makers = new std::map<std::string, Maker>{
      {"constant", [] { return Constant(0); }},
      {"glorot_normal", [] { return GlorotNormal(); }},
      {"glorot_uniform", [] { return GlorotUniform(); }},
      {"he_normal", [] { return HeNormal(); }},
      {"he_uniform", [] { return HeUniform(); }},
      {"identity", [] { return Identity(); }},
      {"lecun_normal", [] { return LecunNormal(); }},
      {"lecun_uniform", [] { return LecunUniform(); }},
      {"normal", [] { return RandomNormal(); }},
      {"one", [] { return Ones(); }},
      {"ones", [] { return Ones(); }},
      {"orthogonal", [] { return Orthogonal(); }},
      {"random_normal", [] { return RandomNormal(); }},
      {"random_uniform", [] { return RandomUniform(); }},
      {"truncated_normal", [] { return TruncatedNormal(); }},
      {"uniform", [] { return RandomUniform(); }},
      {"variance_scaling", [] { return VarianceScaling(); }},
      {"zero", [] { return Zeros(); }},
      {"zeros", [] { return Zeros(); }},
  };
  return *makers;
}

Initializer by_name(const std::string& name) {
  const auto found = table().find(name);
  std::vector<std::string> names;
  for (const auto& [known, maker] : table()) names.push_back(known);
  COHORT_CHECK_ARG(found != table().end(), "[initializer] expected one of ", join(names, ", "),
                   ", got ", name);
  return found->second();
}

template <class C>
Initializer made_initializer(typename C::Options options = {}) {
  return std::make_shared<const C>(std::move(options));
}

}  // namespace

Initializer::Initializer(const char* name) : Initializer(by_name(name)) {}
Initializer::Initializer(const std::string& name) : Initializer(by_name(name)) {}

namespace internal {
namespace {
thread_local InitialDraws* t_initial_draws = nullptr;
}  // namespace

InitialDraws::InitialDraws(bool made) : outer_(std::exchange(t_initial_draws, this)), made_(made) {}
InitialDraws::~InitialDraws() { t_initial_draws = outer_; }

uint64_t InitialDraws::next_number() {
  if (t_initial_draws == nullptr) return cohort::internal::runtime::next_operation_number();
  std::optional<uint64_t>& number = t_initial_draws->number_;
  if (!number) number = cohort::internal::runtime::next_operation_number();
  return *number;
}

bool InitialDraws::are_made() { return t_initial_draws == nullptr || t_initial_draws->made_; }
}  // namespace internal

Tensor Initializer::operator()(const Shape& shape, DType dtype) const {
  return object_->make(shape, dtype);
}

void Initializer::check_object() const {
  COHORT_CHECK_ARG(object_ != nullptr,
                   "[initializer] expected an initializer, got an empty pointer");
}

Initializer Initializer::of_function(Function make) {
  return std::make_shared<const FunctionInitializer>(std::move(make));
}

Initializer Initializer::deserialize(const Config& config) {
  if (config.is_text()) {
    // Keras names them by class as well.
    auto object = internal::class_table<InitializerBase>().find(config.text());
    if (object == nullptr) return config.text();
    return std::static_pointer_cast<InitializerBase>(std::move(object));
  }
  return made_of(config);
}

Config ConfigValue<FanMode>::write(FanMode value) {
  return internal::name_of_value(kFanModes, value);
}
FanMode ConfigValue<FanMode>::read(const Config& config) {
  return internal::value_of_name(kFanModes, config);
}
Config ConfigValue<Distribution>::write(Distribution value) {
  return internal::name_of_value(kDistributions, value);
}
Distribution ConfigValue<Distribution>::read(const Config& config) {
  return internal::value_of_name(kDistributions, config);
}

Initializer Zeros() { return made_initializer<ZerosInitializer>(); }
Initializer Ones() { return made_initializer<OnesInitializer>(); }
Initializer Constant(double value) { return made_initializer<ConstantInitializer>({value}); }
Initializer Identity(double gain) { return made_initializer<IdentityInitializer>({gain}); }
Initializer Orthogonal(double gain, Seed seed) {
  return made_initializer<OrthogonalInitializer>({gain, seed});
}
Initializer RandomNormal(RandomOptions options) {
  return made_initializer<RandomNormalInitializer>(options);
}
Initializer TruncatedNormal(RandomOptions options) {
  return made_initializer<TruncatedNormalInitializer>(options);
}
Initializer RandomUniform(RandomUniformOptions options) {
  return made_initializer<RandomUniformInitializer>(options);
}
Initializer VarianceScaling(VarianceScalingOptions options) {
  return made_initializer<VarianceScalingInitializer>(options);
}
Initializer GlorotUniform(Seed seed) { return made_initializer<GlorotUniformInitializer>({seed}); }
Initializer GlorotNormal(Seed seed) { return made_initializer<GlorotNormalInitializer>({seed}); }
Initializer HeUniform(Seed seed) { return made_initializer<HeUniformInitializer>({seed}); }
Initializer HeNormal(Seed seed) { return made_initializer<HeNormalInitializer>({seed}); }
Initializer LecunUniform(Seed seed) { return made_initializer<LecunUniformInitializer>({seed}); }
Initializer LecunNormal(Seed seed) { return made_initializer<LecunNormalInitializer>({seed}); }

}  // namespace cohort::keras
