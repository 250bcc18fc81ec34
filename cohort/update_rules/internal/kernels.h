// SPDX-License-Identifier: Apache-2.0
//
// The door between the library and its kernels. The kernels are one source (kernels.inc) compiled
// once per instruction set. Plain data only: an inline function of the standard library, compiled
// here for AVX-512, could be the copy that the linker keeps for all callers.
#pragma once

#include <cstddef>
#include <cstdint>

namespace cohort::update_rules::internal {

enum class RuleKind {
  kSgd,
  kMomentum,
  kNesterov,
  kAdam,
  kAmsgrad,
  kRmsprop,
  kRmspropMomentum,
  kRmspropCentered,
  kRmspropCenteredMomentum,
  kAdagrad,
  kAdadelta,
  kAdamax,
  kNadam,
  kFtrl,
  kFtrlPower,
  kLion,
};

inline constexpr std::size_t kMaxCoefficients = 8;

/// One fused update. Pointers are arena starts.
template <class T>
struct UpdateCall {
  RuleKind kind;
  double coefficients[kMaxCoefficients];
  T* param;
  T* slots[3];
  const T* from_param;  ///< What is updated; in place, the same as param.
  const T* from_slots[3];
  const T* const* sources;
  std::size_t source_count;
  std::size_t begin;
  std::size_t end;
  double gradient_scale;
  double clip_value;
  double weight_decay;
};

template <class T>
struct KernelsOf {
  void (*update)(const UpdateCall<T>& call);
  /// Row rows[i] of a table of `width` elements each, with the gradients from i * width on of the
  /// call's one source; the call's begin and end do not count.
  void (*update_rows)(const UpdateCall<T>& call, const std::int64_t* rows, std::size_t count,
                      std::size_t width);
  /// Sum of squares over [begin, end), at most one block long.
  double (*squares)(const T* const* sources, std::size_t count, std::size_t begin, std::size_t end);
};

struct Kernels {
  KernelsOf<float> of_float;
  KernelsOf<double> of_double;
};

namespace base {
extern const Kernels kKernels;
}
namespace avx2 {
extern const Kernels kKernels;
}
namespace avx512 {
extern const Kernels kKernels;
}

/// Those of cohort::internal::base::current_isa().
const Kernels& kernels();

}  // namespace cohort::update_rules::internal
