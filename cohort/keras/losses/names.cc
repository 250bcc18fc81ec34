// SPDX-License-Identifier: Apache-2.0
//
// Losses by the names that Keras knows them by.
#include <array>

#include "cohort/base/check.h"
#include "cohort/keras/losses/internal/classes.h"
#include "cohort/keras/losses/losses.h"

namespace cohort::keras {
namespace {

struct Named {
  std::array<const char*, 4> names;
  Loss (*make)();
};

const std::array<Named, 6>& named_losses() {
  static const std::array<Named, 6> losses = {{
      {{"sparse_categorical_crossentropy", "SparseCategoricalCrossentropy"},
       [] { return Loss(SparseCategoricalCrossentropy()); }},
      {{"categorical_crossentropy", "CategoricalCrossentropy"},
       [] { return Loss(CategoricalCrossentropy()); }},
      {{"binary_crossentropy", "BinaryCrossentropy"}, [] { return Loss(BinaryCrossentropy()); }},
      {{"mean_squared_error", "MeanSquaredError", "mse", "MSE"},
       [] { return Loss(MeanSquaredError()); }},
      {{"mean_absolute_error", "MeanAbsoluteError", "mae", "MAE"},
       [] { return Loss(MeanAbsoluteError()); }},
      {{"huber", "Huber", "huber_loss"}, [] { return Loss(Huber()); }},
  }};
  return losses;
}

Loss from_name(const std::string& name) {
  std::string known;
  for (const Named& loss : named_losses()) {
    for (const char* candidate : loss.names) {
      if (candidate != nullptr && name == candidate) return loss.make();
    }
    known += known.empty() ? "" : ", ";
    known += loss.names[0];
  }
  throw InvalidArgument(str_cat("[loss] expected one of ", known, ", got \"", name, "\""));
}

}  // namespace

Loss::Loss(const char* name) : Loss(std::string(name)) {}
Loss::Loss(const std::string& name) : Loss(from_name(name)) { given_name_ = name; }

namespace internal {
template <>
ClassTable& class_table<LossBase>() {
  static auto* table = [] {
    auto* all = new ClassTable(LossBase::kKind, "keras.losses");
    add_crossentropies(*all);
    add_regression_losses(*all);
    return all;
  }();
  return *table;
}
}  // namespace internal

}  // namespace cohort::keras
