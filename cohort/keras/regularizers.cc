// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/regularizers.h"

#include "cohort/base/check.h"

namespace cohort::keras {
namespace {

Regularizer by_name(const std::string& name) {
  if (name == "l1") return L1();
  if (name == "l2") return L2();
  COHORT_CHECK_ARG(name == "l1_l2" || name == "l1l2",
                   "[regularizer] expected l1, l2 or l1_l2, got ", name);
  return L1L2();
}

}  // namespace

Regularizer::Regularizer(const char* name) : Regularizer(by_name(name)) {}
Regularizer::Regularizer(const std::string& name) : Regularizer(by_name(name)) {}

Regularizer L1(double factor) {
  return {[factor](const Tensor& w) -> Tensor { return w.abs().sum() * factor; }};
}

Regularizer L2(double factor) {
  return {[factor](const Tensor& w) -> Tensor { return w.square().sum() * factor; }};
}

Regularizer L1L2(double l1, double l2) {
  return {
      [l1, l2](const Tensor& w) -> Tensor { return w.abs().sum() * l1 + w.square().sum() * l2; }};
}

}  // namespace cohort::keras
