// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/dtype_policy.h"

#include <atomic>

#include "cohort/base/check.h"

namespace cohort::keras {
namespace {

std::atomic<DType> g_floatx{kFloat32};

DType dtype_of_policy(const std::string& name) {
  for (const DType dtype : {kFloat32, kFloat64, kFloat16, kBFloat16}) {
    if (name == dtype_name(dtype)) return dtype;
  }
  if (name == "mixed_float16" || name == "mixed_bfloat16") {
    throw Unimplemented(str_cat("[dtype_policy] ", name,
                                " is not there yet: layers keep weights and compute in one type, "
                                "float32, float64, float16 or bfloat16"));
  }
  throw InvalidArgument(str_cat(
      "[dtype_policy] expected one of float32, float64, float16, bfloat16, got \"", name, "\""));
}

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

DTypePolicy::DTypePolicy(DType dtype) : dtype_(dtype) {
  COHORT_CHECK_ARG(at::isFloatingType(dtype), "[dtype_policy] expected a floating type, got ",
                   dtype_name(dtype));
}
DTypePolicy::DTypePolicy(const char* name) : DTypePolicy(std::string(name)) {}
DTypePolicy::DTypePolicy(const std::string& name) : dtype_(dtype_of_policy(name)) {}

std::string DTypePolicy::name() const { return dtype_name(compute_dtype()); }

Config DTypePolicy::serialize() const {
  return Config::object({{"module", "keras"},
                         {"class_name", "DTypePolicy"},
                         {"config", Config::object({{"name", name()}})},
                         {"registered_name", nullptr}});
}

DTypePolicy DTypePolicy::deserialize(const Config& config) {
  return config.is_text() ? config.text() : config.at("config").text("name");
}

}  // namespace cohort::keras
