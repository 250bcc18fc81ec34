// SPDX-License-Identifier: Apache-2.0
//
// What fit, evaluate and predict are told.
#pragma once

#include <concepts>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "cohort/base/error.h"
#include "cohort/data/dataset.h"
#include "cohort/keras/callbacks/callback.h"
#include "cohort/keras/verbose.h"
#include "cohort/runtime/tensor.h"
#include "cohort/strategy/distributed_dataset.h"

namespace cohort::keras::internal {
struct DatasetRecipe;
}

namespace cohort::keras {

class DatasetCreator;

/// Batches to read: a dataset of global batches, which the model's strategy splits over its
/// replicas, one that is distributed already, or a function by which each worker makes its own.
/// Shapes: elements (x), (x, y) or (x, y, sample_weight).
class DataSource {
 public:
  DataSource(Dataset global_batches) : data_(std::move(global_batches)) {}       // NOLINT: implicit
  DataSource(DistributedDataset distributed) : data_(std::move(distributed)) {}  // NOLINT
  DataSource(const DatasetCreator& creator);                                     // NOLINT

  const Dataset* dataset() const { return std::get_if<Dataset>(&data_); }
  const DistributedDataset* distributed() const { return std::get_if<DistributedDataset>(&data_); }
  /// Internal: null for data that is no DatasetCreator's.
  const internal::DatasetRecipe* creator() const {
    const auto* const recipe = std::get_if<Recipe>(&data_);
    return recipe == nullptr ? nullptr : recipe->get();
  }

 private:
  using Recipe = std::shared_ptr<const internal::DatasetRecipe>;
  std::variant<Dataset, DistributedDataset, Recipe> data_;
};

/// Rows in memory, one element for each input: no DataSource, although an Element may be a dataset.
template <class X>
concept ArrayInput =
    std::convertible_to<const X&, Element> && !std::convertible_to<const X&, DataSource>;

/// What Ctrl-C does to fit after the running step.
enum class OnInterrupt {
  kThrow,   ///< Throws Interrupted, so that what follows fit is not done with half a training.
  kReturn,  ///< Calls on_train_end and returns the history so far, with `interrupted` set.
};

/// Ctrl-C ended fit, evaluate or predict after the running step. Python: KeyboardInterrupt.
class Interrupted : public Error {
 public:
  explicit Interrupted(const std::string& text) : Error(ErrorCode::kCancelled, text) {}
};

struct FitOptions {
  int epochs = 1;  ///< The number of the last one: initial_epoch .. epochs - 1 run.
  /// Of all replicas together; 32 if not given. For arrays only: datasets are batched already.
  std::optional<int64_t> batch_size = {};
  std::optional<DataSource> validation_data = {};
  std::vector<Callback> callbacks = {};
  Verbose verbose = Verbose::kAuto;
  /// Unset: all data, every epoch from its start. Set: so many steps, and the next epoch goes on
  /// where this one stopped. If the data ends before, so does the epoch, with a warning, and the
  /// next one begins at the start.
  std::optional<int64_t> steps_per_epoch = {};
  std::optional<int64_t> validation_steps = {};  ///< From the start of the data each time.
  double validation_split = 0;  ///< The last part of arrays, taken off before they are shuffled.
  int validation_freq = 1;      ///< Validates after every n-th epoch.
  int initial_epoch = 0;
  bool shuffle = true;  ///< Arrays, anew in each epoch.
  /// By class: a factor of the sample weights; 1 if not named. Labels [.., n > 1] count as one-hot.
  std::map<int64_t, double> class_weight = {};
  /// For arrays only. Shapes: [n], or what goes with the loss of each row.
  Tensor sample_weight = {};
  OnInterrupt on_interrupt = OnInterrupt::kThrow;
};

struct EvaluateOptions {
  std::optional<int64_t> batch_size = {};
  std::optional<int64_t> steps = {};
  std::vector<Callback> callbacks = {};
  Verbose verbose = Verbose::kAuto;
  Tensor sample_weight = {};
};

struct PredictOptions {
  std::optional<int64_t> batch_size = {};
  std::optional<int64_t> steps = {};
  std::vector<Callback> callbacks = {};
  Verbose verbose = Verbose::kAuto;
};

}  // namespace cohort::keras
