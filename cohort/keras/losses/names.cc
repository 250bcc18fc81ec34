// SPDX-License-Identifier: Apache-2.0
//
// Losses by the names that Keras knows them by.
#include <array>

#include "cohort/base/check.h"
#include "cohort/keras/losses/internal/classes.h"
#include "cohort/keras/losses/losses.h"

namespace cohort::keras {
namespace {

struct NamedLoss {
  const char* class_name;
  std::array<const char*, 4> names;
};

constexpr std::array<NamedLoss, 22> kNamedLosses = {{
    {"SparseCategoricalCrossentropy", {"sparse_categorical_crossentropy"}},
    {"CategoricalCrossentropy", {"categorical_crossentropy"}},
    {"BinaryCrossentropy", {"binary_crossentropy", "bce", "BCE"}},
    {"MeanSquaredError", {"mean_squared_error", "mse", "MSE"}},
    {"MeanAbsoluteError", {"mean_absolute_error", "mae", "MAE"}},
    {"Huber", {"huber", "huber_loss"}},
    {"MeanAbsolutePercentageError", {"mean_absolute_percentage_error", "mape", "MAPE"}},
    {"MeanSquaredLogarithmicError", {"mean_squared_logarithmic_error", "msle", "MSLE"}},
    {"LogCosh", {"log_cosh", "logcosh"}},
    {"Poisson", {"poisson"}},
    {"KLDivergence", {"kl_divergence", "kld", "KLD", "kullback_leibler_divergence"}},
    {"CosineSimilarity", {"cosine_similarity"}},
    {"Hinge", {"hinge"}},
    {"SquaredHinge", {"squared_hinge"}},
    {"CategoricalHinge", {"categorical_hinge"}},
    {"BinaryFocalCrossentropy", {"binary_focal_crossentropy"}},
    {"CategoricalFocalCrossentropy", {"categorical_focal_crossentropy"}},
    {"CategoricalGeneralizedCrossEntropy", {"categorical_generalized_cross_entropy"}},
    {"Dice", {"dice"}},
    {"Tversky", {"tversky"}},
    {"Circle", {"circle"}},
    {"CTC", {"ctc"}},
}};

Loss loss_of_name(const std::string& name) {
  std::string known;
  for (const NamedLoss& loss : kNamedLosses) {
    bool found = name == loss.class_name;
    for (const char* candidate : loss.names) found |= candidate != nullptr && name == candidate;
    if (found) {
      return std::static_pointer_cast<LossBase>(
          internal::class_table<LossBase>().find(loss.class_name));
    }
    known += known.empty() ? "" : ", ";
    known += loss.names[0];
  }
  throw InvalidArgument(str_cat("[loss] expected one of ", known, ", got \"", name, "\""));
}

}  // namespace

Loss::Loss(const char* name) : Loss(std::string(name)) {}
Loss::Loss(const std::string& name) : Loss(loss_of_name(name)) { given_name_ = name; }

namespace internal {
template <>
ClassTable& class_table<LossBase>() {
  static auto* table = [] {
    auto* all = new ClassTable(LossBase::kKind, "keras.losses");
    add_crossentropies(*all);
    add_regression_losses(*all);
    add_sequence_losses(*all);
    return all;
  }();
  return *table;
}
}  // namespace internal

Config ConfigValue<AxesOption>::write(const AxesOption& axes) {
  if (axes.values.empty()) return {};
  if (axes.values.size() == 1) return axes.values.front();
  return Config::List(axes.values.begin(), axes.values.end());
}

AxesOption ConfigValue<AxesOption>::read(const Config& config) {
  AxesOption axes;
  if (config.is_null()) return axes;
  if (!config.is_list()) return config.integer();
  for (const Config& axis : config.list()) axes.values.push_back(axis.integer());
  return axes;
}

}  // namespace cohort::keras
