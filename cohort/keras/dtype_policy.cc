// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/dtype_policy.h"

#include <atomic>

#include "cohort/base/check.h"
#include "cohort/base/fork_locks.h"
#include "cohort/base/mutex.h"

namespace cohort::keras {
namespace {

std::atomic<DType> g_floatx{kFloat32};

constinit cohort::internal::base::Mutex g_policy_mutex;
[[maybe_unused]] const bool policy_kept =
    cohort::internal::base::keep_free_over_fork(g_policy_mutex);
std::optional<DTypePolicy>& global_policy() COHORT_REQUIRES(g_policy_mutex) {
  static auto* policy = new std::optional<DTypePolicy>;
  return *policy;
}
std::atomic<bool> g_has_policy{false};

}  // namespace

DType ConfigValue<DType>::read(const Config& config) {
  std::vector<std::string> names;
  for (const DType dtype : {kFloat32, kFloat64, kFloat16, kBFloat16, kInt64, kInt32, DType::Short,
                            DType::Char, kUint8, kBool}) {
    if (config.is_text() && config.text() == dtype_name(dtype)) return dtype;
    names.emplace_back(dtype_name(dtype));
  }
  internal::refuse_name(config, names);
}

void set_floatx(DType dtype) {
  COHORT_CHECK_ARG(at::isFloatingType(dtype), "[set_floatx] expected a floating type, got ",
                   dtype_name(dtype));
  g_floatx.store(dtype);
}
DType floatx() { return g_floatx.load(); }

DTypePolicy::DTypePolicy(DType dtype) : types_({dtype, dtype}) {
  COHORT_CHECK_ARG(at::isFloatingType(dtype), "[dtype_policy] expected a floating type, got ",
                   dtype_name(dtype));
}
DTypePolicy::DTypePolicy(const char* name) : DTypePolicy(std::string(name)) {}
DTypePolicy::DTypePolicy(const std::string& name) {
  for (const DType dtype : {kFloat32, kFloat64, kFloat16, kBFloat16}) {
    if (name == dtype_name(dtype)) types_ = {dtype, dtype};
  }
  if (name == "mixed_float16") types_ = {kFloat16, kFloat32};
  if (name == "mixed_bfloat16") types_ = {kBFloat16, kFloat32};
  COHORT_CHECK_ARG(types_.has_value(),
                   "[dtype_policy] expected one of float32, float64, float16, bfloat16, "
                   "mixed_float16, mixed_bfloat16, got \"",
                   name, "\"");
}

DTypePolicy::Types DTypePolicy::types() const {
  if (types_) return *types_;
  if (g_has_policy.load(std::memory_order_acquire)) [[unlikely]]
    return *dtype_policy().types_;
  return {floatx(), floatx()};
}

bool DTypePolicy::casts() const {
  return types_.has_value() ? casts_ : g_has_policy.load(std::memory_order_acquire);
}

DTypePolicy DTypePolicy::settled() const {
  DTypePolicy policy = *this;
  policy.casts_ = casts();
  policy.types_ = types();
  return policy;
}

std::string DTypePolicy::name() const {
  return is_mixed() ? str_cat("mixed_", dtype_name(compute_dtype())) : dtype_name(compute_dtype());
}

void set_dtype_policy(const DTypePolicy& policy) {
  const cohort::internal::base::MutexLock lock(g_policy_mutex);
  global_policy() = policy.types_ ? std::optional(policy) : std::nullopt;
  g_has_policy.store(policy.types_.has_value(), std::memory_order_release);
}

DTypePolicy dtype_policy() {
  const cohort::internal::base::MutexLock lock(g_policy_mutex);
  return global_policy() ? *global_policy() : DTypePolicy(floatx());
}

Config DTypePolicy::serialize() const {
  return Config::object({{"module", "keras"},
                         {"class_name", "DTypePolicy"},
                         {"config", Config::object({{"name", name()}})},
                         {"registered_name", nullptr}});
}

DTypePolicy DTypePolicy::deserialize(const Config& config) {
  if (config.is_null()) return {};
  return config.is_text() ? config.text() : config.at("config").text("name");
}

}  // namespace cohort::keras
